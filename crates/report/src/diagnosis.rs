//! The diagnosis in words that need no knowledge of RDMA: what happened, what it means, what to do, and the packets that
//! show it.

mod words;

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
    let mut topics: Vec<_> = WORDS.iter().filter_map(|words| topic(words, report)).collect();
    topics.extend(file_topics(report));
    topics.sort_by_key(|topic| std::cmp::Reverse(topic.severity));
    topics
}

fn topic(words: &'static Words, report: &FileReport) -> Option<Topic> {
    let counts = report.conversations.iter().map(|it| (it.id, count(words, it)));
    let found: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    let listed = |anomaly: &&Anomaly| words.kinds.contains(&anomaly.kind);
    let is_loss = words.id == "loss";
    // Anomalies outside of conversations are counted as well; lost packets have a rule of their own.
    let count: u64 = match is_loss {
        true => report.losses.total(),
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

fn occurrences(conversation: &Conversation, kind: AnomalyKind) -> u64 {
    conversation.anomalies.get(kind.name()).copied().unwrap_or(0)
}

/// Occurrences in one conversation.
fn count(words: &Words, conversation: &Conversation) -> u64 {
    if words.id == "loss" {
        return conversation.losses.total();
    }
    words.kinds.iter().map(|kind| occurrences(conversation, *kind)).sum()
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
