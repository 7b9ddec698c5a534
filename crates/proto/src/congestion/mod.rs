//! Congestion: marks become notifications at the receiver, and notifications a lower rate at the sender.
//! `docs/congestion.md` has the parameters and the deviations.
//!
//! Citations are of RFC 3168 (ECN), of the RoCEv2 annex of the InfiniBand specification (A17.9, congestion
//! management) and of Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, here "DCQCN".
//!
//! These are parts of a queue pair rather than machines of their own: they have no packets. Time is still an argument
//! of everything, and nothing has to be woken: timers that expired are caught up with at the next call.

mod controller;
mod dcqcn;
mod notification;
mod window;

#[cfg(test)]
mod tests;

pub use controller::{Congestion, Controller};
pub use dcqcn::{Dcqcn, DcqcnParameters};
pub use notification::NotificationPacer;
pub use window::{Unlimited, Window};

use crate::time::Instant;

/// What a datagram costs its receiver beside its payload: headers, and the kernel's bookkeeping for each datagram
/// that waits in a socket. Linux charges a small one with about 768 bytes.
pub const PACKET_OVERHEAD: usize = 768;

/// The bytes to account for so many packets with a total payload of `payload`: what [`RateControl`] is told when they
/// are sent, and told again when they are acknowledged.
pub const fn cost(payload: usize, packets: usize) -> usize {
    payload.saturating_add(packets.saturating_mul(PACKET_OVERHEAD))
}

/// Why nothing may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The rate allows it at this time.
    Until(Instant),
    /// The window is full: an acknowledge or a loss opens it. No time is known.
    Window,
}

/// Decides when a requester may send.
///
/// The requester asks [`may_send`](RateControl::may_send) before each packet and tells what happens. It must ask for
/// an acknowledge in the last packet that the window takes, or nothing will open it again but a timeout.
pub trait RateControl {
    /// Whether a packet of this many bytes may be sent now.
    fn may_send(&mut self, now: Instant, bytes: usize) -> Result<(), Blocked>;

    /// A packet is sent, for the first time or again.
    fn on_sent(&mut self, now: Instant, bytes: usize);

    /// Packets of this many bytes in total are acknowledged.
    fn on_ack(&mut self, now: Instant, bytes: usize);

    /// Packets are lost, and the requester goes back to the first of them: nothing counts as under way any more, and
    /// what is sent again is counted again.
    fn on_loss(&mut self, now: Instant);

    /// A congestion notification packet came (RoCEv2 annex A17.9.3).
    fn on_cnp(&mut self, now: Instant);

    /// The most bytes that may be under way.
    fn window(&self) -> usize;

    /// The bytes under way.
    fn in_flight(&self) -> usize;

    /// The rate at this time in bits a second; `None` when there is no limit.
    fn rate(&mut self, now: Instant) -> Option<u64>;
}
