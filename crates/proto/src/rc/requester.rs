//! The send queue and the choice of the next packet.
//!
//! A work request gets its range of PSNs when it is posted, so a position in the sequence identifies a request and a
//! packet of it. Three positions hold the state: `unacknowledged` (everything before it is acknowledged), `next` (the
//! next packet to send) and `tail` (where the next posted request starts). Go-back-N sets `next` back. Local requests
//! occupy no PSNs: they are executed when they reach the head of the queue, and complete in order.
//!
//! A long READ is split into chunks, each a READ request of its own on the wire, like a restarted READ (allowed by
//! IBA 9.4.4). This keeps the responses in flight within the window: otherwise a peer that sends at full speed would
//! overrun the socket's receive buffer.

#[cfg(debug_assertions)]
mod invariants;

use alloc::collections::VecDeque;
use core::time::Duration;

use ferroce_wire::number::Psn;
use ferroce_wire::transport::Aeth;

use super::placement::{Failed, Placement};
use super::probe::Probe;
use super::queue_pair::{Config, Role};
use super::rtt::RoundTrip;
use super::segment::packet;
use crate::budget::{Budget, InFlight};
use crate::congestion::{Blocked, Controller, Loss, RateControl, cost};
use crate::counters::Uncollected;
use crate::memory::{Memory, RemoteRange};
use crate::qp::Fault;
use crate::sequence::Sequence;
use crate::staging::{Payload, Staging};
use crate::time::{Instant, earliest};
use crate::transmit::Transmit;
use crate::withheld::Withheld;
use crate::work::{
    Completion, CompletionKind, MAX_MESSAGE, Operation, PostError, SendRequest, Status, WorkId,
};

/// A posted request.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) request: SendRequest,
    /// Length of its data.
    pub(super) length: u64,
    pub(super) start: Sequence,
    /// Number of PSNs: one per packet of payload or of the READ response (IBA 9.7.2.2); 0 for a local request.
    pub(super) packets: u32,
    /// Send sequence number (SSN), counted as the responder counts messages: each chunk of a READ is one (IBA
    /// 9.7.7.2).
    ssn: u32,
    pub(super) state: RequestState,
}

/// Local state of a posted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// Not started, in flight or acknowledged, according to its position in the sequence.
    Queued,
    /// A local request that was executed.
    Executed,
    /// The request cannot be executed, with the number of the reason. Earlier requests complete first, each with its own status (IBA 9.9.2).
    Failed(Status, u16),
}

impl QueuedRequest {
    pub(super) fn end(&self) -> Sequence {
        self.start.plus(self.packets)
    }

    pub(super) fn completion(&self, status: Status) -> Completion {
        let SendRequest { id, operation, .. } = &self.request;
        let length = self.length as u32;
        Completion { length, ..Completion::new(*id, CompletionKind::from(operation), status) }
    }

    /// The memory of the peer that it names.
    pub(super) fn remote_range(&self) -> Option<RemoteRange> {
        let (remote, length) = match self.request.operation {
            Operation::Write { remote, .. } | Operation::Read { remote } => {
                (remote, self.length as u32)
            }
            Operation::CompareSwap { remote, .. }
            | Operation::FetchAdd { remote, .. }
            | Operation::AtomicWrite { remote } => (remote, 8),
            Operation::Flush { remote, length, .. } => (remote, length),
            Operation::Send { .. } | Operation::LocalInvalidate { .. } | Operation::Bind(_) => {
                return None;
            }
        };
        Some(RemoteRange { key: remote.key, address: remote.address, length })
    }

    /// Payload bytes of packets `from..to` of the message or of the READ response.
    #[inline]
    pub(super) fn bytes(&self, from: u32, to: u32, mtu: u16) -> usize {
        if (from, to) == (0, self.packets) {
            return self.length as usize;
        }
        let offset = |index: u32| (u64::from(index) * u64::from(mtu)).min(self.length);
        (offset(to) - offset(from)) as usize
    }

