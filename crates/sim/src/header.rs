//! The header fields that a switch reads and writes: the destination address and the ECN bits.

use std::net::{IpAddr, Ipv4Addr};

use ferroce_wire::address::Gid;
use ferroce_wire::ethernet::{EtherType, Ethernet, Vlan};
use ferroce_wire::infiniband::Grh;
use ferroce_wire::ip::{Ecn, Ipv4, Ipv6, Udp};

/// The network header, with its offset in the frame.
enum Network {
    Ipv4(usize),
    Ipv6(usize),
    Grh(usize),
}

/// Finds the network header behind any VLAN tags. Returns `None` if it is truncated or of the wrong version.
fn network(frame: &[u8]) -> Option<Network> {
    let ethertype = |end: usize| Some(EtherType(u16::from_be_bytes(*frame[..end].last_chunk()?)));
    let mut at = Ethernet::LEN;
    while frame.len() >= at && ethertype(at)?.is_vlan() {
        at += Vlan::LEN;
    }
    let (rest, version) = (frame.get(at..)?, frame.get(at)? >> 4);
    match (ethertype(at)?, version) {
        (EtherType::IPV4, 4) if rest.len() >= Ipv4::LEN => Some(Network::Ipv4(at)),
        (EtherType::IPV6, 6) if rest.len() >= Ipv6::LEN => Some(Network::Ipv6(at)),
        (EtherType::ROCE_V1, 6) if rest.len() >= Grh::LEN => Some(Network::Grh(at)),
        _ => None,
    }
}

/// Returns the destination address of a frame.
pub(crate) fn destination(frame: &[u8]) -> Option<IpAddr> {
    match network(frame)? {
        Network::Ipv4(at) => {
            let address: [u8; 4] = *frame[at + 16..].first_chunk()?;
            Some(Ipv4Addr::from(address).into())
        }
        // A GRH has the layout of an IPv6 header (IBA 8.3).
        Network::Ipv6(at) | Network::Grh(at) => Some(Gid(*frame[at + 24..].first_chunk()?).to_ip()),
    }
}

/// Returns source and destination address and the ports of an IPv4/UDP frame: the bytes that ECMP hashes.
pub(crate) fn flow(frame: &[u8]) -> Option<&[u8]> {
    match network(frame)? {
        // 8 bytes of addresses, directly followed by the ports if there are no options.
        Network::Ipv4(at) if frame[at] & 0xf == 5 => frame.get(at + 12..at + 24),
        // 32 bytes of addresses, directly followed by the ports if there are no extension headers.
        Network::Ipv6(at) => frame.get(at + 8..at + 44),
        Network::Ipv4(_) | Network::Grh(_) => None,
    }
}

/// Returns the destination QPN of a RoCEv2 frame without IP options or extension headers.
pub(crate) fn queue_pair(frame: &[u8]) -> Option<u32> {
    let transport = match network(frame)? {
        Network::Ipv4(at) if frame[at] & 0xf == 5 => at + Ipv4::LEN,
        Network::Ipv6(at) => at + Ipv6::LEN,
        Network::Ipv4(_) | Network::Grh(_) => return None,
    };
    let number: [u8; 4] = *frame.get(transport + Udp::LEN + 4..)?.first_chunk()?;
    Some(u32::from_be_bytes(number) & 0x00ff_ffff)
}

/// Returns the ECN bits. RoCEv1 has none.
pub(crate) fn ecn(frame: &[u8]) -> Option<Ecn> {
    match network(frame)? {
        Network::Ipv4(at) => Some(Ecn(frame[at + 1] & 3)),
        Network::Ipv6(at) => Some(Ecn(frame[at + 1] >> 4 & 3)),
        Network::Grh(_) => None,
    }
}

/// Sets CE ("congestion experienced"). The ICRC does not cover the ECN bits (IBA A17.3.3); the IPv4 checksum does.
pub(crate) fn mark_congestion(frame: &mut [u8]) {
    match network(frame) {
        Some(Network::Ipv4(at)) => {
            let header = &mut frame[at..at + Ipv4::LEN];
            let before = u16::from_be_bytes([header[0], header[1]]);
            header[1] |= 3;
            let after = u16::from_be_bytes([header[0], header[1]]);
            let checksum = u16::from_be_bytes([header[10], header[11]]);
            // RFC 1624, equation 3: an incremental update, so that a wrong checksum stays wrong.
            let mut sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
            while sum >> 16 != 0 {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        Some(Network::Ipv6(at)) => frame[at + 1] |= 0x30,
        Some(Network::Grh(_)) | None => {}
    }
}
