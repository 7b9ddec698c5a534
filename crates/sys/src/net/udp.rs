//! An ordinary UDP socket: that of a program's datagram rsocket.
//!
//! std's cannot be used: its `socket` is the C library's, which librspreload replaces by a call of rsockets.
//!
//! libc: rustix has no setsockopt(2) and getsockopt(2) for options that only the caller knows.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use libc::{c_int, socklen_t};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType,
};

/// A UDP socket. Its descriptor is in blocking mode and closed on exec; [`UdpSocket::send`] and [`UdpSocket::receive`]
/// never block.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    ipv6: bool,
}

/// A `struct sockaddr` of some family, as a program passed it.
struct RawSockaddr<'a>(&'a [u8]);

// SAFETY: the pointer is readable for the length. The kernel checks whether the bytes are an address.
unsafe impl SocketAddrArg for RawSockaddr<'_> {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        f(self.0.as_ptr().cast(), self.0.len() as SocketAddrLen)
    }
}

impl UdpSocket {
    /// Opens a socket. An IPv6 socket also carries IPv4, as mapped addresses, unless the program sets `IPV6_V6ONLY`.
    pub fn open(ipv6: bool) -> io::Result<Self> {
        let family = if ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { fd, ipv6 })
    }

    /// Whether it is an IPv6 socket.
    pub fn is_ipv6(&self) -> bool {
        self.ipv6
    }

    /// Binds it. Port 0 stands for any free port.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        Ok(rustix::net::bind(&self.fd, &address)?)
    }

    /// Binds it to the bytes of a `struct sockaddr`, which the kernel checks.
    pub fn bind_sockaddr(&self, address: &[u8]) -> io::Result<()> {
        Ok(rustix::net::bind(&self.fd, &RawSockaddr(address))?)
    }

    /// Sets the peer.
    pub fn connect(&self, address: SocketAddr) -> io::Result<()> {
        Ok(rustix::net::connect(&self.fd, &address)?)
    }

    /// Sets the peer to the bytes of a `struct sockaddr`, which the kernel checks; `AF_UNSPEC` removes it.
    pub fn connect_sockaddr(&self, address: &[u8]) -> io::Result<()> {
        Ok(rustix::net::connect(&self.fd, &RawSockaddr(address))?)
    }

    /// Removes the peer.
    pub fn disconnect(&self) -> io::Result<()> {
        Ok(rustix::net::connect_unspec(&self.fd)?)
    }

    /// Its own address; port 0 before it is bound.
    pub fn local(&self) -> io::Result<SocketAddr> {
        Ok(rustix::net::getsockname(&self.fd)?.try_into()?)
    }

    /// The address of the peer; `ENOTCONN` if it has none.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        let peer = rustix::net::getpeername(&self.fd)?;
        let peer = peer.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTCONN))?;
        Ok(peer.try_into()?)
    }

    /// Sends one datagram gathered from these parts. `EAGAIN` if the socket's buffer is full.
    pub fn send(&self, parts: &[IoSlice<'_>], to: SocketAddr) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut control = SendAncillaryBuffer::default();
        rustix::net::sendmsg_addr(&self.fd, &to, parts, &mut control, flags)?;
        Ok(())
    }

    /// Receives one datagram, and returns its length, which may exceed that of `out`, and its sender. `EAGAIN` if there
    /// is none.
    pub fn receive(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let (_, length, from) = rustix::net::recvfrom(&self.fd, out, flags)?;
        let from = from.ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
        Ok((length, from.try_into()?))
    }

    /// Sets a socket option to these bytes, which the kernel checks.
    pub fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
        let length = value.len() as socklen_t;
        // SAFETY: the bytes are readable for the length. Options of a UDP socket that contain a pointer (filters) are
        // only read through it, and the kernel checks the address.
        let done = unsafe {
            libc::setsockopt(self.fd.as_raw_fd(), level, name, value.as_ptr().cast(), length)
        };
        crate::syscall::check(done).map(drop)
    }

    /// Reads a socket option into the start of `value`, and returns its length.
    pub fn option(&self, level: c_int, name: c_int, value: &mut [u8]) -> io::Result<usize> {
        let mut length = value.len() as socklen_t;
        // SAFETY: the bytes are writable for the length. No option of a UDP socket makes the kernel write elsewhere.
        let done = unsafe {
            let (fd, to) = (self.fd.as_raw_fd(), value.as_mut_ptr().cast());
            libc::getsockopt(fd, level, name, to, &raw mut length)
        };
        crate::syscall::check(done).map(|_| (length as usize).min(value.len()))
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests;