    /// Cost of packets `from..to`, to the receive buffer that they go to.
    #[inline]
    pub(super) fn cost(&self, from: u32, to: u32, mtu: u16) -> InFlight {
        let bytes = cost(self.bytes(from, to, mtu), to.saturating_sub(from) as usize);
        match self.request.operation {
            Operation::Read { .. } => InFlight { own: bytes, ..InFlight::NONE },
            _ => InFlight { peer: bytes, ..InFlight::NONE },
        }
    }
}

/// Packets between two ACK requests in a long message: the window advances, and a loss is detected before the end of
/// the message.
const ACK_REQUEST_INTERVAL: u32 = 16;

/// Maximum cost of a READ chunk: a chunk is requested at once, so a larger one would wait for that much budget, and
/// could not follow a window that loss has reduced.
const MAX_CHUNK_COST: usize = 128 * 1024;

/// Parts of responses that are written to memory at once, before no more are requested.
const MAX_PLACEMENTS: usize = 64;

/// Whether new requests may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// RTR.
    NotYet,
    Active,
    /// SQD: started requests are completed, and no others are started (IBA 10.3.1.5).
    Draining,
}

#[derive(Debug)]
pub(super) struct Requester {
    pub(super) queue: VecDeque<QueuedRequest>,
    /// Everything before this position is acknowledged.
    pub(super) unacknowledged: Sequence,
    /// The next packet to send.
    pub(super) next: Sequence,
    /// Position after the newest packet ever sent.
    pub(super) newest: Sequence,
    /// The packet returned last had never been sent before.
    pub(super) is_new: bool,
    /// The packets of the run returned last, and the maximum.
    pub(super) run: u32,
    pub(super) max_run: u32,
    /// Position after the newest posted request.
    pub(super) tail: Sequence,
    /// Queue index of the request that `next` belongs to.
    pub(super) next_index: usize,
    /// End positions of the outstanding READ chunks and atomics.
    pub(super) outstanding: VecDeque<Sequence>,
    pub(super) timer: Option<Instant>,
    pub(super) rtt: RoundTrip,
    pub(super) probe: Probe,
    /// The link loses no packets, so there are no probes.
    pub(super) lossless: bool,
    /// RNR wait: nothing is sent before this time.
    pub(super) rnr_wait_until: Option<Instant>,
    /// Pacing: nothing is sent before this time.
    paced_until: Option<Instant>,
    pub(super) retries_left: u8,
    pub(super) rnr_retries_left: u8,
    /// SSN of the newest posted request.
    posted: u32,
    /// Limit sequence number (LSN): requests up to it have credit; `None` while the responder does not use credits.
    pub(super) credit_limit: Option<u32>,
    /// The position it went back to after a NAK: it does so only once per gap.
    pub(super) went_back_to: Option<Sequence>,
    /// Packets sent since the last ACK request.
    since_ack_request: u32,
    /// Position after the newest packet that requested an ACK or a response, since it last went back.
    pub(super) ack_requested: Sequence,
    /// Packets per READ chunk.
    pub(super) chunk_packets: u32,
    pub(super) rate: Controller,
    /// Cost of the packets from `unacknowledged` to `next`.
    pub(super) in_flight: InFlight,
    /// Cost of the packet that did not fit into the budget.
    pub(super) over_budget: InFlight,
    /// The packet chosen last did not fit into the budget, also after responses were sent.
    #[cfg(debug_assertions)]
    waits_for_budget: bool,
    /// The next packet cannot be sent before a response, a timer, a state change or a new budget.
    pub(super) stalled: bool,
    pub(super) sending: Sending,
    pub(super) counters: Uncollected,
    /// The payload of requests that are next, or not acknowledged.
    pub(super) staging: Staging,
    /// The completions behind responses whose payload is being written.
    pub(super) withheld: Withheld<Placement, Completion>,
    /// How many completions wait for nothing.
    pub(super) released: usize,
    /// A response could not be written: what follows is flushed.
    pub(super) failed: Option<Failed>,
    /// What was heard of the peer instead of a response, and what was unacknowledged then.
    pub(super) trouble: Option<(Sequence, Trouble)>,
}

