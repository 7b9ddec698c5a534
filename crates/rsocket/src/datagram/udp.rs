//! The kernel's UDP socket behind a datagram socket: it owns the port, and carries announcements.

use std::ffi::c_int;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use ferroce_sys::UdpSocket;

use super::wire::{canonical, mapped};
use crate::error::Result;

pub(crate) struct Udp {
    socket: UdpSocket,
}

impl Udp {
    pub(crate) fn new(family: c_int) -> Result<Self> {
        Ok(Self { socket: UdpSocket::open(family == libc::AF_INET6)? })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(crate) fn family(&self) -> c_int {
        if self.socket.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET }
    }

    /// Binds to the bytes of a `struct sockaddr`, which the kernel checks.
    pub(crate) fn bind(&self, address: &[u8]) -> Result<()> {
        Ok(self.socket.bind_sockaddr(address)?)
    }

    /// Binds to a free port of all addresses.
    pub(crate) fn bind_any(&self) -> Result<()> {
        let any = match self.socket.is_ipv6() {
            true => ([0u16; 8], 0).into(),
            false => ([0u8; 4], 0).into(),
        };
        Ok(self.socket.bind(any)?)
    }

    /// Sets the peer to the bytes of a `struct sockaddr`, which the kernel checks; `AF_UNSPEC` removes it.
    pub(crate) fn connect(&self, address: &[u8]) -> Result<()> {
        Ok(self.socket.connect_sockaddr(address)?)
    }

    /// Removes the peer.
    pub(crate) fn disconnect(&self) {
        let _ = self.socket.disconnect();
    }

    /// The local address. Its port is 0 before the socket is bound.
    pub(crate) fn local(&self) -> Result<SocketAddr> {
        Ok(canonical(self.socket.local()?))
    }

    /// The peer's address.
    pub(crate) fn peer(&self) -> Result<SocketAddr> {
        Ok(canonical(self.socket.peer()?))
    }

    /// The local address as the kernel reports it, with mapped IPv4 addresses.
    pub(crate) fn raw_local(&self) -> Result<SocketAddr> {
        Ok(self.socket.local()?)
    }

    /// The peer's address as the kernel reports it, with mapped IPv4 addresses.
    pub(crate) fn raw_peer(&self) -> Result<SocketAddr> {
        Ok(self.socket.peer()?)
    }

    /// Sends a datagram of these parts, without blocking.
    pub(crate) fn send(&self, parts: &[&[u8]], to: SocketAddr) -> Result<()> {
        let to = if self.socket.is_ipv6() { mapped(to) } else { to };
        let parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        Ok(self.socket.send(&parts, to)?)
    }

    /// Receives a datagram, without blocking. Returns its length, which may exceed that of `out`, and its sender.
    pub(crate) fn receive(&self, out: &mut [u8]) -> Result<(usize, SocketAddr)> {
        let (length, from) = self.socket.receive(out)?;
        Ok((length, canonical(from)))
    }

    pub(crate) fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
        Ok(self.socket.set_option(level, name, value)?)
    }

    pub(crate) fn option(&self, level: c_int, name: c_int, value: &mut [u8]) -> Result<usize> {
        Ok(self.socket.option(level, name, value)?)
    }
}
