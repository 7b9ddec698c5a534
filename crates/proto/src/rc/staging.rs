//! Payload that memory reads ahead of its packets: parts of requests and of READ responses, in order.
//!
//! A part is read at once, and kept until its packets need not be sent again. Memory that can be read when a packet is encoded,
//! as host memory, is not read ahead, but remembered, so that it is not asked for each packet.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::queue_pair::Config;
use super::requester::{QueuedRequest, RequestState, Requester};
use super::sequence::Sequence;
use crate::memory::{Begun, Memory, Staged, Token};
use crate::reason::{KeyFault, Reason, RefusedAccess};
use crate::transmit::{self, Transmit};
use crate::work::{Data, Operation, SgList};

/// Parts that are read beyond the next one.
pub(super) const READ_AHEAD: usize = 4;

/// A part: the payload of the packets `start..end`.
#[derive(Debug)]
struct Part {
    start: Sequence,
    end: Sequence,
    access: RefusedAccess,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It is read when a packet is encoded.
    Memory,
    Reading(Token),
    Ready(Staged),
    Failed,
}

/// What is known of the payload of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    /// Memory was not asked yet.
    Unknown,
    /// It can be sent.
    Ready,
    /// It is being read.
    Reading,
    /// It could not be read.
    Failed(RefusedAccess),
}

/// The parts that are not done with, oldest first.
#[derive(Debug, Default)]
pub(super) struct Staging {
    parts: VecDeque<Part>,
    /// Reads that are not finished, of parts that are not needed any more.
    abandoned: Vec<Token>,
}

impl Staging {
    /// Forgets the parts before `sequence`.
    pub(super) fn release(&mut self, sequence: Sequence) {
        while self.parts.front().is_some_and(|part| part.end <= sequence) {
            let part = self.parts.pop_front();
            self.abandon(part);
        }
    }

    /// Forgets all parts.
    pub(super) fn clear(&mut self) {
        while let Some(part) = self.parts.pop_front() {
            self.abandon(Some(part));
        }
    }

    fn abandon(&mut self, part: Option<Part>) {
        if let Some(Part { state: State::Reading(token), .. }) = part {
            self.abandoned.push(token);
        }
    }

    fn find(&self, sequence: Sequence) -> Option<&Part> {
        let index = self.parts.partition_point(|part| part.end <= sequence);
        self.parts.get(index).filter(|part| part.start <= sequence)
    }

    /// The state of the payload of the packet at `sequence`.
    pub(super) fn payload(&self, sequence: Sequence) -> Payload {
        match self.find(sequence) {
            None => Payload::Unknown,
            Some(Part { state: State::Memory | State::Ready(_), .. }) => Payload::Ready,
            Some(Part { state: State::Reading(_), .. }) => Payload::Reading,
            Some(Part { state: State::Failed, access, .. }) => Payload::Failed(*access),
        }
    }

    /// Adds the next part, which memory was asked for.
    pub(super) fn push(
        &mut self,
        start: Sequence,
        end: Sequence,
        access: RefusedAccess,
        begun: Begun<()>,
    ) {
        // A duplicate READ begins before what was read for the first one.
        if self.parts.back().is_some_and(|part| part.end > start) {
            self.clear();
        }
        let state = match begun {
            Begun::Done(()) => State::Memory,
            Begun::Pending(token) => State::Reading(token),
        };
        self.parts.push_back(Part { start, end, access, state });
    }

    /// Whether enough is read beyond the packet at `next`.
    fn is_full(&self, next: Sequence) -> bool {
        self.parts.iter().rev().take_while(|part| part.start > next).count() >= READ_AHEAD
    }

    /// The end of the part that the packet at `sequence` belongs to.
    pub(super) fn end(&self, sequence: Sequence) -> Option<Sequence> {
        self.find(sequence).map(|part| part.end)
    }

