//! What went wrong, in words: what people came for.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::more;
use crate::analysis::anomaly::{AnomalyKind, Severity};
use crate::analysis::report::{Anomaly, FileReport};
use crate::render::text::{Line, Tone, width, wrap};
use crate::render::units;

/// A sentence and the conversations it is true of.
struct Item<'a> {
    severity: Severity,
    text: Cow<'a, str>,
    conversations: Vec<u32>,
    /// How often, where it is not about a conversation.
    times: u64,
}

/// Findings of all conversations and what belongs to none, errors first.
pub(super) fn diagnosis(file: &FileReport, columns: usize, limit: usize) -> Vec<Line> {
    let mut items = file_findings(file);
    items.extend(findings(file));
    items.extend(without_conversation(file));
    // Stable: of one severity, the conversations stay in order.
    items.sort_by_key(|item| std::cmp::Reverse(item.severity));

    let mut lines = Vec::new();
    if items.iter().all(|item| item.severity == Severity::Info) && file.roce_packets > 0 {
        let text = match file.anomaly_counts.is_empty() {
            true => "nothing out of the ordinary: no loss, no retransmission, no refusal",
            false => "nothing failed; what is out of the ordinary stands under Anomalies",
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

/// What the ICRCs say, of all packets together: damage is done on the way, whatever the conversation.
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
        let text = format!("{packets} with a wrong ICRC: damaged on the way, receivers drop them");
        items.push(item(Severity::Error, text));
    }
    if file.dropped > 0 {
        let text = format!(
            "the capture lost {}: what is missing may be missing in the capture alone",
            units::counted(file.dropped, "packet")
        );
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
        let text = format!("the ICRC of {packets} cannot be checked: not all bytes are there");
        items.push(item(Severity::Info, text));
    }
    items
}

fn findings(file: &FileReport) -> Vec<Item<'_>> {
    let mut items: Vec<Item<'_>> = Vec::new();
    let mut known = BTreeMap::new();
    for conversation in &file.conversations {
        for finding in &conversation.findings {
            // The same of many conversations is said once.
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

/// Anomalies of no conversation: the first of each kind, and how many there are.
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

/// The sign of a severity.
pub(super) fn mark(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "•",
        Severity::Warning => "!",
        Severity::Error => "✗",
    }
}

/// Conversations by number: `#1 #2 #3`, and how many more when that gets long.
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
