//! Queued responses, in the order of their requests, and the executed requests that may be duplicated.

#[cfg(debug_assertions)]
mod invariants;

use alloc::collections::VecDeque;

use ferroce_wire::number::{Msn, VirtualAddress, Word};
use ferroce_wire::opcode::{Opcode, Operation};
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::syndrome::Syndrome;
use ferroce_wire::transport::{Aeth, AtomicAckEth, Bth};

use super::queue_pair::Config;
use crate::memory::{Accessor, RemoteRange};
use crate::sequence::Sequence;
use crate::transmit::{Payload, Transmit, pad};

/// A queued response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    /// Position of the request.
    pub(super) sequence: Sequence,
    /// MSN when the response was queued (IBA 9.7.7.1).
    pub(super) msn: u32,
    pub(super) kind: ResponseKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ResponseKind {
    /// ACK or NAK.
    Acknowledge(Syndrome),
    /// A READ response; empty for a FLUSH or an ATOMIC WRITE. `duplicate`: for a duplicate request.
    Read { range: RemoteRange, sent: u32, by: Accessor, duplicate: bool },
    /// The original value of an atomic.
    Atomic { original: u64, duplicate: bool },
}

impl ResponseKind {
    pub(super) const fn is_acknowledge(&self) -> bool {
        matches!(self, Self::Acknowledge(_))
    }

    /// Whether it is for a duplicate request.
    const fn is_duplicate(&self) -> bool {
        matches!(self, Self::Read { duplicate: true, .. } | Self::Atomic { duplicate: true, .. })
    }
}

impl Response {
    /// Whether it is a positive ACK.
    #[inline]
    fn is_ack(&self) -> bool {
        matches!(self.kind, ResponseKind::Acknowledge(syndrome) if syndrome.is_ack())
    }

    /// Position after its last packet.
    pub(super) fn end(&self, mtu: u16) -> Sequence {
        match self.kind {
            ResponseKind::Read { range, .. } => self.sequence.plus(packets(range.length, mtu)),
            _ => self.sequence.plus(1),
        }
    }

    /// Position of its next packet.
    pub(super) fn next(&self, mtu: u16) -> Sequence {
        match self.kind {
            ResponseKind::Read { sent, .. } => self.sequence.plus(sent / u32::from(mtu)),
            _ => self.sequence,
        }
    }
}

/// Number of PSNs of a READ response (IBA 9.7.2.2).
pub(super) fn packets(length: u32, mtu: u16) -> u32 {
    length.div_ceil(u32::from(mtu)).max(1)
}

/// A request that has its own response: READ, atomic, FLUSH or ATOMIC WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) range: RemoteRange,
    pub(super) by: Accessor,
}

/// An executed request that has its own response. A duplicate is answered from it (IBA C9-110).
#[derive(Clone, Copy, Debug)]
pub(super) struct Executed {
    pub(super) start: Sequence,
    /// Number of PSNs of its response.
    pub(super) packets: u32,
    pub(super) request: Request,
    /// Original value of an atomic: a duplicate is not executed again (IBA 9.4.5).
    pub(super) original: u64,
    /// The last SEND or WRITE packet executed before it.
    pub(super) last_ackable: Sequence,
}

impl Executed {
    fn end(&self) -> Sequence {
        self.start.plus(self.packets)
    }

    /// Whether `request` at `sequence` is a duplicate of this one. A duplicate READ may request a part of the
    /// original: a requester that lost a response restarts with the PSN, address and length of the missing part (IBA
    /// 9.4.4).
    fn covers(&self, sequence: Sequence, request: &Request, mtu: u16) -> bool {
        let Request { operation, range, by } = self.request;
        if request.operation != operation || request.by != by || request.range.key != range.key {
            return false;
        }
        if operation != Operation::ReadRequest {
            return sequence == self.start && request.range == range;
        }
        if sequence < self.start || sequence >= self.end() {
            return false;
        }
        let offset = u64::from(sequence.since(self.start)) * u64::from(mtu);
        let end = offset + u64::from(request.range.length);
        request.range.address.0 == range.address.0.wrapping_add(offset)
            && end <= u64::from(range.length)
            && (request.range.length == 0) == (range.length == 0)
    }
}

