//! The addresses of a device with their sockets, and what is looked up in them.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;

use ferroce_device::tuning::tx::{MAX_IN_FLIGHT, MAX_REPORTS_PER_SOCKET};
use ferroce_sys::{Interest, Poller, Slot, Socket};
use ferroce_wire::number::Qpn;
use ferroce_wire::udp_headers::Headers;

use super::senders::{Senders, source_port};
use crate::route::Route;

/// The bytes read of the packet quoted by a report: enough to identify it.
const QUOTED: usize = 64;

/// An address of a device, with its sockets.
#[derive(Debug)]
pub struct Address {
    /// The address at which peers reach us.
    pub address: SocketAddr,
    /// The socket that receives.
    pub receiver: Socket,
    /// The sockets that send.
    pub senders: Senders,
    /// This process's share of the QPN space of the address, with its mailbox.
    pub slot: Slot,
}

/// The addresses of a device, in the order in which routes count them.
#[derive(Debug)]
pub struct Addresses(pub Box<[Address]>);

impl Deref for Addresses {
    type Target = [Address];

    #[inline]
    fn deref(&self) -> &[Address] {
        &self.0
    }
}

impl Addresses {
    /// The slot of this process, the same at all addresses.
    pub fn slot(&self) -> u8 {
        self.first().map_or(0, |own| own.slot.number())
    }

    /// The port at which the device receives, the same at all addresses.
    pub fn port(&self) -> u16 {
        self.first().map_or(0, |own| own.address.port())
    }

    /// The index of the loopback address of an address family.
    pub fn loopback(&self, ipv4: bool) -> Option<u8> {
        let is_it = |own: &Address| own.address.ip().is_loopback() && own.address.is_ipv4() == ipv4;
        self.iter().position(is_it).and_then(|index| u8::try_from(index).ok())
    }

    /// The index of the address that packets from an address to this destination leave from: loopback addresses reach each
    /// other.
    pub fn toward(&self, link: u8, destination: IpAddr) -> u8 {
        let own = self.get(usize::from(link));
        match destination.is_loopback() && !own.is_some_and(|own| own.address.ip().is_loopback()) {
            true => self.loopback(destination.is_ipv4()).unwrap_or(link),
            false => link,
        }
    }

    /// Whether an address belongs to this host, as far as the device knows.
    pub fn is_here(&self, host: IpAddr) -> bool {
        host.is_loopback() || self.has_address(host)
    }

    /// Whether an address is one of the device's.
    pub fn has_address(&self, host: IpAddr) -> bool {
        self.iter().any(|own| own.address.ip() == host)
    }

    /// The send socket of a route.
    #[inline]
    pub fn sender(&self, route: &Route) -> &Socket {
        self[usize::from(route.link)].senders.get(route.sender)
    }

    /// The headers of a packet on this route.
    #[inline]
    pub fn headers(&self, route: &Route) -> Headers {
        Headers { source: self.sender(route).local(), destination: route.destination }
    }

    /// The route with the source port of packets between these two QPs, the local one first. `open` opens a socket at this
    /// address, on its port or the next free one, if there is none for that source port yet.
    pub fn with_sender(
        &self,
        route: Route,
        (local, remote): (Qpn, Qpn),
        open: impl FnOnce(SocketAddr) -> Option<Socket>,
    ) -> Route {
        let own = &self[usize::from(route.link)];
        let port = source_port(route.flow_label, local, remote);
        let sender = own.senders.index_of(port, |port| {
            let mut address = own.address;
            address.set_port(port);
            open(address)
        });
        Route { sender, flow_label: 0, ..route }
    }

    /// The addresses of the first send sockets.
    pub fn sources(&self) -> impl Iterator<Item = SocketAddr> {
        self.iter().map(|own| own.senders.get(0).local())
    }

    /// The number of send sockets.
    pub fn senders(&self) -> usize {
        self.iter().map(|own| own.senders.iter().count()).sum()
    }

    /// The send sockets, each with the fields its routes have in common.
    fn send_sockets(&self) -> impl Iterator<Item = (Route, &Socket)> {
        (0..=u8::MAX).zip(self.iter()).flat_map(|(link, own)| {
            own.senders.iter().map(move |(sender, socket)| {
                (Route { sender, ..Route::new(link, own.address) }, socket)
            })
        })
    }

    /// Watches the send sockets for ICMP port unreachable: the peer's host has no process with an open device. Returns their
    /// indices.
    pub fn watch_reports(&self, poller: &mut Poller) -> Vec<usize> {
        let sockets = self.send_sockets();
        sockets.map(|(_, socket)| poller.watch(socket, Interest::Nothing)).collect()
    }

    /// Reads these reports of all send sockets. Calls `each` with the route of each packet that did not arrive, and its first
    /// bytes from the BTH on.
    pub fn read_reports(&self, mut each: impl FnMut(Route, &[u8])) {
        let mut quoted = [0; QUOTED];
        for (route, socket) in self.send_sockets() {
            for _ in 0..MAX_REPORTS_PER_SOCKET {
                let Some((destination, length)) = socket.take_port_unreachable(&mut quoted) else {
                    break;
                };
                each(Route { destination, ..route }, &quoted[..length]);
            }
        }
    }

    /// The bytes that may be in flight to one peer, as [`ferroce_proto::congestion::cost`] counts them. The peer's receive
    /// buffer is assumed to be as large as ours; Linux charges a datagram up to twice its length, and other senders share
    /// the buffer.
    pub fn receive_share(&self) -> usize {
        let buffers = self.iter().map(|own| own.receiver.features().receive_buffer);
        (buffers.min().unwrap_or(0) / 3).min(MAX_IN_FLIGHT)
    }
}
