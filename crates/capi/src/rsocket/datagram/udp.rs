//! A UDP socket of the system's: what the program calls a datagram socket, and by which queue pairs are made known.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{iovec, msghdr, sockaddr, sockaddr_storage, socklen_t};

use super::wire::{mapped, plain};
use crate::entry::{Errno, Result};
use crate::rdmacm::socket as address;

pub(super) struct Udp {
    fd: OwnedFd,
    family: c_int,
}

fn check(result: c_int) -> Result<()> {
    if result < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// For every address.
const ROOM: socklen_t = size_of::<sockaddr_storage>() as socklen_t;

fn empty() -> sockaddr_storage {
    // SAFETY: all zeroes is a value of it.
    unsafe { std::mem::zeroed() }
}

impl Udp {
    pub(super) fn new(family: c_int) -> Result<Self> {
        // The system's own call: librspreload has another `socket`, which would come back to us.
        // SAFETY: the call takes no pointers.
        let fd = unsafe {
            libc::syscall(libc::SYS_socket, family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)
        };
        check(fd as c_int)?;
        // SAFETY: just made, and nobody else's.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd as RawFd) }, family })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(super) fn family(&self) -> c_int {
        self.family
    }

    /// # Safety
    /// The program's address, of this length.
    pub(super) unsafe fn bind(&self, to: *const sockaddr, length: socklen_t) -> Result<()> {
        // SAFETY: as the caller says; the system looks at it.
        check(unsafe { libc::bind(self.fd(), to, length) })
    }

    /// Takes any port, of all addresses.
    pub(super) fn bind_any(&self) -> Result<()> {
        let (any, length) = self.raw(match self.family {
            libc::AF_INET6 => ([0u16; 8], 0).into(),
            _ => ([0u8; 4], 0).into(),
        });
        // SAFETY: an address of ours.
        unsafe { self.bind((&raw const any).cast(), length) }
    }

    /// # Safety
    /// The program's address, of this length.
    pub(super) unsafe fn connect(&self, to: *const sockaddr, length: socklen_t) -> Result<()> {
        // SAFETY: as the caller says; the system looks at it.
        check(unsafe { libc::connect(self.fd(), to, length) })
    }

    /// Has no peer any more (connect(2)).
    pub(super) fn disconnect(&self) {
        let mut none = empty();
        none.ss_family = libc::AF_UNSPEC as u16;
        // SAFETY: an address of ours.
        unsafe { libc::connect(self.fd(), (&raw const none).cast(), ROOM) };
    }

    /// An address as the system wants it of this socket.
    fn raw(&self, to: SocketAddr) -> (sockaddr_storage, socklen_t) {
        let to = if self.family == libc::AF_INET6 { mapped(to) } else { to };
        let length = match to {
            SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
            SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
        };
        (address::write(to), length as socklen_t)
    }

    /// Where it is. Port 0 when it is nowhere yet.
    pub(super) fn local(&self) -> Result<SocketAddr> {
        self.ask(libc::getsockname)
    }

    /// Its peer.
    pub(super) fn peer(&self) -> Result<SocketAddr> {
        self.ask(libc::getpeername)
    }

    fn ask(
        &self,
        call: unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    ) -> Result<SocketAddr> {
        let (mut found, mut length) = (empty(), ROOM);
        // SAFETY: both are ours.
        check(unsafe { call(self.fd(), (&raw mut found).cast(), &raw mut length) })?;
        // SAFETY: the system has filled it in.
        unsafe { address::read((&raw const found).cast()) }.map(plain)
    }

    /// Sends a datagram of these parts, without waiting.
    pub(super) fn send(&self, parts: &[&[u8]], to: SocketAddr) -> Result<()> {
        let (mut name, length) = self.raw(to);
        let mut list: Vec<_> = parts
            .iter()
            .map(|part| iovec {
                iov_base: part.as_ptr().cast_mut().cast::<c_void>(),
                iov_len: part.len(),
            })
            .collect();
        // SAFETY: all zeroes is a value of it.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = length;
        message.msg_iov = list.as_mut_ptr();
        message.msg_iovlen = list.len();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: all that it leads to is ours, and is only read.
        let sent = unsafe { libc::sendmsg(self.fd(), &raw const message, flags) };
        if sent < 0 { Err(Errno::last()) } else { Ok(()) }
    }

    /// Receives a datagram, without waiting: how long it is, which may be more than there is room for, and from where.
    pub(super) fn receive(&self, out: &mut [u8]) -> Result<(usize, SocketAddr)> {
        let (mut found, mut length) = (empty(), ROOM);
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: all of it is ours.
        let received = unsafe {
            let (from, length) = ((&raw mut found).cast(), &raw mut length);
            libc::recvfrom(self.fd(), out.as_mut_ptr().cast(), out.len(), flags, from, length)
        };
        let received = usize::try_from(received).map_err(|_| Errno::last())?;
        // SAFETY: the system has filled it in.
        let from = unsafe { address::read((&raw const found).cast()) }?;
        Ok((received, plain(from)))
    }
}
