//! The content of a ladder from top to bottom, before drawing.

use std::collections::{BTreeMap, HashSet};

use super::rows::{Ladders, Rows};
use crate::analysis::anomaly::AnomalyKind;
use crate::analysis::report::{Anomaly, CmEvent, Conversation, PacketRow};
use crate::render::text::Tone;

/// One entry between the lifelines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A packet.
    Packet(Arrow),
    /// Folded middle packets of a message.
    Fold {
        /// The first of them.
        first: Arrow,
        count: u64,
        /// PSN of the last one, as written in its summary.
        last_psn: Option<String>,
    },
    /// Packets that must have been sent but are not in the capture.
    Missing { from_a: bool, text: String, tone: Tone },
    /// A failure that ended the conversation.
    End { text: String, tone: Tone },
    /// Folded packets without anomalies.
    Quiet { packets: u64 },
    /// A long time without packets.
    Pause { nanoseconds: u64 },
    /// Packets that are not drawn.
    More { packets: u64 },
}

/// A packet as an arrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrow {
    pub(super) frame: u64,
    /// Packet within the frame, counted from 1, if it holds several; otherwise 0.
    pub(super) segment: u32,
    pub(super) time_ns: i64,
    pub(super) from_a: bool,
    /// Parts of its label, the most important first.
    pub(super) label: Vec<String>,
    pub(super) stroke: Stroke,
    /// Severity, or else the direction.
    pub(super) tone: Tone,
    pub(super) notes: Vec<(Tone, String)>,
}

/// Frame number and packet within the frame.
type PacketKey = (u64, u32);

/// Line style of an arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stroke {
    /// Plain delivery.
    Solid,
    /// A repeated packet.
    Dashed,
    /// The control plane.
    Double,
}

/// Minimum length of a run that is folded; folding fewer saves nothing.
const MIN_FOLD: usize = 3;

/// Steps shown before and after one with an anomaly.
const CONTEXT_STEPS: usize = 2;

/// A pause is shown if it is at least this long, this many times the median distance of two packets, and this fraction
/// of the total.
const MIN_PAUSE_NS: i64 = 20_000;
const PAUSE_MEDIAN_FACTOR: i64 = 20;
const PAUSE_TOTAL_FRACTION: i64 = 20;

/// Returns the steps of a conversation: all packets, or at most `rows` with middle packets folded and, if needed, with
/// packets without anomalies folded.
pub(super) fn steps(
    ladders: &Ladders<'_>,
    conversation: &Conversation,
    rows: Option<usize>,
) -> Vec<Step> {
    let none = Rows::default();
    let found = ladders.rows(conversation.id).unwrap_or(&none);
    let mut arrows = arrows(found, ladders, conversation);
    drop_repeated_notes(&mut arrows);
    let missing = missing(found);
    let mut steps = every_step(arrows, &missing, rows.is_some());
    if let Some(rows) = rows {
        if steps.len() > rows {
            steps = focus(steps);
        }
        steps.truncate(rows);
        // A pause at the end is meaningless.
        if let Some(Step::Pause { .. }) = steps.last() {
            steps.pop();
        }
    }
    let drawn: u64 = steps.iter().map(Step::packets).sum();
    let total = ladders.packets(conversation);
    if drawn < total {
        steps.push(Step::More { packets: total - drawn });
    }
    let ends = found.anomalies.iter().filter(|anomaly| is_end(anomaly.kind));
    steps.extend(ends.map(|end| Step::End { text: end.text.clone(), tone: end.severity.into() }));
    steps
}

