//! Loopback headers: four bytes of address family, then IP.

use super::{Carried, ETHERTYPE_IPV4, ETHERTYPE_IPV6, LinkError, LinkField, LinkHeader, chunk};

const HEADER_LEN: usize = 4;

/// The EtherType of an address family: 2 is IPv4 everywhere, but IPv6 differs: 10 on Linux, 24 on
/// NetBSD and OpenBSD, 28 on FreeBSD, 30 on macOS.
fn ethertype(family: u32) -> Option<u16> {
    match family {
        2 => Some(ETHERTYPE_IPV4),
        10 | 24 | 28 | 30 => Some(ETHERTYPE_IPV6),
        _ => None,
    }
}

/// The family of a NULL header, in the unknown byte order of the capturing host. Families are small
/// numbers, so the smaller interpretation is the right one.
fn either_order(header: [u8; HEADER_LEN]) -> u32 {
    let (little, big) = (u32::from_le_bytes(header), u32::from_be_bytes(header));
    little.min(big)
}

pub(super) fn null(data: &[u8]) -> Result<Carried<'_>, LinkError> {
    let header = chunk::<HEADER_LEN>(data, 0, "loopback header")?;
    carried(either_order(*header), data)
}

pub(super) fn network_order(data: &[u8]) -> Result<Carried<'_>, LinkError> {
    let header = chunk::<HEADER_LEN>(data, 0, "loopback header")?;
    carried(u32::from_be_bytes(*header), data)
}

fn carried(family: u32, data: &[u8]) -> Result<Carried<'_>, LinkError> {
    let ethertype = ethertype(family).ok_or(LinkError::UnknownFamily { family })?;
    Ok(Carried::Network { ethertype, offset: HEADER_LEN, data: &data[HEADER_LEN..] })
}

pub(super) fn null_header(data: &[u8]) -> Result<LinkHeader, LinkError> {
    let header = chunk::<HEADER_LEN>(data, 0, "loopback header")?;
    Ok(described("BSD loopback", either_order(*header)))
}

pub(super) fn network_order_header(data: &[u8]) -> Result<LinkHeader, LinkError> {
    let header = chunk::<HEADER_LEN>(data, 0, "loopback header")?;
    Ok(described("OpenBSD loopback", u32::from_be_bytes(*header)))
}

fn described(name: &'static str, family: u32) -> LinkHeader {
    let meaning = match ethertype(family) {
        Some(ETHERTYPE_IPV4) => "IPv4",
        Some(_) => "IPv6",
        None => "not IP",
    };
    LinkHeader { name, fields: vec![LinkField::new("address family", 0..4, family, meaning)] }
}
