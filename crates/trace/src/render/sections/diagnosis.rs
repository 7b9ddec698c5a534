//! The diagnosis: findings in sentences.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::more;
use crate::analysis::anomaly::{AnomalyKind, Severity};
use crate::analysis::losses::Losses;
use crate::analysis::report::{Anomaly, FileReport};
use crate::render::text::{Line, Tone, width, wrap};
use crate::render::units;

/// A finding and the conversations it applies to.
struct Item<'a> {
    severity: Severity,
    text: Cow<'a, str>,
    conversations: Vec<u32>,
    /// Number of occurrences, for findings without a conversation.
    times: u64,
}

/// Findings of the file and of all conversations, errors first.
pub(super) fn diagnosis(file: &FileReport, columns: usize, limit: usize) -> Vec<Line> {
    let mut items = file_findings(file);
    items.extend(findings(file));
    items.extend(without_conversation(file));
    // A stable sort keeps the conversations in order within one severity.
    items.sort_by_key(|item| std::cmp::Reverse(item.severity));

    let mut lines = Vec::new();
    if items.iter().all(|item| item.severity == Severity::Info) && file.roce_packets > 0 {
        let text = match file.anomaly_counts.is_empty() {
            true => "no anomalies: no loss, no retransmissions, no refused requests",
            false => "no failures; see Anomalies for the rest",
        };
        let mut line = Line::of(Tone::Good, "  ✓ ");
        for part in wrap(text, columns.saturating_sub(line.width())) {
            line.pad_to(4);
            line.push(Tone::Plain, part);
            lines.push(std::mem::take(&mut line));
        }
    }
    for item in items.iter().take(limit) {
        lines.extend(draw(item, columns));
    }
    lines.extend(more(items.len().saturating_sub(limit) as u64, ("finding", "findings"), "--all"));
    lines
}

/// Findings about the file as a whole: wrong ICRCs, capture losses, offloads.
fn file_findings(file: &FileReport) -> Vec<Item<'static>> {
    let item = |severity, text| Item {
        severity,
        text: Cow::Owned(text),
        conversations: Vec::new(),
        times: 1,
    };
    let mut items = Vec::new();
    if file.icrc.bad > 0 {
        let packets = units::counted(file.icrc.bad, "packet");
        let text =
            format!("{packets} with a wrong ICRC: corrupted on the path, dropped by receivers");
        items.push(item(Severity::Error, text));
    }
    if file.dropped > 0 {
        let text = format!(
            "the capture lost {}: missing packets may be missing only in the capture",
            units::counted(file.dropped, "packet")
        );
        items.push(item(Severity::Warning, text));
    }
    if let Some(text) = losses(&file.losses) {
        items.push(item(Severity::Warning, text));
    }
    if file.offload.frames > 0 {
        let text = format!(
            "captured before segmentation offload split them, or after GRO joined them: {} in {}, analysed one by one",
            units::counted(file.offload.packets, "packet"),
            units::counted(file.offload.frames, "frame")
        );
        items.push(item(Severity::Info, text));
    }
    if file.icrc.unverifiable > 0 {
        let packets = units::counted(file.icrc.unverifiable, "packet");
        let text = format!("the ICRC of {packets} cannot be checked: not all bytes were captured");
        items.push(item(Severity::Info, text));
    }
    items
}

/// Lost packets of all conversations, in words.
fn losses(losses: &Losses) -> Option<String> {
    let Losses { requests, responses, after_capture, unreliable } = *losses;
    let parts = [
        (requests, "requests before the capture point"),
        (responses, "in responses before it"),
        (unreliable, "in unreliable messages before it"),
        (after_capture, "after it"),
    ];
    let parts: Vec<_> = (parts.iter().filter(|(count, _)| *count > 0))
        .map(|(count, place)| format!("{} {place}", units::count(*count)))
        .collect();
    let total = units::counted(losses.total(), "packet");
    (losses.total() > 0).then(|| format!("{total} lost: {}", parts.join(", ")))
}

fn findings(file: &FileReport) -> Vec<Item<'_>> {
    let mut items: Vec<Item<'_>> = Vec::new();
    let mut known = BTreeMap::new();
    for conversation in &file.conversations {
        for finding in &conversation.findings {
            // Merge equal findings of several conversations.
            let at = *known.entry((finding.severity, finding.text.as_str())).or_insert_with(|| {
                items.push(Item {
                    severity: finding.severity,
                    text: Cow::Borrowed(&finding.text),
                    conversations: Vec::new(),
                    times: 1,
                });
                items.len() - 1
            });
            items[at].conversations.push(conversation.id);
        }
    }
    items
}

/// Anomalies outside of conversations: the first of each kind, with the count.
fn without_conversation(file: &FileReport) -> Vec<Item<'_>> {
    let mut kinds: BTreeMap<AnomalyKind, Item<'_>> = BTreeMap::new();
    let alone =
        |anomaly: &&Anomaly| anomaly.conversation.is_none() && anomaly.kind != AnomalyKind::BadIcrc;
    for anomaly in file.anomalies.iter().filter(alone) {
        let item = kinds.entry(anomaly.kind).or_insert_with(|| Item {
            severity: anomaly.severity,
            text: Cow::Borrowed(&anomaly.text),
            conversations: Vec::new(),
            times: 0,
        });
        item.times += 1;
    }
    kinds.into_values().collect()
}

fn draw(item: &Item<'_>, columns: usize) -> Vec<Line> {
    let tone = Tone::from(item.severity);
    let mut line = Line::of(tone, format!("  {} ", mark(item.severity)));
    if !item.conversations.is_empty() {
        line.push(Tone::Faint, format!("{} ", numbers(&item.conversations)));
    }
    let mut text = item.text.clone().into_owned();
    if item.times > 1 {
        text.push_str(&format!(" ({} like this)", units::count(item.times)));
    }
    let indent = line.width();
    let room = columns.saturating_sub(indent).max(24);
    let body = if item.severity == Severity::Info { Tone::Plain } else { tone };
    let mut lines = Vec::new();
    for part in wrap(&text, room) {
        line.pad_to(indent);
        line.push(body, part);
        lines.push(std::mem::take(&mut line));
    }
    lines
}

/// The mark of a severity.
pub(super) fn mark(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "•",
        Severity::Warning => "!",
        Severity::Error => "✗",
    }
}

/// Conversation ids: `#1 #2 #3`, then the number of further ones if the list is long.
fn numbers(conversations: &[u32]) -> String {
    let mut text = String::new();
    for (at, id) in conversations.iter().enumerate() {
        let next = format!("#{id} ");
        if width(&text) + width(&next) > 24 {
            text.push_str(&format!("+{} ", conversations.len() - at));
            break;
        }
        text.push_str(&next);
    }
    text
}
