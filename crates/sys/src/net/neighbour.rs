//! Neighbours: whether the next host on the way has been found, as ARP and neighbour discovery do.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::error::Error;
use crate::net::netlink::{self, ask};
use crate::syscall::errno;

/// `RTA_DST`, `RTA_OIF` and `RTA_GATEWAY` of a route; `NDA_DST` of a neighbour.
const ROUTE_TO: u16 = 1;
const ROUTE_INTERFACE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const NEIGHBOUR: u16 = 1;
/// `NUD_VALID`: all states in which packets are sent. `NUD_INCOMPLETE`: it is being looked for.
const VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
const INCOMPLETE: u16 = 0x01;
/// The port for what nobody needs (RFC 863).
const DISCARD: u16 = 9;

/// The next host on the way to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    ip: IpAddr,
    interface: u32,
    destination: SocketAddr,
}

/// What is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Packets are sent to it.
    Found,
    /// It is being looked for.
    Sought,
    /// Nobody looks for it, or it was not found.
    Nothing,
}

impl Neighbour {
    /// Who is next on the way. `None` where there is nobody to find: at home, and for groups.
    pub fn toward(destination: SocketAddr) -> Result<Option<Self>, Error> {
        let told = |error| Error::system("ask for a route", error);
        let ip = destination.ip();
        if ip.is_multicast() || ip.is_loopback() {
            return Ok(None);
        }
        let mut fixed = [0; 12];
        fixed[..2].copy_from_slice(&[netlink::family(ip), if ip.is_ipv4() { 32 } else { 128 }]);
        let to = netlink::octets(ip);
        let scope = match destination {
            SocketAddr::V6(address) => address.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let interface = scope.to_ne_bytes();
        let attributes = [(ROUTE_TO, &to[..]), (ROUTE_INTERFACE, &interface[..])];
        let given = if scope == 0 { 1 } else { 2 };
        let route = ask(libc::RTM_GETROUTE, fixed, &attributes[..given]).map_err(told)?;
        let unicast = route.fixed()[7] == libc::RTN_UNICAST;
        if route.kind() != libc::RTM_NEWROUTE || !unicast {
            return Ok(None);
        }
        let Some(interface) = route.number(ROUTE_INTERFACE) else { return Ok(None) };
        let ip = route.address(ROUTE_GATEWAY).unwrap_or(ip);
        Ok(Some(Self { ip, interface, destination }))
    }

    /// What the kernel knows of it now.
    pub fn knowledge(&self) -> Result<Knowledge, Error> {
        let mut fixed = [0; 12];
        fixed[0] = netlink::family(self.ip);
        fixed[4..8].copy_from_slice(&self.interface.to_ne_bytes());
        let ip = netlink::octets(self.ip);
        let entry = match ask(libc::RTM_GETNEIGH, fixed, &[(NEIGHBOUR, &ip)]) {
            Err(error) if errno(&error) == libc::ENOENT => return Ok(Knowledge::Nothing),
            entry => entry.map_err(|error| Error::system("ask for a neighbour", error))?,
        };
        let state = u16::from_ne_bytes([entry.fixed()[8], entry.fixed()[9]]);
        Ok(match state {
            _ if state & VALID != 0 => Knowledge::Found,
            _ if state & INCOMPLETE != 0 => Knowledge::Sought,
            _ => Knowledge::Nothing,
        })
    }

    /// Has the kernel look for it, as it does for whoever sends something: an empty datagram, to the port that takes
    /// what nobody needs.
    pub fn seek(&self) {
        let any = match self.destination {
            SocketAddr::V4(_) => "0.0.0.0:0",
            SocketAddr::V6(_) => "[::]:0",
        };
        let Ok(probe) = UdpSocket::bind(any) else { return };
        let mut to = self.destination;
        to.set_port(DISCARD);
        let _ = probe.set_nonblocking(true);
        let _ = probe.send_to(&[], to);
    }

    /// Where it should have been.
    pub fn destination(&self) -> SocketAddr {
        self.destination
    }

    /// That it was not found in time.
    pub fn late(&self) -> Error {
        let source = io::Error::from_raw_os_error(libc::ETIMEDOUT);
        Error::Unreachable { destination: self.destination, source }
    }
}
