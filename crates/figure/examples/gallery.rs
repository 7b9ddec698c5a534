//! Draws one chart of each kind into the directory given: a look at the style.

use ferroce_figure::{Axis, Bar, BarChart, LineChart, Scale, Series, Stroke, Unit};

fn main() -> std::io::Result<()> {
    let directory = std::path::PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".into()));
    let curve = |peak: f64| {
        (1..=23).map(|n| 2f64.powi(n)).map(|size| (size, peak * size / (size + 4096.0))).collect()
    };
    let line = LineChart {
        title: "A curve that rises to its peak".into(),
        x: Axis::logarithmic("message size", Unit::Bytes, Scale::Log2),
        y: Axis::linear("bandwidth", Unit::BytesPerSecond).with_zero(),
        series: vec![
            Series { name: "first".into(), points: curve(4e9), stroke: Stroke::Line },
            Series { name: "second".into(), points: curve(2.5e9), stroke: Stroke::Area },
        ],
    };
    std::fs::write(directory.join("line.svg"), line.to_svg())?;
    let bar = |label: &str, value, range, group| Bar {
        label: label.into(),
        value,
        range,
        note: String::new(),
        group,
    };
    let bars = BarChart {
        title: "Bars with and without a range".into(),
        unit: Unit::Seconds,
        bars: vec![
            bar("first", 0.31, Some((0.29, 0.38)), 0),
            bar("second", 0.62, Some((0.5, 0.7)), 1),
            bar("third", 0.9, None, 2),
        ],
    };
    std::fs::write(directory.join("bars.svg"), bars.to_svg())
}
