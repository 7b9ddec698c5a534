//! The QPs that a pass has to serve: those with packets to send, those that owe ACKs, and those whose timer expires.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_proto::endpoint::Pending;
use ferroce_proto::time::Instant;
use ferroce_wire::number::Qpn;
use std::sync::Mutex;

use super::queue_pair::{Core, Inner};
use crate::sync::lock;

/// QPs that threads queued for transmission without owning the device.
#[derive(Debug, Default)]
pub(crate) struct Posted {
    queue: Mutex<VecDeque<Arc<Core>>>,
    /// Whether the queue is nonempty, so that a pass need not lock it to check.
    some: AtomicBool,
}

impl Posted {
    pub(super) fn push(&self, core: &Arc<Core>) {
        if core.enqueue() {
            let mut queue = lock(&self.queue);
            queue.push_back(Arc::clone(core));
            self.some.store(true, Ordering::Release);
        }
    }

    #[inline]
    pub(super) fn has_some(&self) -> bool {
        self.some.load(Ordering::Acquire)
    }

    #[inline]
    fn take(&self, into: &mut VecDeque<Arc<Core>>) {
        if self.has_some() {
            let mut queue = lock(&self.queue);
            self.some.store(false, Ordering::Relaxed);
            into.append(&mut queue);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// QPs that may have packets to send.
    ready: VecDeque<Arc<Core>>,
    /// QPs that have only positive ACKs to send, which may be sent with the next packets.
    owed: Vec<Arc<Core>>,
    /// Timers by QPN. An entry whose timer was postponed is detected when it expires.
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Schedule {
    /// Queues a QP for transmission.
    pub(super) fn push(&mut self, core: Arc<Core>) {
        if core.enqueue() {
            self.ready.push_back(core);
        }
    }

    /// Queues a QP before all others.
    pub(super) fn push_front(&mut self, core: Arc<Core>) {
        if core.enqueue() {
            self.ready.push_front(core);
        }
    }

    /// Adds the QPs that other threads have queued.
    #[inline]
    pub(super) fn take_posted(&mut self, posted: &Posted) {
        posted.take(&mut self.ready);
    }

    /// Removes the next QP to serve. A later post queues it again.
    pub(super) fn pop(&mut self) -> Option<Arc<Core>> {
        let core = self.ready.pop_front()?;
        core.queued.store(false, Ordering::Release);
        Some(core)
    }

    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Queues a QP that received packets, if it has something to send, and updates its timer.
    pub(super) fn received(&mut self, core: &Arc<Core>, inner: &mut Inner) {
        match inner.endpoint.pending() {
            Pending::Nothing => {}
            Pending::Ack => {
                if !core.owes.swap(true, Ordering::Relaxed) {
                    self.owed.push(Arc::clone(core));
                }
            }
            Pending::Urgent => self.push(Arc::clone(core)),
        }
        self.set_timer(core, inner);
    }

    /// Queues the QPs that owe ACKs, after everything that is queued already.
    #[inline]
    pub(super) fn release_owed(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        for core in self.owed.drain(..) {
            core.owes.store(false, Ordering::Relaxed);
            if core.enqueue() {
                self.ready.push_back(core);
            }
        }
    }

    pub(super) fn owes_acks(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Updates the timer heap for a QP. A timer that moved to an earlier time gets a second entry; one that moved to a
    /// later time is re-armed when its entry expires.
    pub(super) fn set_timer(&mut self, core: &Core, inner: &mut Inner) {
        if let Some(time) = inner.endpoint.poll_timeout() {
            self.wake_at(core, inner, time);
        }
    }

    /// Sets the timer of a QP, unless it already expires earlier.
    pub(super) fn wake_at(&mut self, core: &Core, inner: &mut Inner, time: Instant) {
        if inner.timer.is_none_or(|standing| time < standing) {
            inner.timer = Some(time);
            self.timers.push(Reverse((time, core.number.0)));
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((time, _))| *time)
    }

    /// Removes the next expired entry, and returns its time and QPN.
    pub(super) fn pop_timer(&mut self, now: Instant) -> Option<(Instant, Qpn)> {
        let &Reverse((time, number)) = self.timers.peek().filter(|entry| entry.0.0 <= now)?;
        self.timers.pop();
        Some((time, Qpn(number)))
    }
}
