//! When to update the kernel's steering table (`ferroce_sys::steering`).
//!
//! The table becomes stale when processes of this address start, end, listen or stop listening. A starting process
//! updates it itself. For a listening process its device thread does, and device threads with traffic update it once a
//! second, to account for processes that ended.

use ferroce_device::tuning::steering::{BUSY_INTERVAL, MIN_INTERVAL};

use super::addresses::Addresses;

/// When the table was updated, and why it is to be updated again.
#[derive(Debug)]
pub struct Steering {
    /// The services of this process have changed.
    wanted: bool,
    /// There was traffic since the last update.
    busy: bool,
    last: u64,
}

impl Steering {
    /// The first update is due at once.
    pub fn new(now: u64) -> Self {
        Self { wanted: false, busy: false, last: now.saturating_sub(MIN_INTERVAL) }
    }

    /// When [`Steering::run`] is due.
    pub fn next(&self) -> u64 {
        match (self.wanted, self.busy) {
            (true, _) => self.last + MIN_INTERVAL,
            (false, true) => self.last + BUSY_INTERVAL,
            (false, false) => u64::MAX,
        }
    }

    /// Updates the table, if that is due. The services of this process have changed, or there was traffic.
    pub fn run(&mut self, addresses: &Addresses, services_changed: bool, busy: bool, now: u64) {
        self.busy |= busy;
        self.wanted |= services_changed;
        if now < self.next() {
            return;
        }
        // Another process that is updating the table may not know our services.
        let done = addresses.iter().all(|own| own.slot.steer(&own.receiver).unwrap_or(true));
        self.wanted = !done;
        self.busy = false;
        self.last = now;
    }
}
