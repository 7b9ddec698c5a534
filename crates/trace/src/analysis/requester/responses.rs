//! Processing of the responder's packets.

use ferroce_wire::number::Psn;
use ferroce_wire::opcode::Operation;
use ferroce_wire::syndrome::{NakCode, SyndromeKind};

use super::{GoBackTrigger, Requester, RetransmitCause};
use crate::analysis::anomaly::AnomalyKind;
use crate::analysis::sink::Reporter;
use crate::analysis::text::{count_of, duration};
use crate::analysis::window::ObservedPacket;

/// Responses remembered until their requests are found.
const MAX_UNMATCHED: usize = 64;

impl Requester {
    /// Processes a response to this requester.
    pub(in crate::analysis) fn response(
        &mut self,
        observed: &ObservedPacket<'_>,
        reporter: &mut Reporter<'_>,
    ) {
        let psn = observed.packet.bth.psn;
        let acknowledges = observed.info.operation == Operation::Acknowledge;
        let next = self.next.filter(|next| acknowledges || next.sequence_of(psn) < next.sequence);
        let Some(next) = next else {
            let text = format!("response to PSN {psn}, whose request is not in the capture");
            reporter.anomaly(AnomalyKind::UnseenAcknowledged, psn, text);
            if self.unmatched.len() < MAX_UNMATCHED {
                self.unmatched.push(psn);
            }
            return;
        };
        let sequence = next.sequence_of(psn);
        let late = self.responses.is_late(observed.packet);
        if late {
            self.report_late_response(observed, reporter);
        }
        self.last_response = Some(observed.stamp.time);
        let syndrome = observed.packet.extensions.aeth.map(|aeth| aeth.syndrome.kind());
        let gap = observed.gaps > std::mem::replace(&mut self.response_gaps, observed.gaps);
        match (observed.info.operation, syndrome) {
            (Operation::Acknowledge, Some(SyndromeKind::Ack(_))) => {
                if sequence >= next.sequence {
                    let text = format!("acknowledges PSN {psn}, which is not in the capture");
                    reporter.anomaly(AnomalyKind::UnseenAcknowledged, psn, text);
                }
                if !self.acknowledge(sequence + 1, reporter) {
                    let text = format!("PSN {psn} acknowledged again");
                    reporter.anomaly(AnomalyKind::RepeatedAcknowledge, psn, text);
                }
            }
            (Operation::Acknowledge, Some(kind)) => self.nak(kind, sequence, observed, reporter),
            (Operation::ReadResponse, _) => self.read_response(sequence, gap, observed, reporter),
            (Operation::AtomicAcknowledge, _) => self.atomic_response(sequence, observed, reporter),
            _ => {}
        }
        if !acknowledges {
            self.accept_response(sequence, late, observed, reporter);
        }
    }

    /// Takes over the responses that were seen before the two directions were matched: they are not missing.
    pub(in crate::analysis) fn adopt_responses(&mut self, unmatched: &[Psn]) {
        let Some(next) = self.next else { return };
        for &psn in unmatched {
            if let Some(request) = self.window.find(next.sequence_of(psn)) {
                request.response_missing = true;
            }
        }
    }

    /// Acknowledges everything before `sequence`. Returns whether a request was newly acknowledged.
    fn acknowledge(&mut self, sequence: u64, reporter: &mut Reporter<'_>) -> bool {
        let mut progressed = false;
        if self.trigger.is_some_and(|trigger| trigger.from < sequence) {
            // The requested packets have arrived.
            self.trigger = None;
        }
        let missing = self.window.acknowledge(sequence, |request| {
            reporter.sink.steps += 1;
            if request.finished.is_some() {
                return;
            }
            if request.needs_response() && reporter.sink.gaps > request.gaps {
                // The capture lost packets since the request, so it probably lost the response as well.
                request.response_gap = true;
                request.finished = Some(reporter.at);
                let text = format!("response to PSN {} lost by the capture", request.psn);
                reporter.anomaly(AnomalyKind::CaptureGap, request.psn, text);
            } else if request.needs_response() {
                // IBA 9.9.2.4.1: a response skipped by later ones is lost, and the requester goes back to it.
                if !request.response_missing {
                    request.response_missing = true;
                    if self.missing.has_arrived(request) {
                        return;
                    }
                    let text = format!("response to PSN {} is not in the capture", request.psn);
                    let id = reporter.anomaly(AnomalyKind::MissingResponse, request.psn, text);
                    self.missing.add(request, id);
                }
            } else {
                request.finished = Some(reporter.at);
                progressed = true;
            }
        });
        if let Some(sequence) = missing {
            self.trigger =
                Some(GoBackTrigger::new(RetransmitCause::MissingResponse, sequence, reporter.at));
        }
        if progressed {
            self.rnr_naks = 0;
        }
        self.drain(reporter);
        progressed
    }

