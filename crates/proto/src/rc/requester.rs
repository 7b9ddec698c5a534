//! The send queue: which packet goes next.
//!
//! A work request gets its sequence when it is posted, so a place in the sequence names a request and a packet of it.
//! Three places tell all there is: `unacknowledged` (everything before it is done), `next` (what is sent next) and
//! `tail` (where the next request will start). Going back is setting `next` back.

use alloc::collections::VecDeque;
use core::time::Duration;

use ferroce_wire::number::{Psn, Word};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::{AtomicEth, Bth, Feth, Ieth, ImmDt, Reth};

use super::queue_pair::Config;
use super::sequence::Sequence;
use crate::time::Instant;
use crate::transmit::{Payload, Transmit, pad};
use crate::work::{
    Completion, CompletionKind, MAX_MESSAGE, Operation, RemoteAddress, SendRequest, Status,
};

/// Why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue holds as many requests as it was made for.
    Full,
    /// The state of the queue pair does not take requests.
    State,
    /// More bytes than a message may have, or not 8 for an atomic operation.
    Length,
    /// Immediate data and invalidation do not go together.
    ImmediateAndInvalidate,
}

/// A request in the queue.
#[derive(Debug)]
pub struct Queued {
    pub(super) request: SendRequest,
    pub(super) start: Sequence,
    /// PSNs it takes: one for each packet of payload, or of a READ's response (IBA 9.7.2.2).
    pub(super) packets: u32,
    /// Send sequence number: requests are counted as the responder counts messages (IBA 9.7.7.2).
    pub(super) number: u32,
    /// Response packets that arrived in order.
    pub(super) responses: u32,
}

impl Queued {
    pub(super) fn end(&self) -> Sequence {
        self.start.plus(self.packets)
    }

    pub(super) fn completion(&self, status: Status) -> Completion {
        let SendRequest { id, operation, data, .. } = &self.request;
        let length = data.len() as u32;
        Completion { length, ..Completion::new(*id, CompletionKind::from(operation), status) }
    }
}

/// Packets between two that ask for an acknowledgement, in a long message: the requester's window moves on, and a loss
/// is noticed before the message's end.
const ACK_EVERY: u32 = 16;

#[derive(Debug)]
pub(super) struct Requester {
    pub(super) queue: VecDeque<Queued>,
    /// Everything before is acknowledged.
    pub(super) unacknowledged: Sequence,
    /// The packet to send next.
    pub(super) next: Sequence,
    /// Behind the newest packet that was ever sent.
    pub(super) newest: Sequence,
    /// Behind the newest request.
    pub(super) tail: Sequence,
    /// Where `next` is in the queue: which request.
    pub(super) at: usize,
    /// READs and atomics that are sent and not yet answered.
    pub(super) outstanding: u32,
    pub(super) timer: Option<Instant>,
    /// Nothing is sent before: the responder was not ready.
    pub(super) not_before: Option<Instant>,
    pub(super) retries_left: u8,
    pub(super) not_ready_left: u8,
    /// Requests posted so far.
    posted: u32,
    /// Limit sequence number: up to which the responder gave credits; none while it does not count.
    pub(super) credit_limit: Option<u32>,
    /// Where the requester went back to at an answer's wish: it does not do so twice for one gap.
    pub(super) went_back_to: Option<Sequence>,
    /// Packets sent since the last one that asked for an acknowledgement.
    since_ack_request: u32,
}

impl Requester {
    pub(super) fn new(config: &Config) -> Self {
        let start = Sequence::starting(config.send_psn);
        Self {
            queue: VecDeque::new(),
            unacknowledged: start,
            next: start,
            newest: start,
            tail: start,
            at: 0,
            outstanding: 0,
            timer: None,
            not_before: None,
            retries_left: config.retry_count,
            not_ready_left: config.rnr_retry,
            posted: 0,
            credit_limit: None,
            went_back_to: None,
            since_ack_request: 0,
        }
    }

