//! Packets that belong to no QP: management datagrams and flow control probes.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_links::route::Route;

use crate::sync::lock;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    packets: Mutex<VecDeque<(Route, Box<[u8]>)>>,
    /// How many packets were ever queued, and how many of them were sent.
    queued: AtomicU64,
    sent: AtomicU64,
}

impl Outbox {
    pub(super) fn push(&self, route: Route, packet: Box<[u8]>) {
        let mut packets = lock(&self.packets);
        packets.push_back((route, packet));
        self.queued.fetch_add(1, Ordering::Release);
    }

    /// Takes the next packet. Without one it takes no lock: this is called in every pass.
    pub(super) fn pop(&self, taken: u64) -> Option<(Route, Box<[u8]>)> {
        if self.queued.load(Ordering::Acquire) == taken {
            return None;
        }
        lock(&self.packets).pop_front()
    }

    /// The number of packets queued so far.
    #[inline]
    pub(super) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Acquire)
    }

    /// Whether the first `count` packets were sent.
    pub(super) fn has_sent(&self, count: u64) -> bool {
        self.sent.load(Ordering::Acquire) >= count
    }

    /// Records that the first `count` packets were sent.
    pub(super) fn set_sent(&self, count: u64) {
        if self.sent.load(Ordering::Relaxed) != count {
            self.sent.store(count, Ordering::Release);
        }
    }
}
