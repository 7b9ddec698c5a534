//! Finding devices: which interfaces are devices, their order and names, and the device of an address.

use std::net::{IpAddr, SocketAddr};

use ferroce_sys::environment;
use ferroce_sys::interface::{Address, Interface, interface_of, interfaces};

use super::{Device, position};
use crate::error::{EnvironmentError, OpenError};
use crate::options::parse;

/// Devices to list, as comma-separated names of devices or interfaces. `ferroce run` sets it, so that the libraries list
/// the devices of its view of `/sys`.
const DEVICES: &str = "FERROCE_DEVICES";

/// The pattern of device names: see [`Names`].
const NAMES: &str = "FERROCE_NAME";

/// Lists the devices.
///
/// Devices with a carrier and an address that other hosts can reach come first. The loopback interface is listed only if
/// there is no other.
///
/// `FERROCE_DEVICES`, a comma-separated list of device or interface names, selects devices and their order; names that do
/// not exist are ignored. `FERROCE_NAME` sets the names of the devices: see [`Names`].
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
        let interface = name.strip_prefix(PREFIX).unwrap_or(name);
        let found = listing.interfaces.iter().find(|found| found.name == interface);
        let found = found.ok_or_else(|| OpenError::NoDevice { name: name.into() })?;
        if found.addresses.is_empty() {
            return Err(OpenError::NoAddress { interface: found.name.clone() });
        }
        Ok(listing.device(found))
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
        let interface = interface_of(address)?;
        let device = Listing::read()?.device(&interface);
        match position(device.interface.addresses.iter().map(|own| own.ip), address.ip()) {
            Some(index) => Ok((device, index)),
            None => Err(OpenError::NoAddress { interface: device.interface.name }),
        }
    }
}

/// All interfaces, and which of them are devices.
#[derive(Debug)]
struct Listing {
    interfaces: Vec<Interface>,
    /// Positions in `interfaces`, in the order of the devices.
    listed: Vec<usize>,
    names: Names,
}

impl Listing {
    fn read() -> Result<Self, OpenError> {
        let expected = "a comma-separated list of device or interface names";
        let wanted = parse(environment::var_os, DEVICES, expected, |text| Some(text.to_owned()))?;
        Ok(Self::new(interfaces()?, &wanted.unwrap_or_default(), Names::from_env()?))
    }

    fn new(interfaces: Vec<Interface>, wanted: &str, names: Names) -> Self {
        let is_usable = |interface: &Interface| interface.up && !interface.addresses.is_empty();
        let usable: Vec<_> =
            (0..interfaces.len()).filter(|&at| is_usable(&interfaces[at])).collect();
        let wanted: Vec<_> = wanted.split(',').filter(|name| !name.is_empty()).collect();
        let mut listed = Vec::new();
        if wanted.is_empty() {
            listed.extend(usable.iter().filter(|&&at| !interfaces[at].loopback));
            listed.sort_by_key(|&at| order(&interfaces[at]));
            if listed.is_empty() {
                listed = usable;
            }
        } else {
            // In the order of the variable, which is that of the view of `/sys`.
            for name in wanted.iter().map(|name| name.strip_prefix(PREFIX).unwrap_or(name)) {
                let found = usable.iter().copied().find(|&at| interfaces[at].name == name);
                listed.extend(found.filter(|at| !listed.contains(at)));
            }
        }
        Self { interfaces, listed, names }
    }

    /// Returns the devices in order of preference.
    fn devices(&self) -> Vec<Device> {
        self.listed.iter().map(|&at| self.device(&self.interfaces[at])).collect()
    }

    /// Returns the device of an interface, listed or not.
    fn device(&self, interface: &Interface) -> Device {
        let position =
            self.listed.iter().position(|&at| self.interfaces[at].index == interface.index);
        let name = match position {
            Some(position) => self.names.name(position, &interface.name),
            None => Names::default().name(0, &interface.name),
        };
        let loopback = if position == Some(0) { self.loopback() } else { Vec::new() };
        Device { name, interface: interface.clone(), loopback }
    }

    /// Returns the loopback addresses, unless the loopback interface is a listed device.
    fn loopback(&self) -> Vec<Address> {
        if self.listed.iter().any(|&at| self.interfaces[at].loopback) {
            return Vec::new();
        }
        let lo = self.interfaces.iter().filter(|interface| interface.loopback && interface.up);
        let addresses = lo.flat_map(|interface| &interface.addresses);
        addresses.filter(|address| address.ip.is_loopback()).copied().collect()
    }
}

/// Sorts interfaces with a carrier first, then those with an address that is not link-local.
fn order(interface: &Interface) -> (bool, bool, u32) {
    let routable = interface.addresses.iter().any(|address| !is_link_local(address.ip));
    (!interface.running, !routable, interface.index)
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The default prefix of device names.
const PREFIX: &str = "ferroce_";

/// A pattern of device names, in which `%d` is the index of the device in the list and `%s` its interface.
///
/// The default is `ferroce_%s`. `rxe%d` or `mlx5_%d` suits scripts that look for such names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(String);

impl Default for Names {
    fn default() -> Self {
        Self(format!("{PREFIX}%s"))
    }
}

impl Names {
    /// Maximum length of a device name: `IBV_SYSFS_NAME_MAX` without the terminating NUL.
    const MAX_LEN: usize = 63;

    /// Returns the pattern that `FERROCE_NAME` sets, or the default.
    ///
    /// # Errors
    ///
    /// When the variable is not a pattern.
    pub fn from_env() -> Result<Self, EnvironmentError> {
        let names = parse(environment::var_os, NAMES, NotNames, |text| text.parse().ok())?;
        Ok(names.unwrap_or_default())
    }

    /// Renames the devices of a list.
    pub fn apply(&self, devices: &mut [Device]) {
        for (position, device) in devices.iter_mut().enumerate() {
            device.name = self.name(position, &device.interface.name);
        }
    }

    /// Returns the name of the device at this position of the list.
    fn name(&self, position: usize, interface: &str) -> String {
        let name = self.0.replace("%d", &position.to_string()).replace("%s", interface);
        // Names are unique even if the pattern has no placeholder.
        if position > 0 && name == self.0 { format!("{name}_{position}") } else { name }
    }
}

impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that is not a pattern of device names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a device name has up to 63 letters, digits, '-', '_' and '.'; %d is replaced by the index of the device and %s by its \
     interface"
)]
pub struct NotNames;

impl std::str::FromStr for Names {
    type Err = NotNames;

    fn from_str(text: &str) -> Result<Self, NotNames> {
        // Placeholders as long as an index or an interface name (IFNAMSIZ) can be.
        let plain = text.replace("%d", "000").replace("%s", "000000000000000");
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        // The name becomes a directory in the view of `/sys`.
        let valid = !plain.is_empty()
            && plain.len() <= Self::MAX_LEN
            && plain.bytes().all(fits)
            && !plain.starts_with('.');
        if valid { Ok(Self(text.to_owned())) } else { Err(NotNames) }
    }
}

#[cfg(test)]
mod tests;
