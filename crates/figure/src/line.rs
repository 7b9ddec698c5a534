//! Line charts: rates over time, sizes against bandwidth, distributions.

use std::fmt::Write;

use crate::axis::{Axis, Range};
use crate::svg::{Anchor, COLOURS, Drawing, round};

const WIDTH: f64 = 840.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 86.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 52.0;
/// Series with at most this many points have dots, which show their values.
const DOTS: usize = 60;

/// How the points of a series are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stroke {
    /// By straight lines.
    #[default]
    Line,
    /// By straight lines, with the area below filled.
    Area,
    /// A value holds until the next point.
    Step,
    /// Not at all.
    Dots,
}

/// One line of a chart.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in order of x. A value that is not a number interrupts the line.
    pub points: Vec<(f64, f64)>,
    /// How they are joined.
    pub stroke: Stroke,
}

/// A chart of lines.
#[derive(Debug, Clone, Default)]
pub struct LineChart {
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

impl LineChart {
    /// Draws the chart as a document of its own.
    pub fn to_svg(&self) -> String {
        self.draw().finish(true)
    }

    /// Draws the chart without the style sheet, for a page that includes [`STYLE`](crate::STYLE).
    pub fn to_fragment(&self) -> String {
        self.draw().finish(false)
    }

    fn draw(&self) -> Drawing {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let plot = Plot {
            x: Range::of(&self.x, points().filter(|(_, y)| y.is_finite()).map(|(x, _)| *x)),
            y: Range::of(&self.y, points().map(|(_, y)| *y)),
        };
        let mut drawing = Drawing::new(&self.title, WIDTH, HEIGHT);
        drawing.text("fig-title", (LEFT, 24.0), Anchor::Start, &self.title);
        self.legend(&mut drawing);
        self.axes(&mut drawing, &plot);
        for (index, series) in self.series.iter().enumerate() {
            self.series(&mut drawing, &plot, series, index % COLOURS);
        }
        drawing
    }

    fn legend(&self, drawing: &mut Drawing) {
        let mut x = LEFT;
        for (index, series) in self.series.iter().enumerate() {
            if series.name.is_empty() {
                continue;
            }
            drawing.rectangle(
                &format!("fig-f{}", index % COLOURS),
                (x, 37.0),
                (12.0, 12.0),
                &series.name,
            );
            drawing.text("", (x + 17.0, 47.0), Anchor::Start, &series.name);
            // The width of a text is known only to the viewer.
            x += 17.0 + 7.0 * series.name.chars().count() as f64 + 18.0;
        }
    }

    fn axes(&self, drawing: &mut Drawing, plot: &Plot) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in plot.y.ticks() {
            let Some(y) = plot.vertical(tick) else { continue };
            drawing.line("fig-grid", (LEFT, y), (right, y));
            drawing.text(
                "fig-muted",
                (LEFT - 8.0, y + 4.0),
                Anchor::End,
                &self.y.unit.format(tick),
            );
        }
        for tick in plot.x.ticks() {
            let Some(x) = plot.horizontal(tick) else { continue };
            drawing.line("fig-axis", (x, bottom), (x, bottom + 4.0));
            drawing.text(
                "fig-muted",
                (x, bottom + 18.0),
                Anchor::Middle,
                &self.x.unit.format(tick),
            );
        }
        drawing.line("fig-axis", (LEFT, bottom), (right, bottom));
        drawing.text(
            "fig-muted",
            ((LEFT + right) / 2.0, HEIGHT - 12.0),
            Anchor::Middle,
            &self.x.label,
        );
        drawing.upward_text("fig-muted", (16.0, (TOP + bottom) / 2.0), &self.y.label);
    }

    fn series(&self, drawing: &mut Drawing, plot: &Plot, series: &Series, colour: usize) {
        if series.stroke == Stroke::Area {
            for run in plot.runs(&series.points) {
                drawing.path(&format!("fig-area fig-f{colour}"), &area(&run));
            }
        }
        if series.stroke != Stroke::Dots {
            let path: String =
                plot.runs(&series.points).iter().map(|run| line(run, series.stroke)).collect();
            drawing.path(&format!("fig-line fig-l{colour}"), &path);
        }
        if series.points.len() <= DOTS || series.stroke == Stroke::Dots {
            for (x, y) in &series.points {
                let Some(at) = plot.point(*x, *y) else { continue };
                let tip = format!(
                    "{}: {} at {}",
                    series.name,
                    self.y.unit.format(*y),
                    self.x.unit.format(*x)
                );
                drawing.dot(&format!("fig-f{colour}"), at, &tip);
            }
        }
    }
}

/// The area that the axes enclose.
struct Plot {
    x: Range,
    y: Range,
}

impl Plot {
    fn horizontal(&self, value: f64) -> Option<f64> {
        Some(LEFT + self.x.position(value)? * (WIDTH - LEFT - RIGHT))
    }

    fn vertical(&self, value: f64) -> Option<f64> {
        Some(HEIGHT - BOTTOM - self.y.position(value)? * (HEIGHT - TOP - BOTTOM))
    }

    fn point(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.horizontal(x)?, self.vertical(y)?))
    }

    /// The points that can be drawn, divided where one cannot.
    fn runs(&self, points: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
        let mut runs = vec![Vec::new()];
        for (x, y) in points {
            match (self.point(*x, *y), runs.last_mut()) {
                (Some(point), Some(run)) => run.push(point),
                _ => runs.push(Vec::new()),
            }
        }
        runs.retain(|run| !run.is_empty());
        runs
    }
}

fn line(run: &[(f64, f64)], stroke: Stroke) -> String {
    let mut path = String::new();
    let mut last_y = None;
    for (x, y) in run {
        let (x, y) = (round(*x), round(*y));
        let command = if last_y.is_none() { 'M' } else { 'L' };
        if let (Stroke::Step, Some(last)) = (stroke, last_y) {
            let _ = write!(path, "L{x} {last}");
        }
        let _ = write!(path, "{command}{x} {y}");
        last_y = Some(y);
    }
    path
}

fn area(run: &[(f64, f64)]) -> String {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return String::new() };
    let bottom = HEIGHT - BOTTOM;
    format!("{}L{} {bottom}L{} {bottom}Z", line(run, Stroke::Line), round(last.0), round(first.0))
}
