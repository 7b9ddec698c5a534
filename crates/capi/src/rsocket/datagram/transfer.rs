//! Peers, sending and receiving.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use libc::{sockaddr, socklen_t};

use super::super::wait::sleep_on;
use super::socket::{Datagram, Received, State};
use super::wire::{Announcement, Kind, Source, plain};
use crate::entry::{Errno, Result};

impl Datagram {
    /// # Safety
    /// The program's address, of this length.
    pub(in super::super) unsafe fn bind(
        self: &Arc<Self>,
        to: *const sockaddr,
        length: socklen_t,
    ) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.udp.bind(to, length) }?;
        self.serve()
    }

    /// # Safety
    /// The program's address, of this length.
    pub(in super::super) unsafe fn connect(
        self: &Arc<Self>,
        to: *const sockaddr,
        length: socklen_t,
    ) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.udp.connect(to, length) }?;
        // To connect to no family is to have no peer (connect(2)).
        let peer = self.udp.peer().ok();
        self.has_peer(peer);
        let Some(peer) = peer else { return Ok(()) };
        let met = self.prepare().and_then(|local| self.state().meet(local, peer).map(drop));
        if met.is_err() {
            self.udp.disconnect();
            self.has_peer(None);
        }
        met
    }

    /// Its own address may have changed with the peer: one that leads there, or none in particular.
    fn has_peer(&self, peer: Option<SocketAddr>) {
        let mut state = self.state();
        (state.peer, state.local) = (peer, None);
    }

    /// Ends one direction or both, of one that has a peer. Nobody is told: there is no connection.
    pub(in super::super) fn shut_down(&self, how: c_int) -> Result<()> {
        let mut state = self.state();
        if state.peer.is_none() {
            return Err(Errno(libc::ENOTCONN));
        }
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno::INVALID),
        };
        state.readable &= !read;
        state.writable &= !write;
        state.wake();
        Ok(())
    }

    /// # Safety
    /// The program's room, of the length that it says.
    pub(in super::super) unsafe fn name(
        &self,
        peer: bool,
        to: *mut sockaddr,
        length: *mut socklen_t,
    ) -> Result<()> {
        let fd = self.udp.fd();
        // SAFETY: as the caller says; the system looks at it.
        let done = unsafe {
            if peer { libc::getpeername(fd, to, length) } else { libc::getsockname(fd, to, length) }
        };
        if done < 0 { Err(Errno::last()) } else { Ok(()) }
    }

    pub(in super::super) fn family(&self) -> c_int {
        self.udp.family()
    }

    fn waits(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT == 0 && !self.state().nonblocking
    }

    /// Receives a datagram into these parts, and waits if there is none. `None` after the end of what is to be read.
    pub(in super::super) fn receive(
        &self,
        out: &mut [&mut [u8]],
        flags: c_int,
    ) -> Result<Option<Received>> {
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if flags & libc::MSG_ERRQUEUE != 0 {
            return Err(Errno(libc::EAGAIN)); // There is never anything.
        }
        let (wait, peek) = (self.waits(flags), flags & libc::MSG_PEEK != 0);
        let patience = self.state().patience;
        let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        let received = self.wait(wait, deadline, |state| {
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
            // As socket(7) has it of `SO_RCVTIMEO`.
            Err(Errno(libc::ETIMEDOUT)) => Err(Errno(libc::EAGAIN)),
            received => received?,
        }
    }

    /// Sends these parts as a datagram, to the peer unless it is said to whom.
    pub(in super::super) fn send(
        self: &Arc<Self>,
        parts: &[&[u8]],
        to: Option<SocketAddr>,
        flags: c_int,
    ) -> Result<usize> {
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let peer = self.state().peer;
        let to = match to.map(plain).or(peer).ok_or(Errno(libc::EDESTADDRREQ))? {
            SocketAddr::V6(_) if self.family() == libc::AF_INET => {
                return Err(Errno(libc::EAFNOSUPPORT));
            }
            to => here(to),
        };
        let local = self.prepare()?;
        let length = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
        let wait = self.waits(flags);
        loop {
            let sent =
                self.wait(wait, None, |state| self.try_send(state, parts, length, local, to));
            match sent? {
                // The system's own buffer is full, which is emptied by the system.
                Err(Errno(libc::EAGAIN)) if wait => sleep_on(self.udp.fd(), libc::POLLOUT)?,
                sent => return sent.map(|()| length),
            }
        }
    }

    /// Sends it now. `None` when that has to wait.
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
        let (peer, queue) = match state.meet(local, to) {
            Ok(met) => met,
            Err(error) => return Some(Err(error)),
        };
        // send(2): it has to go in one piece, and cannot.
        if length > peer.longest {
            return Some(Err(Errno(libc::EMSGSIZE)));
        }
        let Some((address, number)) = peer.direct() else {
            let said = Announcement { kind: Kind::Data, queue_pair: queue.number().0 };
            let header = said.write(queue.local());
            return Some(self.udp.send(&with(&header, parts), to));
        };
        let header = Source(SocketAddr::new(queue.local(), local.port())).write();
        match queue.send(&with(&header, parts), address, number) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

fn with<'a>(header: &'a [u8], parts: &[&'a [u8]]) -> Vec<&'a [u8]> {
    std::iter::once(header).chain(parts.iter().copied()).collect()
}

/// To no address in particular is to this machine, as the system has it.
fn here(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => ([127, 0, 0, 1], v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            (std::net::Ipv6Addr::LOCALHOST, v6.port()).into()
        }
        to => to,
    }
}
