//! When to update the kernel's steering table (`ferroce_sys::steering`).
//!
//! The table becomes stale when processes of this address start, end, listen or stop listening. A starting process
//! updates it itself. For a listening process its device thread does, and device threads with traffic update it once a
//! second, to account for processes that ended.

use ferroce_device::tuning::steering::{BUSY_INTERVAL, MIN_INTERVAL};

use super::addresses::Addresses;

/// When the table was updated, and when it is to be updated again.
#[derive(Debug)]
pub struct Steering {
    last: u64,
    /// When [`Steering::run`] is due.
    pub next: u64,
}

impl Steering {
    /// The first update is due as soon as there is a reason for it.
    pub fn new(now: u64) -> Self {
        Self { last: now.saturating_sub(MIN_INTERVAL), next: u64::MAX }
    }

    /// Updates the table, if that is due. The services of this process have changed, or there was traffic.
    pub fn run(&mut self, addresses: &Addresses, services_changed: bool, busy: bool, now: u64) {
        if services_changed {
            self.next = self.next.min(self.last + MIN_INTERVAL);
        }
        if busy {
            self.next = self.next.min(self.last + BUSY_INTERVAL);
        }
        if now >= self.next {
            // Another process that is updating the table may not know our services.
            let done = addresses.iter().all(|own| own.slot.steer(&own.receiver).unwrap_or(true));
            self.next = if done { u64::MAX } else { now + MIN_INTERVAL };
            self.last = now;
        }
    }
}