/// What was heard of the peer instead of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Its host reports that no process has a device open.
    PortUnreachable,
    /// Its process has ended.
    Ended,
    /// Its NAK asks for a PSN that was never sent.
    Expects(Psn),
    /// Its ACK has a PSN that was never sent.
    Acknowledges(Psn),
}

impl Requester {
    pub(super) fn new(config: &Config) -> Self {
        let start = Sequence::starting(config.send_psn);
        let rate = config.congestion.start(Instant::ZERO);
        // Two chunks fill the window: one is in flight while the next is requested.
        let chunk_packets =
            (rate.window() / 2).min(MAX_CHUNK_COST) / cost(usize::from(config.mtu), 1);
        Self {
            queue: VecDeque::new(),
            unacknowledged: start,
            next: start,
            newest: start,
            is_new: false,
            run: 1,
            max_run: 1,
            tail: start,
            next_index: 0,
            outstanding: VecDeque::new(),
            timer: None,
            rtt: RoundTrip::default(),
            probe: Probe::default(),
            lossless: false,
            rnr_wait_until: None,
            paced_until: None,
            retries_left: config.retry_count,
            rnr_retries_left: config.rnr_retry,
            posted: 0,
            credit_limit: None,
            went_back_to: None,
            since_ack_request: 0,
            ack_requested: start,
            chunk_packets: chunk_packets.max(1) as u32,
            rate,
            in_flight: InFlight::NONE,
            over_budget: InFlight::NONE,
            #[cfg(debug_assertions)]
            waits_for_budget: false,
            stalled: false,
            sending: Sending::NotYet,
            counters: Uncollected::default(),
            staging: Staging::default(),
            withheld: Withheld::default(),
            released: 0,
            failed: None,
            trouble: None,
        }
    }

    #[inline(always)]
    pub(super) fn post(&mut self, request: SendRequest, config: &Config) -> Result<(), PostError> {
        if self.sending == Sending::NotYet {
            return Err(PostError::State);
        }
        if self.queue.len() >= config.send_capacity {
            return Err(PostError::Full);
        }
        let operation = &request.operation;
        let length = request.data.len();
        let fits = match operation {
            Operation::CompareSwap { .. }
            | Operation::FetchAdd { .. }
            | Operation::AtomicWrite { .. } => length == 8,
            Operation::Flush { .. } | Operation::LocalInvalidate { .. } | Operation::Bind(_) => {
                length == 0
            }
            _ => length <= u64::from(MAX_MESSAGE),
        };
        if !fits {
            return Err(PostError::Length);
        }
        if let Operation::Send { immediate: Some(_), invalidate: Some(_) } = operation {
            return Err(PostError::Operation);
        }
        let names_queue = config.role == Role::Initiator && !operation.is_local();
        if request.receive_queue.is_some() != names_queue {
            return Err(PostError::Address);
        }
        let packets = match operation {
            Operation::Send { .. } | Operation::Write { .. } | Operation::Read { .. } => {
                // Most messages are one packet, and a division is slow.
                if length <= u64::from(config.mtu) {
                    1
                } else {
                    length.div_ceil(u64::from(config.mtu)) as u32
                }
            }
            local if local.is_local() => 0,
            _ => 1,
        };
        let messages = match operation {
            Operation::Read { .. } => packets.div_ceil(self.chunk_packets),
            _ => packets.min(1),
        };
        self.posted = self.posted.wrapping_add(messages);
        // Behind an unsent request, it waits as that one does.
        self.stalled &= self.next_index < self.queue.len();
        let (start, ssn, state) = (self.tail, self.posted, RequestState::Queued);
        self.queue.push_back(QueuedRequest { request, length, start, packets, ssn, state });
        self.tail = self.tail.plus(packets);
        Ok(())
    }

