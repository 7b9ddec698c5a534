//! What the responder answers.

use ferroce_wire::opcode::Operation;
use ferroce_wire::syndrome::{NakCode, SyndromeKind};

use super::{Cause, Requester, Trigger};
use crate::analysis::anomaly::AnomalyKind;
use crate::analysis::sink::Teller;
use crate::analysis::text::{duration, named};
use crate::analysis::window::Seen;

impl Requester {
    /// A response of the peer to this requester.
    pub(in crate::analysis) fn response(&mut self, seen: &Seen<'_>, teller: &mut Teller<'_>) {
        let psn = seen.packet.bth.psn;
        let acknowledges = seen.info.operation == Operation::Acknowledge;
        let next = self.next.filter(|next| acknowledges || next.sequence_of(psn) < next.sequence);
        let Some(next) = next else {
            let text = format!("answer to PSN {psn}, whose request is not in the capture");
            return teller.anomaly(AnomalyKind::UnseenAcknowledged, psn, text);
        };
        let sequence = next.sequence_of(psn);
        let syndrome = seen.packet.extensions.aeth.map(|aeth| aeth.syndrome.kind());
        let gap = seen.gaps > std::mem::replace(&mut self.response_gaps, seen.gaps);
        match (seen.info.operation, syndrome) {
            (Operation::Acknowledge, Some(SyndromeKind::Ack(_))) => {
                if sequence >= next.sequence {
                    let text = format!("acknowledges PSN {psn}, which is not in the capture");
                    teller.anomaly(AnomalyKind::UnseenAcknowledged, psn, text);
                }
                if !self.acknowledge(sequence + 1, teller) {
                    let text = format!("PSN {psn} acknowledged again");
                    teller.anomaly(AnomalyKind::RepeatedAcknowledge, psn, text);
                }
            }
            (Operation::Acknowledge, Some(kind)) => self.refusal(kind, sequence, seen, teller),
            (Operation::ReadResponse, _) => self.read_response(sequence, gap, seen, teller),
            (Operation::AtomicAcknowledge, _) => self.atomic_response(sequence, seen, teller),
            _ => {}
        }
    }

    /// Everything before `sequence` arrived. Whether that was news.
    fn acknowledge(&mut self, sequence: u64, teller: &mut Teller<'_>) -> bool {
        let mut news = false;
        if self.trigger.is_some_and(|trigger| trigger.from < sequence) {
            // What was asked for has arrived.
            self.trigger = None;
        }
        let missing = self.window.acknowledge(sequence, |slot| {
            teller.sink.steps += 1;
            if slot.finished.is_some() {
                return;
            }
            if slot.needs_response() && teller.sink.gaps > slot.gaps {
                // The capture has lost packets since the request: that it lost the response is likelier than that the
                // network did.
                slot.response_gap = true;
                slot.finished = Some(teller.at);
                let text = format!("response to PSN {} lost by the capture", slot.psn);
                teller.anomaly(AnomalyKind::CaptureGap, slot.psn, text);
            } else if slot.needs_response() {
                // IBA 9.9.2.4.1: a response that later ones overtook is lost, the requester goes back to it.
                if !slot.response_missing {
                    slot.response_missing = true;
                    let text = format!("response to PSN {} is not in the capture", slot.psn);
                    teller.anomaly(AnomalyKind::MissingResponse, slot.psn, text);
                }
            } else {
                slot.finished = Some(teller.at);
                news = true;
            }
        });
        if let Some(sequence) = missing {
            self.trigger = Some(Trigger::new(Cause::MissingResponse, sequence, teller.at));
        }
        if news {
            self.not_ready = 0;
        }
        self.drain(teller);
        news
    }

