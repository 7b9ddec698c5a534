//! The route of a packet.

use std::net::SocketAddr;

/// The hop limit of packets whose route sets none.
const DEFAULT_HOPS: u8 = 64;

/// The route of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The index of the address that it leaves from.
    pub link: u8,
    /// The index of the send socket of that address, which determines the source port.
    pub sender: u8,
    /// Selects the source port until a send socket is chosen; 0 derives the port from both QPNs.
    pub flow_label: u32,
    /// The destination, with the RoCEv2 port.
    pub destination: SocketAddr,
    /// Type of service (IPv4) or traffic class (IPv6).
    pub traffic_class: u8,
    /// Time to live or hop limit; `None` uses the system's default.
    pub hop_limit: Option<u8>,
}

impl Route {
    /// The route from the first send socket of an address, with defaults for all else.
    pub fn new(link: u8, destination: SocketAddr) -> Self {
        Self { link, sender: 0, flow_label: 0, destination, traffic_class: 0, hop_limit: None }
    }

    /// The time to live or hop limit of its packets.
    #[inline]
    pub fn hops(&self) -> u8 {
        self.hop_limit.unwrap_or(DEFAULT_HOPS)
    }
}
