//! One address of a device: its sockets, and the headers that packets over it have.

use std::net::SocketAddr;

use ferroce_sys::{Slot, Socket};

use super::senders::Senders;

/// The most that is under way to one peer, bytes.
const MAX_IN_FLIGHT: usize = 4 << 20;

/// Where a packet goes, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The index of the link that it leaves by.
    pub(crate) link: u8,
    /// Which of the link's sockets it leaves by, and so its source port.
    pub(crate) sender: u8,
    /// What the source port is chosen by, until it is: 0 for the numbers of both queue pairs.
    pub(crate) flow_label: u32,
    /// Its destination, with the port of RoCEv2.
    pub(crate) destination: SocketAddr,
    /// Type of service or traffic class.
    pub(crate) traffic_class: u8,
    /// Time to live or hop limit; `None` leaves it to the system.
    pub(crate) hop_limit: Option<u8>,
}

/// An address of a device.
#[derive(Debug)]
pub(crate) struct Link {
    /// Where others reach us.
    pub(crate) address: SocketAddr,
    pub(crate) receiver: Socket,
    pub(crate) senders: Senders,
    pub(crate) slot: Slot,
}

/// How much may be under way to one peer, bytes as [`ferroce_proto::congestion::cost`] counts them: the peer's buffer is
/// likely to be as ours. Linux charges a datagram with up to twice its length, and there are others that send.
pub(crate) fn receive_share(links: &[Link]) -> usize {
    let buffers = links.iter().map(|link| link.receiver.features().receive_buffer);
    (buffers.min().unwrap_or(0) / 3).min(MAX_IN_FLIGHT)
}
