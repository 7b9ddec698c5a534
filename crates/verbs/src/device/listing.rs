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
        std::net::IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotNames;

impl std::fmt::Display for NotNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "a device name has up to 63 letters, digits, '-', '_' and '.'; %d is replaced by the index of the device \
             and %s by its interface",
        )
    }
}

impl std::error::Error for NotNames {}

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
mod tests {
    use super::*;

    fn interface(index: u32, name: &str, addresses: &[&str]) -> Interface {
        let addresses =
            addresses.iter().map(|ip| Address { ip: ip.parse().unwrap(), prefix: 24, scope: 0 });
        Interface {
            name: name.into(),
            index,
            mtu: 1500,
            up: true,
            running: true,
            loopback: name == "lo",
            neighbours: true,
            multicast: true,
            mac: None,
            addresses: addresses.collect(),
        }
    }

    fn lo() -> Interface {
        interface(1, "lo", &["127.0.0.1", "::1", "192.0.2.9"])
    }

    fn names(listing: &Listing) -> Vec<String> {
        listing.devices().iter().map(|device| device.name().to_owned()).collect()
    }

    fn listing(interfaces: &[Interface], wanted: &str) -> Listing {
        Listing::new(interfaces.to_vec(), wanted, Names::default())
    }

    #[test]
    fn loopback_is_a_device_only_without_others() {
        let eth0 = interface(2, "eth0", &["192.0.2.1"]);
        assert_eq!(names(&listing(&[lo()], "")), ["ferroce_lo"]);
        assert_eq!(names(&listing(&[lo(), eth0.clone()], "")), ["ferroce_eth0"]);
        let down = Interface { up: false, ..eth0.clone() };
        assert_eq!(names(&listing(&[lo(), down], "")), ["ferroce_lo"]);
        let bare = Interface { addresses: Vec::new(), ..eth0 };
        assert_eq!(names(&listing(&[lo(), bare], "")), ["ferroce_lo"]);
    }

    #[test]
    fn first_device_has_a_carrier_and_a_routable_address() {
        let all = [
            lo(),
            Interface { running: false, ..interface(2, "docker0", &["172.17.0.1"]) },
            interface(3, "eth0", &["fe80::1"]),
            interface(4, "eth1", &["fe80::2", "192.0.2.1"]),
            interface(5, "eth2", &["2001:db8::1"]),
        ];
        let order = ["ferroce_eth1", "ferroce_eth2", "ferroce_eth0", "ferroce_docker0"];
        assert_eq!(names(&listing(&all, "")), order);
    }

    #[test]
    fn selected_devices_are_listed_in_that_order() {
        let all =
            [lo(), interface(2, "eth0", &["192.0.2.1"]), interface(3, "eth1", &["192.0.2.2"])];
        let selected = listing(&all, "none,eth1,ferroce_lo,,ferroce_eth1");
        assert_eq!(names(&selected), ["ferroce_eth1", "ferroce_lo"]);
        assert_eq!(names(&listing(&all, "none")), [""; 0]);
    }

    #[test]
    fn first_device_carries_the_loopback_addresses() {
        let all =
            [lo(), interface(2, "eth0", &["192.0.2.1"]), interface(3, "eth1", &["192.0.2.2"])];
        let loopback = |wanted: &str| {
            let devices = listing(&all, wanted).devices();
            devices.iter().map(|device| device.loopback.len()).collect::<Vec<_>>()
        };
        // Not 192.0.2.9, which other hosts may reach.
        assert_eq!(loopback(""), [2, 0]);
        assert_eq!(loopback("eth1"), [2]);
        assert_eq!(loopback("eth0,lo"), [0, 0], "lo is a device of its own");
        assert_eq!(loopback("lo"), [0]);
        let unlisted = listing(&all, "eth1").device(&all[1]);
        assert!(unlisted.loopback.is_empty() && unlisted.name() == "ferroce_eth0");
    }

    #[test]
    fn names_contain_the_index_or_the_interface() {
        let all =
            [lo(), interface(2, "eth0", &["192.0.2.1"]), interface(3, "eth1", &["192.0.2.2"])];
        let named =
            |pattern: &str| names(&Listing::new(all.to_vec(), "", pattern.parse().unwrap()));
        assert_eq!(named("rxe%d"), ["rxe0", "rxe1"]);
        assert_eq!(named("rxe_%s"), ["rxe_eth0", "rxe_eth1"]);
        assert_eq!(named("mlx5_0"), ["mlx5_0", "mlx5_0_1"]);
    }

    #[test]
    fn names_that_are_not_file_names_are_rejected() {
        let long = "x".repeat(64);
        for pattern in ["", "..", ".x", "a/b", "a b", "a,b", "a:1", "%x", "rxe%", &long] {
            assert_eq!(pattern.parse::<Names>(), Err(NotNames), "{pattern}");
        }
        for pattern in ["rxe%d", "ferroce_%s", "mlx5_0", "a-b.c"] {
            assert_eq!(pattern.parse::<Names>().unwrap().to_string(), pattern);
        }
    }
}