#[derive(Debug, Default)]
pub(super) struct Responses {
    queue: VecDeque<Response>,
    /// The newest requests that have their own response, up to max_dest_rd_atomic.
    executed: VecDeque<Executed>,
}

impl Responses {
    /// Queues the response to a new request.
    ///
    /// Adjacent ACKs and NAKs are coalesced to the newest (IBA 9.7.5.1.2): each acknowledges everything before its
    /// PSN.
    pub(super) fn push(&mut self, response: Response) {
        if response.kind.is_acknowledge() {
            while let Some(earlier) = self.queue.back().filter(|entry| entry.kind.is_acknowledge())
            {
                if response.sequence < earlier.sequence {
                    return;
                }
                self.queue.pop_back();
            }
        }
        self.queue.push_back(response);
    }

    /// Queues the response to a duplicate of `executed`. A response to the same request that is still queued is
    /// replaced (IBA C9-110).
    ///
    /// It is inserted before the responses to later requests, since the requester processes responses in order.
    pub(super) fn push_duplicate(&mut self, executed: &Executed, response: Response, mtu: u16) {
        let same = |queued: &&mut Response| {
            !queued.kind.is_acknowledge()
                && executed.start <= queued.sequence
                && queued.sequence < executed.end()
        };
        if let Some(queued) = self.queue.iter_mut().find(same) {
            if queued.next(mtu) > response.sequence || queued.end(mtu) != response.end(mtu) {
                *queued = response;
            }
            return;
        }
        let behind = self.queue.iter().position(|queued| queued.sequence > response.sequence);
        self.queue.insert(behind.unwrap_or(self.queue.len()), response);
    }

    /// Whether all queued responses are positive ACKs.
    #[inline]
    pub(super) fn are_acks(&self) -> bool {
        // Adjacent ACKs are coalesced, so that there is rarely another response behind an ACK.
        self.queue.front().is_none_or(Response::is_ack)
            && (self.queue.len() <= 1 || self.rest_are_acks())
    }