fn every_step(arrows: Vec<Arrow>, missing: &Missing<'_>, folding: bool) -> Vec<Step> {
    let pause = min_pause(&arrows);
    let mut steps = Vec::new();
    let mut before: Option<i64> = None;
    let mut arrows = arrows.into_iter().peekable();
    while let Some(arrow) = arrows.peek() {
        let distance = before.map_or(0, |before| arrow.time_ns.saturating_sub(before));
        if distance >= pause {
            steps.push(Step::Pause { nanoseconds: distance.unsigned_abs() });
        }
        for (text, tone) in missing.get(&arrow.key()).into_iter().flatten() {
            let (from_a, text, tone) = (arrow.from_a, (*text).to_owned(), *tone);
            steps.push(Step::Missing { from_a, text, tone });
        }
        let mut run: Vec<Arrow> = Vec::new();
        while let Some(next) = arrows.next_if(|next| match run.last() {
            None => true,
            Some(last) => {
                folding && !missing.contains_key(&next.key()) && continues(last, next, pause)
            }
        }) {
            run.push(next);
        }
        before = run.last().map(|last| last.time_ns);
        fold(run, &mut steps);
    }
    steps
}

/// Folds steps without anomalies, except at the start, at the end and next to an anomaly. Keeps a conversation without
/// anomalies as it is.
fn focus(steps: Vec<Step>) -> Vec<Step> {
    let count = steps.len();
    let mut kept = vec![false; count];
    for (at, step) in steps.iter().enumerate() {
        if step.is_notable() {
            kept[at.saturating_sub(CONTEXT_STEPS)..(at + CONTEXT_STEPS + 1).min(count)].fill(true);
        }
    }
    if !kept.contains(&true) {
        return steps;
    }
    kept[..CONTEXT_STEPS.min(count)].fill(true);
    kept[count.saturating_sub(CONTEXT_STEPS)..].fill(true);

    let mut focused = Vec::new();
    let mut quiet: Vec<Step> = Vec::new();
    for (step, kept) in steps.into_iter().zip(kept) {
        if kept {
            fold_quiet(&mut quiet, &mut focused);
            focused.push(step);
        } else {
            quiet.push(step);
        }
    }
    fold_quiet(&mut quiet, &mut focused);
    focused
}

/// Appends the steps without anomalies, folded if that saves lines.
fn fold_quiet(quiet: &mut Vec<Step>, steps: &mut Vec<Step>) {
    if quiet.len() < MIN_FOLD {
        return steps.append(quiet);
    }
    steps.push(Step::Quiet { packets: quiet.iter().map(Step::packets).sum() });
    quiet.clear();
}

impl Step {
    /// Number of packets it represents.
    fn packets(&self) -> u64 {
        match self {
            Self::Packet(_) => 1,
            Self::Fold { count, .. } => *count,
            Self::Quiet { packets } => *packets,
            Self::Missing { .. } | Self::Pause { .. } | Self::More { .. } | Self::End { .. } => 0,
        }
    }

    /// Whether it has an anomaly.
    fn is_notable(&self) -> bool {
        match self {
            Self::Packet(arrow) => !arrow.notes.is_empty() || arrow.stroke == Stroke::Dashed,
            Self::Fold { first, .. } => first.stroke == Stroke::Dashed,
            Self::Missing { .. } | Self::End { .. } => true,
            Self::Pause { .. } | Self::Quiet { .. } | Self::More { .. } => false,
        }
    }
}

/// Removes notes that repeat those of the previous packet: a run of retransmissions has one cause.
fn drop_repeated_notes(arrows: &mut [Arrow]) {
    let mut before: Option<(bool, Vec<(Tone, String)>)> = None;
    for arrow in arrows {
        let own = arrow.psn().map(|psn| format!("PSN {psn} "));
        for (_, note) in &mut arrow.notes {
            if let Some(rest) = own.as_deref().and_then(|own| note.strip_prefix(own)) {
                *note = rest.to_owned();
            }
        }
        let current = (arrow.from_a, arrow.notes.clone());
        if before.as_ref() == Some(&current) && arrow.stroke == Stroke::Dashed {
            arrow.notes.clear();
        }
        before = Some(current);
    }
}