    pub(super) fn post(&mut self, request: SendRequest, config: &Config) -> Result<(), PostError> {
        if self.queue.len() >= config.send_capacity {
            return Err(PostError::Full);
        }
        let length = request.data.len();
        let fits = match &request.operation {
            Operation::CompareSwap { .. }
            | Operation::FetchAdd { .. }
            | Operation::AtomicWrite { .. } => length == 8,
            Operation::Flush { .. } => length == 0,
            _ => length <= u64::from(MAX_MESSAGE),
        };
        if !fits {
            return Err(PostError::Length);
        }
        if let Operation::Send { immediate: Some(_), invalidate: Some(_) } = request.operation {
            return Err(PostError::ImmediateAndInvalidate);
        }
        let packets = match &request.operation {
            Operation::Send { .. } | Operation::Write { .. } | Operation::Read { .. } => {
                (length.div_ceil(u64::from(config.mtu)) as u32).max(1)
            }
            _ => 1,
        };
        self.posted = self.posted.wrapping_add(1);
        let number = self.posted;
        self.queue.push_back(Queued { request, start: self.tail, packets, number, responses: 0 });
        self.tail = self.tail.plus(packets);
        Ok(())
    }

    /// The packet to send now, if there is one and it may be sent.
    pub(super) fn poll_transmit(&mut self, now: Instant, config: &Config) -> Option<Transmit<'_>> {
        if self.next >= self.tail || self.not_before.is_some_and(|time| now < time) {
            return None;
        }
        self.not_before = None;
        let in_flight = self.next.since(self.unacknowledged);
        if in_flight >= config.window {
            return None;
        }
        let queued = self.queue.get(self.at)?;
        let index = self.next.since(queued.start);
        let wants_response = queued.request.operation.wants_response();
        if (index == 0 || wants_response) && !self.may_start(queued, config) {
            return None;
        }
        self.outstanding += u32::from(wants_response);
        let last = wants_response || index + 1 == queued.packets;
        // The window's last packet asks, or nothing would ever open it again.
        let edge = in_flight + 1 >= config.window;
        self.since_ack_request += 1;
        let ack_request = last || edge || self.since_ack_request >= ACK_EVERY;
        if ack_request {
            self.since_ack_request = 0;
        }
        let psn = self.next.psn();
        self.next = if wants_response { queued.end() } else { self.next.plus(1) };
        self.newest = self.newest.max(self.next);
        if last {
            self.at += 1;
        }
        if self.timer.is_none() {
            self.timer = config.timeout.map(|timeout| now + timeout);
        }
        Some(packet(queued, index, psn, ack_request, config))
    }

    /// Whether a request may be started: fence, the responder's room for READs and atomics, its credits.
    fn may_start(&self, queued: &Queued, config: &Config) -> bool {
        let request = &queued.request;
        if request.fence && self.outstanding > 0 {
            return false;
        }
        // IBA 9.4.4: no more than the responder has resources for.
        if request.operation.wants_response() && self.outstanding >= u32::from(config.max_rd_atomic)
        {
            return false;
        }
        // IBA 9.7.7.2: without credit one more request may go, to learn of new credit.
        self.credit_limit.is_none_or(|limit| {
            !request.operation.consumes_receive()
                // Message numbers have 24 bits on the wire, so only these are compared.
                || ((queued.number.wrapping_sub(limit) << 8) as i32) <= 0
                || self.unacknowledged == queued.start
        })
    }

    /// Sends everything again that is not acknowledged.
    pub(super) fn go_back(&mut self) {
        self.next = self.unacknowledged;
        self.at = self.queue.partition_point(|queued| queued.end() <= self.next);
        // Those from here on are sent anew, and counted anew.
        let unanswered = self
            .queue
            .range(..self.at)
            .filter(|one| one.request.operation.wants_response() && one.responses < one.packets);
        self.outstanding = unanswered.count() as u32;
        self.timer = None;
        self.since_ack_request = 0;
    }

    /// When the requester must be woken.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.not_before.filter(|_| self.next < self.tail);
        match (waiting, self.timer) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    pub(super) fn rearm(&mut self, now: Instant, timeout: Option<Duration>) {
        let waiting = self.unacknowledged < self.newest;
        self.timer = timeout.filter(|_| waiting).map(|timeout| now + timeout);
    }
}

