//! Finding devices: all of them, by name, and by address.

use std::net::{IpAddr, SocketAddr};

use super::listing::{self, Listing};
use super::{Device, position};
use crate::error::OpenError;

/// Lists the devices.
///
/// Devices with a carrier and an address that other hosts can reach come first. The loopback interface is listed only if
/// there is no other.
///
/// `FERROCE_DEVICES`, a comma-separated list of device or interface names, selects devices and their order; names that do
/// not exist are ignored. `FERROCE_NAME` sets the names of the devices: see [`Names`](super::Names).
///
/// # Errors
///
/// When the interfaces cannot be listed, or one of the variables is invalid.
#[doc(alias = "ibv_get_device_list")]
pub fn devices() -> Result<Vec<Device>, OpenError> {
    Ok(Listing::read()?.devices())
}

impl Device {
    /// Returns the device of this name, or of the interface of this name. It need not be listed by [`devices`].
    ///
    /// # Errors
    ///
    /// [`OpenError::NoDevice`], or [`OpenError::NoAddress`] for an interface without an address.
    pub fn named(name: &str) -> Result<Self, OpenError> {
        let listing = Listing::read()?;
        if let Some(device) = listing.devices().into_iter().find(|device| device.name == name) {
            return Ok(device);
        }
        let interface = name.strip_prefix(listing::PREFIX).unwrap_or(name);
        let found = listing.interfaces().iter().find(|found| found.name == interface);
        match found {
            None => Err(OpenError::NoDevice { name: name.into() }),
            Some(found) if found.addresses.is_empty() => {
                Err(OpenError::NoAddress { interface: found.name.clone() })
            }
            Some(found) => Ok(listing.device(found)),
        }
    }

    /// Returns the device on the route to this address, and the index of the GID to send from.
    ///
    /// # Errors
    ///
    /// When there is no route.
    pub fn toward(destination: SocketAddr) -> Result<(Self, u8), OpenError> {
        let source = ferroce_sys::route::source_for(destination)?;
        Self::with_address(source)
    }

    /// Returns the device with this address, and the index of the GID to send from.
    ///
    /// A loopback address belongs to the first device, as with `rdma_cm`. Unless that is the loopback interface itself, the
    /// address is not in its GID table, and the index is that of its first GID of the same family, else 0: packets to a
    /// loopback address have a loopback source, whatever the source GID.
    ///
    /// # Errors
    ///
    /// When no interface has the address.
    pub fn with_address(address: SocketAddr) -> Result<(Self, u8), OpenError> {
        if address.ip().is_loopback() {
            let first = devices()?.into_iter().next();
            let family = |ip: IpAddr| ip.is_ipv4() == address.is_ipv4();
            let carries = |device: &Self| device.loopback.iter().any(|own| family(own.ip));
            if let Some(device) = first.filter(carries) {
                let own = device.gids().iter().position(|entry| family(entry.address.ip()));
                let index = own.and_then(|index| u8::try_from(index).ok()).unwrap_or(0);
                return Ok((device, index));
            }
        }
        let interface = ferroce_sys::interface::interface_of(address)?;
        let device = Listing::read()?.device(&interface);
        let addresses: Vec<_> = device.gids().iter().map(|entry| entry.address.ip()).collect();
        match position(&addresses, address.ip()).and_then(|index| u8::try_from(index).ok()) {
            Some(index) => Ok((device, index)),
            None => Err(OpenError::NoAddress { interface: device.interface.name }),
        }
    }
}
