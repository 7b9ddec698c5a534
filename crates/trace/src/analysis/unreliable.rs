//! One sender of an unreliable service: messages arrive in order or not at all (IBA 9.8.2).

use std::collections::VecDeque;

use ferroce_wire::number::Psn;

use super::anomaly::AnomalyKind;
use super::assembly::{Assembly, Ending};
use super::gaps::{Filled, Gaps};
use super::sink::{AnomalyId, Reporter};
use super::text::psns;
use super::window::{ExtendedPsn, ObservedPacket, TrackedRequest};
use crate::dissect::is_management;

#[derive(Debug, Default)]
pub(super) struct UnreliableSender {
    next: Option<ExtendedPsn>,
    /// Number of known capture gaps at the last packet.
    gaps: u64,
    /// Which of the PSNs before the next one were seen; the lowest bit is the newest.
    seen: u128,
    missing: Gaps<AnomalyId>,
    datagrams: RecentDatagrams,
    assembly: Assembly,
}

/// The last datagrams of one sender to one receiver.
#[derive(Debug, Default)]
struct RecentDatagrams {
    /// PSN and ICRC.
    list: VecDeque<(Psn, [u8; 4])>,
    /// Whether the sender was seen to count; one that always sends the same PSN tells nothing.
    counts: bool,
}

/// Datagrams remembered, and how far behind the newest one a datagram is taken to be late rather than the first of a new
/// sequence.
const MAX_DATAGRAMS: usize = 16;
const MAX_LATE: i32 = 64;

impl UnreliableSender {
    pub(super) fn packet(&mut self, observed: &ObservedPacket<'_>, reporter: &mut Reporter<'_>) {
        let psn = observed.packet.bth.psn;
        let mut expected = *self.next.get_or_insert(ExtendedPsn::first(psn));
        let ahead = psn.distance(expected.psn);
        if ahead < 0 {
            let bit = 1_u128.checked_shl(ahead.unsigned_abs() - 1).unwrap_or(0);
            if self.seen & bit != 0 {
                return duplicated(psn, reporter);
            }
            self.seen |= bit;
            if let Filled::Whole(missing) = self.missing.fill(expected.sequence_of(psn)) {
                reporter.withdraw(missing);
            }
            return reordered(psn, reporter);
        }
        if ahead > 0 {
            let missing = psns(expected.psn, psn);
            if observed.gaps > self.gaps {
                let text = format!("{missing} lost by the capture");
                reporter.anomaly(AnomalyKind::CaptureGap, expected.psn, text);
            } else {
                let text = format!(
                    "{missing} not in the capture: the receiver drops the message they belong to"
                );
                let id = reporter.anomaly(AnomalyKind::MessageLost, expected.psn, text);
                self.missing.open(expected.sequence, expected.sequence_of(psn), id);
            }
        }
        self.gaps = observed.gaps;
        expected = ExtendedPsn { psn, sequence: expected.sequence_of(psn) };
        self.assembly.add(
            &TrackedRequest::new(observed, expected.sequence, None),
            Ending::Unreliable,
            reporter,
        );
        self.next = Some(ExtendedPsn { psn: psn.add(1), sequence: expected.sequence + 1 });
        self.seen = self.seen.checked_shl(ahead.unsigned_abs() + 1).unwrap_or(0) | 1;
    }

    /// Adds a datagram: a message by itself, whose PSN need not follow that of the previous one to this receiver.
    pub(super) fn datagram(&mut self, observed: &ObservedPacket<'_>, reporter: &mut Reporter<'_>) {
        if let Some(icrc) = observed.packet.icrc.filter(|_| !is_management(observed.packet)) {
            self.datagrams.add(observed.packet.bth.psn, icrc, reporter);
        }
        let request = TrackedRequest::new(
            observed,
            ExtendedPsn::first(observed.packet.bth.psn).sequence,
            None,
        );
        self.assembly.add(&request, Ending::Unreliable, reporter);
    }

    pub(super) fn finish(&mut self, reporter: &mut Reporter<'_>) {
        self.assembly.flush(reporter);
    }
}

impl RecentDatagrams {
    fn add(&mut self, psn: Psn, icrc: [u8; 4], reporter: &mut Reporter<'_>) {
        let newest = self
            .list
            .iter()
            .map(|(psn, _)| *psn)
            .reduce(|newest, psn| if psn.distance(newest) > 0 { psn } else { newest });
        let ahead = newest.map_or(1, |newest| psn.distance(newest));
        self.counts |= newest.is_some() && (1..=MAX_LATE).contains(&ahead);
        let same_psn = self.list.iter().find(|(earlier, _)| *earlier == psn);
        match same_psn {
            Some((_, earlier)) if self.counts && *earlier == icrc => duplicated(psn, reporter),
            None if self.counts && (-MAX_LATE..0).contains(&ahead) => reordered(psn, reporter),
            _ => {}
        }
        if ahead.abs() > MAX_LATE {
            // Another sequence, such as that of a queue pair that was reset.
            self.list.clear();
        }
        if self.list.len() == MAX_DATAGRAMS {
            self.list.pop_front();
        }
        self.list.push_back((psn, icrc));
    }
}

fn duplicated(psn: Psn, reporter: &mut Reporter<'_>) {
    let text = format!("PSN {psn} seen twice: duplicated on the path");
    reporter.anomaly(AnomalyKind::Duplicate, psn, text);
}

fn reordered(psn: Psn, reporter: &mut Reporter<'_>) {
    let text = format!("PSN {psn} arrived after packets sent later");
    reporter.anomaly(AnomalyKind::Reordered, psn, text);
}
