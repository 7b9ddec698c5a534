//! What a frame in hexadecimal starts with, when nobody says it.

use ferroce_trace::link::LinkType;
use ferroce_wire::ethernet::{EtherType, Ethernet};

/// Ethernet if the EtherType is one that is met with RDMA, else IP if the first header looks like it, else Ethernet.
pub(crate) fn guess(bytes: &[u8]) -> LinkType {
    if Ethernet::split(bytes).is_some_and(|(ethernet, rest)| is_plausible(ethernet.ethertype, rest))
    {
        return LinkType::ETHERNET;
    }
    match bytes {
        // The version, at least 5 words of header, and a length that is there.
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

/// The name of a link type in a sentence.
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
    use super::guess;
    use ferroce_trace::link::LinkType;

    #[test]
    fn ethernet_and_ip_are_told_apart() {
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
}
