//! The requester's own packets.

use ferroce_wire::number::Psn;

use super::{Cause, Requester};
use crate::analysis::anomaly::AnomalyKind;
use crate::analysis::sink::Teller;
use crate::analysis::text::{duration, psns};
use crate::analysis::window::{Place, Seen, Slot};

/// A jump of the PSN by more than this is a new connection on the same queue pair, not loss.
const RESTART: u32 = 1 << 16;

/// Packets that come again within this time, with nothing to ask for them, were doubled on the way: no requester's
/// timer is so short.
const DOUBLED_WITHIN_NS: i64 = 100_000;

/// Packets sent again one after the other follow within this time.
const RUN_WITHIN_NS: i64 = 1_000_000;

/// A requester goes back within this time after the answer that asks for it; later, its timer made it do so.
const PROMPT_WITHIN_NS: i64 = 20_000_000;

/// A gap that closes within this time was reordering.
const REORDERED_WITHIN_NS: i64 = 1_000_000;

/// What a packet from before the newest turned out to be.
#[derive(Clone, Copy, Debug)]
enum Sighting {
    /// The same packet once more.
    Doubled,
    /// Seen for the first time, behind packets sent after it.
    Overtaken,
    /// The first sending of a packet whose second one was seen before.
    OvertakenByItself,
    /// Sent again; some of those sent again came in another order, which hides the cause.
    Again { cause: Option<Cause>, overtaken: bool },
    /// Sent again because no answer came for this long.
    TimedOut(i64),
}

impl Requester {
    /// A request packet of this requester.
    pub(in crate::analysis) fn request(
        &mut self,
        seen: &Seen<'_>,
        mtu: &mut Option<u32>,
        teller: &mut Teller<'_>,
    ) {
        let psn = seen.packet.bth.psn;
        let mut next = *self.next.get_or_insert(Place::first(psn));
        let mut ahead = psn.distance(next.psn);
        if ahead.unsigned_abs() > RESTART {
            let text =
                format!("PSN {psn} follows {}: the queue pair was connected again", next.psn);
            teller.anomaly(AnomalyKind::Restart, psn, text);
            self.finish(teller);
            teller.at = seen.stamp;
            *self = Self::default();
            (next, ahead) = (Place::first(psn), 0);
        }
        if ahead > 0 {
            if let Some(place) = self.settle_read(psn, ahead, mtu) {
                next = place;
                ahead = psn.distance(next.psn);
            }
        }
        let sequence = next.sequence_of(psn);
        if ahead >= 0 {
            if ahead > 0 {
                let missing = psns(next.psn, psn);
                if seen.gaps > self.request_gaps {
                    let text = format!("{missing} lost by the capture");
                    teller.anomaly(AnomalyKind::CaptureGap, next.psn, text);
                } else {
                    let text =
                        format!("{missing} not in the capture: lost before it, or overtaken");
                    teller.anomaly(AnomalyKind::MissingRequest, next.psn, text);
                }
            }
            self.run = None;
            let slot = Slot::new(seen, sequence, *mtu);
            let span = slot.span;
            self.insert(slot, teller);
            self.next = Some(Place { psn: psn.add(span), sequence: sequence + u64::from(span) });
            self.identifications.new_packet(seen.identification);
        } else {
            self.old(seen, sequence, *mtu, teller);
            self.identifications.any_packet(seen.identification);
        }
        self.last_time = seen.stamp.time;
        self.request_gaps = seen.gaps;
    }

    /// A packet from before the newest.
    fn old(&mut self, seen: &Seen<'_>, sequence: u64, mtu: Option<u32>, teller: &mut Teller<'_>) {
        let psn = seen.packet.bth.psn;
        let sighting = self.sighting(seen, sequence);
        let overtaken = || format!("PSN {psn} was overtaken by packets sent after it");
        let cause = match sighting {
            Sighting::Doubled => {
                let text = format!("PSN {psn} came twice: doubled on the way");
                return teller.anomaly(AnomalyKind::Duplicate, psn, text);
            }
            Sighting::Overtaken => {
                teller.anomaly(AnomalyKind::Reordered, psn, overtaken());
                return self.insert(Slot::new(seen, sequence, mtu), teller);
            }
            Sighting::OvertakenByItself => {
                if let Some(slot) = self.window.find(sequence) {
                    slot.first_lost = false;
                }
                let tally = teller.tally();
                tally.lost_requests = tally.lost_requests.saturating_sub(1);
                return teller.anomaly(AnomalyKind::Reordered, psn, overtaken());
            }
            Sighting::Again { cause, overtaken: late } => {
                if late {
                    teller.anomaly(AnomalyKind::Reordered, psn, overtaken());
                }
                cause
            }
            Sighting::TimedOut(elapsed) => {
                let text = format!(
                    "no answer to PSN {psn} for {}: the requester's timer ran out",
                    duration(elapsed)
                );
                teller.anomaly(AnomalyKind::Timeout, psn, text);
                Some(Cause::Timeout)
            }
        };
        let why = cause.map(|cause| format!(" {}", cause.text())).unwrap_or_default();
        let text = format!("PSN {psn} sent again{why}");
        teller.anomaly(AnomalyKind::Retransmission, psn, text);
        let end = self.again(seen, sequence, mtu, teller);
        if let Some(cause) = cause {
            self.gap_in_run(sequence, psn, teller);
            self.run = Some((cause, end));
        }
        // What follows may be acknowledged anew.
        self.window.look_again(sequence);
    }

