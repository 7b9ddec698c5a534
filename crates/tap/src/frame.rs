//! A packet with all its headers, and its comment.

use std::net::IpAddr;

use ferroce_trace::file::Direction;
use ferroce_wire::ip::InternetChecksum;
use ferroce_wire::opcode::Opcode;

use crate::capture::Interface;
use crate::metadata::{Owner, PacketMetadata};

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// The IP protocol number of UDP (RFC 768).
const UDP: u8 = 17;

/// Builds the headers that precede the packet.
pub(super) fn headers(
    interface: &Interface,
    metadata: &PacketMetadata,
    packet: &[u8],
    frame: &mut Vec<u8>,
) {
    let (source, destination) = (metadata.headers.source, metadata.headers.destination);
    frame.clear();
    let is_sent = metadata.direction == Direction::Outbound;
    frame.extend_from_slice(&interface.ethernet(destination.ip(), !is_sent));
    frame.extend_from_slice(&interface.ethernet(source.ip(), is_sent));
    let ip = metadata.headers.global_route(
        packet,
        metadata.identification,
        metadata.traffic_class,
        metadata.hop_limit,
    );
    // The header of IPv4 is behind 20 bytes of zero, the addresses are at the end of both.
    let (kind, ip, addresses) = match source.is_ipv4() {
        true => (IPV4, &ip[20..], &ip[32..]),
        false => (IPV6, &ip[..], &ip[8..]),
    };
    frame.extend_from_slice(&kind);
    frame.extend_from_slice(ip);
    let [a, b] = source.port().to_be_bytes();
    let [c, d] = destination.port().to_be_bytes();
    let [e, f] = ((8 + packet.len()) as u16).to_be_bytes();
    let udp = [a, b, c, d, e, f, 0, 0];
    let sum = InternetChecksum::default().over(addresses).over(&[0, UDP, e, f]).over(&udp);
    let sum = match sum.over(packet).finish().0 {
        // RFC 768: zero would mean no checksum.
        0 => u16::MAX,
        sum => sum,
    };
    frame.extend_from_slice(&udp[..6]);
    frame.extend_from_slice(&sum.to_be_bytes());
}

/// Makes the comments of packets, which Wireshark shows. Successive packets mostly have the same one, so the last is kept.
#[derive(Debug, Default)]
pub struct Comments {
    text: String,
    last: Option<(Direction, Owner, Opcode)>,
}

impl Comments {
    pub(super) fn of(&mut self, direction: Direction, owner: Owner, opcode: Opcode) -> &str {
        let of = Some((direction, owner, opcode));
        if self.last != of {
            self.last = of;
            let way = if direction == Direction::Inbound { "for" } else { "from" };
            self.text = format!("{way} QP 0x{:06x}", owner.queue_pair.0);
            if let Some(work) = owner.work {
                self.text += &format!(", work request {}", work.0);
            }
            self.text += ": ";
            self.text += opcode.name();
        }
        &self.text
    }
}

