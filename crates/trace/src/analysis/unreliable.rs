//! One sender of an unreliable connection: messages in order, or not at all (IBA 9.8.2).

use super::anomaly::AnomalyKind;
use super::assembly::{Assembly, Ending};
use super::sink::Teller;
use super::text::psns;
use super::window::{Place, Seen, Slot};

#[derive(Debug, Default)]
pub(super) struct UnreliableSender {
    next: Option<Place>,
    /// Known gaps of the capture when the last packet came.
    gaps: u64,
    assembly: Assembly,
}

impl UnreliableSender {
    pub(super) fn packet(&mut self, seen: &Seen<'_>, teller: &mut Teller<'_>) {
        let psn = seen.packet.bth.psn;
        let mut place = *self.next.get_or_insert(Place::first(psn));
        let ahead = psn.distance(place.psn);
        if ahead < 0 {
            let text = format!("PSN {psn} came after {}: doubled or overtaken", place.psn.sub(1));
            return teller.anomaly(AnomalyKind::Reordered, psn, text);
        }
        if ahead > 0 {
            let missing = psns(place.psn, psn);
            if seen.gaps > self.gaps {
                let text = format!("{missing} lost by the capture");
                teller.anomaly(AnomalyKind::CaptureGap, place.psn, text);
            } else {
                let text = format!(
                    "{missing} not in the capture: the receiver drops the message they belong to"
                );
                teller.anomaly(AnomalyKind::MessageLost, place.psn, text);
            }
        }
        self.gaps = seen.gaps;
        place = Place { psn, sequence: place.sequence_of(psn) };
        self.assembly.add(&Slot::new(seen, place.sequence, None), Ending::Unreliable, teller);
        self.next = Some(Place { psn: psn.add(1), sequence: place.sequence + 1 });
    }

    /// A datagram: a message by itself, whose PSN need not follow that of the last one to this receiver.
    pub(super) fn datagram(&mut self, seen: &Seen<'_>, teller: &mut Teller<'_>) {
        let slot = Slot::new(seen, Place::first(seen.packet.bth.psn).sequence, None);
        self.assembly.add(&slot, Ending::Unreliable, teller);
    }

    pub(super) fn finish(&mut self, teller: &mut Teller<'_>) {
        self.assembly.flush(teller);
    }
}
