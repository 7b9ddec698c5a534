//! What a poll does: whether it makes a pass, and whether its thread then gives its core to others.
//!
//! With more pollers than cores, the peer may be waiting for the core that a thread keeps busy by polling in vain. But Linux
//! takes a time slice from a thread for each yield. Beside threads that never yield, one that yields again and again gets
//! no core for seconds, while its peers run out of retries. So a yield decides about the next one: if there were packets
//! after it, the peer shares the core, and the thread yields at each empty poll; if it took long, the thread keeps the
//! core for a time slice.
//!
//! All threads that poll or post share this. It holds hints: an old value costs time and nothing else.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ferroce_device::tuning::polling::SAME_POLL;
use ferroce_device::tuning::yielding::{CROWDED, LONG, PATIENCE, PAUSE, YIELDED};

#[derive(Debug, Default)]
pub(crate) struct Polling {
    /// The ID of the CQ that was polled last.
    last_queue: AtomicU64,
    /// When a program last polled or posted.
    last_call: AtomicU64,
    /// When a poll last found nothing to do; 0 if the last one found something.
    last_empty: AtomicU64,
    /// The time before which no thread yields.
    next_yield: AtomicU64,
    /// How long the last yield took if another thread ran, until the next poll; otherwise 0.
    yield_took: AtomicU64,
    /// After the last yield there were packets, so the peer ran.
    beside_peer: AtomicBool,
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

    /// A poll made passes. `idle`: how long there has been nothing to do, in nanoseconds; 0 if they had work. Returns
    /// whether the thread yields, if nothing is left to do.
    #[inline]
    pub(crate) fn passed(&self, now: u64, idle: u64) -> bool {
        self.called(now);
        self.last_empty.store(if idle == 0 { 0 } else { now }, Ordering::Relaxed);
        let took = self.yield_took.load(Ordering::Relaxed);
        if took > 0 {
            self.yield_took.store(0, Ordering::Relaxed);
            let longest = if idle == 0 { CROWDED } else { LONG };
            if took > longest {
                self.next_yield.store(now + PAUSE, Ordering::Relaxed);
            }
            self.beside_peer.store(idle == 0, Ordering::Relaxed);
        }
        let patience = if self.beside_peer.load(Ordering::Relaxed) { 0 } else { PATIENCE };
        idle > patience && now >= self.next_yield.load(Ordering::Relaxed)
    }

    /// The thread yielded, and runs again.
    pub(crate) fn resumed(&self, before: u64, now: u64) {
        let took = now.saturating_sub(before);
        if took > YIELDED {
            self.yield_took.store(took, Ordering::Relaxed);
        } else {
            self.beside_peer.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