impl Interface {
    /// The Ethernet address for an IP address: the group's, the interface's own, or a generated one with the locally
    /// administered bit set.
    fn ethernet(&self, ip: IpAddr, own: bool) -> [u8; 6] {
        match (ip, self.mac) {
            (_, Some(zero)) if zero == [0; 6] => zero,
            // RFC 1112 6.4.
            (IpAddr::V4(ip), _) if ip.is_multicast() => {
                let [_, b, c, d] = ip.octets();
                [0x01, 0x00, 0x5e, b & 0x7f, c, d]
            }
            // RFC 2464 7.
            (IpAddr::V6(ip), _) if ip.is_multicast() => {
                let [.., a, b, c, d] = ip.octets();
                [0x33, 0x33, a, b, c, d]
            }
            (_, Some(mac)) if own => mac,
            (IpAddr::V4(ip), _) => {
                let [a, b, c, d] = ip.octets();
                [0x02, 0x00, a, b, c, d]
            }
            (IpAddr::V6(ip), _) => {
                let [.., a, b, c, d] = ip.octets();
                [0x02, 0x06, a, b, c, d]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_proto::work::WorkId;
    use ferroce_trace::dissect::dissect;
    use ferroce_trace::file::LinkType;
    use ferroce_wire::icrc::hidden::Identification;
    use ferroce_wire::number::Qpn;
    use ferroce_wire::udp_headers::Headers;

    use super::super::Owner;
    use super::*;

    const MAC: [u8; 6] = [0xd8, 0x5e, 0xd3, 1, 2, 3];

    fn metadata(source: &str, destination: &str, direction: Direction) -> PacketMetadata {
        let headers =
            Headers { source: source.parse().unwrap(), destination: destination.parse().unwrap() };
        let owner = Owner { queue_pair: Qpn(0x01_2345), work: Some(WorkId(9)) };
        match direction {
            Direction::Outbound => PacketMetadata::sent(headers, 2, None, 3, owner),
            Direction::Inbound => {
                let identification = Identification::of_segment(3);
                PacketMetadata::received(headers, 2, Some(64), identification, owner)
            }
        }
    }

    /// An ACK, as the third packet of its batch.
    fn packet(metadata: &PacketMetadata) -> Vec<u8> {
        let mut packet = vec![0x11, 0, 0xff, 0xff, 0, 0, 0, 7, 0, 0, 0, 1, 0x1f, 0, 0, 1];
        packet.extend_from_slice(&metadata.headers.icrc(&packet, 3));
        packet
    }

    fn frame(interface: &Interface, metadata: &PacketMetadata) -> Vec<u8> {
        let mut frame = Vec::new();
        let packet = packet(metadata);
        headers(interface, metadata, &packet, &mut frame);
        frame.extend_from_slice(&packet);
        frame
    }

    #[test]
    fn frames_dissect_without_complaint() {
        let interface =
            Interface { name: "ferroce_eth0".into(), network: "eth0".into(), mac: Some(MAC) };
        for (source, destination) in
            [("192.0.2.1:49152", "192.0.2.2:4791"), ("[2001:db8::1]:49152", "[2001:db8::2]:4791")]
        {
            let metadata = metadata(source, destination, Direction::Outbound);
            let frame = frame(&interface, &metadata);
            assert_eq!(frame[6..12], MAC);
            assert_eq!(frame[0] & 2, 2, "the peer's is made up");
            let tree = dissect(LinkType::ETHERNET, &frame, frame.len());
            let text = format!("{tree:?}");
            assert!(text.contains("RC ACKNOWLEDGE") || text.contains("ACKNOWLEDGE"), "{text}");
            // A datagram including its checksum sums to zero (RFC 1071).
            let (ip, udp) = if metadata.headers.source.is_ipv4() { (26, 34) } else { (22, 54) };
            let length = ((frame.len() - udp) as u16).to_be_bytes();
            let sum = InternetChecksum::default()
                .over(&frame[ip..udp])
                .over(&[0, UDP])
                .over(&length)
                .over(&frame[udp..]);
            assert_eq!(sum.finish().0, 0);
        }
    }

    #[test]
    fn ethernet_addresses_fit_the_interface() {
        let eth0 = Interface { name: String::new(), network: String::new(), mac: Some(MAC) };
        let group = metadata("192.0.2.1:49152", "239.129.2.3:4791", Direction::Outbound);
        assert_eq!(frame(&eth0, &group)[..6], [0x01, 0, 0x5e, 0x01, 2, 3]);
        let came = metadata("192.0.2.2:49152", "192.0.2.1:4791", Direction::Inbound);
        assert_eq!(frame(&eth0, &came)[..12], [&MAC[..], &[2, 0, 192, 0, 2, 2]].concat());
        let lo = Interface { name: String::new(), network: String::new(), mac: Some([0; 6]) };
        assert_eq!(frame(&lo, &came)[..12], [0; 12]);
    }

    #[test]
    fn comments_name_queue_pair_and_request() {
        let mut comment = Comments::default();
        let owner = |work| Owner { queue_pair: Qpn(0x01_2345), work };
        let text = comment.of(Direction::Outbound, owner(Some(WorkId(9))), Opcode(0x11));
        assert_eq!(text, format!("from QP 0x012345, work request 9: {}", Opcode(0x11).name()));
        let text = comment.of(Direction::Inbound, owner(None), Opcode(0));
        assert_eq!(text, format!("for QP 0x012345: {}", Opcode(0).name()));
    }
}
