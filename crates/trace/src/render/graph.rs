//! Traffic over time, drawn with vertical bars.

use super::bar;
use super::text::{Line, Tone, width};
use super::units;
use crate::analysis::report::{Graph, GraphBin};

/// One of the plots, drawn one below the other.
struct Plot {
    title: &'static str,
    tone: Tone,
    rows: usize,
    value: fn(&GraphBin) -> u64,
    /// Formats a value per second.
    label: fn(f64) -> String,
}

const PLOTS: [Plot; 4] = [
    Plot {
        title: "RoCE, bit/s",
        tone: Tone::Forth,
        rows: 6,
        value: |bin| bin.bytes,
        label: |bytes| units::bits_per_second(bytes * 8.0),
    },
    Plot {
        title: "RoCE, packets/s",
        tone: Tone::Forth,
        rows: 3,
        value: |bin| bin.packets,
        label: units::packets_per_second,
    },
    Plot {
        title: "other traffic, bit/s",
        tone: Tone::Back,
        rows: 3,
        value: |bin| bin.other_bytes,
        label: |bytes| units::bits_per_second(bytes * 8.0),
    },
    Plot {
        title: "other traffic, packets/s",
        tone: Tone::Back,
        rows: 2,
        value: |bin| bin.other_packets,
        label: units::packets_per_second,
    },
];

/// Columns for the axis labels.
const LABELS: usize = 14;

/// Draws the graph of a file in `columns`. Empty for fewer than two intervals.
pub fn traffic(graph: &Graph, columns: usize) -> Vec<Line> {
    if graph.bins.len() < 2 || graph.interval_ns == 0 {
        return Vec::new();
    }
    let room = columns.saturating_sub(LABELS + 3).max(16);
    let mut lines = Vec::new();
    let mut drawn = 0;
    for plot in &PLOTS {
        let counts: Vec<u64> = graph.bins.iter().map(plot.value).collect();
        if counts.iter().all(|&count| count == 0) {
            continue;
        }
        let rates = fit(&counts, graph.interval_ns, room);
        drawn = rates.len();
        lines.extend(draw(plot, &rates));
    }
    if drawn > 0 {
        let length = graph.interval_ns.saturating_mul(graph.bins.len() as u64);
        lines.push(time_axis(length, drawn));
    }
    lines
}

/// Returns the values per second, one per column: intervals are several columns wide if there is space, and averaged if
/// not.
fn fit(counts: &[u64], interval_ns: u64, columns: usize) -> Vec<f64> {
    let rate = |count: f64| units::per_second(count, interval_ns).unwrap_or(0.0);
    if counts.len() <= columns {
        let wide = columns / counts.len();
        return counts
            .iter()
            .flat_map(|&count| std::iter::repeat_n(rate(count as f64), wide))
            .collect();
    }
    let step = counts.len() as f64 / columns as f64;
    (0..columns)
        .map(|column| {
            let (from, to) = (column as f64 * step, (column + 1) as f64 * step);
            let (first, last) = (from as usize, (to.ceil() as usize).min(counts.len()));
            let sum: f64 = (first..last)
                .map(|at| {
                    let inside = (to.min((at + 1) as f64) - from.max(at as f64)).max(0.0);
                    counts[at] as f64 * inside
                })
                .sum();
            rate(sum / step)
        })
        .collect()
}

fn draw(plot: &Plot, rates: &[f64]) -> Vec<Line> {
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let mut lines = vec![Line::of(Tone::Faint, format!("{:LABELS$}   {}", "", plot.title))];
    for (row, bars) in bar::vertical(rates, plot.rows).into_iter().enumerate() {
        let (label, tick) = match row {
            0 => ((plot.label)(highest), "┤"),
            row if plot.rows > 4 && row == plot.rows / 2 => ((plot.label)(highest / 2.0), "┤"),
            _ => (String::new(), "│"),
        };
        let mut line = Line::of(Tone::Faint, format!("{label:>LABELS$} {tick}"));
        line.push(plot.tone, bars);
        lines.push(line);
    }
    lines.push(Line::of(Tone::Faint, format!("{:>LABELS$} └{}", "0", "─".repeat(rates.len()))));
    lines
}

/// The time axis: labels at both ends, and at the quarters between them if they fit.
fn time_axis(length_ns: u64, columns: usize) -> Line {
    let quarter = |n: u64| units::duration((u128::from(length_ns) * u128::from(n) / 4) as u64);
    let end = quarter(4);
    let end_at = columns.saturating_sub(width(&end));
    let mut text = "0".to_owned();
    for n in 1..4 {
        let (label, at) = (quarter(n), columns * n as usize / 4);
        if at >= width(&text) + 2 && at + width(&label) + 2 <= end_at {
            text.push_str(&" ".repeat(at - width(&text)));
            text.push_str(&label);
        }
    }
    text.push_str(&" ".repeat(end_at.saturating_sub(width(&text)).max(1)));
    Line::of(Tone::Faint, format!("{:indent$}{text}{end}", "", indent = LABELS + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(graph: &Graph, columns: usize) -> String {
        traffic(graph, columns).iter().map(|line| format!("{line}\n")).collect()
    }

    fn bin(packets: u64) -> GraphBin {
        GraphBin { packets, bytes: packets * 1000, ..GraphBin::default() }
    }

    #[test]
    fn intervals_fill_the_available_columns() {
        let graph = Graph { interval_ns: 1_000_000, bins: vec![bin(1), bin(4), bin(0), bin(2)] };
        assert_eq!(
            drawn(&graph, 42),
            "                 RoCE, bit/s
   32.0 Mbit/s ┤      ██████
               │      ██████
               │      ██████
   16.0 Mbit/s ┤      ██████      ██████
               │▄▄▄▄▄▄██████      ██████
               │████████████      ██████
             0 └────────────────────────
                 RoCE, packets/s
      4.00 k/s ┤      ██████
               │      ██████      ▄▄▄▄▄▄
               │▆▆▆▆▆▆██████      ██████
             0 └────────────────────────
                0     1.00 ms    4.00 ms
"
        );
    }

    #[test]
    fn averages_intervals_that_share_a_column() {
        let rates = fit(&[10, 20, 30, 40, 50, 60], 1_000_000_000, 4);
        // Each column covers one and a half intervals.
        let expected = [(10.0 + 20.0 / 2.0) / 1.5, (10.0 + 30.0) / 1.5, 65.0 / 1.5, 85.0 / 1.5];
        for (rate, expected) in rates.iter().zip(expected) {
            assert!((rate - expected).abs() < 1e-9, "{rates:?}");
        }
    }

    #[test]
    fn draws_other_traffic_separately() {
        let other = GraphBin { other_packets: 1, other_bytes: 90, ..GraphBin::default() };
        let text = drawn(&Graph { interval_ns: 1000, bins: vec![other, bin(1)] }, 60);
        assert!(text.contains("RoCE, bit/s") && text.contains("other traffic, bit/s"), "{text}");
    }

    #[test]
    fn draws_nothing_without_traffic() {
        assert!(traffic(&Graph::default(), 80).is_empty());
        assert!(traffic(&Graph { interval_ns: 5, bins: vec![bin(3)] }, 80).is_empty());
        assert!(traffic(&Graph { interval_ns: 5, bins: vec![bin(0), bin(0)] }, 80).is_empty());
    }
}
