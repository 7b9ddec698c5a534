//! What a ladder shows, from top to bottom, before anything is drawn.

use std::collections::BTreeMap;

use crate::analysis::anomaly::AnomalyKind;
use crate::analysis::report::{Anomaly, CmEvent, Conversation, FileReport, PacketRow};
use crate::render::text::Tone;

/// One thing between the lifelines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A packet.
    Packet(Arrow),
    /// Middle packets of a message, not drawn one by one.
    Fold {
        /// The first of them.
        first: Arrow,
        count: u64,
        /// The last one's PSN, as its summary writes it.
        last_psn: Option<String>,
    },
    /// Packets that must have been there and are not in the capture.
    Missing { from_a: bool, text: String, tone: Tone },
    /// How it ended, badly.
    End { text: String, tone: Tone },
    /// Nothing for a long time.
    Pause { nanoseconds: u64 },
    /// Packets that are not drawn.
    More { packets: u64 },
}

/// A packet as an arrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrow {
    pub(super) frame: u64,
    pub(super) time_ns: i64,
    pub(super) from_a: bool,
    /// What it is, the most important first.
    pub(super) label: Vec<String>,
    pub(super) stroke: Stroke,
    /// How bad it is, or who sent it.
    pub(super) tone: Tone,
    pub(super) notes: Vec<(Tone, String)>,
}

/// The line an arrow is drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stroke {
    /// Plain delivery.
    Solid,
    /// It was on the wire before.
    Dashed,
    /// The control plane.
    Double,
}

/// Shortest run of middle packets that is folded: below it, the fold would save nothing.
const FOLDED_FROM: usize = 3;

/// Shortest pause that is shown, and how many times the usual distance of two packets it has to be.
const PAUSE_NS: i64 = 20_000;
const PAUSE_TIMES: i64 = 20;

/// The steps of a conversation: all of its packets, or as many rows as `rows` allows with middle packets folded.
pub(super) fn steps(
    file: &FileReport,
    conversation: &Conversation,
    rows: Option<usize>,
) -> Vec<Step> {
    let mut arrows = arrows(file, conversation);
    say_once(&mut arrows);
    let missing = missing(file, conversation);
    let pause = usual_distance(&arrows).saturating_mul(PAUSE_TIMES).max(PAUSE_NS);
    let drawn_packets = arrows.iter().filter(|arrow| arrow.stroke != Stroke::Double).count();

    let mut steps: Vec<Step> = Vec::new();
    let mut packets = 0;
    let mut before: Option<i64> = None;
    let mut arrows = arrows.into_iter().peekable();
    while let Some(arrow) = arrows.peek() {
        if rows.is_some_and(|rows| steps.len() >= rows) {
            break;
        }
        let distance = before.map_or(0, |before| arrow.time_ns.saturating_sub(before));
        if distance >= pause {
            steps.push(Step::Pause { nanoseconds: distance.unsigned_abs() });
        }
        for (text, tone) in missing.get(&arrow.frame).into_iter().flatten() {
            let (from_a, text, tone) = (arrow.from_a, (*text).to_owned(), *tone);
            steps.push(Step::Missing { from_a, text, tone });
        }
        let mut run: Vec<Arrow> = Vec::new();
        while let Some(next) = arrows.next_if(|next| {
            run.is_empty()
                || rows.is_some()
                    && !missing.contains_key(&next.frame)
                    && run.last().is_some_and(|last| continues(last, next, pause))
        }) {
            run.push(next);
        }
        before = run.last().map(|last| last.time_ns);
        packets += run.iter().filter(|arrow| arrow.stroke != Stroke::Double).count();
        fold(run, &mut steps);
    }
    let total =
        (conversation.a_to_b.packets + conversation.b_to_a.packets).max(drawn_packets as u64);
    if packets as u64 != total {
        steps.push(Step::More { packets: total - packets as u64 });
    }
    let ends = file
        .anomalies
        .iter()
        .filter(|anomaly| anomaly.conversation == Some(conversation.id) && is_end(anomaly.kind));
    steps.extend(ends.map(|end| Step::End { text: end.text.clone(), tone: end.severity.into() }));
    steps
}

/// Takes a note away that says of a packet what was just said of the one before it: a sequence that is sent again has
/// one reason.
fn say_once(arrows: &mut [Arrow]) {
    let mut before: Option<(bool, Vec<(Tone, String)>)> = None;
    for arrow in arrows {
        let own = arrow.psn().map(|psn| format!("PSN {psn} "));
        for (_, note) in &mut arrow.notes {
            if let Some(rest) = own.as_deref().and_then(|own| note.strip_prefix(own)) {
                *note = rest.to_owned();
            }
        }
        let said = (arrow.from_a, arrow.notes.clone());
        if before.as_ref() == Some(&said) && arrow.stroke == Stroke::Dashed {
            arrow.notes.clear();
        }
        before = Some(said);
    }
}

/// Whether an arrow goes on with a run of middle packets.
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
    if run.len() < FOLDED_FROM {
        return steps.extend(run.into_iter().map(Step::Packet));
    }
    let count = run.len() as u64;
    let last_psn = run.last().and_then(|last| last.psn().map(str::to_owned));
    if let Some(first) = run.into_iter().next() {
        steps.push(Step::Fold { first, count, last_psn });
    }
}

