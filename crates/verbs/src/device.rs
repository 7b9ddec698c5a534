//! Devices: one for each network interface with an address, the loopback included.

use std::net::SocketAddr;

use ferroce_net::environment;
use ferroce_net::interface::{Interface, interfaces};
use ferroce_proto::qp::PathMtu;
use ferroce_wire::address::Gid;

use crate::error::Error;
use crate::limits::Limits;

/// A device that can be opened. Naming one costs nothing: no socket is open, and no thread runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    name: String,
    interface: Interface,
}

/// An entry of a device's GID table: an address of its interface (IBA A17.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The address as a GID: IPv4 addresses are mapped into IPv6.
    pub gid: Gid,
    /// The address, with its scope and the port of RoCEv2.
    pub address: SocketAddr,
}

/// The variable with the names of the devices that a process shall see, with commas between. `ferroce run` sets it, so
/// that the libraries list what its view of `/sys` has.
const WANTED: &str = "FERROCE_DEVICES";

/// All devices, the loopback first: it is there on every machine. If `FERROCE_DEVICES` names some, these alone.
///
/// # Errors
///
/// When the system does not tell which interfaces it has.
pub fn devices() -> Result<Vec<Device>, Error> {
    let mut found: Vec<_> = interfaces()?
        .into_iter()
        .filter(|interface| interface.up && !interface.addresses.is_empty())
        .collect();
    found.sort_by_key(|interface| (!interface.loopback, interface.index));
    let wanted = environment::var_os(WANTED).and_then(|names| names.into_string().ok());
    let wanted = wanted.unwrap_or_default();
    Ok(found.into_iter().map(Device::of).filter(|device| device.is_among(&wanted)).collect())
}

impl Device {
    fn of(interface: Interface) -> Self {
        Self { name: format!("ferroce_{}", interface.name), interface }
    }

    /// Whether it is in a list of names, which is for all devices when it is empty.
    fn is_among(&self, names: &str) -> bool {
        let mut names = names.split(',').filter(|name| !name.is_empty()).peekable();
        names.peek().is_none() || names.any(|name| name == self.name || name == self.interface.name)
    }

    /// The device of this name. The interface's own name does as well, and so do those that `FERROCE_DEVICES` leaves out.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`], and [`Error::NoAddress`] for an interface that could be one.
    pub fn named(name: &str) -> Result<Self, Error> {
        let interface = name.strip_prefix("ferroce_").unwrap_or(name);
        let found = interfaces()?.into_iter().find(|one| one.name == interface);
        match found {
            None => Err(Error::NoDevice(name.into())),
            Some(found) if found.addresses.is_empty() => Err(Error::NoAddress(found.name)),
            Some(found) => Ok(Self::of(found)),
        }
    }

    /// The device that reaches this address, and the index of the GID to send from.
    ///
    /// # Errors
    ///
    /// When there is no way there.
    pub fn toward(destination: SocketAddr) -> Result<(Self, u8), Error> {
        let source = ferroce_net::route::source_for(destination)?;
        Self::with_address(source)
    }

    /// The device with this address, and the index of its GID.
    ///
    /// # Errors
    ///
    /// When the address is not ours.
    pub fn with_address(address: SocketAddr) -> Result<(Self, u8), Error> {
        let device = Self::of(ferroce_net::interface::interface_of(address)?);
        let index = device.gids().iter().position(|entry| entry.address.ip() == address.ip());
        match index.and_then(|index| u8::try_from(index).ok()) {
            Some(index) => Ok((device, index)),
            None => Err(Error::NoAddress(device.interface.name)),
        }
    }

    /// The device without an address that cannot be used yet: a new IPv6 address is not ours before the network was asked
    /// for others who have it (RFC 4862, duplicate address detection).
    pub(crate) fn without(mut self, address: std::net::IpAddr) -> Self {
        self.interface.addresses.retain(|own| own.ip != address);
        self
    }

    /// Its name: that of the interface, behind `ferroce_`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Its GID table.
    pub fn gids(&self) -> Vec<GidEntry> {
        let addresses = self.interface.addresses.iter();
        addresses
            .map(|own| GidEntry {
                gid: Gid::from_ip(own.ip),
                address: own.with_port(ferroce_net::ROCE_PORT),
            })
            .collect()
    }

    /// Its LID. Ethernet has none, which is 0. The loopback's is 1, for programs that address each other by LIDs alone: from
    /// there they can mean one place only.
    pub fn lid(&self) -> u16 {
        self.interface.loopback.into()
    }

    /// What it allows.
    #[doc(alias = "ibv_query_device")]
    pub fn limits(&self) -> Limits {
        Limits::of(self)
    }

    /// A number that no other device of this machine has: from the Ethernet address, as EUI-64 says, or from the index
    /// where there is none.
    pub fn guid(&self) -> u64 {
        let mac = self.interface.mac.filter(|mac| *mac != [0; 6]);
        let mac = mac.unwrap_or_else(|| {
            let [a, b, c, d] = self.interface.index.to_be_bytes();
            [0x02, 0, a, b, c, d]
        });
        u64::from_be_bytes([mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]])
    }

    /// The largest path MTU that packets of all its addresses' families fit in.
    ///
    /// # Errors
    ///
    /// [`Error::MtuTooSmall`].
    pub fn mtu(&self) -> Result<PathMtu, Error> {
        let ipv6 = self.interface.addresses.iter().any(|own| own.ip.is_ipv6());
        let bytes = self.interface.roce_mtu(ipv6).or(self.interface.roce_mtu(false));
        bytes.and_then(|bytes| PathMtu::from_bytes(usize::from(bytes))).ok_or_else(|| {
            Error::MtuTooSmall { interface: self.interface.name.clone(), mtu: self.interface.mtu }
        })
    }
}
