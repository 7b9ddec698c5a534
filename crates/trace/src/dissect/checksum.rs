//! Verification of Internet checksums and the ICRC.

use ferroce_wire::frame::{Frame, IcrcVerdict, Network};
use ferroce_wire::ip::{InternetChecksum, IpProtocol, Udp};

use super::tree::{Verdict, to_hex};

/// Verifies the checksum of an IPv4 header with options.
pub(super) fn ipv4(header: &[u8]) -> (Verdict, String) {
    const CHECKSUM: std::ops::Range<usize> = 10..12;
    let (Some(before), Some(after)) = (header.get(..CHECKSUM.start), header.get(CHECKSUM.end..))
    else {
        return (Verdict::Unverifiable, String::new());
    };
    let expected = InternetChecksum::default().over(before).over(after).finish();
    if InternetChecksum::default().over(header).finish().0 == 0 {
        (Verdict::Correct, "correct".to_owned())
    } else {
        (Verdict::Wrong, format!("wrong, should be {expected}"))
    }
}

/// Verifies the UDP checksum of a frame.
pub(super) fn udp(frame: &Frame<'_>, udp: &Udp) -> (Option<Verdict>, String) {
    if udp.checksum.0 == 0 {
        return (None, "none".to_owned());
    }
    let len = usize::from(udp.length);
    let datagram = frame.bytes.get(frame.at.udp..).and_then(|bytes| bytes.get(..len));
    let pseudo = frame.network.and_then(|network| pseudo_header(&network, len));
    let (Some(datagram), Some(pseudo)) = (datagram, pseudo) else {
        return (
            Some(Verdict::Unverifiable),
            "not verifiable: the datagram is truncated".to_owned(),
        );
    };
    let (Some(before), Some(after)) = (datagram.get(..6), datagram.get(Udp::LEN..)) else {
        return (Some(Verdict::Unverifiable), String::new());
    };
    if pseudo.over(datagram).finish().0 == 0 {
        return (Some(Verdict::Correct), "correct".to_owned());
    }
    // RFC 768: a sum of zero is sent as ones, because zero means no checksum.
    let expected = match pseudo.over(before).over(after).finish().0 {
        0 => 0xffff,
        sum => sum,
    };
    let meaning =
        format!("wrong, should be {expected:#06x}; on the sending host the NIC may fill it in");
    (Some(Verdict::Wrong), meaning)
}

/// Sum of the UDP pseudo-header (RFC 768, RFC 8200 8.1).
fn pseudo_header(network: &Network<'_>, len: usize) -> Option<InternetChecksum> {
    let sum = InternetChecksum::default();
    let addresses = match network {
        Network::Ipv4(ip, _) => sum.over(&ip.source.0).over(&ip.destination.0),
        Network::Ipv6(ip) => sum.over(&ip.source.0).over(&ip.destination.0),
        Network::Grh(_) | Network::Lrh(..) => return None,
    };
    // The length has 16 bits in IPv4 and 32 in IPv6, which does not affect the sum.
    let len = u32::try_from(len).ok()?;
    Some(addresses.over(&len.to_be_bytes()).over(&[0, IpProtocol::UDP.0]))
}

/// Verifies the ICRC of a frame that has one.
pub(super) fn icrc(frame: &Frame<'_>) -> (Verdict, String) {
    match frame.check_icrc() {
        IcrcVerdict::Ok => (Verdict::Correct, "correct".to_owned()),
        IcrcVerdict::Bad { computed, .. } => {
            (Verdict::Wrong, format!("wrong, should be 0x{}", to_hex(&computed)))
        }
        IcrcVerdict::Unverifiable => {
            (Verdict::Unverifiable, "not verifiable: the packet is truncated".to_owned())
        }
    }
}
