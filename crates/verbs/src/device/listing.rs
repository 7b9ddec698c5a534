//! Which interfaces are devices, in which order, and what they are called.

use ferroce_sys::environment;
use ferroce_sys::interface::{Address, Interface, interfaces};

use super::Device;
use crate::error::OpenError;

/// The devices that a process sees, as names of devices or interfaces with commas between. `ferroce run` sets it, so that
/// the libraries list what its view of `/sys` has.
const WANTED: &str = "FERROCE_DEVICES";

/// What devices are called, as [`Names`] are written.
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
        let wanted = text(WANTED).unwrap_or_default();
        Ok(Self::new(interfaces()?, &wanted, Names::of_environment()))
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
            // In the order in which they are named: that of the view, whatever has changed since it was made.
            for name in wanted.iter().map(|name| name.strip_prefix(PREFIX).unwrap_or(name)) {
                let found = usable.iter().copied().find(|&at| interfaces[at].name == name);
                listed.extend(found.filter(|at| !listed.contains(at)));
            }
        }
        Self { interfaces, listed, names }
    }

    /// The devices, the first of which is the one for programs that take any.
    pub(super) fn devices(&self) -> Vec<Device> {
        self.listed.iter().map(|&at| self.device(&self.interfaces[at])).collect()
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The device of an interface, listed or not.
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

    /// The loopback addresses that have no device of their own.
    fn loopback(&self) -> Vec<Address> {
        if self.listed.iter().any(|&at| self.interfaces[at].loopback) {
            return Vec::new();
        }
        let lo = self.interfaces.iter().filter(|interface| interface.loopback && interface.up);
        let addresses = lo.flat_map(|interface| &interface.addresses);
        addresses.filter(|address| address.ip.is_loopback()).copied().collect()
    }
}

/// A variable of the environment, which a set-user-ID program has none of.
fn text(name: &str) -> Option<String> {
    environment::var_os(name).and_then(|value| value.into_string().ok())
}

/// Interfaces with a carrier first, then those with an address that others than the neighbours can reach.
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

/// What comes before an interface's name in a device's, unless told otherwise.
pub(super) const PREFIX: &str = "ferroce_";

/// What devices are called: a name in which `%d` is the device's number, from 0 in the order of the list, and `%s` its
/// interface. `ferroce_%s` is the default. `rxe%d` or `mlx5_%d` is for scripts that look for such names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(String);

impl Default for Names {
    fn default() -> Self {
        Self(format!("{PREFIX}%s"))
    }
}

impl Names {
    /// The longest name of an RDMA device: `IBV_SYSFS_NAME_MAX` less the zero at its end.
    const LONGEST: usize = 63;

    /// What `FERROCE_NAME` says, or the default where it says nothing that is understood.
    pub fn of_environment() -> Self {
        text(NAMES).and_then(|pattern| pattern.parse().ok()).unwrap_or_default()
    }

    /// Gives these names to a list of devices.
    pub fn apply(&self, devices: &mut [Device]) {
        for (position, device) in devices.iter_mut().enumerate() {
            device.name = self.name(position, &device.interface.name);
        }
    }

    /// The name of the device at this position of the list.
    fn name(&self, position: usize, interface: &str) -> String {
        let name = self.0.replace("%d", &position.to_string()).replace("%s", interface);
        // Names tell devices apart, also where the pattern does not.
        if position > 0 && name == self.0 { format!("{name}_{position}") } else { name }
    }
}

impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a text is no pattern for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotNames;

impl std::fmt::Display for NotNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "a device name has up to 63 letters, digits, '-', '_' and '.'; in it, %d stands for the number of the device \
             and %s for its interface",
        )
    }
}

impl std::error::Error for NotNames {}

impl std::str::FromStr for Names {
    type Err = NotNames;

    fn from_str(text: &str) -> Result<Self, NotNames> {
        // Room for a number, or for an interface's name (IFNAMSIZ).
        let plain = text.replace("%d", "000").replace("%s", "000000000000000");
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        // The name is that of a folder in the view.
        let valid = !plain.is_empty()
            && plain.len() <= Self::LONGEST
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
    fn devices_that_are_asked_for_come_in_that_order() {
        let all =
            [lo(), interface(2, "eth0", &["192.0.2.1"]), interface(3, "eth1", &["192.0.2.2"])];
        let asked = listing(&all, "none,eth1,ferroce_lo,,ferroce_eth1");
        assert_eq!(names(&asked), ["ferroce_eth1", "ferroce_lo"]);
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
        // Not 192.0.2.9, which others may reach.
        assert_eq!(loopback(""), [2, 0]);
        assert_eq!(loopback("eth1"), [2]);
        assert_eq!(loopback("eth0,lo"), [0, 0], "lo is a device of its own");
        assert_eq!(loopback("lo"), [0]);
        let unlisted = listing(&all, "eth1").device(&all[1]);
        assert!(unlisted.loopback.is_empty() && unlisted.name() == "ferroce_eth0");
    }

    #[test]
    fn names_have_numbers_or_interfaces() {
        let all =
            [lo(), interface(2, "eth0", &["192.0.2.1"]), interface(3, "eth1", &["192.0.2.2"])];
        let named =
            |pattern: &str| names(&Listing::new(all.to_vec(), "", pattern.parse().unwrap()));
        assert_eq!(named("rxe%d"), ["rxe0", "rxe1"]);
        assert_eq!(named("rxe_%s"), ["rxe_eth0", "rxe_eth1"]);
        assert_eq!(named("mlx5_0"), ["mlx5_0", "mlx5_0_1"]);
    }

    #[test]
    fn names_that_could_not_be_files_are_refused() {
        let long = "x".repeat(64);
        for pattern in ["", "..", ".x", "a/b", "a b", "a,b", "a:1", "%x", "rxe%", &long] {
            assert_eq!(pattern.parse::<Names>(), Err(NotNames), "{pattern}");
        }
        for pattern in ["rxe%d", "ferroce_%s", "mlx5_0", "a-b.c"] {
            assert_eq!(pattern.parse::<Names>().unwrap().to_string(), pattern);
        }
    }
}
