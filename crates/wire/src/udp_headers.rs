//! The IP and UDP headers of a packet, and the ICRC, which covers them.

use core::net::{IpAddr, SocketAddr};

use crate::icrc::Icrc;
use crate::icrc::hidden::{Identification, UdpIpv4, solve};
use crate::infiniband::Grh;
use crate::packet::ICRC_LEN;

/// The addresses and ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The source address and UDP port.
    pub source: SocketAddr,
    /// The destination address and UDP port.
    pub destination: SocketAddr,
}

impl Headers {
    /// The ICRC of a packet at this index of its batch; 0 where batches are not segmented.
    #[inline]
    pub fn icrc(&self, packet: &[u8], index: u16) -> [u8; ICRC_LEN] {
        let Some((bth, rest)) = packet.split_first_chunk::<12>() else { return [0; ICRC_LEN] };
        let udp_length = (8 + packet.len() + ICRC_LEN) as u16;
        let mut icrc = match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(_), _) => {
                self.ipv4().icrc(Identification::of_segment(index), udp_length, bth)
            }
            (IpAddr::V6(_), _) => {
                Icrc::ipv6(&self.ipv6(udp_length, 0, 0), &self.udp(udp_length), bth)
            }
        };
        icrc.update(rest);
        icrc.finish()
    }

    /// Checks the ICRC at the end of a packet. Over IPv4 the receiver does not see the identification, so this finds
    /// one that makes the ICRC right and returns it (`docs/icrc.md`).
    #[inline]
    pub fn check(&self, packet: &[u8], index: u16) -> Option<Identification> {
        let expected = Identification::of_segment(index);
        if self.source.is_ipv4() {
            return solve(&self.ipv4(), packet, expected);
        }
        let (covered, found) = packet.split_last_chunk::<ICRC_LEN>()?;
        (self.icrc(covered, 0) == *found).then_some(expected)
    }

    #[inline]
    fn ipv4(&self) -> UdpIpv4 {
        let octets = |address: &SocketAddr| match address.ip() {
            IpAddr::V4(ip) => ip.octets(),
            IpAddr::V6(_) => [0; 4],
        };
        UdpIpv4 {
            source: octets(&self.source),
            destination: octets(&self.destination),
            source_port: self.source.port(),
            destination_port: self.destination.port(),
        }
    }

    #[inline]
    fn udp(&self, length: u16) -> [u8; 8] {
        let [a, b] = self.source.port().to_be_bytes();
        let [c, d] = self.destination.port().to_be_bytes();
        let [e, f] = length.to_be_bytes();
        [a, b, c, d, e, f, 0, 0]
    }

    #[inline]
    fn ipv6(&self, length: u16, traffic_class: u8, hop_limit: u8) -> [u8; 40] {
        let octets = |address: &SocketAddr| match address.ip() {
            IpAddr::V6(ip) => ip.octets(),
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        };
        let mut header = [0; 40];
        header[0] = 0x60 | traffic_class >> 4;
        header[1] = traffic_class << 4;
        header[4..6].copy_from_slice(&length.to_be_bytes());
        header[6] = 17;
        header[7] = hop_limit;
        header[8..24].copy_from_slice(&octets(&self.source));
        header[24..].copy_from_slice(&octets(&self.destination));
        header
    }

    /// The first 40 bytes of a UD receive buffer: the IPv6 header, or 20 bytes of zero and the IPv4 header (IBA
    /// A17.4.5.2).
    #[inline]
    pub fn global_route(
        &self,
        packet: &[u8],
        identification: Identification,
        traffic_class: u8,
        hop_limit: u8,
    ) -> [u8; Grh::LEN] {
        let length = (8 + packet.len()) as u16;
        let (IpAddr::V4(source), IpAddr::V4(destination)) =
            (self.source.ip(), self.destination.ip())
        else {
            return self.ipv6(length, traffic_class, hop_limit);
        };
        let mut header = [0; Grh::LEN];
        let ip = &mut header[20..];
        ip[0] = 0x45;
        ip[1] = traffic_class;
        ip[2..4].copy_from_slice(&(20 + length).to_be_bytes());
        ip[4..6].copy_from_slice(&identification.id.to_be_bytes());
        ip[6] = u8::from(identification.dont_fragment) << 6;
        ip[8] = hop_limit;
        ip[9] = 17;
        ip[12..16].copy_from_slice(&source.octets());
        ip[16..20].copy_from_slice(&destination.octets());
        let sum: u32 =
            ip.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        header
    }
}