/// One packet of a request.
fn packet<'a>(
    queued: &'a Queued,
    index: u32,
    psn: Psn,
    ack_request: bool,
    config: &Config,
) -> Transmit<'a> {
    let request = &queued.request;
    let mtu = u64::from(config.mtu);
    let length = request.data.len();
    let offset = u64::from(index) * mtu;
    let (first, last) = (index == 0, index + 1 == queued.packets);
    let reth = |remote: RemoteAddress, length: u64| Reth {
        address: remote.address,
        key: remote.key,
        length: length as u32,
    };
    let atomic = |remote: RemoteAddress, swap_or_add: u64, compare: u64| AtomicEth {
        address: remote.address,
        key: remote.key,
        swap_or_add: Word(swap_or_add),
        compare: Word(compare),
    };
    let mut extensions = ExtensionHeaders::default();
    let mut payload = Payload::None;
    let body = || Payload::of(&request.data, offset, (length - offset).min(mtu) as u32);
    let opcode = match request.operation {
        Operation::Send { immediate, invalidate } => {
            payload = body();
            if last {
                extensions.immediate = immediate.map(|value| ImmDt { value });
                extensions.ieth = invalidate.map(|key| Ieth { key });
            }
            match (first, last) {
                (true, false) => Opcode::RC_SEND_FIRST,
                (false, false) => Opcode::RC_SEND_MIDDLE,
                (true, true) if invalidate.is_some() => Opcode::RC_SEND_ONLY_WITH_INVALIDATE,
                (true, true) if immediate.is_some() => Opcode::RC_SEND_ONLY_WITH_IMMEDIATE,
                (true, true) => Opcode::RC_SEND_ONLY,
                (false, true) if invalidate.is_some() => Opcode::RC_SEND_LAST_WITH_INVALIDATE,
                (false, true) if immediate.is_some() => Opcode::RC_SEND_LAST_WITH_IMMEDIATE,
                (false, true) => Opcode::RC_SEND_LAST,
            }
        }
        Operation::Write { remote, immediate } => {
            payload = body();
            extensions.reth = first.then(|| reth(remote, length));
            if last {
                extensions.immediate = immediate.map(|value| ImmDt { value });
            }
            match (first, last) {
                (true, false) => Opcode::RC_RDMA_WRITE_FIRST,
                (false, false) => Opcode::RC_RDMA_WRITE_MIDDLE,
                (true, true) if immediate.is_some() => Opcode::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE,
                (true, true) => Opcode::RC_RDMA_WRITE_ONLY,
                (false, true) if immediate.is_some() => Opcode::RC_RDMA_WRITE_LAST_WITH_IMMEDIATE,
                (false, true) => Opcode::RC_RDMA_WRITE_LAST,
            }
        }
        Operation::Read { remote } => {
            // Sent again, a READ asks for what is missing only (IBA 9.7.5.2.3).
            let remote = RemoteAddress {
                address: ferroce_wire::number::VirtualAddress(
                    remote.address.0.wrapping_add(offset),
                ),
                ..remote
            };
            extensions.reth = Some(reth(remote, length - offset));
            Opcode::RC_RDMA_READ_REQUEST
        }
        Operation::CompareSwap { remote, compare, swap } => {
            extensions.atomic = Some(atomic(remote, swap, compare));
            Opcode::RC_COMPARE_SWAP
        }
        Operation::FetchAdd { remote, add } => {
            extensions.atomic = Some(atomic(remote, add, 0));
            Opcode::RC_FETCH_ADD
        }
        Operation::Flush { remote, length, selectivity, placement } => {
            extensions.feth = Some(Feth { reserved: 0, selectivity, placement });
            extensions.reth = Some(reth(remote, u64::from(length)));
            Opcode::RC_FLUSH
        }
        Operation::AtomicWrite { remote } => {
            payload = body();
            extensions.reth = Some(reth(remote, 8));
            Opcode::RC_ATOMIC_WRITE
        }
    };
    let bth = Bth {
        opcode,
        solicited: request.solicited && last,
        pad: pad(payload.len()),
        partition: config.partition,
        destination: config.destination,
        ack_request,
        psn,
        ..Bth::default()
    };
    Transmit { bth, extensions, payload }
}
