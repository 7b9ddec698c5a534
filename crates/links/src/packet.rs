//! Packets: their largest size, their ICRC, and the metadata of one that was received.

use std::net::{IpAddr, SocketAddr};

use ferroce_device::Arrival;
use ferroce_proto::time::Instant;
use ferroce_proto::ud::Envelope;
use ferroce_sys::RxInfo;
use ferroce_wire::address::Gid;
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::packet::{ICRC_LEN, Packet};
use ferroce_wire::udp_headers::Headers;

/// The largest packet: 4096 bytes of payload and all headers, rounded up.
pub(crate) const MAX_PACKET: usize = 4096 + 128;

/// "Congestion experienced" in the two ECN bits (RFC 3168).
pub(crate) const CONGESTION_EXPERIENCED: u8 = 3;

/// A received packet and its metadata.
#[derive(Debug)]
pub struct ReceivedPacket<'a> {
    /// The packet.
    pub packet: &'a Packet<'a>,
    /// The number of packets: 1, unless it is an aggregate of a ring.
    pub packets: u32,
    /// Its bytes, from the BTH to the ICRC.
    pub bytes: &'a [u8],
    /// The addresses and ports.
    pub headers: &'a Headers,
    /// What the kernel reported about its datagram, or the sender's metadata in a ring.
    pub info: &'a RxInfo,
    /// The address of the device that received it.
    pub local: &'a SocketAddr,
    /// The IPv4 identification.
    pub identification: Identification,
    /// Whether it may have come through a ring.
    pub may_be_queued: bool,
    /// When it was received.
    pub now: Instant,
}

impl Arrival for ReceivedPacket<'_> {
    #[inline]
    fn packet(&self) -> &Packet<'_> {
        self.packet
    }

    #[inline]
    fn packets(&self) -> u32 {
        self.packets
    }

    #[inline]
    fn time(&self) -> Instant {
        self.now
    }

    #[inline]
    fn source(&self) -> IpAddr {
        self.info.source.ip()
    }

    #[inline]
    fn destination(&self) -> IpAddr {
        self.info.destination
    }

    #[inline]
    fn is_marked(&self) -> bool {
        self.info.ecn() == CONGESTION_EXPERIENCED
    }

    #[inline]
    fn may_be_queued(&self) -> bool {
        self.may_be_queued
    }

    fn envelope(&self) -> Envelope {
        let hops = self.info.hop_limit.unwrap_or(0);
        let header =
            self.headers.global_route(self.bytes, self.identification, self.info.tos, hops);
        Envelope { destination: Gid::from_ip(self.info.destination), header: Some(header) }
    }
}

/// Writes the ICRC into the last bytes of a packet. `index`: its index in a batch that the kernel segments, from which the IPv4
/// identification follows; 0 otherwise.
pub(crate) fn write_icrc(packet: &mut [u8], headers: &Headers, index: usize) {
    if let Some((covered, icrc)) = packet.split_last_chunk_mut::<ICRC_LEN>() {
        *icrc = headers.icrc(covered, index as u16);
    }
}
