//! The event queue, ordered by time; events of the same time keep the order in which they were scheduled.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use ferroce_proto::time::Instant;

use crate::flight::FlightId;
use crate::host::HostId;
use crate::topology::TrunkId;

/// A scheduled event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Poll the host for frames.
    Poll(HostId),
    /// The host's timer, unless the deadline has moved since.
    Timer(HostId),
    /// A frame reaches the first switch.
    Switch(FlightId),
    /// A frame reaches the far end of a link between switches.
    Trunk(FlightId, TrunkId),
    /// A frame reaches a host.
    Arrival(FlightId, HostId),
    /// A host is notified by another one.
    Notification(HostId),
    /// A change of the fault plan, by its index.
    Fault(u32),
}

/// An entry of the queue. Later entries compare smaller, because the heap returns the greatest first.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Instant,
    /// Unique, so that the order is total and does not depend on how the heap breaks ties.
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

/// All scheduled events.
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
