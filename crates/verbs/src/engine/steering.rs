//! When to update the kernel's steering table (`ferroce_sys::steering`).
//!
//! The table becomes stale when processes of this address start, end, listen or stop listening. A starting process
//! updates it itself. For a listening process its device thread does, and device threads with traffic update it once a
//! second, to account for processes that ended.

use ferroce_device::tuning::steering::{BUSY_INTERVAL, MIN_INTERVAL};

use super::adapter::Adapter;

#[derive(Debug)]
pub(super) struct Steering {
    /// The services of this process have changed.
    wanted: bool,
    /// There was traffic since the last update.
    busy: bool,
    last: u64,
}

impl Steering {
    pub(super) fn new(now: u64) -> Self {
        // The first update is immediate.
        Self { wanted: false, busy: false, last: now.saturating_sub(MIN_INTERVAL) }
    }

    /// When [`Steering::run`] is due.
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
        // Another process that is updating the table may not know our services.
        let done =
            adapter.port.links.iter().all(|link| link.slot.steer(&link.receiver).unwrap_or(true));
        self.wanted = !done;
        self.busy = false;
        self.last = now;
    }
}
