//! The event queue: by time, and at the same time in the order of scheduling.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use ferroce_proto::time::Instant;

use crate::flight::FlightId;
use crate::host::HostId;

/// What is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Ask the host for frames.
    Poll(HostId),
    /// The host's deadline, unless it has moved since.
    Timer(HostId),
    /// A frame reaches the switch.
    Switch(FlightId),
    /// A frame reaches a host.
    InboundPacket(FlightId, HostId),
    /// A change of the fault plan, by its place in it.
    Fault(u32),
}

/// An entry of the queue. Smaller entries are later, because the heap gives the greatest first.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Instant,
    /// Unique: makes the order total, so that it does not depend on how the heap breaks ties.
    sequence: u64,
    event: Event,
}

impl Ord for Entry {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

/// All that is due.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Entry>,
    sequence: u64,
}

impl EventQueue {
    #[inline]
    pub(crate) fn push(&mut self, at: Instant, event: Event) {
        self.heap.push(Entry { at, sequence: self.sequence, event });
        self.sequence += 1;
    }

    pub(crate) fn peek(&self) -> Option<(Instant, Event)> {
        self.heap.peek().map(|entry| (entry.at, entry.event))
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}
