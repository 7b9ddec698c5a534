//! Binding, connecting, sending and receiving.

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use super::socket::{DatagramSocket, State};
use super::wire::{Announcement, Kind, SourceHeader, canonical, mapped};
use crate::error::{Errno, Result};
use crate::wait::block_on;

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// The value that recv(2) returns: the number of bytes copied, or with `MSG_TRUNC` the length of the datagram.
    pub bytes: usize,
    /// Whether the datagram was longer than the buffers.
    pub truncated: bool,
    /// The sender, as a socket of its family reports it; `None` after `SHUT_RD`.
    pub from: Option<SocketAddr>,
}

impl DatagramSocket {
    /// Binds to the bytes of a `struct sockaddr`, which the kernel checks.
    pub fn bind(self: &Arc<Self>, address: &[u8]) -> Result<()> {
        self.udp.bind(address)?;
        self.serve()
    }

    /// Connects to the bytes of a `struct sockaddr`, which the kernel checks. `AF_UNSPEC` removes the peer
    /// (connect(2)).
    pub fn connect(self: &Arc<Self>, address: &[u8]) -> Result<()> {
        self.udp.connect(address)?;
        let peer = self.udp.peer().ok();
        self.set_peer(peer);
        let Some(peer) = peer else { return Ok(()) };
        let added = self.prepare().and_then(|local| self.state().peer_at(local, peer).map(drop));
        if added.is_err() {
            self.udp.disconnect();
            self.set_peer(None);
        }
        added
    }

    /// Sets the peer. The kernel may have changed the local address with it.
    fn set_peer(&self, peer: Option<SocketAddr>) {
        let mut state = self.state();
        (state.peer, state.local) = (peer, None);
    }

