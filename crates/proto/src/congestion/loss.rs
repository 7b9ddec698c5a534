//! The part of a window's limit that follows loss.

use super::{PACKET_OVERHEAD, cost};

/// Why a requester goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A NAK or an implied NAK: packets are missing, and later ones arrived.
    Gap,
    /// The ACK timer expired.
    Timeout,
    /// The responder was not ready (RNR NAK). Nothing was lost.
    NotReady,
}

/// Limits the bytes in flight after loss.
///
/// Go-back-N retransmits what was in flight behind the lost packet, so each loss wastes the bytes of the window, and
/// those above the bandwidth-delay product bring nothing in return. A gap divides the limit by [`LossLimit::DIVISOR`],
/// and a timeout reduces it to [`LossLimit::FLOOR`]. There is one cut per round trip, since one event may lose many
/// packets. Each acknowledged limit enlarges it, slowly after loss: with one loss in a thousand packets it stays near
/// the floor, and without loss it returns to the full size.
///
/// Between a timeout and the next answer of the peer, only [`LossLimit::RESTART`] is in flight: a peer that is not
/// scheduled would collect a copy of the window in its socket at each timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossLimit {
    full: usize,
    limit: usize,
    /// Bytes acknowledged since the last increase.
    acknowledged: usize,
    /// Bytes to be acknowledged before the next cut: the retransmission of what was in flight.
    cut: usize,
    /// The limit was cut and has not returned to the full size.
    lossy: bool,
    /// The ACK timer expired, and nothing was acknowledged since.
    silent: bool,
}

impl LossLimit {
    /// Bandwidth-delay product of 40 Gbit/s and 50 µs, as [`cost`](super::cost) counts it: a smaller window would leave
    /// such a link idle.
    pub(super) const FLOOR: usize = 256 * 1024;

    /// Limit of a new connection: it fills any such link, and the first loss does not waste a full window.
    pub(super) const INITIAL: usize = 4 * Self::FLOOR;

    pub(super) const DIVISOR: usize = 8;

    /// Limit between a timeout and the next ACK: four of the largest packets.
    pub(crate) const RESTART: usize = 4 * cost(4096, 1);

    /// Steps from zero to the full size, each after one acknowledged limit: without loss, and after it.
    pub(super) const STEPS: usize = 64;
    pub(super) const STEPS_AFTER_LOSS: usize = 512;

    pub(super) const fn new(full: usize) -> Self {
        let limit = if full < Self::INITIAL { full } else { Self::INITIAL };
        Self { full, limit, acknowledged: 0, cut: 0, lossy: false, silent: false }
    }

    pub(super) fn get(&self) -> usize {
        if self.silent { self.limit.min(Self::RESTART) } else { self.limit }
    }

    #[inline]
    pub(super) fn on_ack(&mut self, bytes: usize) {
        self.silent = false;
        if self.limit == self.full {
            return;
        }
        self.cut = self.cut.saturating_sub(bytes);
        self.acknowledged = self.acknowledged.saturating_add(bytes);
        if self.acknowledged >= self.limit {
            self.acknowledged = 0;
            let steps = if self.lossy { Self::STEPS_AFTER_LOSS } else { Self::STEPS };
            let step = (self.full / steps).max(PACKET_OVERHEAD);
            self.limit = self.limit.saturating_add(step).min(self.full);
            self.lossy &= self.limit < self.full;
        }
    }

    pub(super) fn on_loss(&mut self, loss: Loss, in_flight: usize) {
        self.silent = loss == Loss::Timeout;
        let target = match loss {
            Loss::Gap if self.cut == 0 => self.limit / Self::DIVISOR,
            Loss::Gap | Loss::NotReady => return,
            Loss::Timeout => 0,
        };
        // A window below the floor is left as it is: go-back-N retransmits little.
        if self.full <= Self::FLOOR {
            return;
        }
        self.limit = target.max(Self::FLOOR);
        (self.acknowledged, self.cut) = (0, in_flight.min(self.limit));
        self.lossy = true;
    }
}