impl Arrow {
    /// The PSN as the summary writes it.
    pub(super) fn psn(&self) -> Option<&str> {
        self.label.iter().find_map(|part| part.strip_prefix("PSN "))
    }
}

/// The packets of a conversation, and the messages that set it up or ended it, in order.
fn arrows(file: &FileReport, conversation: &Conversation) -> Vec<Arrow> {
    let id = Some(conversation.id);
    let mut anomalies: BTreeMap<u64, Vec<&Anomaly>> = BTreeMap::new();
    let of_packets = |it: &&Anomaly| it.conversation == id && !is_end(it.kind);
    for anomaly in file.anomalies.iter().filter(of_packets) {
        anomalies.entry(anomaly.frame).or_default().push(anomaly);
    }
    let mut arrows: BTreeMap<u64, Arrow> = BTreeMap::new();
    for event in file.cm.iter().filter(|event| event.conversation == id) {
        arrows.insert(event.frame, control(event, conversation));
    }
    for row in file.packet_list.iter().filter(|row| row.conversation == id) {
        let found = anomalies.get(&row.frame).map(Vec::as_slice).unwrap_or_default();
        arrows.entry(row.frame).or_insert_with(|| packet(row, found, conversation));
    }
    arrows.into_values().collect()
}

fn packet(row: &PacketRow, anomalies: &[&Anomaly], conversation: &Conversation) -> Arrow {
    let worst = anomalies.iter().max_by_key(|anomaly| anomaly.severity);
    let plain = if row.from_a { Tone::Forth } else { Tone::Back };
    let mut tone = worst.map_or(plain, |anomaly| anomaly.severity.into());
    // What is missing before a packet is drawn by itself: nothing is wrong with the packet.
    if anomalies.iter().all(|anomaly| is_missing(anomaly.kind)) {
        tone = plain;
    }
    let again = |anomaly: &&Anomaly| {
        use AnomalyKind::{
            Duplicate, RepeatedAcknowledge, RepeatedResponse, Retransmission, Timeout,
        };
        matches!(
            anomaly.kind,
            Duplicate | RepeatedAcknowledge | RepeatedResponse | Retransmission | Timeout
        )
    };
    let timeout = anomalies.iter().any(|anomaly| anomaly.kind == AnomalyKind::Timeout);
    let mut notes = Vec::new();
    for anomaly in anomalies {
        // A packet that is sent again after a timeout has two anomalies: the timeout says it all.
        let implied = timeout && anomaly.kind == AnomalyKind::Retransmission;
        if !is_missing(anomaly.kind) && !implied {
            notes.push((anomaly.severity.into(), anomaly.text.clone()));
        }
    }
    for note in &row.notes {
        // Anomalies beyond the limit of their list are still noted on the packets.
        if !anomalies.iter().any(|anomaly| &anomaly.text == note) {
            notes.push((Tone::Notice, note.clone()));
        }
    }
    if row.icrc != "ok" {
        notes.push((Tone::Bad, format!("ICRC {}", row.icrc)));
    }
    Arrow {
        frame: row.frame,
        time_ns: row.time_ns,
        from_a: row.from_a,
        label: label(&row.summary, row.from_a, conversation),
        stroke: if anomalies.iter().any(again) { Stroke::Dashed } else { Stroke::Solid },
        tone,
        notes,
    }
}

fn control(event: &CmEvent, conversation: &Conversation) -> Arrow {
    let label = vec![format!("CM {}", event.message), event.summary.clone()];
    let tone = if event.message == "REJ" { Tone::Bad } else { Tone::Control };
    let repeated = event.repeated.then(|| (Tone::Warning, "sent again".to_owned()));
    Arrow {
        frame: event.frame,
        time_ns: event.time_ns,
        from_a: event.source == conversation.a.address,
        label,
        stroke: Stroke::Double,
        tone,
        notes: repeated.into_iter().collect(),
    }
}

/// The parts of a summary, without the queue pairs: they stand over the lifelines.
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

fn is_missing(kind: AnomalyKind) -> bool {
    matches!(
        kind,
        AnomalyKind::MissingRequest | AnomalyKind::MissingResponse | AnomalyKind::MessageLost
    )
}

/// What is about the conversation rather than a packet of it.
fn is_end(kind: AnomalyKind) -> bool {
    matches!(kind, AnomalyKind::RetryExceeded | AnomalyKind::RnrRetryExceeded)
}

/// What is missing, by the packet that shows it.
fn missing<'a>(
    file: &'a FileReport,
    conversation: &Conversation,
) -> BTreeMap<u64, Vec<(&'a str, Tone)>> {
    let mut missing: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for anomaly in &file.anomalies {
        if anomaly.conversation == Some(conversation.id) && is_missing(anomaly.kind) {
            let found = (anomaly.text.as_str(), anomaly.severity.into());
            missing.entry(anomaly.frame).or_default().push(found);
        }
    }
    missing
}

/// The median time between two packets.
fn usual_distance(arrows: &[Arrow]) -> i64 {
    let mut distances: Vec<_> = arrows
        .windows(2)
        .filter_map(|pair| match pair {
            [before, after] => Some(after.time_ns.saturating_sub(before.time_ns)),
            _ => None,
        })
        .collect();
    distances.sort_unstable();
    distances.get(distances.len() / 2).copied().unwrap_or(0)
}
