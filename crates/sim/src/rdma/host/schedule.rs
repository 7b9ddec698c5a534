//! Tracks which endpoints have work without scanning all of them: a host may have 100,000 idle ones.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ferroce_proto::time::Instant;

/// An endpoint's entries in the schedule.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::rdma) struct Entry {
    ready: bool,
    /// The earliest of its entries in the heap; all others are stale.
    timer: Option<Instant>,
}

impl Entry {
    /// Whether the endpoint will be polled for packets.
    pub(in crate::rdma) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether an entry of the heap finds this deadline.
    pub(in crate::rdma) fn is_armed(&self, deadline: Instant) -> bool {
        self.timer.is_some_and(|timer| timer <= deadline)
    }
}

/// Endpoints that may have a packet to send, in round-robin order, and endpoints with a timer.
#[derive(Debug, Default)]
pub(in crate::rdma) struct Schedule {
    ready: VecDeque<u32>,
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Schedule {
    /// Marks an endpoint that may have a packet to send.
    pub(in crate::rdma) fn wake(&mut self, endpoint: usize, entry: &mut Entry) {
        if !std::mem::replace(&mut entry.ready, true) {
            self.ready.push_back(endpoint as u32);
        }
    }

    /// Returns the next endpoint to poll. [`Schedule::wake`] puts it back if it had a packet.
    pub(in crate::rdma) fn next(&mut self) -> Option<usize> {
        self.ready.pop_front().map(|endpoint| endpoint as usize)
    }

    /// Records that the endpoint was taken off the ready list.
    pub(in crate::rdma) fn clear_ready(entry: &mut Entry) {
        entry.ready = false;
    }

    /// Sets the timer of an endpoint. A later time than before costs nothing: the earlier entry finds it.
    pub(in crate::rdma) fn arm(&mut self, endpoint: usize, entry: &mut Entry, at: Option<Instant>) {
        let Some(at) = at else { return };
        if entry.timer.is_none_or(|timer| at < timer) {
            entry.timer = Some(at);
            self.timers.push(Reverse((at, endpoint as u32)));
        }
    }

    /// Returns when the next entry is due.
    pub(in crate::rdma) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes the next entry that is due.
    pub(in crate::rdma) fn due(&mut self, now: Instant) -> Option<(usize, Instant)> {
        self.timers.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.timers.pop().map(|Reverse((at, endpoint))| (endpoint as usize, at))
    }

    /// Whether this entry was not replaced by an earlier one. The entry is consumed in any case.
    pub(in crate::rdma) fn is_current(entry: &mut Entry, at: Instant) -> bool {
        let current = entry.timer == Some(at);
        if current {
            entry.timer = None;
        }
        current
    }
}