    #[cold]
    fn rest_are_acks(&self) -> bool {
        self.queue.iter().skip(1).all(Response::is_ack)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Number of READs, atomics, FLUSHes and ATOMIC WRITEs without a complete response. Responses to duplicates do
    /// not count: the requester may already have the first response.
    pub(super) fn pending_requests(&self) -> usize {
        let kinds = self.queue.iter().map(|response| &response.kind);
        kinds.filter(|kind| !kind.is_acknowledge() && !kind.is_duplicate()).count()
    }

    /// Keeps a request for duplicates, as long as the requester can retransmit it: it has at most
    /// `max_dest_rd_atomic` in flight.
    pub(super) fn remember(&mut self, executed: Executed, config: &Config) {
        while self.executed.len() >= usize::from(config.max_dest_rd_atomic.max(1)) {
            let Some(oldest) = self.executed.pop_front() else { break };
            // The requester must have this response already. This bounds the queue.
            self.queue.retain(|queued| {
                !queued.kind.is_duplicate()
                    || queued.sequence < oldest.start
                    || queued.sequence >= oldest.end()
            });
        }
        self.executed.push_back(executed);
    }

    /// The executed request that `request` duplicates.
    pub(super) fn executed(
        &self,
        sequence: Sequence,
        request: &Request,
        mtu: u16,
    ) -> Option<Executed> {
        self.executed.iter().copied().find(|entry| entry.covers(sequence, request, mtu))
    }

    /// The first executed request after `sequence` that has its own response.
    pub(super) fn first_after(&self, sequence: Sequence) -> Option<&Executed> {
        self.executed.iter().find(|entry| entry.start > sequence)
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Payload bytes of the next packet, if it belongs to a READ response.
    #[inline]
    pub(super) fn next_read_payload(&self, config: &Config) -> Option<usize> {
        match self.queue.front()?.kind {
            ResponseKind::Read { range, sent, .. } if range.length > 0 => {
                Some((range.length - sent).min(u32::from(config.mtu)) as usize)
            }
            _ => None,
        }
    }

    /// The next response.
    pub(super) fn front(&self) -> Option<&Response> {
        self.queue.front()
    }

    /// Drops the next response.
    pub(super) fn drop_front(&mut self) {
        self.queue.pop_front();
    }

    /// Takes the next response if it is a positive ACK, which consists of these two headers.
    pub(super) fn take_ack(&mut self, config: &Config) -> Option<(Bth, Aeth)> {
        let Response { sequence, msn, kind: ResponseKind::Acknowledge(syndrome) } =
            *self.queue.front()?
        else {
            return None;
        };
        if !syndrome.is_ack() {
            return None;
        }
        self.queue.pop_front();
        let bth = header(Opcode::RC_ACKNOWLEDGE, sequence, config);
        Some((bth, Aeth { syndrome, msn: Msn(msn & 0xff_ffff) }))
    }

    /// The next packet, or a run of up to `max_run`: of MIDDLE packets, or of all packets of a READ response.
    pub(super) fn poll_transmit(
        &mut self,
        config: &Config,
        max_run: u32,
    ) -> Option<Transmit<'static>> {
        let Response { sequence, msn, kind } = self.queue.front_mut()?;
        let aeth = |syndrome| Some(Aeth { syndrome, msn: Msn(*msn & 0xff_ffff) });
        let mut extensions = ExtensionHeaders::default();
        let mut payload = Payload::None;
        let mut last = true;
        let mut position = *sequence;
        let mut by = config.accessor();
        let opcode = match kind {
            ResponseKind::Acknowledge(syndrome) => {
                extensions.aeth = aeth(*syndrome);
                Opcode::RC_ACKNOWLEDGE
            }
            ResponseKind::Atomic { original, .. } => {
                extensions.aeth = aeth(Syndrome::ACK);
                extensions.atomic_ack = Some(AtomicAckEth { original: Word(*original) });
                Opcode::RC_ATOMIC_ACKNOWLEDGE
            }
            ResponseKind::Read { range, sent, by: reader, duplicate } => {
                by = *reader;
                let mtu = u32::from(config.mtu);
                position = sequence.plus(*sent / mtu);
                let first = *sent == 0;
                let left = packets(range.length - *sent, config.mtu);
                let run = match first {
                    // All packets of the response.
                    true if left <= max_run && !*duplicate => left,
                    true => 1,
                    false => max_run.min(left - 1).max(1),
                };
                let length = (range.length - *sent).min(run * mtu);
                if length > 0 {
                    let range = RemoteRange {
                        address: VirtualAddress(range.address.0.wrapping_add(u64::from(*sent))),
                        length,
                        ..*range
                    };
                    payload = if *duplicate {
                        Payload::RemoteDuplicate(range)
                    } else {
                        Payload::Remote(range)
                    };
                }
                *sent += length;
                last = *sent == range.length;
                // The first and the last packet of a READ response carry an AETH (IBA 9.7.5.1).
                extensions.aeth = aeth(Syndrome::ACK).filter(|_| first || last);
                match (first, last) {
                    (true, true) => Opcode::RC_RDMA_READ_RESPONSE_ONLY,
                    (true, false) => Opcode::RC_RDMA_READ_RESPONSE_FIRST,
                    (false, false) => Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
                    (false, true) => Opcode::RC_RDMA_READ_RESPONSE_LAST,
                }
            }
        };
        if last {
            self.queue.pop_front();
        }
        let bth = Bth { pad: pad(payload.len()), ..header(opcode, position, config) };
        Some(Transmit { bth, extensions, payload, by })
    }
}

/// The BTH of a response without payload.
#[inline]
fn header(opcode: Opcode, position: Sequence, config: &Config) -> Bth {
    Bth {
        opcode: config.role.opcode(opcode),
        // As in requests (IBA 17.2.8).
        migrated: true,
        partition: config.partition,
        destination: config.destination,
        psn: position.psn(),
        ..Bth::default()
    }
}
