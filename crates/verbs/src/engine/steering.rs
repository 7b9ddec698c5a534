//! When the kernel is told anew which process gets which packet (`ferroce_sys::steering`).
//!
//! What it was told becomes outdated when processes of this address start, end, listen or stop listening. Starting
//! processes see to it themselves. A process that listens has it done by its device thread, and device threads with traffic
//! do it once a second, to make up for processes that ended.

use super::adapter::Adapter;

/// The least time between two updates that something of ours led to, nanoseconds: a program may bind thousands of ports.
const MIN_INTERVAL: u64 = 50_000_000;
/// The time between two updates while there is traffic.
const BUSY_INTERVAL: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Steering {
    /// Our services have changed.
    wanted: bool,
    /// There was traffic since the last update.
    busy: bool,
    last: u64,
}

impl Steering {
    pub(super) fn new(now: u64) -> Self {
        // The first update of ours is made at once.
        Self { wanted: false, busy: false, last: now.saturating_sub(MIN_INTERVAL) }
    }

    /// When [`Steering::run`] has something to do.
    pub(super) fn next(&self) -> u64 {
        match (self.wanted, self.busy) {
            (true, _) => self.last + MIN_INTERVAL,
            (false, true) => self.last + BUSY_INTERVAL,
            (false, false) => u64::MAX,
        }
    }

    pub(super) fn run(&mut self, adapter: &Adapter, services_changed: bool, busy: bool, now: u64) {
        self.busy |= busy;
        if services_changed {
            self.wanted = true;
            let changed = adapter.management.connections.services.changed();
            let _ = changed.map(|event| event.take());
        }
        if now < self.next() {
            return;
        }
        // Another process that is at it may not know of our services.
        let done = adapter.links.iter().all(|link| link.slot.steer(&link.receiver).unwrap_or(true));
        self.wanted = !done;
        self.busy = false;
        self.last = now;
    }
}
