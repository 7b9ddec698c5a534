//! One requester of a reliable connection, as seen from outside: which of its packets are new, which come again and
//! why, and what the responder answered.

use std::collections::VecDeque;

use ferroce_wire::number::Psn;
use ferroce_wire::opcode::{Operation, Position};
use ferroce_wire::syndrome::{NakCode, RnrTimer, SyndromeKind};

use super::anomaly::AnomalyKind;
use super::assembly::{Assembly, Ending};
use super::identification::Identifications;
use super::sink::{Side, Sink, Stamp};
use super::text::{duration, named};
use super::window::{Place, Seen, Slot, Window};

/// A jump of the PSN by more than this is a new connection on the same queue pair, not loss.
const RESTART: i32 = 1 << 16;

/// The first packets of a requester may be lost before the capture, and the responder then asks for them.
const BEFORE_FIRST: u64 = 64;

/// Packets that come again within this time, with nothing to ask for them, were doubled on the way: no requester's
/// timer is so short.
const DOUBLED_WITHIN_NS: i64 = 100_000;

/// Packets sent again one after the other follow within this time.
const RUN_WITHIN_NS: i64 = 1_000_000;

/// A requester goes back within this time after the answer that asks for it; later, its timer made it do so.
const PROMPT_WITHIN_NS: i64 = 20_000_000;

/// A gap that closes within this time was reordering.
const REORDERED_WITHIN_NS: i64 = 1_000_000;

/// Finished packets remembered, to tell a doubled one from one sent again.
const REMEMBERED: usize = 32;

/// Why a requester goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    SequenceNak,
    NotReady(RnrTimer),
    MissingResponse,
    Timeout,
}

impl Cause {
    fn text(self) -> String {
        match self {
            Self::SequenceNak => "after NAK, PSN sequence error".to_owned(),
            Self::NotReady(timer) => {
                format!("after RNR NAK, wait {}", duration(timer.duration().as_nanos() as i64))
            }
            Self::MissingResponse => "after a missing response (implied NAK)".to_owned(),
            Self::Timeout => "after timeout".to_owned(),
        }
    }
}

/// An answer that makes the requester go back.
#[derive(Clone, Copy, Debug)]
struct Trigger {
    cause: Cause,
    /// Where to.
    from: u64,
    time: i64,
}

#[derive(Debug, Default)]
pub(super) struct Requester {
    /// The next packet that would be new.
    next: Option<Place>,
    window: Window,
    assembly: Assembly,
    /// What will make the requester go back.
    trigger: Option<Trigger>,
    /// The sequence that continues going back.
    run: Option<(Cause, u64)>,
    finished: VecDeque<(u64, Option<u16>, i64)>,
    identifications: Identifications,
    last_time: i64,
    /// RNR NAKs since the last packet that was accepted.
    not_ready: u32,
    dead: bool,
}

impl Requester {
    /// Whether a response with this PSN can be an answer to this requester.
    pub(super) fn expects(&self, psn: Psn) -> bool {
        let Some(next) = self.next else { return false };
        let sequence = next.sequence_of(psn);
        let oldest = self.window.front().map_or(next.sequence, |slot| slot.sequence - BEFORE_FIRST);
        // A READ whose span is not yet known may be answered beyond it.
        let reading =
            self.window.back().is_some_and(|slot| !slot.span_known && sequence >= slot.sequence);
        (oldest..next.sequence).contains(&sequence) || reading
    }

