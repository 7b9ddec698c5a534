//! Which interfaces are devices, their order, and their names.

use ferroce_sys::environment;
use ferroce_sys::interface::{Address, Interface, interfaces};

use super::Device;
use crate::error::{EnvironmentError, OpenError};

/// Devices to list, as comma-separated names of devices or interfaces. `ferroce run` sets it, so that the libraries list
/// the devices of its view of `/sys`.
const DEVICES: &str = "FERROCE_DEVICES";

/// The pattern of device names: see [`Names`].
const NAMES: &str = "FERROCE_NAME";

/// All interfaces, and which of them are devices.
#[derive(Debug)]
pub(super) struct Listing {
    interfaces: Vec<Interface>,
    /// Positions in `interfaces`, in the order of the devices.
    listed: Vec<usize>,
    names: Names,
}

impl Listing {
    pub(super) fn read() -> Result<Self, OpenError> {
        let wanted = text(DEVICES, "a comma-separated list of device or interface names")?;
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
    pub(super) fn devices(&self) -> Vec<Device> {
        self.listed.iter().map(|&at| self.device(&self.interfaces[at])).collect()
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Returns the device of an interface, listed or not.
    pub(super) fn device(&self, interface: &Interface) -> Device {
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

/// Returns the value of an environment variable. A set-user-ID program ignores it.
fn text(name: &'static str, expected: &str) -> Result<Option<String>, EnvironmentError> {
    let value = environment::var_os(name).map(|value| value.into_string());
    value.transpose().map_err(|value| EnvironmentError::new(name, value, expected))
}

/// Sorts interfaces with a carrier first, then those with an address that is not link-local.
fn order(interface: &Interface) -> (bool, bool, u32) {
    let routable = interface.addresses.iter().any(|address| !is_link_local(address.ip));
    (!interface.running, !routable, interface.index)
}

fn is_link_local(ip: std::net::IpAddr) -> bool {
    match ip {
        std::net::IpAddr::V4(ip) => ip.is_link_local(),
        std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The default prefix of device names.
pub(super) const PREFIX: &str = "ferroce_";

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
        match text(NAMES, &NotNames.to_string())? {
            None => Ok(Self::default()),
            Some(pattern) => pattern
                .parse()
                .map_err(|error: NotNames| EnvironmentError::new(NAMES, pattern.into(), error)),
        }
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
