//! What the responder's answers, and its silence, do to the send queue (IBA 9.7.5 and 9.9.2).

use alloc::collections::VecDeque;
use core::time::Duration;

use ferroce_wire::number::Psn;
use ferroce_wire::opcode;
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::{NakCode, Syndrome, SyndromeKind};

use super::queue_pair::Config;
use super::requester::{Progress, Queued, Requester};
use super::sequence::Sequence;
use crate::congestion::{RateControl, cost};
use crate::memory::Memory;
use crate::qp::Fault;
use crate::time::Instant;
use crate::work::{Completion, Data, Operation, Status};

impl Requester {
    /// A packet from the responder.
    pub(super) fn handle_response(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        info: &opcode::OpcodeInfo,
        config: &Config,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let sequence = self.unacknowledged.near(packet.bth.psn);
        // IBA 9.7.5.1: an answer to something never sent, or long finished, is a ghost.
        if sequence >= self.newest {
            return Ok(());
        }
        let syndrome = packet.extensions.aeth.map(|aeth| aeth.syndrome);
        match info.operation {
            opcode::Operation::Acknowledge => {
                let Some(aeth) = packet.extensions.aeth else { return Ok(()) };
                self.credits(aeth.syndrome, aeth.msn.0);
                match aeth.syndrome.kind() {
                    SyndromeKind::Ack(_) => self.acknowledge(now, sequence.plus(1), config, done),
                    _ if sequence < self.unacknowledged => Ok(()),
                    // IBA table 43: reserved values are not answers.
                    SyndromeKind::Reserved => Ok(()),
                    // A NAK acknowledges everything before it (IBA 9.7.5.1.2).
                    kind => {
                        self.acknowledge(now, sequence, config, done)?;
                        self.refused(now, kind, config, done)
                    }
                }
            }
            _ if sequence < self.unacknowledged => Ok(()),
            opcode::Operation::ReadResponse => {
                self.read_response(now, sequence, packet, info, config, memory, done)
            }
            opcode::Operation::AtomicAcknowledge => {
                let Some(original) = packet.extensions.atomic_ack else { return Ok(()) };
                // IBA 9.7.5.1.1: in an atomic response only an acknowledge makes sense.
                if !syndrome.is_some_and(Syndrome::is_ack) {
                    return self.fail(Status::BadResponse, done);
                }
                self.acknowledge(now, sequence, config, done)?;
                if self.unacknowledged != sequence {
                    return Ok(()); // An earlier answer is missing, and was asked for again.
                }
                let Some(queued) = self.queue.front() else { return Ok(()) };
                if !matches!(
                    queued.request.operation,
                    Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
                ) {
                    return self.fail(Status::BadResponse, done);
                }
                // The local buffer holds a number of this host.
                let bytes = original.original.0.to_ne_bytes();
                if let Data::SgList(sg_list) = &queued.request.data {
                    let mut at = 0;
                    for sge in sg_list.as_slice() {
                        let end = at + sge.length as usize;
                        if memory.write_local(config.pd, *sge, &bytes[at..end]).is_err() {
                            return self.fail(Status::LocalProtection, done);
                        }
                        at = end;
                    }
                }
                self.finish_front(now, config, done);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    #[allow(clippy::too_many_arguments)] // All of what a response may touch.
    fn read_response(
        &mut self,
        now: Instant,
        sequence: Sequence,
        packet: &Packet<'_>,
        info: &opcode::OpcodeInfo,
        config: &Config,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let start = self
            .queue
            .iter()
            .find(|queued| queued.end() > sequence)
            .map_or(sequence, |queued| queued.start.max(self.unacknowledged));
        // A response acknowledges all requests before its own (IBA 9.7.5.1.1).
        self.acknowledge(now, start.min(sequence), config, done)?;
        if sequence != self.unacknowledged {
            // A response is missing before this one: an implied NAK (IBA 9.7.5.2.8).
            return self.implied_nak(now, done);
        }
        let Some(queued) = self.queue.front() else { return Ok(()) };
        let index = sequence.since(queued.start);
        let length = queued.request.data.len();
        let last = index + 1 == queued.packets;
        let ends = index + 1 == self.piece_end(queued, index);
        let (expected, sg_list) = match (&queued.request.operation, &queued.request.data) {
            (Operation::Read { .. }, Data::SgList(sg_list)) => {
                let offset = u64::from(index) * u64::from(config.mtu);
                ((length - offset).min(u64::from(config.mtu)), Some((sg_list, offset)))
            }
            // IBA A19: FLUSH and ATOMIC WRITE are answered by an empty READ response.
            (Operation::Flush { .. } | Operation::AtomicWrite { .. }, _) => (0, None),
            _ => return self.fail(Status::BadResponse, done),
        };
        // IBA 9.7.5.2.4: the place in the response must be told right. A response that starts anew in the middle of
        // a READ says First where Middle stood.
        if packet.payload_len as u64 != expected || info.position.ends() != ends {
            return self.fail(Status::BadResponse, done);
        }
        let placed = sg_list.map_or(Ok(()), |(sg_list, offset)| {
            let mut data = packet.payload;
            sg_list.range(offset, expected).try_for_each(|sge| {
                let (part, rest) = data.split_at(data.len().min(sge.length as usize));
                data = rest;
                memory.write_local(config.pd, sge, part)
            })
        });
        if placed.is_err() {
            return self.fail(Status::LocalProtection, done);
        }
        if last {
            self.finish_front(now, config, done);
        } else {
            self.advance(now, sequence.plus(1), config);
        }
        Ok(())
    }

    /// Everything before `sequence` arrived, as far as acknowledgements can tell: a READ or an atomic is finished by
    /// its own response only, and one that is passed over is asked for again.
    fn acknowledge(
        &mut self,
        now: Instant,
        sequence: Sequence,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        while self.unacknowledged < sequence {
            let Some(queued) = self.queue.front().filter(|queued| queued.packets > 0) else {
                break;
            };
            if queued.request.operation.wants_response() {
                // IBA 9.7.5.2.8: implied NAK.
                return self.implied_nak(now, done);
            }
            if queued.end() <= sequence {
                self.finish_front(now, config, done);
            } else {
                self.advance(now, sequence, config);
            }
        }
        Ok(())
    }

    /// The responder refuses a request; everything before it is acknowledged.
    ///
    /// A READ before it whose response was lost can never be finished: the responder answers no more. The oldest
    /// unfinished request ends with the status of the refusal, so that the first error completion tells the cause, and
    /// all others are flushed.
    fn refused(
        &mut self,
        now: Instant,
        kind: SyndromeKind,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let status = match kind {
            SyndromeKind::RnrNak(timer) => {
                self.not_ready(now, timer.duration(), config, done)?;
                self.counters.rnr_nak_retry_err += 1;
                return Ok(());
            }
            SyndromeKind::Nak(NakCode::PsnSequenceError) => {
                self.asked_to_go_back(now, done)?;
                self.counters.packet_seq_err += 1;
                return Ok(());
            }
            SyndromeKind::Nak(NakCode::RemoteAccessError) => Status::RemoteAccess,
            SyndromeKind::Nak(NakCode::RemoteOperationalError) => Status::RemoteOperation,
            _ => Status::RemoteInvalidRequest,
        };
        self.fail(status, done)
    }

    /// The oldest request is done.
    fn finish_front(&mut self, now: Instant, config: &Config, done: &mut VecDeque<Completion>) {
        let Some(end) = self.queue.front().map(Queued::end) else { return };
        self.advance(now, end, config);
        self.retire_front(done);
        self.finish_executed(done);
    }

    /// Local requests behind what is done were only waiting for their turn to complete.
    pub(super) fn finish_executed(&mut self, done: &mut VecDeque<Completion>) {
        while self.queue.front().is_some_and(|queued| queued.progress == Progress::Executed) {
            self.retire_front(done);
        }
    }

    fn retire_front(&mut self, done: &mut VecDeque<Completion>) {
        let Some(queued) = self.queue.pop_front() else { return };
        self.at = self.at.saturating_sub(1);
        if queued.request.signaled {
            done.push_back(queued.completion(Status::Success));
        }
    }

    /// Everything before `to`, which is within the oldest request or at its end, arrived: counters start anew (IBA
    /// 9.9.2.1.1).
    fn advance(&mut self, now: Instant, to: Sequence, config: &Config) {
        if let Some(queued) = self.queue.front() {
            let [from, until] = [self.unacknowledged, to].map(|place| place.since(queued.start));
            let bytes = queued.bytes(from, until, config.mtu);
            self.rate.on_ack(now, cost(bytes, until.saturating_sub(from) as usize));
        }
        self.unacknowledged = to;
        // It was being sent again, and the first sending did it.
        self.next = self.next.max(to);
        while self.outstanding.front().is_some_and(|&end| end <= to) {
            self.outstanding.pop_front();
        }
        self.went_back_to = None;
        self.retries_left = config.retry_count;
        self.not_ready_left = config.rnr_retry;
        self.rearm(now, config.timeout);
    }

    /// The responder had no receive request.
    fn not_ready(
        &mut self,
        now: Instant,
        wait: Duration,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        // A second answer to what was sent before the first: the wait has begun.
        if self.next == self.unacknowledged && self.not_before.is_some() {
            return Ok(());
        }
        // IBA 9.7.5.2.8: 7 means for ever.
        if config.rnr_retry != 7 {
            let Some(left) = self.not_ready_left.checked_sub(1) else {
                return self.fail(Status::RnrRetryExceeded, done);
            };
            self.not_ready_left = left;
        }
        self.go_back(now);
        self.went_back_to = None;
        self.not_before = Some(now + wait);
        Ok(())
    }

    /// An answer shows that something is missing. Asked for once, it is on its way: only its own loss, which the
    /// timer notices, is a reason to go back for it again.
    fn asked_to_go_back(
        &mut self,
        now: Instant,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        if self.has_gone_back() {
            return Ok(());
        }
        self.went_back_to = Some(self.unacknowledged);
        self.retry(now, done)
    }

    fn has_gone_back(&self) -> bool {
        // Already back, and told to wait: rdma_rxe follows its RNR NAK by a sequence NAK.
        let waits = self.next == self.unacknowledged && self.not_before.is_some();
        waits || self.went_back_to == Some(self.unacknowledged)
    }

    /// A response passes over one that is missing. Counted once for each gap.
    fn implied_nak(&mut self, now: Instant, done: &mut VecDeque<Completion>) -> Result<(), Fault> {
        let known = self.has_gone_back();
        self.asked_to_go_back(now, done)?;
        self.counters.implied_nak_seq_err += u64::from(!known);
        Ok(())
    }

    /// Goes back, if that was not done too often.
    fn retry(&mut self, now: Instant, done: &mut VecDeque<Completion>) -> Result<(), Fault> {
        let Some(left) = self.retries_left.checked_sub(1) else {
            return self.fail(Status::RetryExceeded, done);
        };
        self.retries_left = left;
        self.go_back(now);
        Ok(())
    }

    /// The peer's port is closed, says a report that quotes the packet with this PSN: a timeout that need not be waited
    /// for. Where no timeout was asked for, or nothing with this PSN is in flight, it means nothing.
    pub(super) fn handle_unreachable(
        &mut self,
        now: Instant,
        psn: Psn,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let sequence = self.unacknowledged.near(psn);
        if self.timer.is_none() || sequence < self.unacknowledged || sequence >= self.newest {
            return Ok(());
        }
        self.timer = Some(now);
        self.handle_timeout(now, done)
    }

    /// The time has come that [`Requester::poll_timeout`] named.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        if self.timer.is_some_and(|timer| timer <= now) {
            self.timer = None;
            self.went_back_to = None;
            self.retry(now, done)?;
            self.counters.local_ack_timeout_err += 1;
        }
        Ok(())
    }

    fn credits(&mut self, syndrome: Syndrome, msn: u32) {
        if let SyndromeKind::Ack(credits) = syndrome.kind() {
            // IBA 9.7.7.2: the limit is the MSN plus the credits. Our numbers count from zero as the MSN does.
            self.credit_limit = credits.count().map(|count| msn.wrapping_add(u32::from(count)));
        }
    }

    /// The memory of the request that this PSN belongs to may not be read.
    pub(super) fn fail_local(
        &mut self,
        psn: Psn,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let sequence = self.unacknowledged.near(psn);
        let index = self.queue.partition_point(|queued| queued.end() <= sequence);
        if let Some(queued) = self.queue.get_mut(index) {
            queued.progress = Progress::Failed(Status::LocalProtection);
            // The packet did not go out, and neither does what is behind it.
            if self.newest == sequence.plus(1) {
                self.newest = sequence;
            }
            (self.next, self.at) = (sequence, index);
            self.outstanding.retain(|&end| end <= sequence);
        }
        self.settle(done)
    }

    /// A request that cannot be done ends when all before it have.
    pub(super) fn settle(&mut self, done: &mut VecDeque<Completion>) -> Result<(), Fault> {
        match self.queue.front().map(|queued| queued.progress) {
            Some(Progress::Failed(status)) => self.fail(status, done),
            _ => Ok(()),
        }
    }

    /// The oldest request fails, and with it the queue.
    pub(super) fn fail(
        &mut self,
        status: Status,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        if let Some(queued) = self.queue.pop_front() {
            done.push_back(queued.completion(status));
        }
        self.flush(done);
        Err(Fault::Requester)
    }

    /// All requests end unfinished (IBA 10.3.1.7).
    pub(super) fn flush(&mut self, done: &mut VecDeque<Completion>) {
        while let Some(queued) = self.queue.pop_front() {
            done.push_back(queued.completion(Status::Flushed));
        }
        self.unacknowledged = self.tail;
        (self.next, self.newest) = (self.tail, self.tail);
        self.at = 0;
        self.outstanding.clear();
        (self.timer, self.not_before) = (None, None);
    }
}
