//! The route to a destination: source address and path MTU.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketType, connect, ipproto, sockopt};

use crate::error::Error;
use crate::net::address::{family, local_address};
use crate::syscall::socket;

/// The RoCE path MTUs: payload bytes of one packet (IBA 9.2, in the order of their codes 1 to 5).
pub const ROCE_MTUS: [u16; 5] = [256, 512, 1024, 2048, 4096];

/// Bytes of a packet besides its payload, from the BTH on: BTH, the largest extension headers of a packet with payload
/// (XRCETH, RETH and immediate data), and ICRC.
pub const ROCE_HEADERS: usize = 12 + (4 + 16 + 4) + 4;

/// The largest RoCE path MTU on an interface or path with this MTU, which includes the IP header. `None` if not even the
/// smallest fits.
pub fn roce_mtu(mtu: u32, ipv6: bool) -> Option<u16> {
    let headers = if ipv6 { 48 } else { 28 } + ROCE_HEADERS;
    let payload = (mtu as usize).checked_sub(headers)?;
    ROCE_MTUS.into_iter().rev().find(|&fits| usize::from(fits) <= payload)
}

/// Bytes of the IP and UDP headers of packets to a destination.
pub(crate) fn udp_headers(destination: SocketAddr) -> usize {
    if destination.is_ipv6() { 48 } else { 28 }
}

/// Returns the local address that packets to a destination are sent from, with its scope if it has one. The port is 0.
pub fn source_for(destination: SocketAddr) -> Result<SocketAddr, Error> {
    let probe = connected_probe(destination)?;
    let mut source = local_address(probe.as_fd())
        .map_err(|error| Error::system("read the local address of a socket", error))?;
    source.set_port(0);
    Ok(source)
}

/// Returns the path MTU, IP header included, as the kernel knows it: the MTU of the interface, or less if a router
/// reported so.
pub fn path_mtu(destination: SocketAddr) -> Result<u32, Error> {
    let probe = connected_probe(destination)?;
    match destination {
        SocketAddr::V4(_) => sockopt::ip_mtu(&probe),
        SocketAddr::V6(_) => sockopt::ipv6_mtu(&probe),
    }
    .map_err(|error| Error::system("read the path MTU", error))
}

/// Opens a socket and connects it, so that the kernel selects a route. This sends nothing.
fn connected_probe(destination: SocketAddr) -> Result<OwnedFd, Error> {
    let mut destination = destination;
    if destination.port() == 0 {
        destination.set_port(crate::ROCE_PORT);
    }
    let probe = socket(family(destination), SocketType::DGRAM, Some(ipproto::UDP))
        .map_err(|error| Error::open(destination, error))?;
    connect(&probe, &destination).map_err(|error| unreachable(destination, error))?;
    Ok(probe)
}

fn unreachable(destination: SocketAddr, error: Errno) -> Error {
    match error {
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::ADDRNOTAVAIL => {
            Error::Unreachable { destination, source: error.into() }
        }
        _ => Error::system("look up a route", error),
    }
}
