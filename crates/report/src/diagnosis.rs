//! The diagnosis in words that need no knowledge of RDMA: what happened, what it means, what to do, and the packets that
//! show it.

mod words;

use std::collections::HashMap;

use ferroce_trace::analysis::anomaly::{AnomalyKind, Severity};
use ferroce_trace::analysis::report::{Anomaly, Conversation, FileReport};
use ferroce_trace::render::units;

use crate::model::{Evidence, Topic};
use words::{WORDS, Words};

/// Packets named per topic.
const MAX_EVIDENCE: usize = 8;

/// Conversations named per topic.
const MAX_CONVERSATIONS: usize = 100;

/// The topics of a file, the most severe first.
pub(crate) fn topics(report: &FileReport) -> Vec<Topic> {
    let paths = ReorderingPaths::of(report);
    let mut topics: Vec<_> =
        WORDS.iter().filter_map(|words| topic(words, report, &paths)).collect();
    topics.extend(file_topics(report));
    topics.sort_by_key(|topic| std::cmp::Reverse(topic.severity));
    topics
}

fn topic<'a>(
    words: &'static Words,
    report: &'a FileReport,
    paths: &ReorderingPaths<'a>,
) -> Option<Topic> {
    let counts = report.conversations.iter().map(|it| (it.id, count(words, it, paths)));
    let found: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    let listed = |anomaly: &&Anomaly| words.kinds.contains(&anomaly.kind);
    let is_loss = words.id == "loss";
    // Anomalies outside of conversations are counted as well; lost packets have a rule of their own.
    let count: u64 = match is_loss {
        true => found.iter().map(|(_, count)| count).sum(),
        false => {
            let counted =
                words.kinds.iter().filter_map(|kind| report.anomaly_counts.get(kind.name()));
            counted.sum()
        }
    };
    if count == 0 {
        return None;
    }
    let concerned = |anomaly: &&Anomaly| {
        let in_found = |id| found.binary_search_by_key(&id, |(id, _)| *id).is_ok();
        !is_loss || anomaly.conversation.is_some_and(in_found)
    };
    // One of each kind first, so that a rare kind is not hidden by a frequent one.
    let mut evidence: Vec<&Anomaly> = Vec::new();
    for kind in words.kinds {
        evidence.extend(report.anomalies.iter().filter(concerned).find(|it| it.kind == *kind));
    }
    for anomaly in report.anomalies.iter().filter(listed).filter(concerned) {
        if evidence.len() >= MAX_EVIDENCE {
            break;
        }
        if !evidence.iter().any(|it| std::ptr::eq(*it, anomaly)) {
            evidence.push(anomaly);
        }
    }
    evidence.sort_by_key(|it| (it.frame, it.segment));
    let kinds = words.kinds.iter();
    Some(Topic {
        id: words.id,
        severity: kinds.map(|kind| kind.severity()).max().unwrap_or(Severity::Info),
        title: words.title(count),
        meaning: words.meaning,
        advice: words.advice,
        count,
        conversations: found.iter().take(MAX_CONVERSATIONS).map(|(id, _)| *id).collect(),
        evidence: (evidence.iter())
            .map(|it| Evidence { frame: it.frame, segment: it.segment, text: it.text.clone() })
            .collect(),
    })
}

/// How many packets overtook each other, and how many seem to be lost, between two addresses.
#[derive(Debug, Default)]
struct PathCounts {
    reordered: u64,
    lost: u64,
}

/// The paths between two addresses that reorder packets.
struct ReorderingPaths<'a>(HashMap<(&'a str, &'a str), PathCounts>);

impl<'a> ReorderingPaths<'a> {
    fn of(report: &'a FileReport) -> Self {
        let mut paths: HashMap<_, PathCounts> = HashMap::new();
        for conversation in &report.conversations {
            let path = paths.entry(Self::path(conversation)).or_default();
            path.reordered += occurrences(conversation, AnomalyKind::Reordered);
            path.lost += conversation.lost_requests.saturating_sub(conversation.doubtful_requests);
            path.lost += occurrences(conversation, AnomalyKind::MissingResponse);
        }
        paths.retain(|_, counts| counts.reordered > 0);
        Self(paths)
    }

