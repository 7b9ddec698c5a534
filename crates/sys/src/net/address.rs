//! Socket addresses, ours and the kernel's.

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{c_int, sa_family_t, socklen_t};

use crate::syscall::zeroed;

/// A socket address as the kernel has it, of either family.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    /// Room for an address of either family.
    pub(crate) const ROOM: socklen_t = size_of::<Self>() as socklen_t;

    /// No address, to be filled in by the kernel.
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

    /// The address the kernel wrote here. `None` when it is of no family of ours.
    #[inline]
    pub(crate) fn get(&self) -> Option<SocketAddr> {
        // SAFETY: the family stands first in both variants, and every byte of the union is initialised.
        let family = c_int::from(unsafe { self.v4.sin_family });
        match family {
            libc::AF_INET => {
                // SAFETY: the family says which variant it is.
                let v4 = unsafe { self.v4 };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: the family says which variant it is.
                let v6 = unsafe { self.v6 };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                // The flow label is of no use to anyone here, and would make two equal peers differ.
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id)))
            }
            _ => None,
        }
    }
}

/// The address that a pointer of the kernel's lists refers to. `None` when it is null or of no family of ours.
///
/// # Safety
/// `address` must be null, or point to a socket address that is as long as its family says.
pub(crate) unsafe fn from_pointer(address: *const libc::sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    let mut raw = RawAddress::empty();
    // SAFETY: not null, and the family is part of every socket address.
    match c_int::from(unsafe { (*address).sa_family }) {
        // SAFETY: the family says which structure it is.
        libc::AF_INET => raw.v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() },
        // SAFETY: the family says which structure it is.
        libc::AF_INET6 => raw.v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() },
        _ => return None,
    }
    raw.get()
}

/// The address family of an address.
pub(crate) fn family(address: SocketAddr) -> c_int {
    match address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    }
}

/// The scope (interface index) that goes with an address: zero where it needs none.
pub(crate) fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}
