//! What a poll does: whether it makes a pass, and whether its thread then gives its core to others.
//!
//! All threads that poll or post share this. It holds hints: an old value costs time and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_device::tuning::polling::SAME_POLL;

use super::yielding::Yielding;

#[derive(Debug, Default)]
pub(crate) struct Polling {
    /// The ID of the CQ that was polled last.
    last_queue: AtomicU64,
    /// When a program last polled or posted.
    last_call: AtomicU64,
    /// When a poll last found nothing to do; 0 if the last one found something.
    last_empty: AtomicU64,
    yielding: Yielding,
}

impl Polling {
    /// Whether a poll of this CQ makes a pass. A program with several CQs polls them in turn: one pass serves all.
    #[inline]
    pub(crate) fn makes_pass(&self, queue: u64, now: impl FnOnce() -> u64) -> bool {
        if self.last_queue.load(Ordering::Relaxed) != queue {
            let last = self.last_empty.load(Ordering::Relaxed);
            if last != 0 && now().saturating_sub(last) < SAME_POLL {
                return false;
            }
            self.last_queue.store(queue, Ordering::Relaxed);
        }
        true
    }

    /// The program made a call that drives the device.
    #[inline]
    pub(crate) fn called(&self, now: u64) {
        self.last_call.store(now, Ordering::Relaxed);
    }

    /// How long ago the last such call was.
    pub(crate) fn idle(&self, now: u64) -> u64 {
        now.saturating_sub(self.last_call.load(Ordering::Relaxed))
    }

    /// The passes of a poll found something, or nothing since this many nanoseconds. Returns whether the thread yields, if
    /// nothing is left to do.
    #[inline]
    pub(crate) fn passed(&self, now: u64, busy: bool, idle: u64) -> bool {
        self.called(now);
        self.last_empty.store(if busy { 0 } else { now }, Ordering::Relaxed);
        self.yielding.polled(now, idle)
    }

    /// The thread yielded, and runs again.
    pub(crate) fn resumed(&self, before: u64, now: u64) {
        self.yielding.resumed(before, now);
    }
}

#[cfg(test)]
mod tests;
