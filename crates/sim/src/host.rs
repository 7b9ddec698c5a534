//! The interface between the fabric and a host.

use std::fmt;
use std::time::Duration;

use ferroce_proto::time::Instant;

/// Identifies a host of a fabric. Hosts are numbered from 0 in the order in which they are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

impl HostId {
    /// Returns the number as an index.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host{}", self.0)
    }
}

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The address in its network header, which the switch reads: IPv4, IPv6, or the GRH of RoCEv1.
    Header,
    /// This host, whatever the bytes are.
    Host(HostId),
}

/// A state machine on the fabric, with the interface that all state machines of this project have: `handle_*` in,
/// `poll_*` out.
///
/// The fabric follows the drain rule: after each `handle_*` it calls `poll_transmit` until it returns `None`, then
/// `poll_notification` until it returns `None`, and then `poll_timeout` once. A host must take randomness from a [`crate::Random`] and time from `now`; otherwise runs are
/// not repeatable.
pub trait Host {
    /// Handles a received frame: Ethernet, network, UDP and transport headers, payload.
    fn handle_frame(&mut self, now: Instant, frame: &[u8]);

    /// Handles the expiry of the deadline that `poll_timeout` returned.
    fn handle_timeout(&mut self, now: Instant);

    /// Appends the next frame to send to `frame`, which is empty, and returns its destination.
    fn poll_transmit(&mut self, now: Instant, frame: &mut Vec<u8>) -> Option<Destination>;

    /// Returns the deadline at which `handle_timeout` must be called. A deadline in the past expires immediately.
    fn poll_timeout(&mut self) -> Option<Instant>;

    /// Handles a notification of another process of its machine.
    fn handle_notification(&mut self, now: Instant) {
        let _ = now;
    }

    /// Returns the next host to notify, and after which time. No fault of the network touches notifications.
    fn poll_notification(&mut self) -> Option<(HostId, Duration)> {
        None
    }
}

impl<H: Host + ?Sized> Host for Box<H> {
    fn handle_frame(&mut self, now: Instant, frame: &[u8]) {
        (**self).handle_frame(now, frame);
    }

    fn handle_timeout(&mut self, now: Instant) {
        (**self).handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, frame: &mut Vec<u8>) -> Option<Destination> {
        (**self).poll_transmit(now, frame)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        (**self).poll_timeout()
    }

    fn handle_notification(&mut self, now: Instant) {
        (**self).handle_notification(now);
    }

    fn poll_notification(&mut self) -> Option<(HostId, Duration)> {
        (**self).poll_notification()
    }
}
