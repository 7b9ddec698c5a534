//! Congestion control: the receiver converts ECN marks to CNPs, and the sender reduces its rate on CNPs.
//! `docs/congestion.md` has the parameters and the deviations.
//!
//! Citations refer to RFC 3168 (ECN), to the RoCEv2 annex of the InfiniBand specification (A17.9, congestion
//! management) and to Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015 ("DCQCN").
//!
//! These are parts of a QP, not state machines of their own. Time is still an argument, and no wakeup is needed:
//! expired timers are processed in the next call.

mod controller;
mod dcqcn;
mod loss;
mod notification;
mod window;

#[cfg(test)]
mod tests;

pub use controller::{Congestion, Controller};
pub use dcqcn::{Dcqcn, DcqcnParameters};
pub use loss::Loss;
#[cfg(test)]
pub(crate) use loss::LossLimit;
pub use notification::NotificationPacer;
pub use window::{Unlimited, Window};

use crate::time::Instant;

/// Cost of a packet to its receiver besides the payload: headers, and the kernel's bookkeeping per datagram in a
/// socket buffer. Linux charges about 768 bytes for a small datagram.
pub const PACKET_OVERHEAD: usize = 768;

/// Bytes to account for `packets` packets with a total payload of `payload`, in [`RateControl::on_sent`] and
/// [`RateControl::on_ack`].
pub const fn cost(payload: usize, packets: usize) -> usize {
    payload.saturating_add(packets.saturating_mul(PACKET_OVERHEAD))
}

/// Why nothing may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The rate allows it at this time.
    Until(Instant),
    /// The window is full. An ACK or a loss opens it, at an unknown time.
    Window,
}

/// Decides when a requester may send.
///
/// The requester calls [`may_send`](RateControl::may_send) before each packet and reports what happens. It must
/// request an ACK in the last packet that fits into the window, or only a timeout opens the window again.
pub trait RateControl {
    /// Whether a packet of this many bytes may be sent now.
    fn may_send(&mut self, now: Instant, bytes: usize) -> Result<(), Blocked>;

    /// A packet is sent or retransmitted.
    fn on_sent(&mut self, now: Instant, bytes: usize);

    /// Packets of this many bytes in total are acknowledged.
    fn on_ack(&mut self, now: Instant, bytes: usize);

    /// The requester goes back to the oldest unacknowledged packet: nothing counts as in flight any more, and
    /// retransmissions are counted again.
    fn on_loss(&mut self, now: Instant, loss: Loss);

    /// A CNP was received (IBA A17.9.3).
    fn on_cnp(&mut self, now: Instant);

    /// Maximum bytes in flight.
    fn window(&self) -> usize;

    /// Bytes in flight.
    fn in_flight(&self) -> usize;

    /// The current rate in bits per second; `None` when unlimited.
    fn rate(&mut self, now: Instant) -> Option<u64>;
}
