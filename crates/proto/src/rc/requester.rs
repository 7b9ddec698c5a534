//! The send queue: which packet goes next.
//!
//! A work request gets its sequence when it is posted, so a place in the sequence names a request and a packet of it.
//! Three places tell all there is: `unacknowledged` (everything before it is done), `next` (what is sent next) and
//! `tail` (where the next request will start). Going back is setting `next` back. Requests that are done on this side
//! alone take no place in the sequence: they are executed when their turn comes, and complete in theirs.
//!
//! A long READ is asked for in pieces, each a READ request of its own on the wire, as if it had been broken off and
//! restarted (IBA 9.7.5.2.3): no more of its response is under way than the window allows, or a peer that sends at full
//! speed would overrun our socket's buffer.

use alloc::collections::VecDeque;
use core::time::Duration;

use ferroce_wire::number::{Psn, VirtualAddress, Word};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::{AtomicEth, Bth, Feth, Ieth, ImmDt, Reth, Xrceth};

use super::queue_pair::{Config, Role};
use super::sequence::Sequence;
use crate::congestion::{Blocked, Controller, RateControl, cost};
use crate::counters::Counters;
use crate::memory::Memory;
use crate::qp::Fault;
use crate::time::Instant;
use crate::transmit::{Payload, Transmit, pad};
use crate::work::{
    Completion, CompletionKind, MAX_MESSAGE, Operation, PostError, RemoteAddress, SendRequest,
    Status, WorkId,
};

/// A request in the queue.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) request: SendRequest,
    pub(super) start: Sequence,
    /// PSNs it takes: one for each packet of payload, or of a READ's response (IBA 9.7.2.2); none when it is local.
    pub(super) packets: u32,
    /// Send sequence number (SSN): counted as the responder counts messages, so that each piece of a READ is one (IBA
    /// 9.7.7.2).
    number: u32,
    pub(super) progress: Progress,
}

/// What became of a request on this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing that its place in the sequence does not tell.
    Queued,
    /// It is local, and executed.
    Executed,
    /// It cannot be done. Requests before it are finished first, so that each ends as it deserves (IBA 9.9.2.3).
    Failed(Status),
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

    /// Bytes that packets `from` to `to` of the message carry, or of a READ's response.
    pub(super) fn bytes(&self, from: u32, to: u32, mtu: u16) -> usize {
        let at = |index: u32| (u64::from(index) * u64::from(mtu)).min(self.request.data.len());
        (at(to) - at(from)) as usize
    }
}

/// Packets between two that ask for an acknowledgement, in a long message: the requester's window moves on, and a loss
/// is noticed before the message's end.
const ACK_EVERY: u32 = 16;

/// A quarter of all PSNs: where they come from is not in doubt while fewer are under way (IBA 9.7.2).
const MAX_PIECE: usize = 1 << 22;

/// Whether new requests are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// Ready to receive only.
    NotYet,
    Yes,
    /// What was started is finished, and nothing else is started (IBA 10.3.1.5).
    Draining,
}

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
    /// READs and atomics that are asked for and not yet answered: where each ends. A READ may be several.
    pub(super) outstanding: VecDeque<Sequence>,
    pub(super) timer: Option<Instant>,
    /// Nothing is sent before: the responder was not ready.
    pub(super) not_before: Option<Instant>,
    /// Nothing is sent before: the rate does not allow it.
    paced_until: Option<Instant>,
    pub(super) retries_left: u8,
    pub(super) not_ready_left: u8,
    /// Messages posted so far, as the responder will count them.
    posted: u32,
    /// Limit sequence number: up to which the responder gave credits; none while it does not count.
    pub(super) credit_limit: Option<u32>,
    /// Where the requester went back to at an answer's wish: it does not do so twice for one gap.
    pub(super) went_back_to: Option<Sequence>,
    /// Packets sent since the last one that asked for an acknowledgement.
    since_ack_request: u32,
    /// Packets of a READ's response that are asked for at once.
    pub(super) piece: u32,
    pub(super) rate: Controller,
    pub(super) sending: Sending,
    pub(super) counters: Counters,
}

