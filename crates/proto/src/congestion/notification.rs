//! DCQCN notification point: sends CNPs for marked packets, at a limited rate.

use core::time::Duration;

use ferroce_wire::ip::Ecn;

use crate::time::Instant;

/// Decides when a QP sends a CNP to its peer.
///
/// A CNP is sent immediately for a mark, unless one was sent within the interval: further ones carry no information,
/// since the sender reacts to a CNP and not to their number (DCQCN 3.1, "NP algorithm"). 40 bytes, part of the QP,
/// without allocation.
#[derive(Clone, Copy, Debug)]
pub struct NotificationPacer {
    interval: Duration,
    /// No CNP before this time.
    next_cnp: Instant,
    marked: u64,
    notified: u64,
}

impl NotificationPacer {
    /// Minimum time between two CNPs (DCQCN's N, 50 µs).
    pub const INTERVAL: Duration = Duration::from_micros(50);

    /// Creates a pacer; an interval of zero sends a CNP for every mark.
    pub const fn new(interval: Duration) -> Self {
        Self { interval, next_cnp: Instant::ZERO, marked: 0, notified: 0 }
    }

    /// Handles a received packet with this ECN field. Returns whether to send a CNP.
    #[inline]
    #[must_use = "the notification is to be sent"]
    pub fn handle_packet(&mut self, now: Instant, ecn: Ecn) -> bool {
        ecn == Ecn::CONGESTION_EXPERIENCED && self.handle_mark(now)
    }

    /// Number of marked packets.
    pub const fn marked(&self) -> u64 {
        self.marked
    }

    /// Number of CNPs.
    pub const fn notified(&self) -> u64 {
        self.notified
    }

    /// Handles a marked packet. Returns whether to send a CNP.
    #[inline]
    #[must_use = "the notification is to be sent"]
    pub fn handle_mark(&mut self, now: Instant) -> bool {
        self.marked = self.marked.saturating_add(1);
        if now < self.next_cnp {
            return false;
        }
        self.next_cnp = now + self.interval;
        self.notified = self.notified.saturating_add(1);
        true
    }
}

impl Default for NotificationPacer {
    fn default() -> Self {
        Self::new(Self::INTERVAL)
    }
}