    /// Finds out what a packet from before the newest is: by its identification where that tells, by what asked for
    /// it, and by time.
    fn sighting(&mut self, seen: &Seen<'_>, sequence: u64) -> Sighting {
        let now = seen.stamp.time;
        let earlier = self.window.find(sequence);
        let first_lost = earlier.as_ref().is_some_and(|slot| slot.first_lost);
        let earlier = match earlier {
            Some(slot) => Some((slot.identification, slot.last.time)),
            None => (self.finished.iter().rev().find(|one| one.sequence == sequence))
                .map(|one| (one.identification, one.last_time)),
        };
        // A run of packets sent again goes on where it was; some of its packets may be lost before the capture.
        let running = now - self.last_time < RUN_WITHIN_NS;
        let run = self.run.filter(|(_, next)| running && *next <= sequence);
        let trigger = self.trigger.filter(|trigger| {
            let prompt = now - trigger.time < PROMPT_WITHIN_NS;
            trigger.from <= sequence && (prompt || matches!(trigger.cause, Cause::NotReady(_)))
        });
        let asked_for = run.is_some() || trigger.is_some();
        let elapsed = now - earlier.map_or(self.last_time, |(_, time)| time);

        let ids = &self.identifications;
        if let Some((identification, _)) = earlier {
            let same = ids.same_packet(identification, seen.identification);
            if same.unwrap_or(!asked_for && elapsed < DOUBLED_WITHIN_NS) {
                return Sighting::Doubled;
            }
        }
        // What was acknowledged had been sent: this is not its first time, though that may not be remembered.
        let forgotten = earlier.is_none() && sequence < self.finished_before;
        let overtaken = (ids.overtaken(seen.identification)).unwrap_or(
            earlier.is_none() && !forgotten && !asked_for && elapsed < REORDERED_WITHIN_NS,
        );
        if overtaken && earlier.is_none() {
            return Sighting::Overtaken;
        }
        if overtaken && first_lost {
            return Sighting::OvertakenByItself;
        }
        if run.is_none() && trigger.is_some() {
            self.trigger = None;
        }
        match run.map(|(cause, _)| cause).or(trigger.map(|trigger| trigger.cause)) {
            // How long it went unanswered is not known where it is not remembered.
            None if !overtaken && !forgotten => Sighting::TimedOut(elapsed),
            cause => Sighting::Again { cause, overtaken },
        }
    }

    /// Notes a packet as sent again; returns the sequence behind it.
    fn again(
        &mut self,
        seen: &Seen<'_>,
        sequence: u64,
        mtu: Option<u32>,
        teller: &mut Teller<'_>,
    ) -> u64 {
        if let Some(slot) = self.window.find(sequence) {
            slot.sends += 1;
            slot.last = seen.stamp;
            slot.identification = seen.identification;
            // Its responses come anew, and may be lost anew.
            slot.response_missing = false;
            return slot.end();
        }
        if sequence < self.finished_before {
            return sequence + 1;
        }
        // The capture shows it for the first time, the requester sent it before.
        let slot = Slot { sends: 2, first_lost: true, ..Slot::new(seen, sequence, mtu) };
        teller.tally().lost_requests += 1;
        let end = slot.end();
        self.insert(slot, teller);
        end
    }

    /// Names packets that were sent again as well, but did not come past the capture.
    fn gap_in_run(&mut self, sequence: u64, psn: Psn, teller: &mut Teller<'_>) {
        let Some((_, expected)) = self.run.filter(|(_, expected)| *expected < sequence) else {
            return;
        };
        // Where the path reorders, they are likely to come yet.
        if teller.tally().count(AnomalyKind::Reordered) > 0 || self.window.find(expected).is_none()
        {
            return;
        }
        let first = psn.sub((sequence - expected) as u32);
        let text = format!("{} sent again too, but not in the capture", psns(first, psn));
        teller.anomaly(AnomalyKind::MissingRequest, first, text);
    }

    /// Learns the span of a READ, and with it the path MTU, from the PSN of the request after it.
    fn settle_read(&mut self, psn: Psn, ahead: i32, mtu: &mut Option<u32>) -> Option<Place> {
        let slot = self.window.back_mut().filter(|slot| !slot.span_known)?;
        let span = slot.span + ahead as u32;
        let fits = |mtu: &u32| slot.asked.div_ceil(*mtu) == span;
        let found = [256, 512, 1024, 2048, 4096].into_iter().find(fits)?;
        (slot.span, slot.span_known) = (span, true);
        *mtu = Some(found);
        let place = Place { psn, sequence: slot.end() };
        self.next = Some(place);
        Some(place)
    }

    /// The path MTU became known: so does the span of a READ that was sent before.
    pub(in crate::analysis) fn learn_mtu(&mut self, mtu: u32) {
        let Some(slot) = self.window.back_mut().filter(|slot| !slot.span_known) else { return };
        (slot.span, slot.span_known) = (slot.asked.div_ceil(mtu).max(1), true);
        self.next = Some(Place { psn: slot.psn.add(slot.span), sequence: slot.end() });
    }
}