    fn refusal(
        &mut self,
        syndrome: SyndromeKind,
        sequence: u64,
        seen: &Seen<'_>,
        teller: &mut Teller<'_>,
    ) {
        // A NAK acknowledges everything before its PSN (IBA 9.7.5.1.2).
        self.acknowledge(sequence, teller);
        let psn = seen.packet.bth.psn;
        match syndrome {
            SyndromeKind::RnrNak(timer) => {
                self.not_ready += 1;
                let cause = Cause::NotReady(timer);
                self.trigger = Some(Trigger::new(cause, sequence, seen.stamp));
                let wait = duration(timer.duration().as_nanos() as i64);
                let text = format!("no receive request posted for PSN {psn}: wait {wait}");
                teller.anomaly(AnomalyKind::RnrNak, psn, text);
            }
            SyndromeKind::Nak(NakCode::PsnSequenceError) => {
                // rdma_rxe sends one after an RNR NAK, for the packets that followed the refused one.
                let echo = self.trigger.is_some_and(|trigger| {
                    matches!(trigger.cause, Cause::NotReady(_)) && trigger.from == sequence
                });
                let text = if echo {
                    teller.tally().echoed_naks += 1;
                    format!("responder still expects PSN {psn}, which it was not ready for")
                } else {
                    let cause = Cause::SequenceNak;
                    self.trigger = Some(Trigger::new(cause, sequence, seen.stamp));
                    format!("responder expects PSN {psn}: it was lost, or overtaken")
                };
                teller.anomaly(AnomalyKind::NakSequence, psn, text);
            }
            SyndromeKind::Nak(code) => {
                let what = self.refuse(sequence, teller);
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
                teller.anomaly(kind, psn, format!("{what} refused, {}: {why}", code.name()));
            }
            SyndromeKind::Reserved | SyndromeKind::Ack(_) => {
                let text = format!("reserved syndrome for PSN {psn}");
                teller.anomaly(AnomalyKind::ReservedSyndrome, psn, text);
            }
        }
    }

    /// Marks the request at `sequence` refused and says what it was.
    fn refuse(&mut self, sequence: u64, teller: &Teller<'_>) -> String {
        self.dead = true;
        let Some(slot) = self.window.find(sequence) else { return "request".to_owned() };
        slot.refused = Some(teller.at);
        let name = slot.info().map_or("request", |info| info.name);
        match (slot.address, slot.key) {
            (Some(address), Some(key)) => {
                format!("{name} at address {address:#x} with rkey {key:#010x}")
            }
            _ => name.to_owned(),
        }
    }

    fn atomic_response(&mut self, sequence: u64, seen: &Seen<'_>, teller: &mut Teller<'_>) {
        let psn = seen.packet.bth.psn;
        self.acknowledge(sequence, teller);
        match self.window.find(sequence).filter(|slot| slot.finished.is_none()) {
            Some(slot) => {
                slot.responses += 1;
                slot.finished = Some(seen.stamp);
                let start = slot.sequence;
                self.window.answered(start);
            }
            None => {
                let text = format!("PSN {psn} answered again");
                teller.anomaly(AnomalyKind::RepeatedResponse, psn, text);
            }
        }
        self.drain(teller);
    }

    /// A packet of a READ's response. `gap` says that the capture lost packets since the response before it.
    fn read_response(
        &mut self,
        sequence: u64,
        gap: bool,
        seen: &Seen<'_>,
        teller: &mut Teller<'_>,
    ) {
        let psn = seen.packet.bth.psn;
        let start = self.window.find(sequence).map(|slot| slot.sequence);
        // A response acknowledges everything before its request (IBA 9.7.5.1.1).
        self.acknowledge(start.unwrap_or(sequence), teller);
        let open = self.window.find(sequence).filter(|slot| {
            slot.finished.is_none() && sequence - slot.sequence >= u64::from(slot.next_response)
        });
        let Some(slot) = open else {
            let text = format!("response PSN {psn} came again");
            return teller.anomaly(AnomalyKind::RepeatedResponse, psn, text);
        };
        let missing = sequence - slot.sequence - u64::from(slot.next_response);
        let first = slot.psn.add(slot.next_response);
        if missing > 0 && gap {
            // They came, and the requester goes on.
            slot.response_gap = true;
            slot.next_response += missing as u32;
            let missing = named(missing, "response packet");
            let text = format!("{missing} from PSN {first} lost by the capture");
            teller.anomaly(AnomalyKind::CaptureGap, first, text);
        } else if missing > 0 {
            if !slot.response_missing {
                slot.response_missing = true;
                let missing = named(missing, "response packet");
                let text = format!("{missing} from PSN {first} not in the capture");
                teller.anomaly(AnomalyKind::MissingResponse, first, text);
            }
            self.trigger = Some(Trigger::new(Cause::MissingResponse, slot.sequence, seen.stamp));
            return;
        }
        slot.responses += 1;
        slot.next_response += 1;
        slot.response_missing = false;
        slot.response_bytes += seen.packet.payload_len as u64;
        if seen.info.position.ends() && (slot.next_response == slot.span || !slot.span_known) {
            slot.finished = Some(seen.stamp);
            let start = slot.sequence;
            self.window.answered(start);
            self.not_ready = 0;
        }
        self.drain(teller);
    }
}