/// Whether `next` continues a run of middle packets.
fn continues(last: &Arrow, next: &Arrow, pause: i64) -> bool {
    is_middle(last)
        && is_middle(next)
        && last.from_a == next.from_a
        && last.stroke == next.stroke
        && last.label.first() == next.label.first()
        && next.time_ns.saturating_sub(last.time_ns) < pause
}

fn is_middle(arrow: &Arrow) -> bool {
    arrow.notes.is_empty() && arrow.label.first().is_some_and(|title| title.ends_with("Middle"))
}

fn fold(run: Vec<Arrow>, steps: &mut Vec<Step>) {
    if run.len() < MIN_FOLD {
        return steps.extend(run.into_iter().map(Step::Packet));
    }
    let count = run.len() as u64;
    let last_psn = run.last().and_then(|last| last.psn().map(str::to_owned));
    if let Some(first) = run.into_iter().next() {
        steps.push(Step::Fold { first, count, last_psn });
    }
}

impl Arrow {
    /// Overrides the direction, if known.
    fn set_direction(&mut self, from_a: Option<bool>) {
        self.from_a = from_a.unwrap_or(self.from_a);
        if let Tone::Forth | Tone::Back = self.tone {
            self.tone = if self.from_a { Tone::Forth } else { Tone::Back };
        }
    }

    fn key(&self) -> PacketKey {
        (self.frame, self.segment)
    }

    /// Frame number, with the packet in the frame: `12`, or `12.3`.
    pub(super) fn number(&self) -> String {
        match self.segment {
            0 => self.frame.to_string(),
            segment => format!("{}.{segment}", self.frame),
        }
    }

    /// The PSN as written in the summary.
    pub(super) fn psn(&self) -> Option<&str> {
        self.label.iter().find_map(|part| part.strip_prefix("PSN "))
    }
}

/// Returns the packets and CM messages of a conversation in order.
fn arrows(rows: &Rows<'_>, ladders: &Ladders<'_>, conversation: &Conversation) -> Vec<Arrow> {
    let mut anomalies: BTreeMap<PacketKey, Vec<&Anomaly>> = BTreeMap::new();
    for &anomaly in rows.anomalies.iter().filter(|anomaly| !is_end(anomaly.kind)) {
        anomalies.entry((anomaly.frame, anomaly.segment)).or_default().push(anomaly);
    }
    let mut arrows: BTreeMap<PacketKey, Arrow> = BTreeMap::new();
    for event in &rows.cm {
        arrows.insert((event.frame, event.segment), control(event, conversation));
    }
    for row in &rows.packets {
        let key = (row.frame, row.segment);
        let found = anomalies.get(&key).map(Vec::as_slice).unwrap_or_default();
        arrows.entry(key).or_insert_with(|| packet(row, found, conversation));
    }
    for arrow in arrows.values_mut() {
        arrow.set_direction(ladders.sides.is_from_a(arrow.frame, conversation));
    }
    arrows.into_values().collect()
}

