//! Rate control without a limit, and with a window.

use core::time::Duration;

use super::loss::LossLimit;
use super::{Blocked, Loss, NotificationPacer, PACKET_OVERHEAD, RateControl};
use crate::time::Instant;

/// No limit, for a receiver that cannot be overrun.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited {
    in_flight: usize,
}

impl RateControl for Unlimited {
    fn may_send(&mut self, _now: Instant, _bytes: usize) -> Result<(), Blocked> {
        Ok(())
    }

    fn on_sent(&mut self, _now: Instant, bytes: usize) {
        self.in_flight = self.in_flight.saturating_add(bytes);
    }

    fn on_ack(&mut self, _now: Instant, bytes: usize) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    fn on_loss(&mut self, _now: Instant, _loss: Loss) {
        self.in_flight = 0;
    }

    fn on_cnp(&mut self, _now: Instant) {}

    fn window(&self) -> usize {
        usize::MAX
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn rate(&mut self, _now: Instant) -> Option<u64> {
        None
    }
}

/// Limits the bytes in flight so that they fit into the receiver's socket buffer even if the receiver pauses. What
/// does not fit is lost, and go-back-N retransmits everything behind it.
///
/// A CNP halves the window, at most once for the bytes in flight (RFC 3168, section 6.1.2: once per round trip) and
/// once per [`Window::CUT_INTERVAL`]. Each acknowledged window enlarges it by 1/[`Window::STEPS`] of its full size.
///
/// Loss limits a large window towards the bandwidth-delay product, independently of CNPs.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Size without congestion.
    full: usize,
    size: usize,
    in_flight: usize,
    /// Bytes acknowledged since the last increase.
    acknowledged: usize,
    /// Unacknowledged bytes that were in flight at the last cut: CNPs are about these.
    notified: usize,
    /// No further cut before this time.
    next_cut: Instant,
    loss: LossLimit,
}

impl Window {
    /// Default size, as counted by [`cost`](super::cost). By default, a Linux socket buffer has 212,992 bytes
    /// (`net.core.rmem_default`), and a large datagram is charged up to twice its length.
    pub const DEFAULT_SIZE: usize = 96 * 1024;

    /// Cost of the largest packet. A smaller window would block everything.
    pub const MIN_SIZE: usize = 4096 + PACKET_OVERHEAD;

    /// Minimum time between two cuts: the CNP interval of a QP.
    pub const CUT_INTERVAL: Duration = NotificationPacer::INTERVAL;

    /// Steps from zero to full size.
    pub const STEPS: usize = 32;

    /// Creates a window of this many bytes, at least [`Window::MIN_SIZE`].
    pub const fn new(size: usize) -> Self {
        let full = if size < Self::MIN_SIZE { Self::MIN_SIZE } else { size };
        let next_cut = Instant::ZERO;
        let loss = LossLimit::new(full);
        Self { full, size: full, in_flight: 0, acknowledged: 0, notified: 0, next_cut, loss }
    }

    fn limit(&self) -> usize {
        self.size.min(self.loss.get())
    }
}

impl Default for Window {
    fn default() -> Self {
        Self::new(Self::DEFAULT_SIZE)
    }
}

impl RateControl for Window {
    #[inline]
    fn may_send(&mut self, _now: Instant, bytes: usize) -> Result<(), Blocked> {
        // With nothing in flight no ACK can arrive, so any packet may be sent.
        let fits = self.limit().saturating_sub(self.in_flight) >= bytes;
        if fits || self.in_flight == 0 { Ok(()) } else { Err(Blocked::Window) }
    }

    #[inline]
    fn on_sent(&mut self, _now: Instant, bytes: usize) {
        self.in_flight = self.in_flight.saturating_add(bytes);
    }

    #[inline]
    fn on_ack(&mut self, _now: Instant, bytes: usize) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.loss.on_ack(bytes);
        if self.size == self.full {
            return;
        }
        self.notified = self.notified.saturating_sub(bytes);
        self.acknowledged = self.acknowledged.saturating_add(bytes);
        if self.acknowledged >= self.size {
            self.acknowledged = 0;
            let step = (self.full / Self::STEPS).max(PACKET_OVERHEAD);
            self.size = self.size.saturating_add(step).min(self.full);
        }
    }

    fn on_loss(&mut self, _now: Instant, loss: Loss) {
        self.loss.on_loss(loss, self.in_flight);
        (self.in_flight, self.notified) = (0, 0);
    }

    fn on_cnp(&mut self, now: Instant) {
        if self.notified > 0 || now < self.next_cut {
            return;
        }
        self.size = (self.size / 2).max(Self::MIN_SIZE);
        self.notified = self.in_flight;
        self.acknowledged = 0;
        self.next_cut = now + Self::CUT_INTERVAL;
    }

    fn window(&self) -> usize {
        self.limit()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn rate(&mut self, _now: Instant) -> Option<u64> {
        None
    }
}
