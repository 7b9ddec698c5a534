//! Forwarding packets that reached this process but belong to another one of the same host: what is sent to their owner, and
//! what waits until it takes them.
//!
//! A mailbox holds few messages, whatever their size, and its owner may be waiting for a processor. Without a queue, a
//! host with more processes than cores would lose packets of one process because of another.

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};

/// The mailbox of an owner has no space now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// What became of a packet to forward. `T`: the answer of an owner that is not busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded<T> {
    /// It was sent to its owner, which answered this.
    Sent(T),
    /// It waits for its owner.
    Queued,
    /// It was dropped, because too many bytes wait.
    Dropped,
}

/// A packet that can wait for its owner.
pub trait Cost {
    /// The bytes of memory that it takes while it waits.
    fn cost(&self) -> usize;
}

/// The packets of each owner that is busy, in order. A queue is not empty. `O`: an owner; `P`: a packet.
#[derive(Debug)]
pub struct Backlog<O, P> {
    queues: BTreeMap<O, VecDeque<P>>,
    bytes: usize,
    most: usize,
}

impl<O: Copy + Ord, P: Cost> Backlog<O, P> {
    /// Creates a backlog of at most this many bytes for all owners.
    pub fn new(most: usize) -> Self {
        Self { queues: BTreeMap::new(), bytes: 0, most }
    }

    /// Forwards a packet with `send`, unless earlier packets wait for its owner, which it must not overtake. If the owner
    /// is busy, `packet` waits.
    pub fn forward<T>(
        &mut self,
        to: O,
        send: impl FnOnce() -> Result<T, Busy>,
        packet: impl FnOnce() -> P,
    ) -> Forwarded<T> {
        let sent = if self.has_packets_for(to) { Err(Busy) } else { send() };
        match sent {
            Ok(answer) => Forwarded::Sent(answer),
            Err(Busy) if self.push(to, packet()) => Forwarded::Queued,
            Err(Busy) => Forwarded::Dropped,
        }
    }

    /// Queues a packet. Returns false if there is too much already.
    fn push(&mut self, to: O, packet: P) -> bool {
        let bytes = self.bytes + packet.cost();
        if bytes > self.most {
            return false;
        }
        self.bytes = bytes;
        self.queues.entry(to).or_default().push_back(packet);
        true
    }

    /// Calls `send` with the packets of each owner, in order, until it is busy.
    pub fn retry(&mut self, mut send: impl FnMut(O, &P) -> Result<(), Busy>) {
        let bytes = &mut self.bytes;
        self.queues.retain(|&to, queue| {
            while let Some(packet) = queue.front() {
                if send(to, packet) == Err(Busy) {
                    return true;
                }
                *bytes -= packet.cost();
                queue.pop_front();
            }
            false
        });
    }

    /// Whether packets wait for this owner.
    pub fn has_packets_for(&self, to: O) -> bool {
        self.queues.contains_key(&to)
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Panics if it counts other bytes than those of its packets, or more than it may hold, or has an empty queue.
    pub fn check_invariants(&self) {
        let bytes: usize = self.queues.values().flatten().map(Cost::cost).sum();
        assert_eq!(self.bytes, bytes, "bytes that wait for their owners, and counted");
        assert!(bytes <= self.most, "{bytes} bytes wait for their owners of {}", self.most);
        assert!(self.queues.values().all(|queue| !queue.is_empty()), "an owner without packets");
    }
}
