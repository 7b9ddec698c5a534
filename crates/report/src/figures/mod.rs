//! Single figures of a page as SVG documents.

mod drawing;

use ferroce_figure::{Axis, Bar, BarChart, LineChart, Scale, Series, Stroke, Unit};

use crate::model::{ConversationPage, FilePage, LineKind, SeriesLine, SeriesPage};

/// Lines of a chart; the legend has room for these.
const MAX_LINES: usize = 6;

/// Bars of a chart.
const MAX_BARS: usize = 20;

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Traffic over time.
    Io,
    /// Latency distribution by operation.
    Latency,
    /// Bytes in flight over time.
    InFlight,
    /// PSNs sent and acknowledged over time.
    Psn,
    /// When each conversation was active.
    Timeline,
    /// The packets of one conversation between its two sides.
    Ladder,
    /// Bytes of each conversation.
    Conversations,
}

impl Figure {
    /// All figures.
    pub const ALL: [Self; 7] = [
        Self::Io,
        Self::Latency,
        Self::InFlight,
        Self::Psn,
        Self::Timeline,
        Self::Ladder,
        Self::Conversations,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Latency => "latency",
            Self::InFlight => "in-flight",
            Self::Psn => "psn",
            Self::Timeline => "timeline",
            Self::Ladder => "ladder",
            Self::Conversations => "conversations",
        }
    }

    /// Draws it. `io` shows all files, the others the first one.
    pub fn draw(self, files: &[FilePage]) -> String {
        let empty = FilePage::default();
        let file = files.first().unwrap_or(&empty);
        match self {
            Self::Io => io(files),
            Self::Latency => latency(file),
            Self::InFlight => in_flight(file),
            Self::Psn => psn(file),
            Self::Timeline => drawing::timeline(file),
            Self::Ladder => drawing::ladder(file),
            Self::Conversations => conversations(file),
        }
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The short name of a file.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn io(files: &[FilePage]) -> String {
    let mut series = Vec::new();
    for file in files {
        let wanted = |line: &&SeriesLine| match files.len() {
            1 => matches!(line.kind, LineKind::Rdma | LineKind::Tcp | LineKind::Others),
            _ => matches!(line.kind, LineKind::AllRdma | LineKind::AllTcp),
        };
        for line in file.series.lines.iter().filter(wanted).take(MAX_LINES) {
            let mut name = match line.kind {
                LineKind::AllRdma => "RDMA".to_owned(),
                LineKind::AllTcp => "TCP".to_owned(),
                LineKind::Rdma => format!("conversation {}", line.id),
                LineKind::Tcp => format!("TCP {}", line.id),
                LineKind::Others => "others".to_owned(),
            };
            if files.len() > 1 {
                name = format!("{name} ({})", base(&file.path));
            }
            series.push(Series { name, points: rates(line, &file.series), stroke: Stroke::Line });
        }
    }
    let chart = LineChart {
        title: "Traffic over time".to_owned(),
        x: Axis::linear("time", Unit::Seconds).with_zero(),
        y: Axis::linear("rate", Unit::BitsPerSecond).with_zero(),
        series,
    };
    chart.to_svg()
}

/// Bits per second in every interval.
fn rates(line: &SeriesLine, series: &SeriesPage) -> Vec<(f64, f64)> {
    let interval = seconds(series.interval_ns.max(1));
    let mut values = vec![0.0; usize::try_from(series.bins).unwrap_or(0).min(4096)];
    for (at, _, bytes) in &line.points {
        if let Some(value) = usize::try_from(*at).ok().and_then(|at| values.get_mut(at)) {
            *value = *bytes as f64 * 8.0 / interval;
        }
    }
    values.into_iter().enumerate().map(|(at, rate)| (at as f64 * interval, rate)).collect()
}

fn latency(file: &FilePage) -> String {
    let series = file.latency.iter().take(MAX_LINES).map(|one| {
        let mut sum = 0;
        let points = one.bins.iter().map(|(up_to, count)| {
            sum += count;
            (seconds((*up_to).max(1)), sum as f64 / one.summary.count.max(1) as f64)
        });
        Series {
            name: one.operation.replace('_', " "),
            points: points.collect(),
            stroke: Stroke::Step,
        }
    });
    let chart = LineChart {
        title: "Latency: share of messages that were faster".to_owned(),
        x: Axis::logarithmic("latency", Unit::Seconds, Scale::Log10),
        y: Axis::linear("share", Unit::Share).with_zero(),
        series: series.collect(),
    };
    chart.to_svg()
}

fn in_flight(file: &FilePage) -> String {
    let series = file.curves.iter().take(MAX_LINES).map(|curve| Series {
        name: format!("conversation {} from {}", curve.conversation, side(curve.from_a)),
        points: curve.points.iter().map(|point| (seconds(point.0), point.1 as f64)).collect(),
        stroke: Stroke::Step,
    });
    let chart = LineChart {
        title: "Bytes in flight".to_owned(),
        x: Axis::linear("time", Unit::Seconds),
        y: Axis::linear("not acknowledged", Unit::Bytes).with_zero(),
        series: series.collect(),
    };
    chart.to_svg()
}

fn psn(file: &FilePage) -> String {
    let mut series = Vec::new();
    let mut title = "PSN progress".to_owned();
    // The largest conversation comes first.
    if let Some(curve) = file.curves.first() {
        let mut add = |name: &str, stroke, points| {
            series.push(Series { name: name.to_owned(), points, stroke });
        };
        title = format!("PSN progress of conversation {}", curve.conversation);
        let points = |field: fn(&(u64, u64, u64, u64)) -> u64| {
            curve.points.iter().map(|it| (seconds(it.0), field(it) as f64)).collect()
        };
        add("sent", Stroke::Step, points(|it| it.2));
        add("acknowledged", Stroke::Step, points(|it| it.3));
        let again = file.marks.iter().filter(|mark| {
            matches!(mark.kind, "retransmission" | "probe")
                && mark.conversation == Some(curve.conversation)
        });
        let again: Vec<_> = again
            .filter_map(|mark| {
                let psn = mark.psn?.wrapping_sub(curve.first_psn) & 0xff_ffff;
                Some((seconds(u64::try_from(mark.time_ns).ok()?), f64::from(psn)))
            })
            .collect();
        if !again.is_empty() {
            add("retransmitted", Stroke::Dots, again);
        }
        if let Some(text) = drawing::unmarked(file) {
            title = format!("{title} ({text})");
        }
    }
    let chart = LineChart {
        title,
        x: Axis::linear("time", Unit::Seconds),
        y: Axis::linear("PSNs since the first", Unit::Count).with_zero(),
        series,
    };
    chart.to_svg()
}

fn conversations(file: &FilePage) -> String {
    let size = |it: &ConversationPage| it.a_to_b.bytes + it.b_to_a.bytes;
    let mut order: Vec<_> = file.conversations.iter().collect();
    order.sort_by_key(|it| std::cmp::Reverse(size(it)));
    let bars = order.iter().take(MAX_BARS).map(|it| Bar {
        label: format!("{} {} ⇄ {}", it.transport, it.a.address, it.b.address),
        value: size(it) as f64,
        note: format!("#{}", it.id),
        ..Bar::default()
    });
    let title = "Bytes on the wire by conversation".to_owned();
    BarChart { title, unit: Unit::Bytes, bars: bars.collect() }.to_svg()
}

fn side(from_a: bool) -> &'static str {
    if from_a { "A" } else { "B" }
}
