//! When a thread that polls in vain gives its core to other threads.
//!
//! With more pollers than cores, the peer may be waiting for the core that this thread keeps busy. But Linux takes a time
//! slice from a thread for each yield. Beside threads that never yield, one that yields again and again gets no core for
//! seconds, while its peers run out of retries. So a yield decides about the next one: if there were packets after it, the
//! peer shares the core, and the thread yields at each empty poll; if it took long, the thread keeps the core for a time
//! slice.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ferroce_device::tuning::yielding::{CROWDED, LONG, PATIENCE, PAUSE, YIELDED};

#[derive(Debug, Default)]
pub(crate) struct Yielding {
    /// The time before which no thread yields.
    next: AtomicU64,
    /// How long the last yield took if another thread ran, until the next poll; otherwise 0.
    took: AtomicU64,
    /// After the last yield there were packets, so the peer ran.
    beside_peer: AtomicBool,
}

impl Yielding {
    /// A poll made a pass. `idle`: how long there has been nothing to do, in nanoseconds; 0 if the pass had work. Returns
    /// whether the thread should yield.
    pub(crate) fn polled(&self, now: u64, idle: u64) -> bool {
        let took = self.took.load(Ordering::Relaxed);
        if took > 0 {
            self.took.store(0, Ordering::Relaxed);
            let longest = if idle == 0 { CROWDED } else { LONG };
            if took > longest {
                self.next.store(now + PAUSE, Ordering::Relaxed);
            }
            self.beside_peer.store(idle == 0, Ordering::Relaxed);
        }
        let patience = if self.beside_peer.load(Ordering::Relaxed) { 0 } else { PATIENCE };
        idle > patience && now >= self.next.load(Ordering::Relaxed)
    }

    /// The thread yielded, and runs again.
    pub(crate) fn resumed(&self, before: u64, now: u64) {
        let took = now.saturating_sub(before);
        if took > YIELDED {
            self.took.store(took, Ordering::Relaxed);
        } else {
            self.beside_peer.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
