//! Which ends have something to do, without looking at all of them: a host may have 100,000 that are idle.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ferroce_proto::time::Instant;

/// An end's entries in the schedule.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::rdma) struct Entry {
    ready: bool,
    /// The earliest of its entries in the heap; others are stale.
    timer: Option<Instant>,
}

/// Ends that may have a packet to send, each in turn, and ends that must be woken.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    ready: VecDeque<u32>,
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Schedule {
    /// The end may have something to send.
    pub(super) fn wake(&mut self, end: usize, entry: &mut Entry) {
        if !std::mem::replace(&mut entry.ready, true) {
            self.ready.push_back(end as u32);
        }
    }

    /// The end whose turn it is. It is asked, and put back by [`Schedule::wake`] if it had something.
    pub(super) fn next(&mut self) -> Option<usize> {
        self.ready.pop_front().map(|end| end as usize)
    }

    /// The end was taken off the list.
    pub(super) fn taken(entry: &mut Entry) {
        entry.ready = false;
    }

    /// The end wants to be woken at this time. A later one than before costs nothing: the earlier entry finds it.
    pub(super) fn arm(&mut self, end: usize, entry: &mut Entry, at: Option<Instant>) {
        let Some(at) = at else { return };
        if entry.timer.is_none_or(|timer| at < timer) {
            entry.timer = Some(at);
            self.timers.push(Reverse((at, end as u32)));
        }
    }

    /// When the next entry is due.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next entry that is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<(usize, Instant)> {
        self.timers.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.timers.pop().map(|Reverse((at, end))| (end as usize, at))
    }

    /// Whether this entry was not replaced by an earlier one, which was due before. It is gone in any case.
    pub(super) fn is_current(entry: &mut Entry, at: Instant) -> bool {
        let current = entry.timer == Some(at);
        if current {
            entry.timer = None;
        }
        current
    }
}
