//! What the fabric asks of a host.

use std::fmt;

use ferroce_proto::time::Instant;

/// A host of a fabric: numbered from 0 in the order in which they were added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

impl HostId {
    /// As an index.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host{}", self.0)
    }
}

/// Where a frame shall go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To whom its network header says, as a switch reads it: IPv4, IPv6, or the GRH of RoCEv1.
    Header,
    /// To this host, whatever the bytes are.
    Host(HostId),
}

/// A machine on the fabric, in the shape of all machines of this project: `handle_*` in, `poll_*` out.
///
/// The fabric keeps the drain rule: after each `handle_*` it calls `poll_transmit` until there is nothing, then
/// `poll_timeout` once. A host must draw its own randomness from a [`crate::Random`] and its time from `now`, or runs
/// are not repeatable.
pub trait Host {
    /// A whole frame arrived: Ethernet, network, UDP and transport.
    fn handle_frame(&mut self, now: Instant, frame: &[u8]);

    /// The time that `poll_timeout` gave has come.
    fn handle_timeout(&mut self, now: Instant);

    /// Appends the next frame to send to `frame`, which is empty, and says where it shall go.
    fn poll_transmit(&mut self, now: Instant, frame: &mut Vec<u8>) -> Option<Destination>;

    /// When `handle_timeout` is to be called if nothing happens before. A time that has passed is now.
    fn poll_timeout(&mut self) -> Option<Instant>;
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
}