fn packet(row: &PacketRow, anomalies: &[&Anomaly], conversation: &Conversation) -> Arrow {
    let worst = anomalies.iter().max_by_key(|anomaly| anomaly.severity);
    let plain = if row.from_a { Tone::Forth } else { Tone::Back };
    let mut tone = worst.map_or(plain, |anomaly| anomaly.severity.into());
    // Missing packets are drawn separately and do not affect this packet.
    if anomalies.iter().all(|anomaly| anomaly.kind.is_missing()) {
        tone = plain;
    }
    let repeated = |anomaly: &&Anomaly| anomaly.kind.is_repeat();
    let timeout = anomalies.iter().any(|anomaly| anomaly.kind == AnomalyKind::Timeout);
    let mut notes = Vec::new();
    for anomaly in anomalies {
        // A retransmission after a timeout has two anomalies: the note of the timeout suffices.
        let implied = timeout && anomaly.kind == AnomalyKind::Retransmission;
        if !anomaly.kind.is_missing() && !implied {
            notes.push((anomaly.severity.into(), anomaly.text.clone()));
        }
    }
    // An acknowledgement may have one note per request without a response.
    let listed: HashSet<&str> = anomalies.iter().map(|anomaly| anomaly.text.as_str()).collect();
    for note in &row.notes {
        // Anomalies beyond the list's limit are still in the packet's notes.
        if !listed.contains(note.as_str()) {
            notes.push((Tone::Notice, note.clone()));
        }
    }
    if row.icrc == "bad" {
        notes.push((Tone::Bad, "wrong ICRC: receivers drop it".to_owned()));
    }
    Arrow {
        frame: row.frame,
        segment: row.segment,
        time_ns: row.time_ns,
        from_a: row.from_a,
        label: label(&row.summary, row.from_a, conversation),
        stroke: if anomalies.iter().any(repeated) { Stroke::Dashed } else { Stroke::Solid },
        tone,
        notes,
    }
}

fn control(event: &CmEvent, conversation: &Conversation) -> Arrow {
    let label = vec![format!("CM {}", event.message), event.summary.clone()];
    let tone = if event.message == "REJ" { Tone::Bad } else { Tone::Control };
    let repeated = event.repeated.then(|| (Tone::Warning, "retransmitted".to_owned()));
    Arrow {
        frame: event.frame,
        segment: event.segment,
        time_ns: event.time_ns,
        from_a: event.source == conversation.a.address,
        label,
        stroke: Stroke::Double,
        tone,
        notes: repeated.into_iter().collect(),
    }
}

/// Splits a summary into its parts, without the queue pairs shown in the header.
fn label(summary: &str, from_a: bool, conversation: &Conversation) -> Vec<String> {
    let (source, destination) = if from_a {
        (&conversation.a, &conversation.b)
    } else {
        (&conversation.b, &conversation.a)
    };
    let to = destination.qpn.map(|qpn| format!("QP 0x{qpn:06x}"));
    let from = source.qpn.map(|qpn| format!("from QP 0x{qpn:06x}"));
    summary
        .split("  ")
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .filter(|part| Some(*part) != to.as_deref() && Some(*part) != from.as_deref())
        .map(str::to_owned)
        .collect()
}

/// Whether an anomaly concerns the conversation rather than a packet.
fn is_end(kind: AnomalyKind) -> bool {
    matches!(kind, AnomalyKind::RetryExceeded | AnomalyKind::RnrRetryExceeded)
}

/// Missing packets, by the packet at which they were noticed.
type Missing<'a> = BTreeMap<PacketKey, Vec<(&'a str, Tone)>>;

fn missing<'a>(rows: &Rows<'a>) -> Missing<'a> {
    let mut missing = Missing::new();
    for anomaly in &rows.anomalies {
        if anomaly.kind.is_missing() {
            let found = (anomaly.text.as_str(), anomaly.severity.into());
            missing.entry((anomaly.frame, anomaly.segment)).or_default().push(found);
        }
    }
    missing
}

/// Minimum time between two packets that is shown as a pause.
fn min_pause(arrows: &[Arrow]) -> i64 {
    let mut distances: Vec<_> = arrows
        .windows(2)
        .filter_map(|pair| match pair {
            [before, after] => Some(after.time_ns.saturating_sub(before.time_ns)),
            _ => None,
        })
        .collect();
    distances.sort_unstable();
    let median = distances.get(distances.len() / 2).copied().unwrap_or(0);
    let all = match (arrows.first(), arrows.last()) {
        (Some(first), Some(last)) => last.time_ns.saturating_sub(first.time_ns),
        _ => 0,
    };
    median.saturating_mul(PAUSE_MEDIAN_FACTOR).max(all / PAUSE_TOTAL_FRACTION).max(MIN_PAUSE_NS)
}
