//! Waiting for packets in the thread that waits for their completions.
//!
//! A packet that wakes the device thread, which wakes the program, costs two wakeups. A thread that blocks in a wait of
//! this library watches the sockets itself and makes the passes (leader and followers: one thread at a time does).

use std::os::fd::{AsFd, AsRawFd, RawFd};

use ferroce_device::tuning::wait::LEASE;
use ferroce_sys::{Interest, Poller, clock};

use super::adapter::Adapter;

/// The receive sockets of a device, for a thread that waits for packets itself, and until when it does.
///
/// Its size is fixed so that a wait neither allocates nor, when a C program cancels the thread, has anything to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leading {
    sockets: [RawFd; Leading::MAX],
    count: usize,
    /// The shard that they belong to.
    pub(crate) shard: u8,
    /// When to begin again at the latest, in nanoseconds of the monotonic clock.
    pub(crate) until: u64,
}

impl Leading {
    /// The maximum number of sockets. A device with more is left to its own thread.
    pub const MAX: usize = 7;

    /// The time left, in milliseconds, rounded up: the timeout of poll(2).
    pub fn milliseconds(&self) -> i32 {
        let left = self.until.saturating_sub(clock::now());
        i32::try_from(left.div_ceil(1_000_000)).unwrap_or(i32::MAX)
    }

    /// The descriptors of the sockets.
    pub fn sockets(&self) -> &[RawFd] {
        &self.sockets[..self.count]
    }
}

impl Adapter {
    /// Makes the calling thread the one that waits for packets. `None` if another does, or there are too many sockets.
    pub(crate) fn lead(&self) -> Option<Leading> {
        let links = &self.port.links;
        let bells = self.rings.hub().map(|hub| hub.bells().as_raw_fd());
        if links.len() + bells.iter().len() > Leading::MAX || self.driver.has_failed() {
            return None;
        }
        let now = clock::now();
        let until = now + LEASE;
        if !self.signals.lead(now, until) {
            return None;
        }
        let mut sockets = [-1; Leading::MAX];
        for (socket, link) in sockets.iter_mut().zip(links.iter()) {
            *socket = link.receiver.as_fd().as_raw_fd();
        }
        let mut count = links.len();
        if let Some(bells) = bells {
            self.rings.sleep();
            sockets[count] = bells;
            count += 1;
        }
        Some(Leading { sockets, count, shard: self.shard, until })
    }

    /// Adds the receive sockets to what a thread waits for.
    pub(crate) fn watch_sockets(&self, poller: &mut Poller) {
        for link in self.port.links.iter() {
            poller.watch(&link.receiver, Interest::Read);
        }
        if let Some(hub) = self.rings.hub() {
            poller.watch(&hub.bells(), Interest::Read);
        }
    }

    /// Whether the device has failed: it neither receives nor sends any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.driver.has_failed()
    }

    /// The bytes that the device has received from sockets and sent through them.
    pub(crate) fn socket_bytes(&self) -> u64 {
        self.counters.socket_bytes()
    }

    /// The calling thread no longer waits for packets.
    pub(crate) fn stop_leading(&self) {
        self.signals.stop_leading();
    }
}
