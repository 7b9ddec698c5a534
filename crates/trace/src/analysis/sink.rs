//! Collects the results of the trackers: bounded lists and unbounded counts.

use std::collections::{BTreeMap, HashSet};

use ferroce_wire::number::Psn;

use super::anomaly::AnomalyKind;
use super::detail::Marks;
use super::latency::{Histogram, SampleBudget};
use super::options::Options;
use super::report::{Anomaly, CapturedMessage, MessageStatus, OperationStats};
use super::stamp::{Side, Stamp};
use super::window::WindowBudget;
use crate::filter::{Filter, OperationKind};

/// Reports results about one packet of one side to the sink.
#[derive(Debug)]
pub(super) struct Reporter<'a> {
    pub(super) sink: &'a mut Sink,
    pub(super) side: Side,
    pub(super) at: Stamp,
}

impl Reporter<'_> {
    pub(super) fn anomaly(&mut self, kind: AnomalyKind, psn: Psn, text: String) -> AnomalyId {
        self.sink.anomaly(kind, self.at, Some(self.side), Some(psn.0), text)
    }

    /// Withdraws an anomaly of this conversation that a later packet has disproved.
    pub(super) fn withdraw(&mut self, id: AnomalyId) {
        self.sink.withdraw(id, self.side.conversation);
    }

    pub(super) fn tally(&mut self) -> &mut ConversationTally {
        self.sink.tally(self.side.conversation)
    }
}

/// A reported anomaly that a later packet may disprove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnomalyId {
    kind: AnomalyKind,
    /// Whether the filter selects its packet.
    selected: bool,
    /// Its place in the list; `None` beyond the list's limit.
    index: Option<usize>,
    /// Its mark in the charts.
    mark: Option<u64>,
}

/// Results of one conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct ConversationTally {
    pub(super) anomalies: BTreeMap<AnomalyKind, AnomalyCount>,
    pub(super) operations: BTreeMap<&'static str, OperationTally>,
    /// Requests whose first transmission is not in the capture.
    pub(super) lost_requests: u64,
    /// Those of them that arrived twice: one of both may be the first transmission.
    pub(super) doubtful_requests: u64,
    /// Sequence error NAKs that merely follow an RNR NAK for the same PSN.
    pub(super) naks_after_rnr: u64,
    /// Whether the filter selects any of its packets.
    pub(super) selected: bool,
}

/// Anomalies of one kind in one conversation.
#[derive(Clone, Debug)]
pub(super) struct AnomalyCount {
    pub(super) count: u64,
    /// Those at packets that the filter selects.
    pub(super) selected: u64,
    /// The text of the first, which the diagnosis shows.
    pub(super) first: String,
    pub(super) first_frame: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct OperationTally {
    pub(super) stats: OperationStats,
    pub(super) latency: Histogram,
}

impl ConversationTally {
    pub(super) fn count(&self, kind: AnomalyKind) -> u64 {
        self.anomalies.get(&kind).map_or(0, |count| count.count)
    }

    /// Adds the results of a conversation that was merged into this one.
    pub(super) fn absorb(&mut self, other: Self) {
        for (kind, theirs) in other.anomalies {
            match self.anomalies.get_mut(&kind) {
                Some(ours) => {
                    ours.count += theirs.count;
                    ours.selected += theirs.selected;
                    if theirs.first_frame < ours.first_frame {
                        (ours.first, ours.first_frame) = (theirs.first, theirs.first_frame);
                    }
                }
                None => {
                    self.anomalies.insert(kind, theirs);
                }
            }
        }
        self.selected |= other.selected;
        self.lost_requests += other.lost_requests;
        self.doubtful_requests += other.doubtful_requests;
        self.naks_after_rnr += other.naks_after_rnr;
        for (name, theirs) in other.operations {
            let ours = self.operations.entry(name).or_default();
            ours.stats.messages += theirs.stats.messages;
            ours.stats.incomplete += theirs.stats.incomplete;
            ours.stats.bytes += theirs.stats.bytes;
            ours.stats.packets += theirs.stats.packets;
            ours.latency.merge(&theirs.latency);
        }
    }
}

/// Collects the results of all trackers.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) anomalies: Vec<(Option<Side>, Anomaly)>,
    /// Those of `anomalies` that a later packet has disproved.
    pub(super) withdrawn: HashSet<usize>,
    pub(super) anomaly_counts: BTreeMap<&'static str, u64>,
    /// Anomalies for charts, if the detail data is collected.
    pub(super) marks: Option<Marks>,
    pub(super) messages: Vec<(Side, CapturedMessage)>,
    pub(super) messages_total: u64,
    /// By conversation.
    pub(super) tallies: Vec<ConversationTally>,
    /// Anomalies of the current packet, for the packet list and the observer.
    pub(super) notes: Vec<(AnomalyKind, String)>,
    /// Anomalies of the current packet that the end of the file may confirm.
    pub(super) suspected: Vec<AnomalyKind>,
    /// Whether the filter excludes the current packet: its anomalies count only in the diagnosis of its conversation.
    pub(super) muted: bool,
    /// The operations whose messages are kept; `None` for all.
    operations: Option<Vec<&'static str>>,
    /// Budget of requests held by the windows of all requesters.
    pub(super) window_budget: WindowBudget,
    sample_budget: SampleBudget,
    /// Number of known capture gaps so far.
    pub(super) gaps: u64,
    /// Entries visited, see [`super::FileReport::steps`].
    pub(super) steps: u64,
    max_messages: usize,
    max_anomalies: usize,
}