    fn nak(
        &mut self,
        syndrome: SyndromeKind,
        sequence: u64,
        observed: &ObservedPacket<'_>,
        reporter: &mut Reporter<'_>,
    ) {
        // A NAK acknowledges everything before its PSN (IBA 9.7.5.1.2).
        self.acknowledge(sequence, reporter);
        let psn = observed.packet.bth.psn;
        match syndrome {
            SyndromeKind::RnrNak(timer) => {
                self.rnr_naks += 1;
                let cause = RetransmitCause::RnrNak(timer);
                self.trigger = Some(GoBackTrigger::new(cause, sequence, observed.stamp));
                let wait = duration(timer.duration().as_nanos() as i64);
                let text = format!("no receive request posted for PSN {psn}: wait {wait}");
                reporter.anomaly(AnomalyKind::RnrNak, psn, text);
            }
            SyndromeKind::Nak(NakCode::PsnSequenceError) => {
                // rdma_rxe sends one after an RNR NAK, for the packets that followed the refused one.
                let repeats_rnr = self.trigger.is_some_and(|trigger| {
                    matches!(trigger.cause, RetransmitCause::RnrNak(_)) && trigger.from == sequence
                });
                let text = if repeats_rnr {
                    reporter.tally().naks_after_rnr += 1;
                    format!("responder still expects PSN {psn}, which it was not ready for")
                } else {
                    self.report_lost_after_capture(sequence, reporter);
                    let cause = RetransmitCause::SequenceNak;
                    self.trigger = Some(GoBackTrigger::new(cause, sequence, observed.stamp));
                    format!("responder expects PSN {psn}: it was lost or reordered")
                };
                reporter.anomaly(AnomalyKind::NakSequence, psn, text);
            }
            SyndromeKind::Nak(code) => {
                let what = self.mark_refused(sequence, reporter);
                let (kind, why) = match code {
                    NakCode::RemoteAccessError => (
                        AnomalyKind::NakRemoteAccess,
                        "the R_Key is unknown, the range is outside the memory region, or the region does not allow this access",
                    ),
                    NakCode::InvalidRequest => (
                        AnomalyKind::NakInvalidRequest,
                        "the queue pair does not allow this operation, or the request violates the protocol",
                    ),
                    NakCode::RemoteOperationalError => (
                        AnomalyKind::NakRemoteOperational,
                        "the responder failed locally, for example its receive buffer has a bad key or is too short",
                    ),
                    _ => (AnomalyKind::NakInvalidRd, "defined for reliable datagrams only"),
                };
                reporter.anomaly(kind, psn, format!("{what} refused, {}: {why}", code.name()));
            }
            SyndromeKind::Reserved | SyndromeKind::Ack(_) => {
                let text = format!("reserved syndrome for PSN {psn}");
                reporter.anomaly(AnomalyKind::ReservedSyndrome, psn, text);
            }
        }
    }

    /// Reports that the responder misses a packet that the capture contains, unless it said so before.
    fn report_lost_after_capture(&mut self, sequence: u64, reporter: &mut Reporter<'_>) {
        let repeated = self.trigger.is_some_and(|trigger| {
            trigger.from == sequence && trigger.cause == RetransmitCause::SequenceNak
        });
        // On a path that reorders, it is likely to arrive late.
        if repeated || reporter.tally().count(AnomalyKind::Reordered) > 0 {
            return;
        }
        let Some(request) = self.window.find(sequence).filter(|request| !request.first_lost) else {
            return;
        };
        let psn = request.psn;
        let text = format!("PSN {psn} did not arrive: lost after the capture point, or reordered");
        reporter.anomaly(AnomalyKind::LostAfterCapture, psn, text);
    }

