//! Network interfaces and their addresses.
//!
//! libc: rustix has no getifaddrs(3).

use std::ffi::CStr;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use libc::{c_int, ifaddrs};
use rustix::ioctl;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType};

use crate::error::Error;
use crate::net::address::{from_pointer, scope};
use crate::net::route;
use crate::syscall::{check, socket, zeroed};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name, as `ip link` prints it.
    pub name: String,
    /// The index, which the scope of an IPv6 address refers to.
    pub index: u32,
    /// The MTU, which includes the IP header.
    pub mtu: u32,
    /// The interface is up (`IFF_UP`).
    pub up: bool,
    /// The link has a carrier (`IFF_RUNNING`).
    pub running: bool,
    /// It is the loopback interface.
    pub loopback: bool,
    /// Next hops are resolved to link-layer addresses (ARP, neighbour discovery): Ethernet, but not a tunnel.
    pub neighbours: bool,
    /// It supports multicast.
    pub multicast: bool,
    /// The Ethernet address, if it has one; all zeroes for the loopback interface.
    pub mac: Option<[u8; 6]>,
    /// The addresses, in the kernel's order.
    pub addresses: Vec<Address>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The prefix length.
    pub prefix: u8,
    /// The interface index if the address is scoped (IPv6 link-local), otherwise zero.
    pub scope: u32,
}

impl Address {
    /// The address with a port, for binding.
    pub fn with_port(&self, port: u16) -> SocketAddr {
        let mut address = SocketAddr::new(self.ip, port);
        if let SocketAddr::V6(address) = &mut address {
            address.set_scope_id(self.scope);
        }
        address
    }
}

impl Interface {
    /// The largest RoCE path MTU that fits with the headers of this address family, if any.
    pub fn roce_mtu(&self, ipv6: bool) -> Option<u16> {
        route::roce_mtu(self.mtu, ipv6)
    }

    /// Whether packets to an address arrive here: one of the addresses, or any of 127.0.0.0/8 on the loopback interface.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| {
            own.ip == address || self.loopback && same_network(own.ip, address, own.prefix)
        })
    }
}

/// Lists all interfaces by index, including those that are down and those without addresses.
pub fn interfaces() -> Result<Vec<Interface>, Error> {
    let list = List::read()?;
    let probe = probe()?;
    let mut interfaces: Vec<Interface> = Vec::new();
    for entry in list.iter() {
        // SAFETY: every entry of the list has a name that ends with a zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
        // An IPv4 address may have a label instead of the interface's name: "eth0:1".
        let name = name.split(':').next().unwrap_or_default();
        let at = match interfaces.iter().position(|known| known.name == name) {
            Some(at) => at,
            None => {
                interfaces.push(describe(name, entry, &probe));
                interfaces.len() - 1
            }
        };
        let interface = &mut interfaces[at];
        // SAFETY: the addresses of the list are null or have the length of their family.
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
    // An interface that was removed meanwhile has no index.
    interfaces.retain(|interface| interface.index != 0);
    interfaces.sort_by_key(|interface| interface.index);
    Ok(interfaces)
}

/// Finds the interface that has an address. The scope selects among equal IPv6 link-local addresses.
pub fn interface_of(address: SocketAddr) -> Result<Interface, Error> {
    let scope = scope(address);
    interfaces()?
        .into_iter()
        .find(|interface| interface.has(address.ip()) && (scope == 0 || scope == interface.index))
        .ok_or(Error::AddressNotLocal { address: address.ip() })
}

/// Whether an interface of this name exists, is up and has a carrier.
pub fn is_active(name: &str) -> bool {
    let active = libc::IFF_UP | libc::IFF_RUNNING;
    let Ok(list) = List::read() else { return false };
    list.iter().any(|entry| {
        // SAFETY: every entry of the list has a name that ends with a zero.
        let own = unsafe { CStr::from_ptr(entry.ifa_name) };
        own.to_bytes() == name.as_bytes() && entry.ifa_flags as c_int & active == active
    })
}

fn describe(name: &str, entry: &ifaddrs, probe: &OwnedFd) -> Interface {
    let is = |flag: c_int| entry.ifa_flags & flag.unsigned_abs() != 0;
    Interface {
        name: name.to_owned(),
        index: name_to_index(probe, name).unwrap_or(0),
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

/// The MTU of an interface, from the system call or else from sysfs; 0 if neither knows the interface.
fn mtu(name: &str, probe: &OwnedFd) -> u32 {
    // SAFETY: an ifreq is numbers and a pointer.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let length = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..length].iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    type GetMtu<'a> = ioctl::Updater<'a, { libc::SIOCGIFMTU as ioctl::Opcode }, libc::ifreq>;
    // SAFETY: the request is a local of the type that this call reads and writes.
    match unsafe { ioctl::ioctl(probe, GetMtu::new(&mut request)) } {
        // SAFETY: the call wrote this member.
        Ok(()) => unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs(),
        Err(_) => fs::read_to_string(format!("/sys/class/net/{name}/mtu"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0),
    }
}

/// The Ethernet address in a link-layer socket address.
///
/// # Safety
/// `address` must be null, or point to a socket address with the length of its family.
unsafe fn mac(address: *const libc::sockaddr) -> Option<[u8; 6]> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, and every socket address has a family.
    if c_int::from(unsafe { (*address).sa_family }) != libc::AF_PACKET {
        return None;
    }
    // SAFETY: the family selects the structure.
    let link = unsafe { address.cast::<libc::sockaddr_ll>().read_unaligned() };
    (link.sll_halen == 6).then(|| link.sll_addr.first_chunk().copied()).flatten()
}

/// The number of bits set in a network mask.
fn prefix(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(mask) => mask.to_bits().count_ones(),
        IpAddr::V6(mask) => mask.to_bits().count_ones(),
    };
    ones as u8
}

fn same_network(first: IpAddr, second: IpAddr, prefix: u8) -> bool {
    let common = match (first, second) {
        (IpAddr::V4(first), IpAddr::V4(second)) => {
            (first.to_bits() ^ second.to_bits()).leading_zeros()
        }
        (IpAddr::V6(first), IpAddr::V6(second)) => {
            (first.to_bits() ^ second.to_bits()).leading_zeros()
        }
        _ => return false,
    };
    common >= u32::from(prefix)
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
        // SAFETY: the list is from `getifaddrs`, and is freed once.
        unsafe { libc::freeifaddrs(self.first) };
    }
}

/// The index of the interface with this name.
pub fn index_of(name: &str) -> Option<u32> {
    name_to_index(probe().ok()?, name).ok()
}

/// A socket for asking about interfaces.
fn probe() -> Result<OwnedFd, Error> {
    socket(AddressFamily::INET, SocketType::DGRAM, None)
        .or_else(|_| socket(AddressFamily::INET6, SocketType::DGRAM, None))
        .map_err(|error| Error::system("query the network interfaces", error))
}