impl Sink {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            anomalies: Vec::new(),
            withdrawn: HashSet::new(),
            anomaly_counts: BTreeMap::new(),
            marks: options.detail.map(|_| Marks::default()),
            messages: Vec::new(),
            messages_total: 0,
            tallies: Vec::new(),
            notes: Vec::new(),
            suspected: Vec::new(),
            muted: false,
            operations: message_operations(&options.filter),
            window_budget: WindowBudget::default(),
            sample_budget: SampleBudget::default(),
            gaps: 0,
            steps: 0,
            max_messages: options.max_messages,
            max_anomalies: options.max_anomalies,
        }
    }

    pub(super) fn anomaly(
        &mut self,
        kind: AnomalyKind,
        at: Stamp,
        side: Option<Side>,
        psn: Option<u32>,
        text: String,
    ) -> AnomalyId {
        let mut id = AnomalyId { kind, selected: !self.muted, index: None, mark: None };
        let selected = u64::from(id.selected);
        if let Some(side) = side {
            let tally = self.tally(side.conversation);
            match tally.anomalies.get_mut(&kind) {
                Some(count) => {
                    count.count += 1;
                    count.selected += selected;
                }
                None => {
                    let (first, first_frame) = (text.clone(), at.frame);
                    let count = AnomalyCount { count: 1, selected, first, first_frame };
                    tally.anomalies.insert(kind, count);
                }
            }
        }
        if self.muted {
            return id;
        }
        *self.anomaly_counts.entry(kind.name()).or_default() += 1;
        self.notes.push((kind, text.clone()));
        id.mark = self.marks.as_mut().map(|marks| marks.add(kind, at, side, psn));
        if self.anomalies.len() < self.max_anomalies {
            let anomaly = Anomaly {
                kind,
                severity: kind.severity(),
                frame: at.frame,
                segment: at.segment,
                time_ns: at.time,
                conversation: None,
                psn,
                text,
            };
            id.index = Some(self.anomalies.len());
            self.anomalies.push((side, anomaly));
        }
        id
    }

    fn withdraw(&mut self, id: AnomalyId, conversation: usize) {
        let selected = u64::from(id.selected);
        let tally = self.tally(conversation);
        if let Some(count) = tally.anomalies.get_mut(&id.kind) {
            count.count = count.count.saturating_sub(1);
            count.selected = count.selected.saturating_sub(selected);
            if count.count == 0 {
                tally.anomalies.remove(&id.kind);
            }
        }
        if let Some(count) = self.anomaly_counts.get_mut(id.kind.name()) {
            *count = count.saturating_sub(selected);
            if *count == 0 {
                self.anomaly_counts.remove(id.kind.name());
            }
        }
        self.withdrawn.extend(id.index);
        if let (Some(marks), Some(mark)) = (&mut self.marks, id.mark) {
            marks.withdraw(mark);
        }
    }

    pub(super) fn message(&mut self, side: Side, message: CapturedMessage) {
        if self.operations.as_ref().is_some_and(|kept| !kept.contains(&message.operation)) {
            return;
        }
        self.messages_total += 1;
        let tally = tally_entry(&mut self.tallies, side.conversation);
        let operations = tally.operations.entry(message.operation).or_default();
        operations.stats.messages += 1;
        operations.stats.incomplete += u64::from(message.status == MessageStatus::Incomplete);
        operations.stats.bytes += message.size;
        operations.stats.packets += message.packets;
        if let (Some(latency), MessageStatus::Acknowledged) = (message.latency_ns, message.status) {
            operations.latency.record(latency, &mut self.sample_budget);
        }
        if self.messages.len() < self.max_messages {
            self.messages.push((side, message));
        }
    }

    /// Forgets the anomalies of the packet before.
    pub(super) fn next_packet(&mut self) {
        self.notes.clear();
        self.suspected.clear();
    }

    pub(super) fn tally(&mut self, conversation: usize) -> &mut ConversationTally {
        tally_entry(&mut self.tallies, conversation)
    }
}

/// The operations of the messages that a filter keeps, by their names in the report; `None` for all.
fn message_operations(filter: &Filter) -> Option<Vec<&'static str>> {
    if filter.operations.is_empty() {
        return None;
    }
    let names = filter.operations.iter().flat_map(|kind| -> &[&'static str] {
        match kind {
            OperationKind::Send => &["SEND"],
            OperationKind::Write => &["RDMA_WRITE"],
            OperationKind::Read => &["RDMA_READ"],
            OperationKind::Atomic => &["COMPARE_SWAP", "FETCH_ADD"],
            OperationKind::AtomicWrite => &["ATOMIC_WRITE"],
            OperationKind::Flush => &["FLUSH"],
            _ => &[],
        }
    });
    Some(names.copied().collect())
}

/// Returns the tally of a conversation, creating it if missing.
fn tally_entry(
    tallies: &mut Vec<ConversationTally>,
    conversation: usize,
) -> &mut ConversationTally {
    if tallies.len() <= conversation {
        tallies.resize_with(conversation + 1, ConversationTally::default);
    }
    &mut tallies[conversation]
}