    /// The packet at `sequence`, with the payload that was read ahead, if it was.
    #[inline]
    pub(super) fn with_payload<'a, M: Memory>(
        &'a self,
        mut transmit: Transmit<'a>,
        sequence: Sequence,
        config: &Config,
    ) -> Transmit<'a> {
        use transmit::Payload::{Inline, Local, Remote, RemoteDuplicate};
        if !M::CAN_PEND {
            return transmit;
        }
        if let Local { .. } | Remote(_) | RemoteDuplicate(_) = transmit.payload {
            let length = transmit.payload.len();
            if let Some(bytes) = self.bytes(sequence, length, config.mtu) {
                transmit.payload = Inline(bytes);
            }
        }
        transmit
    }

    fn bytes(&self, sequence: Sequence, length: usize, mtu: u16) -> Option<&[u8]> {
        let part = self.find(sequence)?;
        let State::Ready(staged) = &part.state else { return None };
        let offset = sequence.since(part.start) as usize * usize::from(mtu);
        staged.bytes().get(offset..offset + length)
    }

    /// A read has finished. Returns the payload if it is of none of these.
    pub(super) fn finish(
        &mut self,
        token: Token,
        payload: Option<Staged>,
    ) -> Result<(), Option<Staged>> {
        if let Some(index) = self.abandoned.iter().position(|one| *one == token) {
            self.abandoned.swap_remove(index);
            return Ok(());
        }
        let is_this = |part: &&mut Part| matches!(part.state, State::Reading(one) if one == token);
        let Some(part) = self.parts.iter_mut().find(is_this) else { return Err(payload) };
        part.state = payload.map_or(State::Failed, State::Ready);
        Ok(())
    }

    /// Number of unfinished reads.
    pub(super) fn unfinished(&self) -> usize {
        let reading = |part: &&Part| matches!(part.state, State::Reading(_));
        self.parts.iter().filter(reading).count() + self.abandoned.len()
    }
}

impl Requester {
    /// Asks memory for the payload of the next packet, and for what follows. An error if the next one cannot be read.
    pub(super) fn prepare(
        &mut self,
        config: &Config,
        memory: &mut impl Memory,
    ) -> Result<(), Reason> {
        self.staging.release(self.unacknowledged);
        let by = config.accessor();
        let (mut at, mut parts) = (self.next, 0);
        for index in self.next_index..self.queue.len() {
            let queued = &self.queue[index];
            // The payload of a fenced request may be the result of an earlier READ.
            let is_ready = match index == self.next_index {
                true => self.may_start(queued, config),
                false => !queued.request.fence,
            };
            if !is_ready || queued.packets == 0 || queued.state != RequestState::Queued {
                if index == self.next_index {
                    return Ok(()); // Nothing is sent, or it has failed already.
                }
                break;
            }
            at = at.max(queued.start);
            let Some(sg_list) = payload(queued) else { continue };
            while at < queued.end() {
                let from = at.since(queued.start);
                let end = self.chunk_end(queued, from);
                if parts > READ_AHEAD {
                    return self.check_next();
                }
                if self.staging.payload(at) == Payload::Unknown {
                    if at > self.next && self.staging.is_full(self.next) {
                        return self.check_next();
                    }
                    let offset = u64::from(from) * u64::from(config.mtu);
                    let length = queued.bytes(from, end, config.mtu) as u32;
                    match memory.begin_read_local(by, sg_list, offset, length) {
                        Ok(begun) => {
                            let sge = sg_list.range(offset, length.into()).next();
                            let access = RefusedAccess::local(sge.unwrap_or_default(), false);
                            self.staging.push(at, queued.start.plus(end), access, begun);
                        }
                        Err(denied) if at == self.next => {
                            let part = (offset, length.into());
                            return Err(sg_list.explain(part, false, denied, by, memory));
                        }
                        Err(_) => return self.check_next(),
                    }
                }
                parts += 1;
                at = self.staging.end(at).unwrap_or(queued.end());
            }
        }
        self.check_next()
    }

    fn check_next(&self) -> Result<(), Reason> {
        match self.staging.payload(self.next) {
            Payload::Failed(access) => Err(Reason::Memory(access, KeyFault::CopyFailed)),
            _ => Ok(()),
        }
    }

    /// Whether all of the next message can be read when it is encoded.
    pub(super) fn is_next_in_memory(&self) -> bool {
        let Some(queued) = self.queue.get(self.next_index) else { return true };
        self.staging.find(self.next).map_or(payload(queued).is_none(), |part| {
            matches!(part.state, State::Memory) && part.end >= queued.end()
        })
    }
}

/// The payload of a request, if it is in registered memory.
fn payload(queued: &QueuedRequest) -> Option<&SgList> {
    let sends = matches!(
        queued.request.operation,
        Operation::Send { .. } | Operation::Write { .. } | Operation::AtomicWrite { .. }
    );
    match &queued.request.data {
        Data::SgList(sg_list) if sends && queued.length > 0 => Some(sg_list),
        _ => None,
    }
}
