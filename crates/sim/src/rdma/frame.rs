//! Packets as whole frames, with the ICRC computed on the way out and checked on the way in.

use std::net::Ipv4Addr;

use ferroce_proto::ud::GRH_LEN;
use ferroce_wire::address::{Ip4, Mac};
use ferroce_wire::ethernet::{EtherType, Ethernet};
use ferroce_wire::frame::{Frame, IcrcVerdict, Network};
use ferroce_wire::ip::{Ecn, IpProtocol, Ipv4, ROCE_PORT, Udp};
use ferroce_wire::packet::{ICRC_LEN, Packet};

/// "Congestion experienced" (RFC 3168, 5).
const MARKED: Ecn = Ecn(3);

/// A packet that arrived, and what its frame says of it.
pub(super) struct InboundPacket<'a> {
    pub(super) packet: Packet<'a>,
    pub(super) ip: Ipv4,
    /// The network has marked it.
    pub(super) marked: bool,
}

impl<'a> InboundPacket<'a> {
    /// Reads a frame; `None` when it is damaged.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let frame = Frame::ethernet(bytes, bytes.len());
        // What a fault has changed is not always the packet: a frame for somebody else is not ours to judge.
        let packet = frame.packet.filter(|_| frame.problem.is_none())?;
        let Some(Network::Ipv4(ip, _)) = frame.network else { return None };
        if frame.check_icrc() != IcrcVerdict::Ok {
            return None;
        }
        Some(Self { packet, ip, marked: ip.ecn == MARKED })
    }

    /// What goes to the front of a datagram's buffer: an IPv4 header in the last 20 bytes (IBA A17).
    pub(super) fn route_header(&self) -> [u8; GRH_LEN] {
        let mut header = [0; GRH_LEN];
        header[GRH_LEN - Ipv4::LEN..].copy_from_slice(&self.ip.to_bytes());
        header
    }
}

/// A packet as a whole frame.
pub(super) fn emit(
    packet: &Packet<'_>,
    from: Ipv4Addr,
    to: Ipv4Addr,
    port: u16,
    out: &mut Vec<u8>,
) {
    let udp_len = Udp::LEN + packet.wire_len();
    let ip = Ipv4 {
        version: 4,
        header_words: 5,
        // ECN-capable: queues of the fabric mark instead of dropping while they can.
        ecn: Ecn(2),
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

/// A group's address is made from its IP address (RFC 1112, 6.4); a host's is of our own choice.
fn mac(address: Ipv4Addr) -> Mac {
    let [a, b, c, d] = address.octets();
    match address.is_multicast() {
        true => Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d]),
        false => Mac([2, 0, a, b, c, d]),
    }
}
