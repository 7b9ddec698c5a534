//! Anomalies: counts by kind, then the list.

use super::diagnosis::mark;
use super::more;
use crate::analysis::anomaly::AnomalyKind;
use crate::analysis::report::FileReport;
use crate::render::table::{Align, Table, cell};
use crate::render::text::{Line, Tone};
use crate::render::units::{self, Clock};

/// Counts by kind with descriptions, followed by the list.
pub(super) fn list(file: &FileReport, columns: usize, limit: usize) -> Vec<Line> {
    if file.anomaly_counts.is_empty() && file.anomalies.is_empty() {
        return Vec::new();
    }
    let mut lines = counts(file, columns);
    let shown = &file.anomalies[..file.anomalies.len().min(limit)];
    if !shown.is_empty() {
        lines.push(Line::new());
    }
    let clock = Clock::for_times(shown.iter().map(|anomaly| anomaly.time_ns));
    let mut table = Table::new(&[
        ("frame", Align::Right),
        (clock.unit(), Align::Right),
        ("", Align::Right),
        ("kind", Align::Left),
        ("", Align::Rest),
    ]);
    for anomaly in shown {
        let conversation = anomaly.conversation.map(|id| format!("#{id}")).unwrap_or_default();
        table.row(vec![
            cell(units::frame(anomaly.frame, anomaly.segment)),
            Line::of(Tone::Faint, clock.time(anomaly.time_ns)),
            Line::of(Tone::Faint, conversation),
            Line::of(anomaly.severity.into(), anomaly.kind.name()),
            cell(&anomaly.text),
        ]);
    }
    if !shown.is_empty() {
        lines.extend(table.lines(columns));
    }
    let total: u64 = file.anomaly_counts.values().sum();
    let how = if shown.len() < file.anomalies.len() { "--anomalies" } else { "" };
    let hidden = total.saturating_sub(shown.len() as u64);
    lines.extend(more(hidden, ("anomaly", "anomalies"), how));
    lines
}

fn counts(file: &FileReport, columns: usize) -> Vec<Line> {
    let mut table =
        Table::new(&[("", Align::Left), ("", Align::Right), ("", Align::Left), ("", Align::Rest)]);
    let mut kinds: Vec<_> = AnomalyKind::ALL
        .iter()
        .filter_map(|kind| Some((kind, *file.anomaly_counts.get(kind.name())?)))
        .collect();
    kinds.sort_by_key(|(kind, _)| std::cmp::Reverse(kind.severity()));
    for (kind, count) in kinds {
        let tone = Tone::from(kind.severity());
        table.row(vec![
            Line::of(tone, mark(kind.severity())),
            cell(units::count(count)),
            Line::of(tone, kind.name()),
            Line::of(Tone::Faint, kind.meaning()),
        ]);
    }
    table.lines(columns)
}
