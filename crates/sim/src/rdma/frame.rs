//! Packets as whole Ethernet frames. The ICRC is computed on transmit and checked on receive.

use std::net::{IpAddr, Ipv4Addr};

use ferroce_device::Arrival;
use ferroce_proto::time::Instant;
use ferroce_proto::ud::{Envelope, GRH_LEN};
use ferroce_wire::address::{Gid, Ip4, Mac};
use ferroce_wire::ethernet::{EtherType, Ethernet};
use ferroce_wire::frame::{Frame, IcrcVerdict, Network};
use ferroce_wire::ip::{Ecn, IpProtocol, Ipv4, ROCE_PORT, Udp};
use ferroce_wire::packet::{ICRC_LEN, Packet};

/// CE, "congestion experienced" (RFC 3168, section 5).
const CE: Ecn = Ecn(3);

/// A received packet with its IPv4 header.
pub(super) struct ReceivedPacket<'a> {
    pub(super) packet: Packet<'a>,
    pub(super) ip: Ipv4,
    /// When it arrived.
    pub(super) time: Instant,
    /// How many packets it is, if it is a record of a transmit queue.
    pub(super) record: Option<u32>,
}

impl<'a> ReceivedPacket<'a> {
    /// Parses a frame; `None` if it is corrupted.
    pub(super) fn parse(bytes: &'a [u8], time: Instant) -> Option<Self> {
        let (frame, received) = Self::parse_headers(bytes, time)?;
        if frame.check_icrc() != IcrcVerdict::Ok {
            return None;
        }
        Some(received)
    }

    /// As [`ReceivedPacket::parse`] on a network that corrupts nothing: does not check the ICRC.
    pub(super) fn parse_trusted(bytes: &'a [u8], time: Instant) -> Option<Self> {
        Self::parse_headers(bytes, time).map(|(_, received)| received)
    }

    fn parse_headers(bytes: &'a [u8], time: Instant) -> Option<(Frame<'a>, Self)> {
        let frame = Frame::ethernet(bytes, bytes.len());
        // A flipped bit may be outside the packet: only the parsed packet and its ICRC are checked.
        let packet = frame.packet.filter(|_| frame.problem.is_none())?;
        let Some(Network::Ipv4(ip, _)) = frame.network else { return None };
        let received = Self { packet, ip, time, record: None };
        Some((frame, received))
    }

    /// Whether the network has marked it CE.
    pub(super) fn is_marked(&self) -> bool {
        self.ip.ecn == CE
    }
}

impl Arrival for ReceivedPacket<'_> {
    fn packet(&self) -> &Packet<'_> {
        &self.packet
    }

    fn packets(&self) -> u32 {
        self.record.unwrap_or(1)
    }

    fn time(&self) -> Instant {
        self.time
    }

    fn source(&self) -> IpAddr {
        Ipv4Addr::from(self.ip.source.0).into()
    }

    fn destination(&self) -> IpAddr {
        Ipv4Addr::from(self.ip.destination.0).into()
    }

    fn is_marked(&self) -> bool {
        self.is_marked()
    }

    fn may_be_queued(&self) -> bool {
        self.record.is_some()
    }

    /// With the 40 bytes before a UD payload: an IPv4 header in the last 20 bytes (IBA A17).
    fn envelope(&self) -> Envelope {
        let mut header = [0; GRH_LEN];
        header[GRH_LEN - Ipv4::LEN..].copy_from_slice(&self.ip.to_bytes());
        Envelope { destination: Gid::from_ip(Arrival::destination(self)), header: Some(header) }
    }
}

/// ECT(0), ECN-capable (RFC 3168, section 5).
pub(super) const ECT0: Ecn = Ecn(2);

/// Writes a packet as a whole frame. With ECN-capable ones, the fabric's queues mark before they drop.
pub(super) fn emit(
    packet: &Packet<'_>,
    from: Ipv4Addr,
    to: Ipv4Addr,
    port: u16,
    ecn: Ecn,
    out: &mut Vec<u8>,
) {
    let udp_len = Udp::LEN + packet.wire_len();
    let ip = Ipv4 {
        version: 4,
        header_words: 5,
        ecn,
        total_length: (Ipv4::LEN + udp_len) as u16,
        dont_fragment: true,
        time_to_live: 64,
        protocol: IpProtocol::UDP,
        source: Ip4(from.octets()),
        destination: Ip4(to.octets()),
        ..Ipv4::default()
    };
    let frame = Frame {
        ethernet: Some(Ethernet {
            destination: mac(to),
            source: mac(from),
            ethertype: EtherType::IPV4,
        }),
        network: Some(Network::Ipv4(ip.with_checksum(), &[])),
        udp: Some(Udp {
            source_port: port,
            destination_port: ROCE_PORT,
            length: udp_len as u16,
            ..Udp::default()
        }),
        packet: Some(*packet),
        ..Frame::default()
    };
    out.resize(Ethernet::LEN + Ipv4::LEN + udp_len + ICRC_LEN, 0);
    let length = frame.emit(out).unwrap_or(0);
    out.truncate(length);
}

/// Multicast MACs derive from the IP address (RFC 1112, section 6.4); hosts have locally administered ones.
fn mac(address: Ipv4Addr) -> Mac {
    let [a, b, c, d] = address.octets();
    match address.is_multicast() {
        true => Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d]),
        false => Mac([2, 0, a, b, c, d]),
    }
}
