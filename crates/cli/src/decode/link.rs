//! Guessing the link layer of a frame in hexadecimal.

use ferroce_trace::dissect;
use ferroce_trace::link::LinkType;
use ferroce_wire::ethernet::{EtherType, Ethernet};
use ferroce_wire::frame::Network;
use ferroce_wire::infiniband::Grh;
use ferroce_wire::ip::Ipv6;

/// Ethernet if the EtherType is one used with RDMA, otherwise IP if the first header looks like it, otherwise Ethernet.
pub(crate) fn guess(bytes: &[u8]) -> LinkType {
    if Ethernet::split(bytes).is_some_and(|(ethernet, rest)| is_plausible(ethernet.ethertype, rest))
    {
        return LinkType::ETHERNET;
    }
    match bytes {
        // The version, at least 5 words of header, and a length that fits.
        [0x45..=0x4f, _, high, low, ..] | [0x60..=0x6f, _, _, _, high, low, ..]
            if usize::from(u16::from_be_bytes([*high, *low])) <= bytes.len() =>
        {
            LinkType::RAW
        }
        _ => LinkType::ETHERNET,
    }
}

fn is_plausible(ethertype: EtherType, rest: &[u8]) -> bool {
    let version = rest.first().map(|byte| byte >> 4);
    match ethertype {
        EtherType::IPV4 => version == Some(4),
        EtherType::IPV6 | EtherType::ROCE_V1 => version == Some(6),
        other => other.is_vlan(),
    }
}

/// The length of a frame on the wire, taken from its network layer because a frame in hexadecimal has no capture
/// record. If it is longer than the given bytes, the frame was truncated.
pub(crate) fn wire_length(link: LinkType, bytes: &[u8]) -> usize {
    let announced = match dissect::read(link, bytes, u32::MAX as usize) {
        Ok(Some((start, frame))) => frame.network.map(|network| {
            start
                + frame.at.network
                + match network {
                    Network::Ipv4(ip, _) => usize::from(ip.total_length),
                    Network::Ipv6(ip) => Ipv6::LEN + usize::from(ip.payload_length),
                    Network::Grh(grh) => Grh::LEN + usize::from(grh.payload_length),
                    Network::Lrh(lrh, _) => usize::from(lrh.packet_length) * 4,
                }
        }),
        _ => None,
    };
    announced.unwrap_or(0).max(bytes.len())
}

/// The name of a link type in running text.
pub(crate) fn name(link: LinkType) -> &'static str {
    match link {
        LinkType::ETHERNET => "Ethernet",
        LinkType::RAW => "IP",
        LinkType::INFINIBAND => "InfiniBand",
        other => other.name().unwrap_or("an unknown link type"),
    }
}

#[cfg(test)]
mod tests {
    use super::{guess, wire_length};
    use ferroce_trace::link::LinkType;

    #[test]
    fn ethernet_and_ip_are_distinguished() {
        let mut ip = [0; 28];
        (ip[0], ip[3]) = (0x45, 28);
        assert_eq!(guess(&ip), LinkType::RAW);
        let mut frame = vec![0x45; 12];
        frame.extend([0x08, 0x00]);
        frame.extend(ip);
        assert_eq!(guess(&frame), LinkType::ETHERNET);
        assert_eq!(guess(&[]), LinkType::ETHERNET);
        assert_eq!(guess(&[0x45, 0, 0xff, 0xff]), LinkType::ETHERNET);
    }

    #[test]
    fn the_wire_length_of_a_truncated_frame_is_its_ip_length() {
        let mut ip = [0; 28];
        (ip[0], ip[3]) = (0x45, 200);
        assert_eq!(wire_length(LinkType::RAW, &ip), 200);
        ip[3] = 20;
        assert_eq!(wire_length(LinkType::RAW, &ip), 28);
        assert_eq!(wire_length(LinkType::RAW, &ip[..10]), 10);
        assert_eq!(wire_length(LinkType::ETHERNET, &[]), 0);
    }
}
