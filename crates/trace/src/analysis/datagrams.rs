//! Datagrams that are missing. A UD queue pair counts PSNs over all its destinations, so a gap is in the sequence of the
//! sender, not in that of a conversation.
//!
//! A capture at one of several receivers lacks what was sent to the others, which is no loss. Gaps are therefore reported
//! only at the end of the file, and only of senders of which nearly everything was seen.

use std::collections::HashMap;
use std::net::IpAddr;

use ferroce_wire::number::Psn;

use super::anomaly::AnomalyKind;
use super::flow::QueuePair;
use super::gaps::{Filled, Gaps};
use super::sink::{Reporter, Sink};
use super::stamp::{Side, Stamp};
use super::text::psns;
use super::window::{ExtendedPsn, ObservedPacket};
use crate::dissect::is_management;

/// A jump of the PSN beyond this is a new sequence: the queue pair was reset, or another one got its number.
const MAX_JUMP: i32 = 4096;

/// How far behind the newest one a datagram is taken to be late.
const MAX_LATE: i32 = 128;

/// A sender has other receivers if more than one in this many of its datagrams is missing.
const MIN_SEEN_PER_MISSING: u64 = 4;

/// Datagrams that tell whether a sender counts, and has other receivers.
const MIN_SEEN: u64 = 8;

/// Limit of the gaps kept for all senders together.
const MAX_GAPS: usize = 16_384;

/// A gap before a datagram.
#[derive(Clone, Copy, Debug)]
struct DatagramGap {
    first: Psn,
    end: Psn,
    /// The datagram after it.
    side: Side,
    at: Stamp,
    /// The drop counters of the file account for it.
    by_capture: bool,
}

/// One queue pair that sends datagrams.
#[derive(Debug, Default)]
struct DatagramSender {
    next: Option<ExtendedPsn>,
    seen: u64,
    missing: u64,
    gaps: Gaps<DatagramGap>,
    /// Gaps that nothing will fill any more.
    settled: Vec<DatagramGap>,
    /// Number of known capture gaps at the last datagram.
    capture_gaps: u64,
}

/// The queue pairs that send datagrams to the capturing host.
#[derive(Debug, Default)]
pub(super) struct DatagramSenders {
    senders: HashMap<QueuePair, DatagramSender>,
    settled: usize,
}

impl DatagramSenders {
    /// Adds a datagram. Returns whether others seem to be missing before it.
    pub(super) fn add(
        &mut self,
        source: IpAddr,
        observed: &ObservedPacket<'_>,
        side: Side,
        max_senders: usize,
    ) -> bool {
        let Some(deth) = observed.packet.extensions.deth else { return false };
        // What a host sends is in its capture from the start, so that nothing of it was lost on the path before.
        if observed.outbound || is_management(observed.packet) {
            return false;
        }
        let key = (source, deth.source.0);
        if self.senders.len() >= max_senders && !self.senders.contains_key(&key) {
            return false;
        }
        let sender = self.senders.entry(key).or_default();
        let before = sender.missing;
        let settled = sender.datagram(observed, side);
        if let Some(gap) = settled.filter(|_| self.settled < MAX_GAPS) {
            self.settled += 1;
            sender.settled.push(gap);
        }
        sender.capture_gaps = observed.gaps;
        sender.missing > before && sender.is_whole()
    }

    /// Reports what is missing at the end of the file. If `filtered`, only in conversations that have a selected packet.
    pub(super) fn finish(&mut self, filtered: bool, sink: &mut Sink) {
        let whole = self.senders.values_mut().filter(|sender| sender.is_whole());
        let mut gaps: Vec<_> = whole
            .flat_map(|sender| {
                std::mem::take(&mut sender.settled).into_iter().chain(sender.gaps.take())
            })
            .collect();
        // Maps have no order; the report has.
        gaps.sort_by_key(|gap| (gap.at.frame, gap.at.segment));
        for gap in gaps {
            sink.steps += 1;
            sink.muted = filtered && !sink.tally(gap.side.conversation).selected;
            let missing = psns(gap.first, gap.end);
            let mut reporter = Reporter { sink, side: gap.side, at: gap.at };
            if gap.by_capture {
                let text = format!("{missing} lost by the capture");
                reporter.anomaly(AnomalyKind::CaptureGap, gap.first, text);
            } else {
                let text = format!(
                    "{missing} of this sender not in the capture: lost before it, or sent to another receiver"
                );
                reporter.anomaly(AnomalyKind::MessageLost, gap.first, text);
            }
        }
        sink.muted = false;
    }
}

impl DatagramSender {
    /// Adds a datagram, and returns a gap that nothing will fill any more.
    fn datagram(&mut self, observed: &ObservedPacket<'_>, side: Side) -> Option<DatagramGap> {
        let psn = observed.packet.bth.psn;
        let next = *self.next.get_or_insert(ExtendedPsn::first(psn));
        let ahead = psn.distance(next.psn);
        let sequence = next.sequence_of(psn);
        if (-MAX_LATE..0).contains(&ahead) {
            if !matches!(self.gaps.fill(sequence), Filled::Nothing) {
                self.seen += 1;
                self.missing = self.missing.saturating_sub(1);
            }
            return None;
        }
        self.seen += 1;
        if !(0..=MAX_JUMP).contains(&ahead) {
            // Sequence numbers go on, so that a late packet does not fill a gap of the sequence before.
            let sequence = next.sequence + MAX_JUMP as u64;
            self.next = Some(ExtendedPsn { psn: psn.add(1), sequence });
            return None;
        }
        self.next = Some(ExtendedPsn { psn: psn.add(1), sequence: sequence + 1 });
        if ahead == 0 {
            return None;
        }
        self.missing += u64::from(ahead.unsigned_abs());
        let gap = DatagramGap {
            first: next.psn,
            end: psn,
            side,
            at: observed.stamp,
            by_capture: observed.gaps > self.capture_gaps,
        };
        self.gaps.open(next.sequence, sequence, gap)
    }

    /// Whether the capture has nearly all of its datagrams.
    fn is_whole(&self) -> bool {
        self.seen >= MIN_SEEN && self.missing * MIN_SEEN_PER_MISSING <= self.seen
    }
}
