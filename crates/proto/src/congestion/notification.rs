//! The notification point: marked packets become congestion notification packets, not too many.

use core::time::Duration;

use ferroce_wire::ip::Ecn;

use crate::time::Instant;

/// Decides for one queue pair when a congestion notification packet goes to its peer.
///
/// A mark is answered at once, unless one was answered within the interval before: then it says nothing new, for the
/// sender reacts to a notification and not to their number (DCQCN 3.1, "NP algorithm"). 40 bytes, part of the queue
/// pair; nothing is allocated.
#[derive(Clone, Copy, Debug)]
pub struct NotificationPacer {
    interval: Duration,
    /// Before this nothing is sent.
    quiet_until: Instant,
    marked: u64,
    notified: u64,
}

impl NotificationPacer {
    /// At most one notification in this time (DCQCN's N, 50 µs).
    pub const INTERVAL: Duration = Duration::from_micros(50);

    /// A pacer with an interval of its own; zero answers every mark.
    pub const fn new(interval: Duration) -> Self {
        Self { interval, quiet_until: Instant::ZERO, marked: 0, notified: 0 }
    }

    /// A packet of the queue pair came with this mark in its IP header: whether a notification is to be sent to the
    /// peer.
    #[inline]
    #[must_use = "the notification is to be sent"]
    pub fn handle_packet(&mut self, now: Instant, ecn: Ecn) -> bool {
        ecn == Ecn::CONGESTION_EXPERIENCED && self.handle_mark(now)
    }

    /// Marked packets so far.
    pub const fn marked(&self) -> u64 {
        self.marked
    }

    /// Notifications so far.
    pub const fn notified(&self) -> u64 {
        self.notified
    }

    /// A packet of the queue pair came with a mark: whether a notification is to be sent to the peer.
    #[inline]
    #[must_use = "the notification is to be sent"]
    pub fn handle_mark(&mut self, now: Instant) -> bool {
        self.marked = self.marked.saturating_add(1);
        if now < self.quiet_until {
            return false;
        }
        self.quiet_until = now + self.interval;
        self.notified = self.notified.saturating_add(1);
        true
    }
}

impl Default for NotificationPacer {
    fn default() -> Self {
        Self::new(Self::INTERVAL)
    }
}
