//! Socket addresses in the kernel's form, for the calls that go through libc.

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::BorrowedFd;

use libc::{c_int, sa_family_t, socklen_t};
use rustix::net::{AddressFamily, getsockname};

use crate::syscall::zeroed;

/// An address in 16 bytes. The IPv6 sockets of this crate never receive mapped addresses, so this is unambiguous.
pub(crate) fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

pub(crate) fn unmapped(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

/// A `sockaddr` of either family.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    /// The size of an address of either family.
    pub(crate) const CAPACITY: socklen_t = size_of::<Self>() as socklen_t;

    /// An address for the kernel to fill in.
    pub(crate) fn empty() -> Self {
        // SAFETY: both variants are C structures of numbers.
        unsafe { zeroed() }
    }

    /// The kernel's form of an address, and its length.
    #[inline]
    pub(crate) fn new(address: SocketAddr) -> (Self, socklen_t) {
        let mut raw = Self::empty();
        match address {
            SocketAddr::V4(address) => {
                // SAFETY: a sockaddr_in is plain numbers, for which all zeroes are a value.
                let mut v4: libc::sockaddr_in = unsafe { zeroed() };
                v4.sin_family = libc::AF_INET as sa_family_t;
                v4.sin_port = address.port().to_be();
                v4.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                raw.v4 = v4;
                (raw, size_of::<libc::sockaddr_in>() as socklen_t)
            }
            SocketAddr::V6(address) => {
                // SAFETY: a sockaddr_in6 is plain numbers, for which all zeroes are a value.
                let mut v6: libc::sockaddr_in6 = unsafe { zeroed() };
                v6.sin6_family = libc::AF_INET6 as sa_family_t;
                v6.sin6_port = address.port().to_be();
                v6.sin6_addr.s6_addr = address.ip().octets();
                v6.sin6_scope_id = address.scope_id();
                raw.v6 = v6;
                (raw, size_of::<libc::sockaddr_in6>() as socklen_t)
            }
        }
    }

    /// The address that the kernel wrote. `None` if it is neither IPv4 nor IPv6.
    #[inline]
    pub(crate) fn get(&self) -> Option<SocketAddr> {
        // SAFETY: the family is the first field of both variants, and every byte of the union is initialised.
        let family = c_int::from(unsafe { self.v4.sin_family });
        match family {
            libc::AF_INET => {
                // SAFETY: the family selects the variant.
                let v4 = unsafe { self.v4 };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: the family selects the variant.
                let v6 = unsafe { self.v6 };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                // The flow label is dropped: it would make two equal peers differ.
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id)))
            }
            _ => None,
        }
    }
}

/// Reads the address behind a pointer of getifaddrs(3). `None` if it is null, or neither IPv4 nor IPv6.
///
/// # Safety
/// `address` must be null, or point to a socket address with the length of its family.
pub(crate) unsafe fn from_pointer(address: *const libc::sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    let mut raw = RawAddress::empty();
    // SAFETY: not null, and every socket address has a family.
    match c_int::from(unsafe { (*address).sa_family }) {
        // SAFETY: the family selects the structure.
        libc::AF_INET => raw.v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() },
        // SAFETY: the family selects the structure.
        libc::AF_INET6 => raw.v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() },
        _ => return None,
    }
    raw.get()
}

/// The address that a socket is bound to.
pub(crate) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    Ok(getsockname(fd)?.try_into()?)
}

/// The address family of an address.
pub(crate) fn family(address: SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

/// The scope (interface index) of an address, or zero if it has none.
pub(crate) fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}