    /// Marks the request at `sequence` as refused and returns its description.
    fn mark_refused(&mut self, sequence: u64, reporter: &Reporter<'_>) -> String {
        self.failed = true;
        let Some(request) = self.window.find(sequence) else { return "request".to_owned() };
        request.refused = Some(reporter.at);
        let name = request.info().map_or("request", |info| info.name);
        match (request.address, request.key) {
            (Some(address), Some(key)) => {
                format!("{name} at address {address:#x} with rkey {key:#010x}")
            }
            _ => name.to_owned(),
        }
    }

    fn report_late_response(&self, observed: &ObservedPacket<'_>, reporter: &mut Reporter<'_>) {
        let psn = observed.packet.bth.psn;
        let text = format!("response to PSN {psn} arrived after responses sent later");
        reporter.anomaly(AnomalyKind::Reordered, psn, text);
    }

    /// Withdraws the reports of a missing response that was late.
    fn accept_response(
        &mut self,
        sequence: u64,
        late: bool,
        observed: &ObservedPacket<'_>,
        reporter: &mut Reporter<'_>,
    ) {
        let disproved = self.missing.arrive(sequence, late);
        if !late && !disproved.is_empty() {
            self.report_late_response(observed, reporter);
        }
        disproved.into_iter().for_each(|id| reporter.withdraw(id));
    }

    fn atomic_response(
        &mut self,
        sequence: u64,
        observed: &ObservedPacket<'_>,
        reporter: &mut Reporter<'_>,
    ) {
        let psn = observed.packet.bth.psn;
        self.acknowledge(sequence, reporter);
        match self.window.find(sequence).filter(|request| request.finished.is_none()) {
            Some(request) => {
                request.responses += 1;
                request.answered.get_or_insert(observed.stamp.time);
                request.finished = Some(observed.stamp);
                let start = request.sequence;
                self.window.complete(start);
            }
            None => {
                let text = format!("repeated response to PSN {psn}");
                reporter.anomaly(AnomalyKind::RepeatedResponse, psn, text);
            }
        }
        self.drain(reporter);
    }

    /// Processes a READ response packet. `gap`: the capture lost packets since the previous response.
    fn read_response(
        &mut self,
        sequence: u64,
        gap: bool,
        observed: &ObservedPacket<'_>,
        reporter: &mut Reporter<'_>,
    ) {
        let psn = observed.packet.bth.psn;
        let start = self.window.find(sequence).map(|request| request.sequence);
        // A response acknowledges everything before its request (IBA 9.7.5.1.1).
        self.acknowledge(start.unwrap_or(sequence), reporter);
        let open = self.window.find(sequence).filter(|request| {
            request.finished.is_none()
                && sequence - request.sequence >= u64::from(request.next_response)
        });
        let Some(request) = open else {
            let text = format!("repeated response PSN {psn}");
            reporter.anomaly(AnomalyKind::RepeatedResponse, psn, text);
            return;
        };
        let missing = sequence - request.sequence - u64::from(request.next_response);
        let first = request.psn.add(request.next_response);
        if missing > 0 && gap {
            // Lost by the capture only: the requester received them.
            request.response_gap = true;
            request.next_response += missing as u32;
            let missing = count_of(missing, "response packet");
            let text = format!("{missing} from PSN {first} lost by the capture");
            reporter.anomaly(AnomalyKind::CaptureGap, first, text);
        } else if missing > 0 {
            if !request.response_missing {
                request.response_missing = true;
                if !self.missing.has_arrived(request) {
                    let missing = count_of(missing, "response packet");
                    let text = format!("{missing} from PSN {first} not in the capture");
                    let id = reporter.anomaly(AnomalyKind::MissingResponse, first, text);
                    self.missing.add(request, id);
                }
            }
            self.trigger = Some(GoBackTrigger::new(
                RetransmitCause::MissingResponse,
                request.sequence,
                observed.stamp,
            ));
            return;
        }
        request.responses += 1;
        request.answered.get_or_insert(observed.stamp.time);
        request.next_response += 1;
        request.response_missing = false;
        request.response_bytes += observed.packet.payload_len as u64;
        if observed.info.position.ends()
            && (request.next_response == request.psn_count || !request.psn_count_known)
        {
            request.finished = Some(observed.stamp);
            let start = request.sequence;
            self.window.complete(start);
            self.rnr_naks = 0;
        }
        self.drain(reporter);
    }
}
