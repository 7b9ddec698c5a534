//! The port of a device: its addresses with their sockets, its multicast groups, and its state.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferroce_links::udp::{Address, Addresses, Senders, first_port};
use ferroce_sys::interface::{Interface, interface_of};
use ferroce_sys::{Slot, Socket};

use super::groups::Groups;
use super::port_state::PortState;
use crate::device::{Device, position};
use crate::error::{OpenError, SystemError};
use crate::options::Options;

#[derive(Debug)]
pub(crate) struct Port {
    /// One per entry of the GID table, in its order, then the loopback addresses.
    pub(crate) links: Addresses,
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
            links.push(Address { address, receiver, senders: Senders::new(sender), slot });
        }
        let state = state.unwrap_or_else(|| Arc::new(PortState::new(&device)));
        Ok((Self { links: Addresses(links.into()), groups: Groups::default(), state }, device))
    }

    /// The index of the link with this address.
    pub(crate) fn link_of(&self, address: IpAddr) -> Option<u8> {
        let addresses: Vec<_> = self.links.iter().map(|link| link.address.ip()).collect();
        position(&addresses, address).and_then(|index| u8::try_from(index).ok())
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
pub(super) fn open_sender(
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