    /// Executes local requests at the head of the queue.
    pub(super) fn execute_local(
        &mut self,
        config: &Config,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        while let Some(queued) =
            self.queue.get(self.next_index).filter(|queued| queued.packets == 0)
        {
            if queued.state == RequestState::Queued {
                if !self.may_start(queued, config) {
                    break;
                }
                let executed = queued.request.operation.execute_local(config.accessor(), memory);
                self.queue[self.next_index].state = match executed {
                    Ok(()) => RequestState::Executed,
                    Err((status, reason)) => {
                        RequestState::Failed(status, self.counters.report(reason))
                    }
                };
            }
            if let RequestState::Failed(..) = self.queue[self.next_index].state {
                break;
            }
            self.next_index += 1;
            self.finish_executed(done);
        }
        self.complete_failed(done)
    }

    /// The next packet, if there is one and it may be sent now.
    #[inline]
    pub(super) fn poll_transmit<M: Memory>(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        config: &Config,
    ) -> Option<Transmit<'_>> {
        self.is_new = false;
        self.run = 1;
        if let Some(sequence) = self.next_probe() {
            self.ack_requested = self.ack_requested.max(sequence.plus(1));
            self.counters.get_mut().retrans_pkts += 1;
            return self.packet_in_flight::<M>(sequence, config);
        }
        // Until a packet is found.
        self.stalled = true;
        #[cfg(debug_assertions)]
        {
            self.waits_for_budget = false;
        }
        if self.next >= self.tail || self.rnr_wait_until.is_some_and(|time| now < time) {
            return None;
        }
        self.rnr_wait_until = None;
        self.paced_until = None;
        let queued = self.queue.get(self.next_index)?;
        if queued.state != RequestState::Queued || queued.packets == 0 {
            return None;
        }
        let index = self.next.since(queued.start);
        let wants_response = queued.request.operation.wants_response();
        if (index == 0 || wants_response) && !self.may_start(queued, config) {
            return None;
        }
        if M::CAN_PEND && self.staging.payload(self.next) == Payload::Reading {
            return None;
        }
        let mut end = if wants_response {
            self.chunk_end(queued, index)
        } else {
            self.run_end::<M>(queued, index, config)
        };
        let mut sent = queued.cost(index, end, config.mtu);
        let is_run = !wants_response && end > index + 1;
        if is_run && (self.rate.may_send(now, sent.peer).is_err() || !budget.fits(sent)) {
            end = index + 1;
            sent = queued.cost(index, end, config.mtu);
        }
        let bytes = sent.peer + sent.own;
        match self.rate.may_send(now, bytes) {
            Ok(()) => {}
            // A CNP may close the window before its last packet requested an ACK: one more packet is sent, to request
            // it.
            Err(Blocked::Window) if self.since_ack_request > 0 => {}
            Err(Blocked::Window) => return None,
            Err(Blocked::Until(time)) => {
                self.paced_until = Some(time);
                return None;
            }
        }
        if !budget.fits(sent) {
            self.over_budget = sent;
            #[cfg(debug_assertions)]
            {
                self.waits_for_budget = true;
            }
            // The budget became smaller before an ACK was requested: the newest packet is sent again to request it.
            if core::mem::take(&mut self.since_ack_request) > 0 {
                self.ack_requested = self.next;
                self.counters.get_mut().retrans_pkts += 1;
                return self.packet_in_flight::<M>(self.next.before(), config);
            }
            return None;
        }
        budget.spend(sent);
        let last = end == queued.packets;
        if !wants_response {
            self.run = end - index;
        }
        let sequence = self.next;
        let (psn, answered_by) = (sequence.psn(), sequence.plus(self.run));
        let next = queued.start.plus(end);
        self.on_sent(now, next, sent);
        if wants_response {
            self.outstanding.push_back(next);
        }
        // The last packet that fits into the window requests an ACK; otherwise the window would never open again. The
        // same holds for the budget.
        let available = self.rate.window().saturating_sub(self.rate.in_flight()).min(budget.peer);
        let edge = available < cost(usize::from(config.mtu), 1);
        self.since_ack_request += self.run;
        let ack_request =
            last || edge || wants_response || self.since_ack_request >= ACK_REQUEST_INTERVAL;
        if ack_request {
            self.on_ack_requested(now, answered_by);
        }
        self.next_index += usize::from(last);
        self.start_timer(now, config);
        let queued = &self.queue[self.next_index - usize::from(last)];
        let transmit = packet(queued, index..end, psn, ack_request, config);
        Some(self.staging.with_payload::<M>(transmit, sequence, config.mtu))
    }

    /// Packets of this cost are sent, the last of them before `next`.
    #[inline(always)]
    pub(super) fn on_sent(&mut self, now: Instant, next: Sequence, cost: InFlight) {
        self.stalled = false;
        self.paced_until = None;
        self.in_flight.add(cost);
        self.rate.on_sent(now, cost.peer + cost.own);
        self.next = next;
        self.is_new = next > self.newest;
        if !self.is_new {
            self.counters.get_mut().retrans_pkts += u64::from(self.run);
        }
        self.newest = self.newest.max(next);
    }

    /// The packet sent last requests an ACK or a response, the first of which answers everything before `answered_by`.
    #[inline]
    pub(super) fn on_ack_requested(&mut self, now: Instant, answered_by: Sequence) {
        self.since_ack_request = 0;
        self.ack_requested = self.next;
        self.rtt.on_sent(now, answered_by);
    }

    /// Starts the ACK timer, if it does not run.
    #[inline]
    pub(super) fn start_timer(&mut self, now: Instant, config: &Config) {
        if self.timer.is_none() {
            self.timer = config.timeout.map(|timeout| now + timeout);
            self.probe.reset(now);
        }
    }

    /// End of the run of MIDDLE packets that starts with packet `index`; a packet in another position is a run of its own.
    #[inline]
    fn run_end<M: Memory>(&self, queued: &QueuedRequest, index: u32, config: &Config) -> u32 {
        let last = queued.packets - 1;
        if index == 0 || index >= last || config.role != Role::Both {
            return index + 1;
        }
        // New packets and those sent before are not mixed: if the memory of new ones cannot be read, they were never sent.
        let resent = match self.newest.since(self.next) {
            0 => u32::MAX,
            resent => resent,
        };
        // A run is within one part of the payload.
        let part = match M::CAN_PEND {
            true => self.staging.end(self.next).map_or(u32::MAX, |end| end.since(self.next)),
            false => u32::MAX,
        };
        index + self.max_run.min(last - index).min(resent).min(part).max(1)
    }

    /// End of the READ chunk that contains packet `index`. Chunks start at multiples of their size, so that a late
    /// response to a request that was retransmitted still ends at the expected packet.
    pub(super) fn chunk_end(&self, queued: &QueuedRequest, index: u32) -> u32 {
        ((index / self.chunk_packets + 1).saturating_mul(self.chunk_packets)).min(queued.packets)
    }

    /// Whether a request may start: fence, max_rd_atomic and credits.
    #[inline(always)]
    pub(super) fn may_start(&self, queued: &QueuedRequest, config: &Config) -> bool {
        let request = &queued.request;
        // A started request is completed even in SQD (IBA 10.3.1.5).
        if self.sending == Sending::Draining && queued.start >= self.newest {
            return false;
        }
        // A request's own chunks end behind its start, and do not count as earlier. Those of which the response is
        // being written have left `outstanding`.
        if request.fence
            && (self.outstanding.front().is_some_and(|&end| end <= queued.start)
                || self.awaits_earlier_response(queued))
        {
            return false;
        }
        // No more than the responder has resources for (IBA 9.4.4), and memory for the responses.
        if request.operation.wants_response()
            && (self.outstanding.len() >= usize::from(config.max_rd_atomic)
                || self.withheld.unfinished() >= MAX_PLACEMENTS)
        {
            return false;
        }
        // Without credit, one request may be sent to learn of new credits (IBA 9.7.7.2).
        self.credit_limit.is_none_or(|limit| {
            !request.operation.consumes_receive()
                // SSNs have 24 bits on the wire, so only these are compared.
                || ((queued.ssn.wrapping_sub(limit) << 8) as i32) <= 0
                || self.unacknowledged == queued.start
        })
    }

    /// Go-back-N: retransmits everything unacknowledged. Completed requests have left the queue.
    pub(super) fn go_back(&mut self, now: Instant, loss: Loss) {
        self.next = self.unacknowledged;
        self.next_index = 0;
        self.outstanding.clear();
        self.timer = None;
        self.since_ack_request = 0;
        self.ack_requested = self.next;
        self.in_flight = InFlight::NONE;
        self.stalled = false;
        self.rate.on_loss(now, loss);
        self.rtt.cancel();
        self.probe.cancel();
    }

    /// Whether a packet might be sent now.
    #[inline]
    pub(super) fn wants_to_send(&self) -> bool {
        self.probe.is_pending() || (self.next_index < self.queue.len() && !self.stalled)
    }

    /// Whether exactly one packet might be sent now, and is at least as long as an ACK.
    #[inline]
    pub(super) fn wants_to_send_one(&self) -> bool {
        let longer = |queued: &QueuedRequest| queued.length >= Aeth::LEN as u64;
        !self.probe.is_pending()
            && !self.stalled
            && self.tail.since(self.next) == 1
            && self.queue.get(self.next_index).is_some_and(longer)
    }

    /// Whether a packet was sent and not acknowledged, even if it will be retransmitted.
    #[inline]
    pub(super) fn has_unacknowledged(&self) -> bool {
        self.unacknowledged < self.newest
    }

    /// Whether a packet was sent that requested an ACK or a response, which has not arrived.
    pub(super) fn awaits_ack(&self) -> bool {
        self.unacknowledged < self.ack_requested
    }

    /// Cost of the packets from `unacknowledged` to `next`, from the queue.
    pub(super) fn count_in_flight(&self, mtu: u16) -> InFlight {
        let mut total = InFlight::NONE;
        for queued in self.queue.iter().take_while(|queued| queued.start < self.next) {
            let from = self.unacknowledged.since(queued.start);
            let to = self.next.since(queued.start).min(queued.packets);
            if from < to {
                total.add(queued.cost(from, to, mtu));
            }
        }
        total
    }

    /// Whether all started requests have completed.
    pub(super) fn is_drained(&self) -> bool {
        self.sending == Sending::Draining
            && self.withheld.is_empty()
            && self.queue.front().is_none_or(|queued| queued.start >= self.newest)
    }

    /// The request that this PSN belongs to.
    pub(super) fn work_of(&self, psn: Psn) -> Option<WorkId> {
        let sequence = self.unacknowledged.near(psn);
        let index = self.queue.partition_point(|queued| queued.end() <= sequence);
        let queued = self.queue.get(index).filter(|queued| queued.start <= sequence)?;
        Some(queued.request.id)
    }

    /// Time of the next timeout.
    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.rnr_wait_until.or(self.paced_until).filter(|_| self.next < self.tail);
        earliest(waiting, earliest(self.probe_due(), self.timer))
    }

    pub(super) fn rearm(&mut self, now: Instant, timeout: Option<Duration>) {
        let waiting = self.unacknowledged < self.newest;
        self.timer = timeout.filter(|_| waiting).map(|timeout| now + timeout);
    }
}
