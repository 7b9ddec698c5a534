//! Bar charts: one quantity of several things, compared.

use crate::Unit;
use crate::axis::{Axis, Range};
use crate::svg::{Anchor, COLOURS, Drawing};

const WIDTH: f64 = 840.0;
const TOP: f64 = 44.0;
const ROW: f64 = 34.0;
const BAR: f64 = 20.0;
const LEFT: f64 = 230.0;
/// Space to the right of the longest bar, for its value.
const RIGHT: f64 = 190.0;
/// The longest label that fits to the left of the bars, in characters.
const LABEL: usize = 32;

/// One bar.
#[derive(Debug, Clone, Default)]
pub struct Bar {
    /// What it stands for.
    pub label: String,
    /// Its length.
    pub value: f64,
    /// The lowest and the highest of the values that `value` summarises, drawn as a line across the end of the bar.
    pub range: Option<(f64, f64)>,
    /// Something to say after the value.
    pub note: String,
    /// Its colour: bars of one group have the same.
    pub group: usize,
}

/// A chart of horizontal bars that begin at zero.
#[derive(Debug, Clone, Default)]
pub struct BarChart {
    /// The title.
    pub title: String,
    /// How values are written.
    pub unit: Unit,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
}

impl BarChart {
    /// Draws the chart as a document of its own.
    pub fn to_svg(&self) -> String {
        self.draw().finish(true)
    }

    /// Draws the chart without the style sheet, for a page that includes [`STYLE`](crate::STYLE).
    pub fn to_fragment(&self) -> String {
        self.draw().finish(false)
    }

    fn draw(&self) -> Drawing {
        let axis = Axis::linear("", self.unit).with_zero();
        let values = self
            .bars
            .iter()
            .flat_map(|bar| [bar.value, bar.range.map_or(bar.value, |(_, high)| high)]);
        let range = Range::of(&axis, values.map(|value| value.max(0.0)));
        let x = |value: f64| {
            LEFT + range.position(value.max(0.0)).unwrap_or(0.0) * (WIDTH - LEFT - RIGHT)
        };

        let mut drawing =
            Drawing::new(&self.title, WIDTH, TOP + ROW * self.bars.len() as f64 + 12.0);
        drawing.text("fig-title", (16.0, 24.0), Anchor::Start, &self.title);
        for (index, bar) in self.bars.iter().enumerate() {
            let y = TOP + ROW * index as f64;
            let middle = y + BAR / 2.0;
            let value = self.unit.format(bar.value);
            drawing.text("", (LEFT - 10.0, middle + 4.0), Anchor::End, &shorten(&bar.label));
            let tip = format!("{}: {value}", bar.label);
            drawing.rectangle(
                &format!("fig-f{}", bar.group % COLOURS),
                (LEFT, y),
                (x(bar.value) - LEFT, BAR),
                &tip,
            );
            let mut end = x(bar.value);
            if let Some((low, high)) = bar.range {
                let (low, high) = (x(low), x(high));
                drawing.line("fig-range", (low, middle), (high, middle));
                drawing.line("fig-range", (low, middle - 4.0), (low, middle + 4.0));
                drawing.line("fig-range", (high, middle - 4.0), (high, middle + 4.0));
                end = end.max(high);
            }
            let text = if bar.note.is_empty() { value } else { format!("{value}  {}", bar.note) };
            drawing.text("", (end + 8.0, middle + 4.0), Anchor::Start, &text);
        }
        drawing.line("fig-axis", (LEFT, TOP - 6.0), (LEFT, TOP + ROW * self.bars.len() as f64));
        drawing
    }
}

fn shorten(label: &str) -> String {
    if label.chars().count() <= LABEL {
        return label.to_string();
    }
    label.chars().take(LABEL - 1).chain(['…']).collect()
}
