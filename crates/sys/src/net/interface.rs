//! The machine's network interfaces and their addresses.

use std::ffi::{CStr, CString};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{c_int, ifaddrs};

use crate::error::Error;
use crate::net::address::{from_pointer, scope};
use crate::net::route;
use crate::syscall::{check, socket, zeroed};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, as `ip link` shows it.
    pub name: String,
    /// Its index, which scopes of IPv6 addresses refer to.
    pub index: u32,
    /// The largest packet it takes, from the IP header on.
    pub mtu: u32,
    /// It is switched on.
    pub up: bool,
    /// It has a carrier.
    pub running: bool,
    /// It is the loopback.
    pub loopback: bool,
    /// Its hosts have addresses of the link's, which are found out: Ethernet, and not a tunnel.
    pub neighbours: bool,
    /// It can multicast.
    pub multicast: bool,
    /// Its Ethernet address, if it has one: the loopback's is all zeroes.
    pub mac: Option<[u8; 6]>,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<Address>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// How many of its leading bits are the network's.
    pub prefix: u8,
    /// The interface's index, where the address means something on it alone (IPv6 link-local). Zero otherwise.
    pub scope: u32,
}

impl Address {
    /// The address with a port, ready to be bound.
    pub fn with_port(&self, port: u16) -> SocketAddr {
        let mut address = SocketAddr::new(self.ip, port);
        if let SocketAddr::V6(address) = &mut address {
            address.set_scope_id(self.scope);
        }
        address
    }
}

impl Interface {
    /// The largest RoCE path MTU that fits, with the headers of this address family. `None` when none does.
    pub fn roce_mtu(&self, ipv6: bool) -> Option<u16> {
        route::roce_mtu(self.mtu, ipv6)
    }

    /// Whether an address reaches us here: one of ours, or on the loopback any of its networks' (127.0.0.0/8).
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| {
            own.ip == address || self.loopback && same_network(own.ip, address, own.prefix)
        })
    }
}

/// All interfaces, by index, those that are down and those without addresses included.
pub fn interfaces() -> Result<Vec<Interface>, Error> {
    let list = List::read()?;
    let probe = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
        .or_else(|_| socket(libc::AF_INET6, libc::SOCK_DGRAM, 0))
        .map_err(|error| Error::system("ask about interfaces", error))?;
    let mut interfaces: Vec<Interface> = Vec::new();
    for entry in list.iter() {
        // SAFETY: every entry of the list has a name, ended by a zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
        // An IPv4 address can have a label, which stands for its interface: "eth0:1".
        let name = name.split(':').next().unwrap_or_default();
        let at = match interfaces.iter().position(|known| known.name == name) {
            Some(at) => at,
            None => {
                interfaces.push(describe(name, entry, &probe));
                interfaces.len() - 1
            }
        };
        let interface = &mut interfaces[at];
        // SAFETY: the list's addresses are null or as long as their family says.
        unsafe {
            interface.mac = interface.mac.or(mac(entry.ifa_addr));
            if let Some(address) = from_pointer(entry.ifa_addr) {
                let mask = from_pointer(entry.ifa_netmask).map(|mask| mask.ip());
                let prefix = mask.map_or(if address.is_ipv6() { 128 } else { 32 }, prefix);
                let own = Address { ip: address.ip(), prefix, scope: scope(address) };
                interface.addresses.push(own);
            }
        }
    }
    // An interface can vanish while we ask: then it has no index.
    interfaces.retain(|interface| interface.index != 0);
    interfaces.sort_by_key(|interface| interface.index);
    Ok(interfaces)
}

/// The interface that has an address. An IPv6 link-local address is told from its likes by the scope.
pub fn interface_of(address: SocketAddr) -> Result<Interface, Error> {
    let scope = scope(address);
    interfaces()?
        .into_iter()
        .find(|one| one.has(address.ip()) && (scope == 0 || scope == one.index))
        .ok_or(Error::AddressNotOurs { address: address.ip() })
}

/// Whether the interface of this name is there, switched on, and has a carrier, now.
pub fn is_active(name: &str) -> bool {
    let active = libc::IFF_UP | libc::IFF_RUNNING;
    let Ok(list) = List::read() else { return false };
    list.iter().any(|entry| {
        // SAFETY: every entry of the list has a name, ended by a zero.
        let own = unsafe { CStr::from_ptr(entry.ifa_name) };
        own.to_bytes() == name.as_bytes() && entry.ifa_flags as c_int & active == active
    })
}

fn describe(name: &str, entry: &ifaddrs, probe: &OwnedFd) -> Interface {
    let is = |flag: c_int| entry.ifa_flags & flag.unsigned_abs() != 0;
    Interface {
        name: name.to_owned(),
        index: index_of(name).unwrap_or(0),
        mtu: mtu(name, probe),
        up: is(libc::IFF_UP),
        running: is(libc::IFF_RUNNING),
        loopback: is(libc::IFF_LOOPBACK),
        neighbours: ![libc::IFF_LOOPBACK, libc::IFF_POINTOPOINT, libc::IFF_NOARP]
            .into_iter()
            .any(is),
        multicast: is(libc::IFF_MULTICAST),
        mac: None,
        addresses: Vec::new(),
    }
}

/// An interface's MTU, from the kernel's call or else its file; 0 when neither knows the interface.
fn mtu(name: &str, probe: &OwnedFd) -> u32 {
    // SAFETY: an ifreq is numbers and a pointer.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let length = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..length].iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    // SAFETY: the request is a local of the type that this call wants.
    let asked =
        check(unsafe { libc::ioctl(probe.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) });
    match asked {
        // SAFETY: the call has filled in this member.
        Ok(_) => unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs(),
        Err(_) => fs::read_to_string(format!("/sys/class/net/{name}/mtu"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0),
    }
}

/// The Ethernet address in a link-layer socket address.
///
/// # Safety
/// `address` must be null, or point to a socket address that is as long as its family says.
unsafe fn mac(address: *const libc::sockaddr) -> Option<[u8; 6]> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, and the family is part of every socket address.
    if c_int::from(unsafe { (*address).sa_family }) != libc::AF_PACKET {
        return None;
    }
    // SAFETY: the family says which structure it is.
    let link = unsafe { address.cast::<libc::sockaddr_ll>().read_unaligned() };
    (link.sll_halen == 6).then(|| link.sll_addr.first_chunk().copied()).flatten()
}

/// How many bits of a network mask are set.
fn prefix(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(mask) => mask.to_bits().count_ones(),
        IpAddr::V6(mask) => mask.to_bits().count_ones(),
    };
    ones as u8
}

fn same_network(one: IpAddr, other: IpAddr, prefix: u8) -> bool {
    let differing = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => return false,
    };
    differing >= u32::from(prefix)
}

/// The list that `getifaddrs` allocates.
struct List {
    first: *mut ifaddrs,
}

impl List {
    fn read() -> Result<Self, Error> {
        let mut first = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        check(unsafe { libc::getifaddrs(&raw mut first) })
            .map_err(|error| Error::system("list the network interfaces", error))?;
        Ok(Self { first })
    }

    fn iter(&self) -> impl Iterator<Item = &ifaddrs> {
        // SAFETY: null, or an entry that lives as long as the list.
        let mut next = unsafe { self.first.as_ref() };
        std::iter::from_fn(move || {
            let entry = next?;
            // SAFETY: as above.
            next = unsafe { entry.ifa_next.as_ref() };
            Some(entry)
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list is what `getifaddrs` gave, and is freed once.
        unsafe { libc::freeifaddrs(self.first) };
    }
}

/// The index of the interface with this name.
pub fn index_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}
