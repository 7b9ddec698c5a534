//! No limit, and a limit on what is in flight.

use core::time::Duration;

use super::{Blocked, NotificationPacer, PACKET_OVERHEAD, RateControl};
use crate::time::Instant;

/// Sends as fast as it can: for a receiver that cannot be overrun.
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

    fn on_loss(&mut self, _now: Instant) {
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

/// Bounds what is in flight, so that it fits in the receiver's socket buffer even if the receiver does not look at it
/// for a while. What does not fit there is lost, and go-back-N then repeats all that followed.
///
/// CNPs make it smaller by half, at most once for what is in flight (RFC 3168, section 6.1.2: once per round trip) and
/// once per [`Window::CUT_INTERVAL`]; each window's worth of acknowledged bytes makes it larger again by one of
/// [`Window::STEPS`], up to its full size.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The size without congestion.
    full: usize,
    size: usize,
    in_flight: usize,
    /// Bytes acknowledged since it was last made larger.
    acknowledged: usize,
    /// Bytes that were in flight when it was made smaller, and are not acknowledged yet: CNPs are about those.
    notified: usize,
    /// Before this it is not made smaller again.
    cut_after: Instant,
}

impl Window {
    /// Bytes as [`cost`](super::cost) counts them. Linux gives a socket 212,992 bytes unless told otherwise
    /// (`net.core.rmem_default`) and charges large datagrams with up to twice their length.
    pub const DEFAULT_SIZE: usize = 96 * 1024;

    /// The cost of the largest packet. A smaller window would let nothing through.
    pub const MIN_SIZE: usize = 4096 + PACKET_OVERHEAD;

    /// The shortest time between two cuts: that between two CNPs of one queue pair.
    pub const CUT_INTERVAL: Duration = NotificationPacer::INTERVAL;

    /// Steps from nothing to its full size.
    pub const STEPS: usize = 32;

    /// A window of this many bytes, of [`Window::MIN_SIZE`] at least.
    pub const fn new(size: usize) -> Self {
        let full = if size < Self::MIN_SIZE { Self::MIN_SIZE } else { size };
        let cut_after = Instant::ZERO;
        Self { full, size: full, in_flight: 0, acknowledged: 0, notified: 0, cut_after }
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
        // When nothing is in flight, no acknowledgement will come: whatever it is must go.
        let fits = self.size.saturating_sub(self.in_flight) >= bytes;
        if fits || self.in_flight == 0 { Ok(()) } else { Err(Blocked::Window) }
    }

    #[inline]
    fn on_sent(&mut self, _now: Instant, bytes: usize) {
        self.in_flight = self.in_flight.saturating_add(bytes);
    }

    #[inline]
    fn on_ack(&mut self, _now: Instant, bytes: usize) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
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

    fn on_loss(&mut self, _now: Instant) {
        (self.in_flight, self.notified) = (0, 0);
    }

    fn on_cnp(&mut self, now: Instant) {
        if self.notified > 0 || now < self.cut_after {
            return;
        }
        self.size = (self.size / 2).max(Self::MIN_SIZE);
        self.notified = self.in_flight;
        self.acknowledged = 0;
        self.cut_after = now + Self::CUT_INTERVAL;
    }

    fn window(&self) -> usize {
        self.size
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn rate(&mut self, _now: Instant) -> Option<u64> {
        None
    }
}
