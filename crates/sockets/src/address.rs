//! Addresses, in and out of the program's structures.

use std::ffi::c_int;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

/// An address of either family.
#[derive(Clone, Copy)]
pub(crate) struct Address(sockaddr_storage);

impl Address {
    /// An empty address with space for any family, and its length.
    pub(crate) fn empty() -> (Self, socklen_t) {
        // SAFETY: all zeroes is a valid value, of the family AF_UNSPEC.
        (Self(unsafe { zeroed() }), size_of::<sockaddr_storage>() as socklen_t)
    }

    /// Reads the program's address, if it is an IP address.
    ///
    /// # Safety
    /// The address has this length, or is null.
    pub(crate) unsafe fn read(from: *const sockaddr, length: socklen_t) -> Option<Self> {
        if from.is_null() || (length as usize) < size_of::<sockaddr_in>() {
            return None;
        }
        let (mut address, room) = Self::empty();
        let length = length.min(room) as usize;
        // SAFETY: as the caller promises; the structure has space for this length.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), address.out().cast(), length) };
        let whole = match address.family() {
            libc::AF_INET => size_of::<sockaddr_in>(),
            libc::AF_INET6 => size_of::<sockaddr_in6>(),
            _ => return None,
        };
        (length >= whole).then_some(address)
    }

    pub(crate) fn family(&self) -> c_int {
        self.0.ss_family.into()
    }

    pub(crate) fn out(&mut self) -> *mut sockaddr {
        (&raw mut self.0).cast()
    }

    pub(crate) fn pointer(&self) -> *const sockaddr {
        (&raw const self.0).cast()
    }

    pub(crate) fn length(&self) -> socklen_t {
        match self.family() {
            libc::AF_INET6 => size_of::<sockaddr_in6>() as socklen_t,
            _ => size_of::<sockaddr_in>() as socklen_t,
        }
    }

    fn v4(&self) -> &sockaddr_in {
        // SAFETY: the structure has space for any address, and any bytes are a valid value.
        unsafe { &*(&raw const self.0).cast() }
    }

    fn v6(&self) -> &sockaddr_in6 {
        // SAFETY: as above.
        unsafe { &*(&raw const self.0).cast() }
    }

    pub(crate) fn ip(&self) -> IpAddr {
        match self.family() {
            libc::AF_INET6 => Ipv6Addr::from(self.v6().sin6_addr.s6_addr).into(),
            _ => Ipv4Addr::from(self.v4().sin_addr.s_addr.to_ne_bytes()).into(),
        }
    }

    /// In network byte order.
    fn port(&self) -> u16 {
        if self.family() == libc::AF_INET6 { self.v6().sin6_port } else { self.v4().sin_port }
    }

    pub(crate) fn has_port(&self) -> bool {
        self.port() != 0
    }

    /// Turns an IPv4-mapped IPv6 address into an IPv4 address, for rsockets.
    pub(crate) fn plain(self) -> Self {
        let IpAddr::V6(ip) = self.ip() else { return self };
        let Some(v4) = ip.to_ipv4_mapped() else { return self };
        let (mut plain, _) = Self::empty();
        let address = sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: self.port(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.octets()) },
            sin_zero: [0; 8],
        };
        // SAFETY: the structure has space for it.
        unsafe { plain.out().cast::<sockaddr_in>().write(address) };
        plain
    }

    /// Maps an IPv4 address to IPv6 for a socket of that family.
    fn of_family(self, family: c_int) -> Self {
        let IpAddr::V4(ip) = self.ip() else { return self };
        if family != libc::AF_INET6 {
            return self;
        }
        let (mut mapped, _) = Self::empty();
        let address = sockaddr_in6 {
            sin6_family: libc::AF_INET6 as u16,
            sin6_port: self.port(),
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: ip.to_ipv6_mapped().octets() },
            sin6_scope_id: 0,
        };
        // SAFETY: the structure has space for it.
        unsafe { mapped.out().cast::<sockaddr_in6>().write(address) };
        mapped
    }

    /// Writes it to the program's buffer, truncated to fit.
    ///
    /// # Safety
    /// The buffer is the program's, with the length it passes, or null.
    pub(crate) unsafe fn give(self, family: c_int, to: *mut sockaddr, length: *mut socklen_t) {
        if to.is_null() || length.is_null() {
            return;
        }
        let given = self.of_family(family);
        let whole = given.length();
        // SAFETY: as the caller promises.
        unsafe {
            let room = whole.min(*length) as usize;
            std::ptr::copy_nonoverlapping(given.pointer().cast::<u8>(), to.cast(), room);
            *length = whole;
        }
    }
}
