//! One address of a device and its sockets.

use std::net::SocketAddr;

use ferroce_device::tuning::tx::MAX_IN_FLIGHT;
use ferroce_sys::{Slot, Socket};

use super::senders::Senders;

/// The route of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The index of the outgoing link.
    pub(crate) link: u8,
    /// The index of the link's send socket, which determines the source port.
    pub(crate) sender: u8,
    /// Selects the source port until a send socket is chosen; 0 derives the port from both QPNs.
    pub(crate) flow_label: u32,
    /// The destination, with the RoCEv2 port.
    pub(crate) destination: SocketAddr,
    /// Type of service (IPv4) or traffic class (IPv6).
    pub(crate) traffic_class: u8,
    /// Time to live or hop limit; `None` uses the system's default.
    pub(crate) hop_limit: Option<u8>,
}

/// An address of a device.
#[derive(Debug)]
pub(crate) struct Link {
    /// The address at which peers reach us.
    pub(crate) address: SocketAddr,
    pub(crate) receiver: Socket,
    pub(crate) senders: Senders,
    pub(crate) slot: Slot,
}

/// The bytes that may be in flight to one peer, as [`ferroce_proto::congestion::cost`] counts them. The peer's receive
/// buffer is assumed to be as large as ours; Linux charges a datagram up to twice its length, and other senders share
/// the buffer.
pub(crate) fn receive_share(links: &[Link]) -> usize {
    let buffers = links.iter().map(|link| link.receiver.features().receive_buffer);
    (buffers.min().unwrap_or(0) / 3).min(MAX_IN_FLIGHT)
}