    /// Ends one direction or both of a connected socket (`SHUT_RD`, `SHUT_WR`, `SHUT_RDWR`). The peer is not notified:
    /// there is no connection.
    pub fn shutdown(&self, how: c_int) -> Result<()> {
        let mut state = self.state();
        if state.peer.is_none() {
            return Err(Errno(libc::ENOTCONN));
        }
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno(libc::EINVAL)),
        };
        state.readable &= !read;
        state.writable &= !write;
        state.wake();
        Ok(())
    }

    /// The local address.
    pub fn local_address(&self) -> Result<SocketAddr> {
        self.udp.raw_local()
    }

    /// The peer's address: `ENOTCONN` if there is none.
    pub fn peer_address(&self) -> Result<SocketAddr> {
        self.udp.raw_peer()
    }

    /// Receives a datagram into several buffers, with flags of recv(2). The part that does not fit is lost.
    pub fn receive(&self, out: &mut [&mut [u8]], flags: c_int) -> Result<ReceivedDatagram> {
        let Some((length, from)) = self.receive_next(out, flags)? else {
            return Ok(ReceivedDatagram { bytes: 0, truncated: false, from: None });
        };
        let space = out.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
        let whole = flags & libc::MSG_TRUNC != 0;
        let bytes = if whole { length } else { length.min(space) };
        let from = if self.family() == libc::AF_INET6 { mapped(from) } else { from };
        Ok(ReceivedDatagram { bytes, truncated: length > space, from: Some(from) })
    }

    /// Waits for a datagram, and returns its length and sender; `None` after `SHUT_RD`.
    fn receive_next(
        &self,
        out: &mut [&mut [u8]],
        flags: c_int,
    ) -> Result<Option<(usize, SocketAddr)>> {
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if flags & libc::MSG_ERRQUEUE != 0 {
            return Err(Errno(libc::EAGAIN)); // The error queue is always empty.
        }
        let (wait, peek) = (self.waits(flags), flags & libc::MSG_PEEK != 0);
        let timeout = self.state().receive_timeout;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let received = self.wait_until(wait, deadline, |state| {
            if let Err(error) = state.check_open() {
                return Some(Err(error));
            }
            if let Some(received) = state.read(out, peek) {
                return Some(Ok(Some(received)));
            }
            if let Some(error) = state.take_error() {
                return Some(Err(error));
            }
            (!state.readable).then_some(Ok(None))
        });
        match received {
            // As socket(7) specifies for SO_RCVTIMEO.
            Err(Errno(libc::ETIMEDOUT)) => Err(Errno(libc::EAGAIN)),
            received => received?,
        }
    }

    /// Sends the parts as one datagram, to `to` or to the peer, with flags of send(2).
    pub fn send(
        self: &Arc<Self>,
        parts: &[&[u8]],
        to: Option<SocketAddr>,
        flags: c_int,
    ) -> Result<usize> {
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let peer = self.state().peer;
        let to = match to.map(canonical).or(peer).ok_or(Errno(libc::EDESTADDRREQ))? {
            SocketAddr::V6(_) if self.family() == libc::AF_INET => {
                return Err(Errno(libc::EAFNOSUPPORT));
            }
            to => specified(to),
        };
        let local = self.prepare()?;
        let length = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
        let wait = self.waits(flags);
        loop {
            let sent =
                self.wait_until(wait, None, |state| self.try_send(state, parts, length, local, to));
            match sent? {
                // The buffer of the UDP socket is full.
                Err(Errno(libc::EAGAIN)) if wait => block_on(self.udp.fd(), libc::POLLOUT)?,
                sent => return sent.map(|()| length),
            }
        }
    }

    /// Sends a datagram now. Returns `None` if no send slot is free.
    fn try_send(
        &self,
        state: &mut State,
        parts: &[&[u8]],
        length: usize,
        local: SocketAddr,
        to: SocketAddr,
    ) -> Option<Result<()>> {
        if let Some(error) = state.take_error() {
            return Some(Err(error));
        }
        if !state.writable {
            return Some(Err(Errno(libc::EPIPE)));
        }
        let (peer, queue) = match state.peer_at(local, to) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        // send(2): a datagram is not split.
        if length > peer.max_payload {
            return Some(Err(Errno(libc::EMSGSIZE)));
        }
        let Some((address, number)) = peer.direct(Instant::now()) else {
            let announcement = Announcement { kind: Kind::Data, queue_pair: queue.number().0 };
            let header = announcement.write(queue.local());
            return Some(self.udp.send(&with_header(&header, parts), to));
        };
        let header = SourceHeader(SocketAddr::new(queue.local(), local.port())).write();
        match queue.send(&with_header(&header, parts), address, number) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

fn with_header<'a>(header: &'a [u8], parts: &[&'a [u8]]) -> Vec<&'a [u8]> {
    std::iter::once(header).chain(parts.iter().copied()).collect()
}

/// Replaces the unspecified address by the loopback address, as the kernel does.
fn specified(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, v6.port()).into(),
        to => to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unspecified_address_is_this_host() {
        let to = |text: &str| specified(text.parse().unwrap()).to_string();
        assert_eq!(to("0.0.0.0:5"), "127.0.0.1:5");
        assert_eq!(to("[::]:5"), "[::1]:5");
        assert_eq!(to("10.0.0.1:5"), "10.0.0.1:5");
    }

    #[test]
    fn a_socket_without_a_peer_needs_a_destination() {
        let socket = DatagramSocket::new(libc::AF_INET, false).unwrap();
        assert_eq!(socket.send(&[b"x"], None, 0), Err(Errno(libc::EDESTADDRREQ)));
        let to = Some("[fd00::1]:5".parse().unwrap());
        assert_eq!(socket.send(&[b"x"], to, 0), Err(Errno(libc::EAFNOSUPPORT)));
        assert_eq!(socket.shutdown(libc::SHUT_RD), Err(Errno(libc::ENOTCONN)));
        assert_eq!(socket.peer_address(), Err(Errno(libc::ENOTCONN)));
    }

    #[test]
    fn receiving_without_a_datagram_fails_with_eagain_when_it_may_not_wait() {
        let socket = DatagramSocket::new(libc::AF_INET, true).unwrap();
        let receive = |flags| socket.receive(&mut [&mut [0; 8]], flags).unwrap_err().0;
        assert_eq!(receive(0), libc::EAGAIN);
        assert_eq!(receive(libc::MSG_OOB), libc::EOPNOTSUPP);
        assert_eq!(receive(libc::MSG_ERRQUEUE), libc::EAGAIN);
    }

    #[test]
    fn a_receive_timeout_ends_with_eagain() {
        let socket = DatagramSocket::new(libc::AF_INET, false).unwrap();
        let timeout = std::time::Duration::from_millis(3);
        socket.state().receive_timeout = Some(timeout);
        let start = Instant::now();
        assert_eq!(socket.receive(&mut [&mut [0; 8]], 0), Err(Errno(libc::EAGAIN)));
        assert!(start.elapsed() >= timeout);
    }
}
