//! Payload that memory reads ahead of its packets: parts of requests and of READ responses, in order.
//!
//! A part is read at once, and kept until its packets need not be sent again. Memory that can be read when a packet is encoded,
//! as host memory, is not read ahead, but remembered, so that it is not asked for each packet.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::memory::{Begun, Memory, Staged, Token};
use crate::reason::RefusedAccess;
use crate::sequence::Sequence;
use crate::transmit::{self, Transmit};

/// Parts that are read beyond the next one.
pub(crate) const READ_AHEAD: usize = 4;

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
pub(crate) enum Payload {
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
pub(crate) struct Staging {
    parts: VecDeque<Part>,
    /// Reads that are not finished, of parts that are not needed any more.
    abandoned: Vec<Token>,
}

impl Staging {
    /// Forgets the parts before `sequence`.
    pub(crate) fn release(&mut self, sequence: Sequence) {
        while self.parts.front().is_some_and(|part| part.end <= sequence) {
            let part = self.parts.pop_front();
            self.abandon(part);
        }
    }

    /// Forgets all parts.
    pub(crate) fn clear(&mut self) {
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
    pub(crate) fn payload(&self, sequence: Sequence) -> Payload {
        match self.find(sequence) {
            None => Payload::Unknown,
            Some(Part { state: State::Memory | State::Ready(_), .. }) => Payload::Ready,
            Some(Part { state: State::Reading(_), .. }) => Payload::Reading,
            Some(Part { state: State::Failed, access, .. }) => Payload::Failed(*access),
        }
    }

    /// Adds the next part, which memory was asked for.
    pub(crate) fn push(
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
    pub(crate) fn is_full(&self, next: Sequence) -> bool {
        self.parts.iter().rev().take_while(|part| part.start > next).count() >= READ_AHEAD
    }

    /// The end of the part that the packet at `sequence` belongs to.
    pub(crate) fn end(&self, sequence: Sequence) -> Option<Sequence> {
        self.find(sequence).map(|part| part.end)
    }

    /// Whether the packets from `start` on belong to one part up to `end`, which is read when they are encoded.
    pub(crate) fn is_in_memory(&self, start: Sequence, end: Sequence) -> bool {
        let part = self.find(start).filter(|part| part.end >= end);
        part.is_some_and(|part| matches!(part.state, State::Memory))
    }

    /// The packet at `sequence`, with the payload that was read ahead, if it was.
    #[inline]
    pub(crate) fn with_payload<'a, M: Memory>(
        &'a self,
        mut transmit: Transmit<'a>,
        sequence: Sequence,
        mtu: u16,
    ) -> Transmit<'a> {
        use transmit::Payload::{Inline, Local, Remote, RemoteDuplicate};
        if !M::CAN_PEND {
            return transmit;
        }
        if let Local { .. } | Remote(_) | RemoteDuplicate(_) = transmit.payload {
            let length = transmit.payload.len();
            if let Some(bytes) = self.bytes(sequence, length, mtu) {
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
    pub(crate) fn finish(
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
    pub(crate) fn unfinished(&self) -> usize {
        let reading = |part: &&Part| matches!(part.state, State::Reading(_));
        self.parts.iter().filter(reading).count() + self.abandoned.len()
    }
}
