//! One sender of an unreliable service: messages arrive in order or not at all (IBA 9.8.2).

use super::anomaly::AnomalyKind;
use super::assembly::{Assembly, Ending};
use super::sink::Reporter;
use super::text::psns;
use super::window::{ExtendedPsn, ObservedPacket, TrackedRequest};

#[derive(Debug, Default)]
pub(super) struct UnreliableSender {
    next: Option<ExtendedPsn>,
    /// Number of known capture gaps at the last packet.
    gaps: u64,
    assembly: Assembly,
}

impl UnreliableSender {
    pub(super) fn packet(&mut self, observed: &ObservedPacket<'_>, reporter: &mut Reporter<'_>) {
        let psn = observed.packet.bth.psn;
        let mut expected = *self.next.get_or_insert(ExtendedPsn::first(psn));
        let ahead = psn.distance(expected.psn);
        if ahead < 0 {
            let text =
                format!("PSN {psn} arrived after {}: duplicated or reordered", expected.psn.sub(1));
            return reporter.anomaly(AnomalyKind::Reordered, psn, text);
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
                reporter.anomaly(AnomalyKind::MessageLost, expected.psn, text);
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
    }

    /// Adds a datagram: a message by itself, whose PSN need not follow that of the previous one to this receiver.
    pub(super) fn datagram(&mut self, observed: &ObservedPacket<'_>, reporter: &mut Reporter<'_>) {
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