    /// A request packet of this requester.
    pub(super) fn request(
        &mut self,
        seen: &Seen<'_>,
        mtu: &mut Option<u32>,
        side: Side,
        sink: &mut Sink,
    ) {
        let psn = seen.packet.bth.psn;
        let mut next = *self.next.get_or_insert(Place::first(psn));
        let mut ahead = psn.distance(next.psn);
        if ahead.unsigned_abs() > RESTART as u32 {
            let text =
                format!("PSN {psn} follows {}: the queue pair was connected again", next.psn);
            sink.anomaly(AnomalyKind::Restart, seen.stamp, Some(side), Some(psn.0), text);
            self.finish(side, sink);
            *self = Self::default();
            next = Place::first(psn);
            ahead = 0;
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
                let text = format!(
                    "{} before PSN {psn} not in the capture: lost before it, or overtaken",
                    named(ahead as u64, "request packet")
                );
                let missing = Some(next.psn.0);
                sink.anomaly(AnomalyKind::MissingRequest, seen.stamp, Some(side), missing, text);
            }
            self.run = None;
            let slot = Slot::new(seen, sequence, *mtu);
            let span = slot.span;
            self.insert(slot, side, sink);
            self.next = Some(Place { psn: psn.add(span), sequence: sequence + u64::from(span) });
        } else {
            self.old(seen, sequence, *mtu, side, sink);
        }
        if ahead >= 0 {
            self.identifications.new_packet(seen.identification);
        } else {
            self.identifications.any_packet(seen.identification);
        }
        self.last_time = seen.stamp.time;
    }

    /// A packet from before the newest: doubled, overtaken, or sent again.
    fn old(
        &mut self,
        seen: &Seen<'_>,
        sequence: u64,
        mtu: Option<u32>,
        side: Side,
        sink: &mut Sink,
    ) {
        let psn = seen.packet.bth.psn;
        let (known, known_identification, known_time) = match self.window.find(sequence) {
            Some(slot) => (true, slot.identification, slot.last_time),
            None => match self.finished.iter().rev().find(|(other, ..)| *other == sequence) {
                Some(&(_, identification, time)) => (true, identification, time),
                None => (false, None, self.last_time),
            },
        };
        let elapsed = seen.stamp.time - known_time;
        // A run of packets sent again goes on where it was; some of its packets may be lost before the capture.
        let in_run = seen.stamp.time - self.last_time < RUN_WITHIN_NS;
        let run = self.run.filter(|(_, next)| in_run && *next <= sequence);
        let trigger = self.trigger.filter(|trigger| {
            let prompt = seen.stamp.time - trigger.time < PROMPT_WITHIN_NS;
            trigger.from <= sequence && (prompt || matches!(trigger.cause, Cause::NotReady(_)))
        });
        let asked_for = run.is_some() || trigger.is_some();

        let ids = &self.identifications;
        let doubled = known
            && (ids.same_packet(known_identification, seen.identification))
                .unwrap_or(!asked_for && elapsed < DOUBLED_WITHIN_NS);
        if doubled {
            let text = format!("PSN {psn} came twice: doubled on the way");
            sink.anomaly(AnomalyKind::Duplicate, seen.stamp, Some(side), Some(psn.0), text);
            return;
        }
        let overtaken = (ids.overtaken(seen.identification))
            .unwrap_or(!known && !asked_for && elapsed < REORDERED_WITHIN_NS);
        if overtaken {
            let text = format!("PSN {psn} was overtaken by packets sent after it");
            sink.anomaly(AnomalyKind::Reordered, seen.stamp, Some(side), Some(psn.0), text);
            if !known {
                let slot = Slot::new(seen, sequence, mtu);
                return self.insert(slot, side, sink);
            }
            if let Some(slot) = self.window.find(sequence).filter(|slot| slot.first_lost) {
                // It was not lost: here it is, behind its own second sending.
                slot.first_lost = false;
                sink.tally(side.conversation).lost_requests -= 1;
                return;
            }
        }

        let because = run.map(|(cause, _)| cause).or(trigger.map(|trigger| trigger.cause));
        let cause = match (because, overtaken) {
            (Some(cause), _) => Some(cause),
            // Its place among the packets sent again is lost with its order, and so is its cause.
            (None, true) => None,
            (None, false) => {
                let text = format!(
                    "no answer to PSN {psn} for {}: the requester's timer ran out",
                    duration(elapsed)
                );
                sink.anomaly(AnomalyKind::Timeout, seen.stamp, Some(side), Some(psn.0), text);
                Some(Cause::Timeout)
            }
        };
        if run.is_none() && trigger.is_some() {
            self.trigger = None;
        }
        let text = match cause {
            Some(cause) => format!("PSN {psn} sent again {}", cause.text()),
            None => format!("PSN {psn} sent again"),
        };
        sink.anomaly(AnomalyKind::Retransmission, seen.stamp, Some(side), Some(psn.0), text);
        let span = match self.window.find(sequence) {
            Some(slot) => {
                slot.sends += 1;
                slot.last_time = seen.stamp.time;
                slot.identification = seen.identification;
                slot.end() - sequence
            }
            None if !known => {
                let mut slot = Slot::new(seen, sequence, mtu);
                // The capture shows it for the first time, the requester sent it before.
                slot.sends = 2;
                slot.first_lost = true;
                sink.tally(side.conversation).lost_requests += 1;
                let span = slot.span;
                self.insert(slot, side, sink);
                u64::from(span)
            }
            None => 1,
        };
        if let Some(cause) = cause {
            self.run = Some((cause, sequence + span));
        }
        // What follows may be acknowledged anew.
        self.window.look_again(sequence);
    }

    /// Keeps a request until it is finished. Where too many are kept, the oldest is given up: its acknowledgement is
    /// not in the capture.
    fn insert(&mut self, slot: Slot, side: Side, sink: &mut Sink) {
        if sink.window_budget.is_spent(self.window.len()) {
            if let Some(oldest) = self.pop(sink) {
                self.assembly.add(&oldest, Ending::Acknowledged, side, sink);
            }
        }
        sink.window_budget.take();
        self.window.insert(slot);
    }

    fn pop(&mut self, sink: &mut Sink) -> Option<Slot> {
        let slot = self.window.pop()?;
        sink.window_budget.give_back();
        Some(slot)
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
    pub(super) fn learn_mtu(&mut self, mtu: u32) {
        let Some(slot) = self.window.back_mut().filter(|slot| !slot.span_known) else { return };
        (slot.span, slot.span_known) = (slot.asked.div_ceil(mtu).max(1), true);
        self.next = Some(Place { psn: slot.psn.add(slot.span), sequence: slot.end() });
    }

    /// A response of the peer to this requester. `side` is the requester's.
    pub(super) fn response(&mut self, seen: &Seen<'_>, side: Side, sink: &mut Sink) {
        let psn = seen.packet.bth.psn;
        let Some(next) = self.next else {
            let text = format!("answer to PSN {psn}, whose request is not in the capture");
            let kind = AnomalyKind::UnseenAcknowledged;
            return sink.anomaly(kind, seen.stamp, Some(side), Some(psn.0), text);
        };
        let sequence = next.sequence_of(psn);
        if sequence >= next.sequence && seen.info.operation != Operation::Acknowledge {
            let text = format!("answer to PSN {psn}, whose request is not in the capture");
            let kind = AnomalyKind::UnseenAcknowledged;
            return sink.anomaly(kind, seen.stamp, Some(side), Some(psn.0), text);
        }
        let syndrome = seen.packet.extensions.aeth.map(|aeth| aeth.syndrome.kind());
        match (seen.info.operation, syndrome) {
            (Operation::Acknowledge, Some(SyndromeKind::Ack(_))) => {
                if sequence >= next.sequence {
                    let text = format!("acknowledges PSN {psn}, which is not in the capture");
                    let kind = AnomalyKind::UnseenAcknowledged;
                    sink.anomaly(kind, seen.stamp, Some(side), Some(psn.0), text);
                }
                if !self.acknowledge(sequence + 1, seen.stamp, side, sink) {
                    let text = format!("PSN {psn} acknowledged again");
                    let kind = AnomalyKind::RepeatedAcknowledge;
                    sink.anomaly(kind, seen.stamp, Some(side), Some(psn.0), text);
                }
            }
            (Operation::Acknowledge, Some(kind)) => self.refusal(kind, sequence, seen, side, sink),
            (Operation::ReadResponse, _) => self.read_response(sequence, seen, side, sink),
            (Operation::AtomicAcknowledge, _) => {
                self.acknowledge(sequence, seen.stamp, side, sink);
                match self.window.find(sequence).filter(|slot| slot.finished.is_none()) {
                    Some(slot) => {
                        slot.responses += 1;
                        slot.finished = Some(seen.stamp);
                    }
                    None => {
                        let text = format!("PSN {psn} answered again");
                        let kind = AnomalyKind::RepeatedResponse;
                        sink.anomaly(kind, seen.stamp, Some(side), Some(psn.0), text);
                    }
                }
                self.drain(side, sink);
            }
            _ => {}
        }
    }

    /// Everything before `sequence` arrived. Whether that was news.
    fn acknowledge(&mut self, sequence: u64, at: Stamp, side: Side, sink: &mut Sink) -> bool {
        let mut news = false;
        let mut missing = None;
        if self.trigger.is_some_and(|trigger| trigger.from < sequence) {
            // What was asked for has arrived.
            self.trigger = None;
        }
        for slot in self.window.acknowledge(sequence) {
            if slot.finished.is_some() {
                continue;
            }
            if slot.needs_response() {
                // IBA 9.9.2.4.1: a response that later ones overtook is lost, the requester goes back to it.
                if !slot.response_missing {
                    slot.response_missing = true;
                    let text = format!("response to PSN {} is not in the capture", slot.psn);
                    let psn = Some(slot.psn.0);
                    sink.anomaly(AnomalyKind::MissingResponse, at, Some(side), psn, text);
                }
                missing.get_or_insert(slot.sequence);
            } else {
                slot.finished = Some(at);
                news = true;
            }
        }
        if let Some(sequence) = missing {
            self.go_back(Cause::MissingResponse, sequence, at);
        }
        if news {
            self.not_ready = 0;
        }
        self.drain(side, sink);
        news
    }

    fn refusal(
        &mut self,
        syndrome: SyndromeKind,
        sequence: u64,
        seen: &Seen<'_>,
        side: Side,
        sink: &mut Sink,
    ) {
        // A NAK acknowledges everything before its PSN (IBA 9.7.5.1.2).
        self.acknowledge(sequence, seen.stamp, side, sink);
        let psn = seen.packet.bth.psn;
        let (kind, text) = match syndrome {
            SyndromeKind::RnrNak(timer) => {
                self.not_ready += 1;
                self.go_back(Cause::NotReady(timer), sequence, seen.stamp);
                let wait = duration(timer.duration().as_nanos() as i64);
                let text = format!("no receive request posted for PSN {psn}: wait {wait}");
                (AnomalyKind::RnrNak, text)
            }
            SyndromeKind::Nak(NakCode::PsnSequenceError) => {
                // rdma_rxe sends one after an RNR NAK, for the packets that followed the refused one: the wait holds.
                let waiting = self.trigger.is_some_and(|trigger| {
                    matches!(trigger.cause, Cause::NotReady(_)) && trigger.from == sequence
                });
                if !waiting {
                    self.go_back(Cause::SequenceNak, sequence, seen.stamp);
                }
                let text = format!("responder expects PSN {psn}: packets before this were lost");
                (AnomalyKind::NakSequence, text)
            }
            SyndromeKind::Nak(code) => {
                self.dead = true;
                let what = self.refuse(sequence);
                let (kind, why) = match code {
                    NakCode::RemoteAccessError => (
                        AnomalyKind::NakRemoteAccess,
                        "the key is unknown, the range is out of its bounds, or it does not allow this",
                    ),
                    NakCode::InvalidRequest => (
                        AnomalyKind::NakInvalidRequest,
                        "the queue pair does not allow this operation, or the request breaks the protocol",
                    ),
                    NakCode::RemoteOperationalError => (
                        AnomalyKind::NakRemoteOperational,
                        "the responder failed locally, for example its receive buffer has a bad key or is too short",
                    ),
                    _ => (AnomalyKind::NakInvalidRd, "reliable datagram only"),
                };
                (kind, format!("{what} refused, {}: {why}", code.name()))
            }
            SyndromeKind::Reserved | SyndromeKind::Ack(_) => {
                (AnomalyKind::ReservedSyndrome, format!("reserved syndrome for PSN {psn}"))
            }
        };
        sink.anomaly(kind, seen.stamp, Some(side), Some(psn.0), text);
    }

    fn go_back(&mut self, cause: Cause, from: u64, at: Stamp) {
        self.trigger = Some(Trigger { cause, from, time: at.time });
    }

    /// Marks the request at `sequence` refused and says what it was.
    fn refuse(&mut self, sequence: u64) -> String {
        let Some(slot) = self.window.find(sequence) else { return "request".to_owned() };
        slot.refused = true;
        let name = slot.info().map_or("request", |info| info.name);
        match (slot.address, slot.key) {
            (Some(address), Some(key)) => {
                format!("{name} at address {address:#x} with rkey {key:#010x}")
            }
            _ => name.to_owned(),
        }
    }

    fn read_response(&mut self, sequence: u64, seen: &Seen<'_>, side: Side, sink: &mut Sink) {
        let psn = seen.packet.bth.psn;
        let start = self.window.find(sequence).map(|slot| slot.sequence);
        // A response acknowledges everything before its request (IBA 9.7.5.1.1).
        self.acknowledge(start.unwrap_or(sequence), seen.stamp, side, sink);
        let open = self.window.find(sequence).filter(|slot| slot.finished.is_none());
        let Some(slot) = open else {
            let text = format!("response PSN {psn} came again");
            let kind = AnomalyKind::RepeatedResponse;
            return sink.anomaly(kind, seen.stamp, Some(side), Some(psn.0), text);
        };
        let index = (sequence - slot.sequence) as u32;
        if index < slot.responses {
            let text = format!("response PSN {psn} came again");
            sink.anomaly(AnomalyKind::RepeatedResponse, seen.stamp, Some(side), Some(psn.0), text);
        } else if index > slot.responses {
            let missing = u64::from(index - slot.responses);
            let first = slot.psn.add(slot.responses);
            if !slot.response_missing {
                slot.response_missing = true;
                let text = format!(
                    "{} from PSN {first} not in the capture",
                    named(missing, "response packet")
                );
                let kind = AnomalyKind::MissingResponse;
                sink.anomaly(kind, seen.stamp, Some(side), Some(first.0), text);
            }
            let from = slot.sequence;
            self.go_back(Cause::MissingResponse, from, seen.stamp);
        } else {
            slot.responses += 1;
            slot.response_missing = false;
            slot.response_bytes += seen.packet.payload_len as u64;
            if matches!(seen.info.position, Position::Last | Position::Only)
                && (slot.responses == slot.span || !slot.span_known)
            {
                slot.finished = Some(seen.stamp);
                self.not_ready = 0;
            }
        }
        self.drain(side, sink);
    }

    /// Hands finished packets on, oldest first.
    fn drain(&mut self, side: Side, sink: &mut Sink) {
        while self.window.front().is_some_and(|slot| slot.finished.is_some()) {
            let Some(slot) = self.pop(sink) else { break };
            self.assembly.add(&slot, Ending::Acknowledged, side, sink);
            if self.finished.len() == REMEMBERED {
                self.finished.pop_front();
            }
            self.finished.push_back((slot.sequence, slot.identification, slot.last_time));
        }
    }

    /// The capture, or the connection, ends here.
    pub(super) fn finish(&mut self, side: Side, sink: &mut Sink) {
        if let Some(slot) = self.window.front().filter(|slot| !self.dead && slot.sends > 1) {
            let at = Stamp { frame: slot.first.frame, time: slot.first.time };
            let psn = Some(slot.psn.0);
            let attempts = named(u64::from(slot.sends), "attempt");
            if self.not_ready > 0 {
                let text = format!(
                    "PSN {} was never accepted: {attempts}, each answered by RNR NAK; the receiver never posted a receive request",
                    slot.psn
                );
                sink.anomaly(AnomalyKind::RnrRetryExceeded, at, Some(side), psn, text);
            } else {
                let step = (slot.last_time - slot.first.time) / i64::from(slot.sends - 1);
                let text = format!(
                    "PSN {} was never answered: {attempts}, {} apart; the peer's queue pair is gone or was never there, or the path is cut",
                    slot.psn,
                    duration(step)
                );
                sink.anomaly(AnomalyKind::RetryExceeded, at, Some(side), psn, text);
            }
        }
        while let Some(slot) = self.pop(sink) {
            self.assembly.add(&slot, Ending::Acknowledged, side, sink);
        }
        self.assembly.flush(side, sink);
    }
}
