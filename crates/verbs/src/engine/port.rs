//! The port of a device: its addresses with their sockets, its multicast groups, and its state.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferroce_sys::interface::{Interface, interface_of};
use ferroce_sys::{Slot, Socket};
use ferroce_wire::number::Qpn;
use ferroce_wire::udp_headers::Headers;

use super::groups::Groups;
use super::link::{Link, Route};
use super::port_state::PortState;
use super::senders::{Senders, first_port, source_port};
use crate::device::{Device, position};
use crate::error::{OpenError, SystemError};
use crate::options::Options;

#[derive(Debug)]
pub(crate) struct Port {
    /// One link per entry of the GID table, in its order, then the links of loopback addresses.
    pub(crate) links: Vec<Link>,
    pub(crate) groups: Groups,
    pub(crate) state: Arc<PortState>,
}

impl Port {
    /// Opens the sockets of all addresses that can be used. Returns the port and the device without the others. Shards of
    /// a device share the `state`.
    pub(super) fn open(
        device: Device,
        options: &Options,
        state: Option<Arc<PortState>>,
    ) -> Result<(Self, Device), OpenError> {
        let (device, addresses, opened) = open_links(device, options)?;
        let mut links = Vec::new();
        for ((slot, receiver), address) in opened.into_iter().zip(addresses) {
            let sender = open_sender(first_port(address), device.interface(), options)?;
            links.push(Link { address, receiver, senders: Senders::new(sender), slot });
        }
        let state = state.unwrap_or_else(|| Arc::new(PortState::new(&device)));
        Ok((Self { links, groups: Groups::default(), state }, device))
    }

    /// The addresses of the first send socket of each link.
    pub(super) fn sources(&self) -> impl Iterator<Item = SocketAddr> {
        self.links.iter().map(|link| link.senders.first().local())
    }

    /// The slot of this process, the same at all addresses.
    pub(super) fn slot(&self) -> u8 {
        self.links.first().map_or(0, |link| link.slot.number())
    }

    /// The index of the link with this address.
    pub(crate) fn link_of(&self, address: IpAddr) -> Option<u8> {
        let addresses: Vec<_> = self.links.iter().map(|link| link.address.ip()).collect();
        position(&addresses, address).and_then(|index| u8::try_from(index).ok())
    }

    /// The index of the loopback link of an address family.
    pub(crate) fn loopback_link(&self, ipv4: bool) -> Option<u8> {
        let is_it = |link: &Link| link.address.ip().is_loopback() && link.address.is_ipv4() == ipv4;
        self.links.iter().position(is_it).and_then(|index| u8::try_from(index).ok())
    }

    /// The link that packets from a link to this destination leave from: loopback addresses reach each other.
    pub(crate) fn link_toward(&self, link: u8, destination: IpAddr) -> u8 {
        let own = self.links.get(usize::from(link));
        match destination.is_loopback() && !own.is_some_and(|own| own.address.ip().is_loopback()) {
            true => self.loopback_link(destination.is_ipv4()).unwrap_or(link),
            false => link,
        }
    }

    /// Whether an address belongs to this host, as far as the device knows.
    pub(super) fn is_here(&self, host: IpAddr) -> bool {
        host.is_loopback() || self.has_address(host)
    }

    /// Whether an address is one of the port's.
    pub(super) fn has_address(&self, host: IpAddr) -> bool {
        self.links.iter().any(|link| link.address.ip() == host)
    }

    /// The socket of a source port on a link, opened if there is none. Calls `opened` with a new one.
    pub(super) fn sender_for(
        &self,
        route: &Route,
        (local, remote): (Qpn, Qpn),
        interface: &Interface,
        options: &Options,
        opened: impl FnOnce(&Socket),
    ) -> u8 {
        let link = &self.links[usize::from(route.link)];
        let port = source_port(route.flow_label, local, remote);
        link.senders.index_of(port, |port| {
            let mut address = link.address;
            address.set_port(port);
            let socket = open_sender(address, interface, options).ok()?;
            opened(&socket);
            Some(socket)
        })
    }

    /// The send socket of a route.
    pub(super) fn sender(&self, route: &Route) -> &Socket {
        self.links[usize::from(route.link)].senders.get(route.sender)
    }

    /// The headers of a packet on this route.
    pub(super) fn headers(&self, route: &Route) -> Headers {
        Headers { source: self.sender(route).local(), destination: route.destination }
    }

    /// The number of send sockets.
    pub(super) fn senders(&self) -> usize {
        self.links.iter().map(|link| link.senders.len()).sum()
    }
}

/// How long to wait for the only address of an interface, and how often to try it meanwhile: duplicate address detection takes
/// up to two seconds (RFC 4862, section 5.4).
const TENTATIVE: Duration = Duration::from_secs(4);
const TRY_INTERVAL: Duration = Duration::from_millis(10);

/// A device, its usable addresses, and the sockets opened for each.
type Opened = (Device, Vec<SocketAddr>, Vec<(Slot, Socket)>);

/// Opens the sockets of all addresses that can be used, and leaves the others out. Another user may have the port on the
/// loopback: the device is of use without it. An address that is the interface's only one is waited for: it was listed.
fn open_links(mut device: Device, options: &Options) -> Result<Opened, OpenError> {
    let mut tries = TENTATIVE.as_millis() / TRY_INTERVAL.as_millis();
    loop {
        let at_port = |mut address: SocketAddr| {
            address.set_port(options.port);
            address
        };
        let addresses: Vec<_> = device.addresses().into_iter().map(at_port).collect();
        if device.gids().is_empty() {
            return Err(OpenError::NoAddress { interface: device.interface().name.clone() });
        }
        match Slot::open_all(&addresses, &options.sockets) {
            Ok(opened) => return Ok((device, addresses, opened)),
            Err(SystemError::AddressNotLocal { address })
                if device.is_only_address(address) && tries > 0 && is_assigned(address) =>
            {
                tries -= 1;
                std::thread::sleep(TRY_INTERVAL);
            }
            Err(SystemError::AddressNotLocal { address }) if addresses.len() > 1 => {
                device = device.without(address);
            }
            Err(SystemError::PortTaken { address })
                if address.ip().is_loopback() && device.carries_loopback() =>
            {
                tracing::info!(%address, "loopback addresses skipped: their port is taken");
                device = device.without_loopback();
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether an IPv6 address is assigned to an interface, although it may be tentative.
fn is_assigned(address: IpAddr) -> bool {
    address.is_ipv6() && interface_of(SocketAddr::new(address, 0)).is_ok()
}

/// Opens a send socket at this address, on its port or the next free one.
fn open_sender(
    address: SocketAddr,
    interface: &Interface,
    options: &Options,
) -> Result<Socket, SystemError> {
    let sender = Socket::source(address, &options.sockets)?;
    if interface.multicast || interface.loopback {
        // On an interface without multicast, sending to a group fails later.
        let _ = sender.multicast_out(interface.index, true);
    }
    Ok(sender)
}