    fn get(&self, conversation: &'a Conversation) -> Option<&PathCounts> {
        self.0.get(&Self::path(conversation))
    }

    /// The two addresses, in the same order for both directions.
    fn path(conversation: &'a Conversation) -> (&'a str, &'a str) {
        let (a, b) = (conversation.a.address.as_str(), conversation.b.address.as_str());
        if a < b { (a, b) } else { (b, a) }
    }
}

fn occurrences(conversation: &Conversation, kind: AnomalyKind) -> u64 {
    conversation.anomalies.get(kind.name()).copied().unwrap_or(0)
}

/// Occurrences in one conversation.
fn count<'a>(words: &Words, conversation: &'a Conversation, paths: &ReorderingPaths<'a>) -> u64 {
    let of = |kind| occurrences(conversation, kind);
    if words.id == "loss" {
        return lost(conversation, paths);
    }
    words.kinds.iter().map(|kind| of(*kind)).sum()
}

/// Packets lost in one conversation. A reliable connection sends a packet that is late again, as if it were lost. On a path
/// that reorders, this is loss only if it happens more often than reordering.
fn lost<'a>(conversation: &'a Conversation, paths: &ReorderingPaths<'a>) -> u64 {
    let of = |kind| occurrences(conversation, kind);
    let unreliable = of(AnomalyKind::MessageLost);
    match paths.get(conversation) {
        Some(path) if path.lost <= path.reordered => unreliable,
        Some(_) => {
            let requests =
                conversation.lost_requests.saturating_sub(conversation.doubtful_requests);
            requests + of(AnomalyKind::MissingResponse) + unreliable
        }
        None => {
            let requests = match conversation.lost_requests {
                0 => of(AnomalyKind::MissingRequest),
                lost => lost,
            };
            let others = [AnomalyKind::LostAfterCapture, AnomalyKind::MissingResponse];
            requests + others.map(of).iter().sum::<u64>() + unreliable
        }
    }
}

/// Statements about the file as a whole.
fn file_topics(report: &FileReport) -> Vec<Topic> {
    let topic = |id, severity, title, meaning, advice, count| Topic {
        id,
        severity,
        title,
        meaning,
        advice,
        count,
        conversations: Vec::new(),
        evidence: Vec::new(),
    };
    let mut topics = Vec::new();
    if report.dropped > 0 {
        topics.push(topic(
            "capture_loss",
            Severity::Warning,
            format!("The capture itself lost {}", units::counted(report.dropped, "packet")),
            "The program that recorded this file could not keep up. These packets were on the network, but they are \
             not in the file, so some messages look incomplete.",
            "Record with a larger buffer, a smaller snap length, or to faster storage before you look for loss on the \
             network.",
            report.dropped,
        ));
    }
    if report.icrc.unverifiable > 0 {
        topics.push(topic(
            "unverifiable",
            Severity::Info,
            format!(
                "{} cannot be checked for corruption",
                units::counted(report.icrc.unverifiable, "packet")
            ),
            "The capture kept only the first bytes of each packet, so the checksum at the end (ICRC) is missing.",
            "Record with a larger snap length (tcpdump -s 0) to check every packet.",
            report.icrc.unverifiable,
        ));
    }
    if report.offload.frames > 0 {
        topics.push(topic(
            "offload",
            Severity::Info,
            format!(
                "{} were captured in {}",
                units::counted(report.offload.packets, "packet"),
                units::counted(report.offload.frames, "large frame")
            ),
            "The host hands several packets to the network card at once (segmentation offload), and the capture sees \
             them before they are split. They are shown one by one here.",
            "Nothing to do.",
            report.offload.frames,
        ));
    }
    topics
}