impl Requester {
    pub(super) fn new(config: &Config) -> Self {
        let start = Sequence::starting(config.send_psn);
        let rate = config.congestion.start(Instant::ZERO);
        // Two pieces fill the window: one is on its way while the other is asked for.
        let piece = (rate.window() / 2 / cost(usize::from(config.mtu), 1)).clamp(1, MAX_PIECE);
        Self {
            queue: VecDeque::new(),
            unacknowledged: start,
            next: start,
            newest: start,
            tail: start,
            at: 0,
            outstanding: VecDeque::new(),
            timer: None,
            not_before: None,
            paced_until: None,
            retries_left: config.retry_count,
            not_ready_left: config.rnr_retry,
            posted: 0,
            credit_limit: None,
            went_back_to: None,
            since_ack_request: 0,
            piece: piece as u32,
            rate,
            sending: Sending::NotYet,
            counters: Counters::default(),
        }
    }

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
                (length.div_ceil(u64::from(config.mtu)) as u32).max(1)
            }
            local if local.is_local() => 0,
            _ => 1,
        };
        let messages = match operation {
            Operation::Read { .. } => packets.div_ceil(self.piece),
            _ => packets.min(1),
        };
        self.posted = self.posted.wrapping_add(messages);
        let (start, number, progress) = (self.tail, self.posted, Progress::Queued);
        self.queue.push_back(Queued { request, start, packets, number, progress });
        self.tail = self.tail.plus(packets);
        Ok(())
    }

    /// Executes the local requests whose turn it is.
    pub(super) fn execute_local(
        &mut self,
        config: &Config,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        while let Some(queued) = self.queue.get(self.at).filter(|queued| queued.packets == 0) {
            if queued.progress == Progress::Queued {
                if !self.may_start(queued, config) {
                    break;
                }
                let progress = queued.request.operation.execute_local(config.accessor(), memory);
                self.queue[self.at].progress =
                    progress.map_or_else(Progress::Failed, |()| Progress::Executed);
            }
            if let Progress::Failed(_) = self.queue[self.at].progress {
                break;
            }
            self.at += 1;
            self.finish_executed(done);
        }
        self.settle(done)
    }

    /// The packet to send now, if there is one and it may be sent.
    pub(super) fn poll_transmit(&mut self, now: Instant, config: &Config) -> Option<Transmit<'_>> {
        if self.next >= self.tail || self.not_before.is_some_and(|time| now < time) {
            return None;
        }
        self.not_before = None;
        self.paced_until = None;
        let queued = self.queue.get(self.at)?;
        if queued.progress != Progress::Queued || queued.packets == 0 {
            return None;
        }
        let index = self.next.since(queued.start);
        let wants_response = queued.request.operation.wants_response();
        if (index == 0 || wants_response) && !self.may_start(queued, config) {
            return None;
        }
        let end = if wants_response { self.piece_end(queued, index) } else { index + 1 };
        let bytes = cost(queued.bytes(index, end, config.mtu), (end - index) as usize);
        match self.rate.may_send(now, bytes) {
            Ok(()) => {}
            // A CNP may close the window before its last packet asked for an acknowledgement: then one more goes, and asks.
            Err(Blocked::Window) if self.since_ack_request > 0 => {}
            Err(Blocked::Window) => return None,
            Err(Blocked::Until(time)) => {
                self.paced_until = Some(time);
                return None;
            }
        }
        self.rate.on_sent(now, bytes);
        let last = end == queued.packets;
        let psn = self.next.psn();
        self.next = queued.start.plus(end);
        self.newest = self.newest.max(self.next);
        if wants_response {
            self.outstanding.push_back(self.next);
        }
        // The window's last packet asks, or nothing would ever open it again.
        let room = self.rate.window().saturating_sub(self.rate.in_flight());
        let edge = room < cost(usize::from(config.mtu), 1);
        self.since_ack_request += 1;
        let ack_request = last || edge || wants_response || self.since_ack_request >= ACK_EVERY;
        if ack_request {
            self.since_ack_request = 0;
        }
        self.at += usize::from(last);
        if self.timer.is_none() {
            self.timer = config.timeout.map(|timeout| now + timeout);
        }
        let queued = &self.queue[self.at - usize::from(last)];
        Some(packet(queued, index..end, psn, ack_request, config))
    }

    /// Behind the last packet that is asked for together with packet `index` of a response. Pieces start at multiples
    /// of their size: a response that comes late, to a request that was since repeated, still ends where it should.
    pub(super) fn piece_end(&self, queued: &Queued, index: u32) -> u32 {
        ((index / self.piece + 1).saturating_mul(self.piece)).min(queued.packets)
    }

    /// Whether a request may be started: fence, the responder's room for READs and atomics, its credits.
    fn may_start(&self, queued: &Queued, config: &Config) -> bool {
        let request = &queued.request;
        // Once started, a request is finished even in SQD (IBA 10.3.1.5).
        if self.sending == Sending::Draining && queued.start >= self.newest {
            return false;
        }
        // Pieces of itself do not hold a request back: they end behind its start.
        if request.fence && self.outstanding.front().is_some_and(|&end| end <= queued.start) {
            return false;
        }
        // IBA 9.4.4: no more than the responder has resources for.
        if request.operation.wants_response()
            && self.outstanding.len() >= usize::from(config.max_rd_atomic)
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

    /// Sends everything again that is not acknowledged. What is finished has left the queue, so that is all of it.
    pub(super) fn go_back(&mut self, now: Instant) {
        self.next = self.unacknowledged;
        self.at = 0;
        self.outstanding.clear();
        self.timer = None;
        self.since_ack_request = 0;
        self.rate.on_loss(now);
    }

    /// Whether everything that was started is finished.
    pub(super) fn is_drained(&self) -> bool {
        self.sending == Sending::Draining
            && self.queue.front().is_none_or(|queued| queued.start >= self.newest)
    }

    /// The request that this PSN is of.
    pub(super) fn work_of(&self, psn: Psn) -> Option<WorkId> {
        let sequence = self.unacknowledged.near(psn);
        let index = self.queue.partition_point(|queued| queued.end() <= sequence);
        let queued = self.queue.get(index).filter(|queued| queued.start <= sequence)?;
        Some(queued.request.id)
    }

    /// When the requester must be woken.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.not_before.or(self.paced_until).filter(|_| self.next < self.tail);
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

/// One packet of a request: of its message, or the one that asks for these packets of a response.
fn packet<'a>(
    queued: &'a Queued,
    part: core::ops::Range<u32>,
    psn: Psn,
    ack_request: bool,
    config: &Config,
) -> Transmit<'a> {
    let request = &queued.request;
    let mtu = u64::from(config.mtu);
    let length = request.data.len();
    let offset = u64::from(part.start) * mtu;
    let (first, last) = (part.start == 0, part.end == queued.packets);
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
            let address = VirtualAddress(remote.address.0.wrapping_add(offset));
            let bytes = queued.bytes(part.start, part.end, config.mtu);
            extensions.reth = Some(reth(RemoteAddress { address, ..remote }, bytes as u64));
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
        // They take no packets.
        Operation::LocalInvalidate { .. } | Operation::Bind(_) => Opcode::default(),
    };
    let queue = request.receive_queue;
    extensions.xrceth =
        queue.map(|queue| Xrceth { receive_queue: queue.into(), ..Xrceth::default() });
    let bth = Bth {
        opcode: config.role.opcode(opcode),
        solicited: request.solicited && last,
        // Without automatic path migration a connection's state is Migrated (IBA 17.2.8.1).
        migrated: true,
        pad: pad(payload.len()),
        partition: config.partition,
        destination: config.destination,
        ack_request,
        psn,
        ..Bth::default()
    };
    Transmit { bth, extensions, payload, by: config.accessor() }
}
