//! Socket addresses: conversion from and to `struct sockaddr`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::entry::{Errno, Result};

/// Reads a program's address. Only IPv4 and IPv6 are accepted: RoCE has no other families.
///
/// # Safety
/// The pointer is null, or points to an address with the length of its family.
pub(crate) unsafe fn read(address: *const sockaddr) -> Result<SocketAddr> {
    // SAFETY: as the caller promises.
    let family = unsafe { address.as_ref() }.ok_or(Errno::INVALID)?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: as the caller promises; it may be unaligned.
            let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let (port, flow) = (u16::from_be(v6.sin6_port), v6.sin6_flowinfo);
            Ok(SocketAddrV6::new(ip, port, flow, v6.sin6_scope_id).into())
        }
        _ => Err(Errno::INVALID),
    }
}

/// As [`read`], for an address that may be null.
///
/// # Safety
/// As [`read`].
pub(crate) unsafe fn read_optional(address: *const sockaddr) -> Result<Option<SocketAddr>> {
    if address.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    unsafe { read(address) }.map(Some)
}

/// Converts an address for the program.
pub(crate) fn write(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: all zeroes is a valid value.
    let mut out: sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut out;
    match address {
        SocketAddr::V4(address) => {
            let v4 = sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: `sockaddr_storage` has the size and alignment for every address.
            unsafe { place.cast::<sockaddr_in>().write(v4) };
        }
        SocketAddr::V6(address) => {
            let v6 = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<sockaddr_in6>().write(v6) };
        }
    }
    out
}

/// The port of an address in network byte order, or 0 if it has none.
pub(crate) fn port(address: &sockaddr_storage) -> u16 {
    // SAFETY: it holds an address of its family, or zeroes.
    unsafe { read((&raw const *address).cast()) }.map_or(0, |address| address.port().to_be())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> SocketAddr {
        let stored = write(text.parse().unwrap());
        // SAFETY: a local address.
        unsafe { read((&raw const stored).cast()) }.unwrap()
    }

    #[test]
    fn addresses_of_both_families_round_trip() {
        for text in ["10.1.2.3:513", "[fd00::9]:1", "[fe80::1%3]:65535"] {
            assert_eq!(round_trip(text), text.parse().unwrap());
        }
    }

    #[test]
    fn ports_are_in_network_byte_order() {
        assert_eq!(port(&write("10.1.2.3:258".parse().unwrap())).to_ne_bytes(), [1, 2]);
        // SAFETY: all zeroes is a valid value.
        assert_eq!(port(&unsafe { std::mem::zeroed() }), 0);
    }

    #[test]
    fn other_families_are_refused() {
        let mut stored = write("10.1.2.3:4".parse().unwrap());
        stored.ss_family = libc::AF_UNIX as u16;
        // SAFETY: a local address.
        assert_eq!(unsafe { read((&raw const stored).cast()) }, Err(Errno::INVALID));
    }

    #[test]
    fn null_is_an_error_unless_the_address_is_optional() {
        let null = std::ptr::null();
        // SAFETY: null.
        assert_eq!(unsafe { read(null) }, Err(Errno::INVALID));
        // SAFETY: null.
        assert_eq!(unsafe { read_optional(null) }, Ok(None));
    }
}
