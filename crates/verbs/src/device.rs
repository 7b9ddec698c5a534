//! Devices: one for each network interface with an address. The loopback's addresses are reached through the first of
//! them, as Linux binds them to an RDMA device that is there (`cma_bind_loopback`); it is a device of its own where there
//! is no other, or where `FERROCE_DEVICES` asks for it.

mod listing;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ferroce_proto::qp::PathMtu;
use ferroce_sys::interface::{Address, Interface};
use ferroce_wire::address::Gid;

use crate::error::OpenError;
use crate::limits::Limits;
use listing::Listing;

pub use listing::{Names, NotNames};

/// A device that can be opened. Naming one costs nothing: no socket is open, and no thread runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    name: String,
    interface: Interface,
    /// Loopback addresses that are reached through it. They are not in its GID table: programs that look there for an
    /// address to give to other hosts would find one that means something else to these.
    loopback: Vec<Address>,
}

/// An entry of a device's GID table: an address of its interface (IBA A17.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The address as a GID: IPv4 addresses are mapped into IPv6.
    pub gid: Gid,
    /// The address, with its scope and the port of RoCEv2.
    pub address: SocketAddr,
}

/// All devices. The first is the one for programs that take any: one with a carrier and an address that other hosts can
/// reach, if there is such. The loopback is among them only where there is no other.
///
/// If `FERROCE_DEVICES` names some, by their names or their interfaces', it is these alone, in that order. `FERROCE_NAME`
/// says what they are called, as [`Names`] are written.
///
/// # Errors
///
/// When the system does not tell which interfaces it has.
pub fn devices() -> Result<Vec<Device>, OpenError> {
    Ok(Listing::read()?.devices())
}

impl Device {
    /// The device of this name. The interface's own name does as well, and so do those that are not listed.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoDevice`], and [`OpenError::NoAddress`] for an interface that could be one.
    pub fn named(name: &str) -> Result<Self, OpenError> {
        let listing = Listing::read()?;
        if let Some(device) = listing.devices().into_iter().find(|device| device.name == name) {
            return Ok(device);
        }
        let interface = name.strip_prefix(listing::PREFIX).unwrap_or(name);
        let found = listing.interfaces().iter().find(|one| one.name == interface);
        match found {
            None => Err(OpenError::NoDevice { name: name.into() }),
            Some(found) if found.addresses.is_empty() => {
                Err(OpenError::NoAddress { interface: found.name.clone() })
            }
            Some(found) => Ok(listing.device(found)),
        }
    }

    /// The device that reaches this address, and the index of the GID to send from.
    ///
    /// # Errors
    ///
    /// When there is no way there.
    pub fn toward(destination: SocketAddr) -> Result<(Self, u8), OpenError> {
        let source = ferroce_sys::route::source_for(destination)?;
        Self::with_address(source)
    }

    /// The device with this address, and the index of its GID. For a loopback address that is the loopback's own, listed
    /// or not.
    ///
    /// # Errors
    ///
    /// When the address is not ours.
    pub fn with_address(address: SocketAddr) -> Result<(Self, u8), OpenError> {
        let interface = ferroce_sys::interface::interface_of(address)?;
        let device = Listing::read()?.device(&interface);
        let addresses: Vec<_> = device.gids().iter().map(|entry| entry.address.ip()).collect();
        match position(&addresses, address.ip()).and_then(|index| u8::try_from(index).ok()) {
            Some(index) => Ok((device, index)),
            None => Err(OpenError::NoAddress { interface: device.interface.name }),
        }
    }

    /// The device through which an address of ours is reached: for a loopback address, the one that carries these.
    ///
    /// # Errors
    ///
    /// When the address is not ours.
    pub(crate) fn carrying(address: SocketAddr) -> Result<Self, OpenError> {
        if address.ip().is_loopback() {
            let first = devices()?.into_iter().next();
            let carries = |device: &Self| {
                device.loopback.iter().any(|own| own.ip.is_ipv4() == address.is_ipv4())
            };
            if let Some(device) = first.filter(carries) {
                return Ok(device);
            }
        }
        Ok(Self::with_address(address)?.0)
    }

    /// All addresses that it is reached by: those of its GID table, in that order, then loopback addresses.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let all = self.interface.addresses.iter().chain(&self.loopback);
        all.map(|own| own.with_port(ferroce_sys::ROCE_PORT)).collect()
    }

    /// The device without the loopback's addresses.
    pub(crate) fn without_loopback(mut self) -> Self {
        self.loopback.clear();
        self
    }

    /// Whether it carries loopback addresses beside its own.
    pub(crate) fn carries_loopback(&self) -> bool {
        !self.loopback.is_empty()
    }

    /// The device without an address that cannot be used yet: a new IPv6 address is not ours before the network was asked
    /// for others who have it (RFC 4862, duplicate address detection).
    pub(crate) fn without(mut self, address: IpAddr) -> Self {
        self.interface.addresses.retain(|own| own.ip != address);
        self.loopback.retain(|own| own.ip != address);
        self
    }

    /// Its name: that of the interface behind `ferroce_`, unless `FERROCE_NAME` says otherwise.
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
                address: own.with_port(ferroce_sys::ROCE_PORT),
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
    /// [`OpenError::MtuTooSmall`].
    pub fn mtu(&self) -> Result<PathMtu, OpenError> {
        let ipv6 = self.interface.addresses.iter().any(|own| own.ip.is_ipv6());
        let bytes = self.interface.roce_mtu(ipv6).or(self.interface.roce_mtu(false));
        bytes.and_then(|bytes| PathMtu::from_bytes(usize::from(bytes))).ok_or_else(|| {
            OpenError::MtuTooSmall {
                interface: self.interface.name.clone(),
                mtu: self.interface.mtu,
            }
        })
    }
}

/// The position of an address among those of a device.
pub(crate) fn position(addresses: &[IpAddr], wanted: IpAddr) -> Option<usize> {
    addresses.iter().position(|&own| own == own_name(wanted))
}

/// The address that an address of ours stands for. Debian's `/etc/hosts` has 127.0.1.1 for the name of the host, which no
/// interface has.
pub(crate) fn own_name(ip: IpAddr) -> IpAddr {
    const DEBIAN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1));
    if ip == DEBIAN { Ipv4Addr::LOCALHOST.into() } else { ip }
}
