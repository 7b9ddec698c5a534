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
mod tests {
    use super::*;

    fn bound(address: &str) -> UdpSocket {
        let address: SocketAddr = address.parse().unwrap();
        let socket = UdpSocket::open(address.is_ipv6()).unwrap();
        socket.bind(address).unwrap();
        socket
    }

    #[test]
    fn datagrams_arrive_whole_with_their_sender() {
        let (one, other) = (bound("127.0.0.1:0"), bound("127.0.0.1:0"));
        let parts = [IoSlice::new(b"data"), IoSlice::new(b""), IoSlice::new(b"gram")];
        one.send(&parts, other.local().unwrap()).unwrap();
        let mut out = [0; 6];
        // The datagram is longer than the buffer.
        assert_eq!(other.receive(&mut out).unwrap(), (8, one.local().unwrap()));
        assert_eq!(&out, b"datagr");
        let empty = other.receive(&mut out).unwrap_err();
        assert_eq!(empty.raw_os_error(), Some(libc::EAGAIN));
    }

    #[test]
    fn a_peer_is_set_and_removed() {
        let (one, other) = (bound("127.0.0.1:0"), bound("127.0.0.1:0"));
        assert_eq!(one.peer().unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
        one.connect(other.local().unwrap()).unwrap();
        assert_eq!(one.peer().unwrap(), other.local().unwrap());
        one.disconnect().unwrap();
        assert_eq!(one.peer().unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    }

    #[test]
    fn the_kernel_checks_what_a_program_passes() {
        let socket = UdpSocket::open(false).unwrap();
        let number = |result: io::Result<()>| result.unwrap_err().raw_os_error();
        assert_eq!(number(socket.bind_sockaddr(&[0; 3])), Some(libc::EINVAL));
        // connect(2) binds the socket even if it fails.
        let other = UdpSocket::open(false).unwrap();
        assert_eq!(number(other.connect_sockaddr(&[0xff; 16])), Some(libc::EAFNOSUPPORT));
        let mut address = [0; 16];
        address[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        address[4..8].copy_from_slice(&[127, 0, 0, 1]);
        socket.bind_sockaddr(&address).unwrap();
        assert_eq!(socket.local().unwrap().ip().to_string(), "127.0.0.1");
        socket.set_option(libc::SOL_SOCKET, libc::SO_RCVBUF, &8192_i32.to_ne_bytes()).unwrap();
        let mut value = [0; 8];
        assert_eq!(socket.option(libc::SOL_SOCKET, libc::SO_RCVBUF, &mut value).unwrap(), 4);
        assert_eq!(i32::from_ne_bytes(*value.first_chunk().unwrap()), 16384);
        assert_eq!(number(socket.set_option(-1, 0, &[])), Some(libc::ENOPROTOOPT));
    }
}
