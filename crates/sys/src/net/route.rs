//! The way to another address: from which of ours, and how much fits.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::error::Error;
use crate::net::address::{RawAddress, family};
use crate::net::socket::bound_to;
use crate::syscall::{check, errno, int_option, socket};

/// The RoCE path MTUs: payload bytes of one packet (IBA 9.2, in the order of their codes 1 to 5).
pub const ROCE_MTUS: [u16; 5] = [256, 512, 1024, 2048, 4096];

/// What a packet has beside its payload, from the BTH on: BTH, the largest extension headers that stand before
/// payload (XRCETH, RETH and immediate data), and ICRC.
pub const ROCE_HEADERS: usize = 12 + (4 + 16 + 4) + 4;

/// The largest RoCE path MTU on an interface or path with this MTU, which counts from the IP header on. `None` when
/// not even the smallest fits.
pub fn roce_mtu(mtu: u32, ipv6: bool) -> Option<u16> {
    let headers = if ipv6 { 48 } else { 28 } + ROCE_HEADERS;
    let payload = (mtu as usize).checked_sub(headers)?;
    ROCE_MTUS.into_iter().rev().find(|&fits| usize::from(fits) <= payload)
}

/// Bytes of IP and UDP header on the way to a destination.
pub(crate) fn udp_headers(destination: SocketAddr) -> usize {
    if destination.is_ipv6() { 48 } else { 28 }
}

/// The address of ours that packets to a destination leave from, with the scope where it needs one. The port is 0.
pub fn source_for(destination: SocketAddr) -> Result<SocketAddr, Error> {
    let probe = connect(destination)?;
    let mut source = bound_to(probe.as_fd())
        .map_err(|error| Error::system("learn a socket's own address", error))?;
    source.set_port(0);
    Ok(source)
}

/// The largest packet, IP header included, that the kernel believes to fit on the way: the interface's MTU, or less
/// when a router said so.
pub fn path_mtu(destination: SocketAddr) -> Result<u32, Error> {
    let probe = connect(destination)?;
    let (level, name) = match destination {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    int_option(probe.as_fd(), level, name)
        .map(libc::c_int::unsigned_abs)
        .map_err(|error| Error::system("learn the path's MTU", error))
}

/// A socket for asking the kernel about a route: connecting sends nothing.
fn connect(destination: SocketAddr) -> Result<OwnedFd, Error> {
    let mut destination = destination;
    if destination.port() == 0 {
        destination.set_port(crate::ROCE_PORT);
    }
    let probe = socket(family(destination), libc::SOCK_DGRAM, libc::IPPROTO_UDP)
        .map_err(|error| Error::open(destination, error))?;
    let (raw, length) = RawAddress::new(destination);
    // SAFETY: the address is a local, as long as said.
    check(unsafe { libc::connect(probe.as_raw_fd(), (&raw const raw).cast(), length) })
        .map_err(|error| unreachable(destination, error))?;
    Ok(probe)
}

fn unreachable(destination: SocketAddr, error: io::Error) -> Error {
    match errno(&error) {
        libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL => {
            Error::Unreachable { destination, source: error }
        }
        _ => Error::system("find a route", error),
    }
}
