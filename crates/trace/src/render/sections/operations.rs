//! Messages by operation: count, size and latency.

use std::collections::BTreeMap;

use crate::analysis::report::{
    CapturedMessage, FileReport, Latency, MessageStatus, OperationStats,
};
use crate::render::table::{Align, Table, cell};
use crate::render::text::{Line, Tone};
use crate::render::units;

/// Limit of conversations listed separately; beyond it, only the sum is shown.
const MAX_SPLIT_CONVERSATIONS: usize = 8;

const COLUMNS: [(&str, Align); 10] = [
    ("operation", Align::Left),
    ("count", Align::Right),
    ("total", Align::Right),
    ("median", Align::Right),
    ("largest", Align::Right),
    ("min", Align::Right),
    ("p50", Align::Right),
    ("p90", Align::Right),
    ("p99", Align::Right),
    ("max", Align::Right),
];

/// Number of columns if no latency was measured.
const COLUMNS_WITHOUT_LATENCY: usize = 5;

/// Prefix of a percentile that is not exact.
const INEXACT: &str = "≤";

/// One row per operation, and one per conversation if there are few.
pub(super) fn table(file: &FileReport, columns: usize) -> Vec<Line> {
    let mut sums: BTreeMap<&str, OperationStats> = BTreeMap::new();
    for conversation in &file.conversations {
        for (&operation, stats) in &conversation.operations {
            let sum = sums.entry(operation).or_default();
            sum.messages += stats.messages;
            sum.incomplete += stats.incomplete;
            sum.bytes += stats.bytes;
            sum.packets += stats.packets;
        }
    }
    if sums.is_empty() {
        return Vec::new();
    }
    let sizes = Sizes::of(file);
    let measured = !file.latency.is_empty();
    let mut table =
        Table::new(if measured { &COLUMNS } else { &COLUMNS[..COLUMNS_WITHOUT_LATENCY] });
    for (operation, sum) in &sums {
        let latency = file.latency.get(operation).copied();
        let name = Line::of(Tone::Strong, *operation);
        table.row(row(name, sum, latency, sizes.get(operation, None)));
        let having: Vec<_> = file
            .conversations
            .iter()
            .filter_map(|conversation| {
                Some((conversation.id, conversation.operations.get(operation)?))
            })
            .collect();
        if having.len() > 1 && having.len() <= MAX_SPLIT_CONVERSATIONS {
            for (id, stats) in having {
                let name = Line::of(Tone::Faint, format!("  in #{id}"));
                table.row(row(name, stats, stats.latency, sizes.get(operation, Some(id))));
            }
        }
    }
    let table = table
        .without_columns_that_do_not_fit(columns, &["median", "p90", "largest", "min", "total"]);
    let mut lines = table.lines(columns);
    let of_each = file.conversations.iter().flat_map(|it| it.operations.values());
    let of_each = of_each.filter_map(|stats| stats.latency.as_ref());
    if !file.latency.values().chain(of_each).all(|latency| latency.exact) {
        let text =
            format!("  {INEXACT} percentiles of many messages, at most 1/64 (1.6%) too high");
        lines.push(Line::of(Tone::Faint, text));
    }
    let incomplete: u64 = sums.values().map(|sum| sum.incomplete).sum();
    if incomplete > 0 {
        let text = format!(
            "  {}: not all packets are in the capture; left out of median and largest",
            units::counted(incomplete, "incomplete message")
        );
        lines.push(Line::of(Tone::Faint, text));
    }
    if !sizes.complete {
        let listed = units::count(file.messages.len() as u64);
        let text = format!("  sizes are those of the first {listed} messages");
        lines.push(Line::of(Tone::Faint, text));
    }
    lines
}

fn row(
    name: Line,
    stats: &OperationStats,
    latency: Option<Latency>,
    sizes: Option<(u64, u64)>,
) -> Vec<Line> {
    let mut cells = vec![name, cell(units::count(stats.messages)), cell(units::bytes(stats.bytes))];
    let (median, largest) = match sizes {
        Some((median, largest)) => (units::bytes(median), units::bytes(largest)),
        None => Default::default(),
    };
    cells.extend([median, largest].map(cell));
    if let Some(latency) = latency {
        let Latency { min_ns, p50_ns, p90_ns, p99_ns, max_ns, .. } = latency;
        let tones = [Tone::Plain, Tone::Strong, Tone::Plain, Tone::Plain, Tone::Plain];
        let bound = if latency.exact { "" } else { INEXACT };
        let [min, max] = [min_ns, max_ns].map(units::duration);
        let [p50, p90, p99] =
            [p50_ns, p90_ns, p99_ns].map(|value| format!("{bound}{}", units::duration(value)));
        let values = [min, p50, p90, p99, max];
        cells.extend(values.into_iter().zip(tones).map(|(value, tone)| Line::of(tone, value)));
    }
    cells
}

/// Message sizes by operation, over all conversations and per conversation.
struct Sizes {
    sorted: BTreeMap<(&'static str, Option<u32>), Vec<u64>>,
    complete: bool,
}

impl Sizes {
    fn of(file: &FileReport) -> Self {
        let mut sorted: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        let whole = |message: &&CapturedMessage| message.status != MessageStatus::Incomplete;
        for message in file.messages.iter().filter(whole) {
            sorted.entry((message.operation, None)).or_default().push(message.size);
            let own = (message.operation, Some(message.conversation));
            sorted.entry(own).or_default().push(message.size);
        }
        sorted.values_mut().for_each(|sizes| sizes.sort_unstable());
        Self { sorted, complete: file.messages.len() as u64 == file.messages_total }
    }

    /// Returns the median and the maximum.
    fn get(&self, operation: &&'static str, conversation: Option<u32>) -> Option<(u64, u64)> {
        let sizes = self.sorted.get(&(*operation, conversation))?;
        Some((*sizes.get((sizes.len() - 1) / 2)?, *sizes.last()?))
    }
}
