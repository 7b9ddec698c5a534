//! Next hops: whether the kernel has resolved their link-layer address by ARP or neighbour discovery.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::error::Error;
use crate::net::address::scope;
use crate::net::netlink::{self, request};
use crate::net::udp::UdpSocket;
use crate::syscall::errno;

/// `RTA_DST`, `RTA_OIF` and `RTA_GATEWAY` of a route; `NDA_DST` of a neighbour.
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const NDA_DST: u16 = 1;
/// `NUD_VALID`: all states in which packets are sent.
const NUD_VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
/// `NUD_INCOMPLETE`: resolution is in progress.
const NUD_INCOMPLETE: u16 = 0x01;
/// The discard port (RFC 863).
const DISCARD_PORT: u16 = 9;

/// The next hop on the route to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    ip: IpAddr,
    interface: u32,
    destination: SocketAddr,
}

/// The state of a neighbour's entry in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// The link-layer address is known.
    Resolved,
    /// Resolution is in progress.
    Resolving,
    /// There is no entry, or resolution failed.
    Unresolved,
}

impl Neighbour {
    /// Returns the next hop to a destination. `None` if there is nothing to resolve: for local destinations and groups.
    pub fn next_hop(destination: SocketAddr) -> Result<Option<Self>, Error> {
        let ip = destination.ip();
        if ip.is_multicast() || ip.is_loopback() {
            return Ok(None);
        }
        let mut fixed = [0; 12];
        fixed[..2].copy_from_slice(&[netlink::family(ip), if ip.is_ipv4() { 32 } else { 128 }]);
        let to = netlink::octets(ip);
        let scope = scope(destination);
        let interface = scope.to_ne_bytes();
        let attributes = [(RTA_DST, &to[..]), (RTA_OIF, &interface[..])];
        let count = if scope == 0 { 1 } else { 2 };
        let route = request(libc::RTM_GETROUTE, fixed, &attributes[..count])
            .map_err(|error| Error::system("look up a route", error))?;
        let unicast = route.fixed[7] == libc::RTN_UNICAST;
        if route.kind != libc::RTM_NEWROUTE || !unicast {
            return Ok(None);
        }
        let Some(interface) = route.number(RTA_OIF) else { return Ok(None) };
        let ip = route.address(RTA_GATEWAY).unwrap_or(ip);
        Ok(Some(Self { ip, interface, destination }))
    }

    /// Returns the state of the kernel's entry.
    pub fn state(&self) -> Result<NeighbourState, Error> {
        let mut fixed = [0; 12];
        fixed[0] = netlink::family(self.ip);
        fixed[4..8].copy_from_slice(&self.interface.to_ne_bytes());
        let ip = netlink::octets(self.ip);
        let entry = match request(libc::RTM_GETNEIGH, fixed, &[(NDA_DST, &ip)]) {
            Err(error) if errno(&error) == libc::ENOENT => return Ok(NeighbourState::Unresolved),
            entry => entry.map_err(|error| Error::system("look up a neighbour", error))?,
        };
        let state = u16::from_ne_bytes([entry.fixed[8], entry.fixed[9]]);
        Ok(match state {
            _ if state & NUD_VALID != 0 => NeighbourState::Resolved,
            _ if state & NUD_INCOMPLETE != 0 => NeighbourState::Resolving,
            _ => NeighbourState::Unresolved,
        })
    }

    /// Makes the kernel start resolution, by sending an empty datagram to the discard port of the destination.
    pub fn solicit(&self) {
        let Ok(probe) = UdpSocket::open(self.destination.is_ipv6()) else { return };
        let mut to = self.destination;
        to.set_port(DISCARD_PORT);
        let _ = probe.send(&[], to);
    }

    /// The destination that it is the next hop to.
    pub fn destination(&self) -> SocketAddr {
        self.destination
    }

    /// The error for a resolution that timed out.
    pub fn timeout_error(&self) -> Error {
        let source = io::Error::from_raw_os_error(libc::ETIMEDOUT);
        Error::Unreachable { destination: self.destination, source }
    }
}
