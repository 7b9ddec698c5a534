//! The result as an SVG chart.

use ferroce_figure::{Axis, Bar, BarChart, LineChart, Scale, Series, Stroke, Unit};

use super::args::Measure;
use super::result::{Outcome, Row};
use crate::session::bytes::Size;

impl Outcome {
    /// Lines over the message size, or bars if there is one size.
    pub(super) fn to_svg(&self) -> String {
        match self.results.len() {
            ..=1 => self.bars().to_svg(),
            _ => self.lines().to_svg(),
        }
    }

    fn caption(&self) -> String {
        format!("{}, {}", self.title(), self.link.name())
    }

    fn bars(&self) -> BarChart {
        let (mut bars, mut unit) = (Vec::new(), Unit::Seconds);
        let bar = |label: &str, value| Bar { label: label.into(), value, ..Bar::default() };
        for row in &self.results {
            if let Some(latency) = row.latency {
                let values = latency.quantiles();
                bars.extend(values.map(|(name, time)| bar(name, time as f64 / 1e9)));
            } else {
                unit = self.rate_unit();
                bars.push(bar(&Size(row.size).to_string(), self.rate(row)));
            }
        }
        let sizes: Vec<_> = self.results.iter().map(|row| Size(row.size).to_string()).collect();
        let title = format!("{}, {}", self.caption(), sizes.join(", "));
        BarChart { title, unit, bars }
    }

    fn rate_unit(&self) -> Unit {
        if self.test == Measure::Rate { Unit::PerSecond } else { Unit::BytesPerSecond }
    }

    fn rate(&self, row: &Row) -> f64 {
        let rates = row.bandwidth;
        match self.test {
            Measure::Rate => rates.map_or(0.0, |rates| rates.million_messages_per_second * 1e6),
            _ => rates.map_or(0.0, |rates| rates.gb_per_second * 1e9),
        }
    }

    fn lines(&self) -> LineChart {
        let line = |name: &str, value: &dyn Fn(&Row) -> f64| Series {
            name: name.into(),
            points: self.results.iter().map(|row| (row.size as f64, value(row))).collect(),
            stroke: Stroke::default(),
        };
        let x = Axis::logarithmic("message size", Unit::Bytes, Scale::Log2);
        let (y, series) = match self.test {
            Measure::Lat => {
                let quantile = |at: usize| {
                    move |row: &Row| {
                        row.latency.map_or(0, |latency| latency.quantiles()[at].1) as f64 / 1e9
                    }
                };
                let names = ["min", "p50", "p90", "p99", "p99.9", "max"];
                let series = names.iter().enumerate().map(|(at, name)| line(name, &quantile(at)));
                // The largest values would hide the others on a linear axis.
                let y = Axis::logarithmic("latency", Unit::Seconds, Scale::Log10);
                (y, series.collect())
            }
            Measure::Rate => {
                let y = Axis::linear("messages per second", Unit::PerSecond).with_zero();
                (y, vec![line("rate", &|row| self.rate(row))])
            }
            Measure::Bw => {
                let y = Axis::linear("bandwidth", Unit::BytesPerSecond).with_zero();
                (y, vec![line("bandwidth", &|row| self.rate(row))])
            }
        };
        LineChart { title: self.caption(), x, y, series }
    }
}
