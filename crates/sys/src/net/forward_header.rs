//! The header of a packet that one process passes to another, through a mailbox: the [`RxInfo`] that the first received with it.
//!
//! Processes of different versions may run on one machine, so the header has a version. Packets with an unknown header
//! are dropped; the transport retransmits them.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use crate::net::address::{mapped, scope, unmapped};
use crate::net::receive::RxInfo;

/// Length of the header in bytes.
pub const LENGTH: usize = 56;

/// "Ferroce forwards", version 1.
const MAGIC: [u8; 4] = *b"Ff\0\x01";

/// Writes the header.
pub fn encode(info: &RxInfo) -> [u8; LENGTH] {
    let mut header = [0; LENGTH];
    header[..4].copy_from_slice(&MAGIC);
    header[4] = info.tos;
    header[5] = info.hop_limit.unwrap_or(0);
    header[6] = u8::from(info.hop_limit.is_some());
    header[8..24].copy_from_slice(&mapped(info.source.ip()));
    header[24..26].copy_from_slice(&info.source.port().to_be_bytes());
    header[28..32].copy_from_slice(&scope(info.source).to_be_bytes());
    header[32..48].copy_from_slice(&mapped(info.destination));
    header[48..52].copy_from_slice(&info.interface.unwrap_or(0).to_be_bytes());
    // Datagrams are below 64 KiB.
    header[52..].copy_from_slice(&(info.segment as u32).to_be_bytes());
    header
}

/// Parses a forwarded packet: `None` if it does not have this header.
pub fn decode(bytes: &[u8]) -> Option<RxInfo> {
    let (header, packet) = bytes.split_first_chunk::<LENGTH>()?;
    let number = |at: usize| array(header, at).map(u32::from_be_bytes);
    if header[..4] != MAGIC {
        return None;
    }
    let port = u16::from_be_bytes(array(header, 24)?);
    let source = match unmapped(array(header, 8)?) {
        IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, number(28)?)),
        ip => SocketAddr::new(ip, port),
    };
    let segment = number(52)? as usize;
    Some(RxInfo {
        source,
        destination: unmapped(array(header, 32)?),
        interface: number(48).filter(|&index| index != 0),
        tos: header[4],
        hop_limit: (header[6] != 0).then_some(header[5]),
        length: packet.len(),
        segment: if segment == 0 { packet.len() } else { segment.min(packet.len()) },
        truncated: false,
    })
}

fn array<const N: usize>(header: &[u8; LENGTH], at: usize) -> Option<[u8; N]> {
    header.get(at..)?.first_chunk().copied()
}
