//! Effects of responses and timeouts on the send queue (IBA 9.7.5, 9.9.2).

use alloc::collections::VecDeque;
use core::ops::Range;
use core::time::Duration;

use ferroce_wire::number::Psn;
use ferroce_wire::opcode;
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::{NakCode, Syndrome, SyndromeKind};
use ferroce_wire::transport::Aeth;

use super::placement::Placement;
use super::queue_pair::Config;
use super::requester::{QueuedRequest, RequestState, Requester, Trouble};
use super::responder::without;
use crate::budget::InFlight;
use crate::congestion::{Loss, RateControl};
use crate::memory::Memory;
use crate::qp::Fault;
use crate::reason::Reason;
use crate::sequence::Sequence;
use crate::time::Instant;
use crate::work::{Completion, Data, Operation, SgList, Status};

impl Requester {
    /// Handles a packet from the responder, or a run of `packets` MIDDLE packets of a READ response.
    #[allow(clippy::too_many_arguments)] // Everything that a response may change.
    pub(super) fn handle_response(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        packets: u32,
        info: &opcode::OpcodeInfo,
        config: &Config,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let mut sequence = self.unacknowledged.near(packet.bth.psn);
        let rest;
        let (mut packet, mut packets) = (packet, packets);
        if sequence < self.unacknowledged && sequence.plus(packets) > self.unacknowledged {
            // The first packets of the run arrived before.
            let before = self.unacknowledged.since(sequence);
            rest = without(packet, before, config);
            (packet, packets, sequence) = (&rest, packets - before, self.unacknowledged);
        }
        // A response to a packet that was never sent, or long completed, is a ghost and is ignored (IBA 9.7.5.1).
        if sequence.plus(packets - 1) >= self.newest {
            self.note_expected(packet, config);
            return Ok(());
        }
        // It may open the window or bring credits.
        self.stalled = false;
        let syndrome = packet.extensions.aeth.map(|aeth| aeth.syndrome);
        match info.operation {
            opcode::Operation::Acknowledge => {
                let Some(aeth) = packet.extensions.aeth else { return Ok(()) };
                // The credits of an older ACK are out of date. The last one may be repeated with new credits (IBA 9.7.7.2).
                if sequence >= self.unacknowledged.before() {
                    self.credits(aeth.syndrome, aeth.msn.0);
                }
                match aeth.syndrome.kind() {
                    SyndromeKind::Ack(_) => {
                        self.acknowledge(now, sequence.plus(1), config, done);
                        Ok(())
                    }
                    _ if sequence < self.unacknowledged => {
                        self.note_expected(packet, config);
                        Ok(())
                    }
                    // Reserved syndromes are ignored (IBA table 43).
                    SyndromeKind::Reserved => Ok(()),
                    // A NAK acknowledges all earlier PSNs (IBA 9.7.5.1.2).
                    kind => {
                        self.acknowledge(now, sequence, config, done);
                        self.handle_nak(now, kind, config, done)
                    }
                }
            }
            _ if sequence < self.unacknowledged => Ok(()),
            opcode::Operation::ReadResponse => {
                let run = sequence..sequence.plus(packets);
                self.read_response(now, run, packet, info, config, memory, done)
            }
            opcode::Operation::AtomicAcknowledge => {
                let Some(original) = packet.extensions.atomic_ack else { return Ok(()) };
                // An atomic response can only carry an ACK syndrome (IBA 9.7.5.1).
                if !syndrome.is_some_and(Syndrome::is_ack) {
                    return self.fail_response(packet, done);
                }
                self.acknowledge(now, sequence, config, done);
                if self.unacknowledged != sequence {
                    return Ok(()); // An earlier response is missing, and was requested again.
                }
                let Some(queued) = self.queue.front() else { return Ok(()) };
                if !matches!(
                    queued.request.operation,
                    Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
                ) {
                    return self.fail_response(packet, done);
                }
                // The buffer gets the value in host byte order.
                let bytes = original.original.0.to_ne_bytes();
                if let Data::SgList(sg_list) = &queued.request.data {
                    let by = config.accessor();
                    let (withheld, released) = (&mut self.withheld, &mut self.released);
                    let pending = |token, access| {
                        withheld.begin_behind(
                            done,
                            released,
                            token,
                            Placement::new(access, queued),
                        );
                    };
                    if let Err(denied) = sg_list.scatter(0, &bytes, by, memory, pending) {
                        let reason = sg_list.explain((0, 8), true, denied, by, memory);
                        return self.fail(Status::LocalProtection, reason, done);
                    }
                }
                self.finish_front(now, config, done);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    #[allow(clippy::too_many_arguments)] // Everything that a response may change.
    fn read_response(
        &mut self,
        now: Instant,
        run: Range<Sequence>,
        packet: &Packet<'_>,
        info: &opcode::OpcodeInfo,
        config: &Config,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let sequence = run.start;
        let start = self
            .queue
            .iter()
            .find(|queued| queued.end() > sequence)
            .map_or(sequence, |queued| queued.start.max(self.unacknowledged));
        // A response acknowledges all earlier requests (IBA 9.7.5.1.2).
        self.acknowledge(now, start.min(sequence), config, done);
        if sequence != self.unacknowledged {
            // An earlier response is missing: an implied NAK (from rdma_rxe's behaviour).
            self.implied_nak(now);
            return Ok(());
        }
        let Some(queued) = self.queue.front() else { return Ok(()) };
        let index = sequence.since(queued.start);
        let length = queued.request.data.len();
        let end = run.end.since(queued.start);
        let last = end == queued.packets;
        let chunk_end = self.chunk_end(queued, index);
        let ends = end == chunk_end;
        let (expected, sg_list) = match (&queued.request.operation, &queued.request.data) {
            (Operation::Read { .. }, Data::SgList(sg_list)) => {
                let offset = u64::from(index) * u64::from(config.mtu);
                let most = u64::from(end - index) * u64::from(config.mtu);
                ((length - offset).min(most), Some((sg_list, offset)))
            }
            // FLUSH and ATOMIC WRITE have an empty READ response (IBA A19).
            (Operation::Flush { .. } | Operation::AtomicWrite { .. }, _) => (0, None),
            _ => return self.fail_response(packet, done),
        };
        // The response's length and its position (LAST or ONLY) must match the request (from rdma_rxe's behaviour). A
        // READ that was restarted in the middle gets FIRST in place of MIDDLE, so FIRST is not checked.
        if packet.payload_len as u64 != expected || info.position.ends() != ends || end > chunk_end
        {
            return self.fail_response(packet, done);
        }
        let (withheld, released) = (&mut self.withheld, &mut self.released);
        let pending = |token, access| {
            withheld.begin_behind(done, released, token, Placement::new(access, queued));
        };
        let placed = sg_list.map_or(Ok(()), |(sg_list, offset)| {
            sg_list.scatter(offset, packet.payload, config.accessor(), memory, pending)
        });
        if let Err(denied) = placed {
            let (by, part) = (config.accessor(), sg_list.map_or(0, |(_, offset)| offset));
            let sg_list = sg_list.map_or(&SgList::NONE, |(sg_list, _)| sg_list);
            let reason = sg_list.explain((part, expected), true, denied, by, memory);
            return self.fail(Status::LocalProtection, reason, done);
        }
        if last {
            self.finish_front(now, config, done);
        } else {
            self.advance(now, run.end, config);
        }
        Ok(())
    }

    /// Acknowledges everything before `sequence`. READs and atomics complete only with their own response; one that
    /// is passed over is requested again.
    fn acknowledge(
        &mut self,
        now: Instant,
        sequence: Sequence,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) {
        let before = self.unacknowledged;
        self.retire_acknowledged(now, sequence, config, done);
        let mut passes_over_response = false;
        while self.unacknowledged < sequence {
            let Some(queued) = self.queue.front().filter(|queued| queued.packets > 0) else {
                break;
            };
            if queued.request.operation.wants_response() {
                passes_over_response = true;
                break;
            }
            let end = queued.end();
            self.move_to(now, end.min(sequence), config);
            if end <= sequence {
                self.retire_front(done);
                self.finish_executed(done);
            }
        }
        if self.unacknowledged > before {
            self.progressed(now, config);
        }
        if passes_over_response {
            // Implied NAK (from rdma_rxe's behaviour).
            self.implied_nak(now);
        }
    }

    /// Retires the SENDs and RDMA WRITEs that an ACK of everything before `sequence` completes, and accounts for all of them at
    /// once. The rest is left to the caller: READs and atomics, a request of which only a part is acknowledged, and everything
    /// while the requester retransmits.
    #[inline]
    fn retire_acknowledged(
        &mut self,
        now: Instant,
        sequence: Sequence,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) {
        if self.next < sequence {
            return;
        }
        let mut acknowledged = 0;
        while let Some(queued) = self.queue.front() {
            let end = queued.end();
            let is_message = queued.packets > 0 && !queued.request.operation.wants_response();
            if end > sequence || self.unacknowledged != queued.start || !is_message {
                break;
            }
            acknowledged += queued.cost(0, queued.packets, config.mtu).peer;
            self.unacknowledged = end;
            self.retire_front(done);
            self.finish_executed(done);
        }
        if acknowledged > 0 {
            self.rate.on_ack(now, acknowledged);
            self.in_flight.subtract(InFlight { peer: acknowledged, ..InFlight::NONE });
        }
    }

    /// Handles a positive ACK of new packets; false, and nothing has changed, if it is anything else.
    /// [`Requester::handle_response`] decides then.
    #[inline]
    pub(super) fn handle_ack(
        &mut self,
        now: Instant,
        psn: Psn,
        aeth: Aeth,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> bool {
        let sequence = self.unacknowledged.near(psn);
        let is_new = self.unacknowledged <= sequence && sequence < self.newest;
        if !is_new || !aeth.syndrome.is_ack() {
            return false;
        }
        self.stalled = false;
        self.credits(aeth.syndrome, aeth.msn.0);
        self.acknowledge(now, sequence.plus(1), config, done);
        true
    }

    /// Handles a NAK; everything before its PSN is acknowledged.
    ///
    /// An earlier READ whose response was lost can never complete, since the responder sends no more responses. The
    /// oldest unfinished request gets the status of the NAK, so that the first error completion shows the cause, and
    /// all others are flushed.
    fn handle_nak(
        &mut self,
        now: Instant,
        kind: SyndromeKind,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let status = match kind {
            SyndromeKind::RnrNak(timer) => {
                self.handle_rnr_nak(now, timer.duration(), config, done)?;
                self.counters.get_mut().rnr_nak_retry_err += 1;
                return Ok(());
            }
            SyndromeKind::Nak(NakCode::PsnSequenceError) => {
                self.go_back_once(now);
                self.counters.get_mut().packet_seq_err += 1;
                return Ok(());
            }
            SyndromeKind::Nak(NakCode::RemoteAccessError) => Status::RemoteAccess,
            SyndromeKind::Nak(NakCode::RemoteOperationalError) => Status::RemoteOperation,
            _ => Status::RemoteInvalidRequest,
        };
        let SyndromeKind::Nak(code) = kind else { return Ok(()) };
        let psn = self.unacknowledged.psn();
        let remote = self.queue.front().and_then(QueuedRequest::remote_range);
        self.fail(status, Reason::PeerRefused { code, psn, remote }, done)
    }

    /// Completes the oldest request.
    fn finish_front(&mut self, now: Instant, config: &Config, done: &mut VecDeque<Completion>) {
        let Some(end) = self.queue.front().map(QueuedRequest::end) else { return };
        self.advance(now, end, config);
        self.retire_front(done);
        self.finish_executed(done);
    }

    /// Completes executed local requests that have reached the head of the queue.
    #[inline]
    pub(super) fn finish_executed(&mut self, done: &mut VecDeque<Completion>) {
        while self.queue.front().is_some_and(|queued| queued.state == RequestState::Executed) {
            self.retire_front(done);
        }
    }

    #[inline]
    fn retire_front(&mut self, done: &mut VecDeque<Completion>) {
        let Some(queued) = self.queue.front() else { return };
        if queued.request.signaled {
            done.push_back(queued.completion(Status::Success));
        }
        drop(self.queue.pop_front());
        self.next_index = self.next_index.saturating_sub(1);
    }

    /// Advances the acknowledged position to `to`, within the oldest request or at its end.
    fn advance(&mut self, now: Instant, to: Sequence, config: &Config) {
        self.move_to(now, to, config);
        self.progressed(now, config);
    }

    /// Moves the acknowledged position to `to`, within the oldest request or at its end.
    #[inline]
    fn move_to(&mut self, now: Instant, to: Sequence, config: &Config) {
        if let Some(queued) = self.queue.front() {
            let [from, until] = [self.unacknowledged, to].map(|place| place.since(queued.start));
            let bytes = queued.cost(from, until, config.mtu);
            self.rate.on_ack(now, bytes.peer + bytes.own);
            // After going back, only packets before `next` are in flight again.
            let resent = until.min(self.next.since(queued.start));
            if resent == until {
                self.in_flight.subtract(bytes);
            } else if from < resent {
                self.in_flight.subtract(queued.cost(from, resent, config.mtu));
            }
        }
        self.unacknowledged = to;
        // An ACK for the first transmission may arrive during the retransmission.
        self.next = self.next.max(to);
    }

    /// The peer has answered: progress resets the retry counters (IBA 9.9.2.1.1).
    fn progressed(&mut self, now: Instant, config: &Config) {
        let to = self.unacknowledged;
        while self.outstanding.front().is_some_and(|&end| end <= to) {
            self.outstanding.pop_front();
        }
        self.rtt.on_ack(now, to);
        self.probe.reset(now);
        self.went_back_to = None;
        self.retries_left = config.retry_count;
        self.rnr_retries_left = config.rnr_retry;
        self.rearm(now, config.timeout);
    }

    /// Handles an RNR NAK. It resets the transport retry counter, which counts what gets no answer: with an unlimited RNR
    /// retry count, responses later than the ACK timeout would otherwise add up and end the connection. A sequence NAK does
    /// not: nothing else limits the retransmission of a packet that the network always drops.
    fn handle_rnr_nak(
        &mut self,
        now: Instant,
        wait: Duration,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        self.retries_left = config.retry_count;
        // A second RNR NAK, for packets sent before the first one: the wait has already begun.
        if self.next == self.unacknowledged && self.rnr_wait_until.is_some() {
            return Ok(());
        }
        // An RNR retry count of 7 means unlimited (IBA 9.7.5.2.8).
        if config.rnr_retry != 7 {
            let Some(left) = self.rnr_retries_left.checked_sub(1) else {
                let (attempts, psn) = (config.rnr_retry + 1, self.unacknowledged.psn());
                let reason = Reason::RnrExhausted { attempts, psn };
                return self.fail(Status::RnrRetryExceeded, reason, done);
            };
            self.rnr_retries_left = left;
        }
        self.go_back(now, Loss::NotReady);
        self.went_back_to = None;
        self.rnr_wait_until = Some(now + wait);
        self.stalled = true;
        Ok(())
    }

    /// Goes back to the oldest unacknowledged packet, once per gap: after that only the ACK timer, which detects the
    /// loss of the retransmission, goes back again.
    ///
    /// It costs no retry, although IBA 9.9.2.1.1 counts sequence errors as well: the responder has just answered, so
    /// it is reachable, and each gap is retransmitted once. Under steady loss, the count would otherwise end a
    /// connection that makes progress only slowly. The ACK timer, which does count, remains the bound.
    fn go_back_once(&mut self, now: Instant) {
        if !self.has_gone_back() {
            self.went_back_to = Some(self.unacknowledged);
            self.go_back(now, Loss::Gap);
        }
    }

    fn has_gone_back(&self) -> bool {
        // Already waiting for the RNR timer: rdma_rxe sends a sequence NAK after its RNR NAK.
        let waits = self.next == self.unacknowledged && self.rnr_wait_until.is_some();
        waits || self.went_back_to == Some(self.unacknowledged)
    }

    /// Handles a response that passes over a missing one. Counted once per gap.
    fn implied_nak(&mut self, now: Instant) {
        if !self.has_gone_back() {
            self.counters.get_mut().implied_nak_seq_err += 1;
        }
        self.rtt.on_ambiguous(self.newest);
        self.go_back_once(now);
    }

    /// Retransmits after a timeout, unless the retry count is exhausted.
    fn retry(
        &mut self,
        now: Instant,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let Some(left) = self.retries_left.checked_sub(1) else {
            return self.fail(Status::RetryExceeded, self.silence(config), done);
        };
        self.retries_left = left;
        self.rtt.on_ambiguous(self.newest);
        self.go_back(now, Loss::Timeout);
        Ok(())
    }

    /// Handles an ICMP "port unreachable" that quotes the packet with this PSN, like an immediate ACK timeout.
    /// Ignored when no ACK timeout is set or no packet with this PSN is in flight.
    pub(super) fn handle_unreachable(
        &mut self,
        now: Instant,
        psn: Psn,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let sequence = self.unacknowledged.near(psn);
        if sequence < self.unacknowledged || sequence >= self.newest {
            return Ok(());
        }
        self.expire(now, Trouble::PortUnreachable, config, done)
    }

    /// Nothing reaches the peer any more: like an immediate ACK timeout. Ignored when none is set.
    pub(super) fn handle_link_down(
        &mut self,
        now: Instant,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        self.expire(now, Trouble::Ended, config, done)
    }

    /// Lets the ACK timer expire now.
    fn expire(
        &mut self,
        now: Instant,
        trouble: Trouble,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        if self.timer.is_none() {
            return Ok(());
        }
        self.trouble = Some((self.unacknowledged, trouble));
        self.timer = Some(now);
        self.handle_timeout(now, config, done)
    }

    /// Remembers that the peer asks for a PSN that was never sent, if it has acknowledged nothing yet, or that it acknowledges
    /// one.
    #[cold]
    fn note_expected(&mut self, packet: &Packet<'_>, config: &Config) {
        let syndrome = packet.extensions.aeth.map(|aeth| aeth.syndrome.kind());
        let is_ahead = self.unacknowledged.near(packet.bth.psn) >= self.newest;
        if matches!(syndrome, Some(SyndromeKind::Ack(_))) && is_ahead && self.has_unacknowledged() {
            self.trouble = Some((self.unacknowledged, Trouble::Acknowledges(packet.bth.psn)));
        }
        let asks = syndrome == Some(SyndromeKind::Nak(NakCode::PsnSequenceError));
        if asks && self.unacknowledged == Sequence::starting(config.send_psn) {
            self.trouble = Some((self.unacknowledged, Trouble::Expects(packet.bth.psn)));
        }
    }

    /// Why there is no response.
    #[cold]
    fn silence(&self, config: &Config) -> Reason {
        let psn = self.unacknowledged.psn();
        let attempts = config.retry_count + 1;
        let heard = self.unacknowledged > Sequence::starting(config.send_psn);
        match self.trouble.filter(|(then, _)| *then == self.unacknowledged) {
            Some((_, Trouble::PortUnreachable)) => Reason::PortUnreachable { psn },
            Some((_, Trouble::Ended)) => Reason::PeerEnded,
            Some((_, Trouble::Expects(expected))) => Reason::PeerExpects { expected, sent: psn },
            Some((_, Trouble::Acknowledges(acknowledged))) => {
                Reason::PeerCountsMore { acknowledged, sent: psn, mtu: config.mtu }
            }
            None => Reason::NoResponse { attempts, psn, heard },
        }
    }

    /// Handles the expiry of [`Requester::poll_timeout`].
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        // It may also be the end of an RNR wait or of pacing.
        self.stalled = false;
        if self.timer.is_some_and(|timer| timer <= now) {
            self.timer = None;
            self.went_back_to = None;
            self.retry(now, config, done)?;
            self.counters.get_mut().local_ack_timeout_err += 1;
        } else if self.probe_due().is_some_and(|due| due <= now) {
            self.start_probe(now);
        }
        Ok(())
    }

    fn credits(&mut self, syndrome: Syndrome, msn: u32) {
        if let SyndromeKind::Ack(credits) = syndrome.kind() {
            // LSN = MSN + credits (IBA 9.7.7.2). Our SSN starts at zero, as the MSN does.
            self.credit_limit = credits.count().map(|count| msn.wrapping_add(u32::from(count)));
        }
    }

    /// The memory of the request with this PSN cannot be read.
    pub(super) fn fail_local(
        &mut self,
        psn: Psn,
        reason: Reason,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let sequence = self.unacknowledged.near(psn);
        let index = self.queue.partition_point(|queued| queued.end() <= sequence);
        if let Some(queued) = self.queue.get_mut(index) {
            let reason = self.counters.report(reason);
            queued.state = RequestState::Failed(Status::LocalProtection, reason);
            let start = queued.start;
            // This packet and all behind it are not sent. If it was sent before, the peer may still acknowledge it.
            if self.is_new && self.newest == sequence.plus(self.run) {
                self.newest = sequence;
            }
            (self.next, self.next_index) = (sequence, index);
            self.outstanding.retain(|&end| end <= sequence);
            // The last packet of the request before it requested an ACK.
            self.ack_requested = self.ack_requested.min(start);
            self.in_flight = self.count_in_flight(config.mtu);
        }
        self.complete_failed(done)
    }

    /// Fails the oldest request if it cannot be executed; earlier ones complete first.
    pub(super) fn complete_failed(&mut self, done: &mut VecDeque<Completion>) -> Result<(), Fault> {
        match self.queue.front().map(|queued| queued.state) {
            Some(RequestState::Failed(status, reason)) => self.end(status, reason, done),
            _ => Ok(()),
        }
    }

    /// Fails the oldest request because of a response that does not match it.
    #[cold]
    fn fail_response(
        &mut self,
        packet: &Packet<'_>,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let reason = Reason::BadResponse { opcode: packet.bth.opcode, psn: packet.bth.psn };
        self.fail(Status::BadResponse, reason, done)
    }

    /// Fails the oldest request and flushes the others.
    #[cold]
    fn fail(
        &mut self,
        status: Status,
        reason: Reason,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let reason = self.counters.report(reason);
        self.end(status, reason, done)
    }

    fn end(
        &mut self,
        status: Status,
        reason: u16,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        if let Some(queued) = self.queue.pop_front() {
            done.push_back(queued.completion(status).because(reason));
        }
        self.flush(done);
        Err(Fault::Requester)
    }

    /// Flushes all requests (IBA 10.3.1.7).
    pub(super) fn flush(&mut self, done: &mut VecDeque<Completion>) {
        while let Some(queued) = self.queue.pop_front() {
            done.push_back(queued.completion(Status::Flushed));
        }
        self.staging.clear();
        self.unacknowledged = self.tail;
        (self.next, self.newest, self.ack_requested) = (self.tail, self.tail, self.tail);
        self.next_index = 0;
        self.outstanding.clear();
        (self.timer, self.rnr_wait_until) = (None, None);
        (self.in_flight, self.over_budget) = (InFlight::NONE, InFlight::NONE);
    }
}
