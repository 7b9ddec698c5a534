//! No limit, and a limit on what is under way.

use super::{Blocked, PACKET_OVERHEAD, RateControl};
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

/// Bounds what is under way, so that it fits in the receiver's socket buffer even if the receiver does not look at it
/// for a while. What does not fit there is lost, and go-back-N then repeats all that followed.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    size: usize,
    in_flight: usize,
}

impl Window {
    /// Bytes as [`cost`](super::cost) counts them. Linux gives a socket 212,992 bytes unless told otherwise
    /// (`net.core.rmem_default`) and charges large datagrams with up to twice their length.
    pub const DEFAULT_SIZE: usize = 96 * 1024;

    /// The cost of the largest packet. A smaller window would let nothing through.
    pub const MIN_SIZE: usize = 4096 + PACKET_OVERHEAD;

    /// A window of this many bytes, of [`Window::MIN_SIZE`] at least.
    pub const fn new(size: usize) -> Self {
        let size = if size < Self::MIN_SIZE { Self::MIN_SIZE } else { size };
        Self { size, in_flight: 0 }
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
        // When nothing is under way, no acknowledge will come: whatever it is must go.
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
    }

    fn on_loss(&mut self, _now: Instant) {
        self.in_flight = 0;
    }

    /// A window says nothing about rates: notifications are for those that do.
    fn on_cnp(&mut self, _now: Instant) {}

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
