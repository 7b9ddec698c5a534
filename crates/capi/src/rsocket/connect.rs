//! Sockets, and their way to a peer and back.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{sockaddr, socklen_t};

use super::datagram::Datagram;
use super::socket::{Phase, Socket};
use super::table::{self, Any};
use super::wire::Message;
use super::{epoll, service};
use crate::entry::{self, Errno, Result};
use crate::rdmacm::socket as address;

/// How long the end of a process may take, for what it has sent to arrive.
const PARTING: Duration = Duration::from_secs(2);

pub(crate) unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    entry::count(|| {
        let flags = kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
        let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        if !matches!(domain, libc::AF_INET | libc::AF_INET6) {
            return Err(Errno(libc::ENOTSUP));
        }
        match (kind & !flags, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Socket::new(domain, nonblocking)?.give(),
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
                Ok(Datagram::new(domain, nonblocking)?.give())
            }
            // librspreload then makes a socket of the system's.
            _ => Err(Errno(libc::ENOTSUP)),
        }
    })
}

/// An address of the program's, of this length.
///
/// # Safety
/// There are so many bytes, or it is null.
pub(super) unsafe fn read(from: *const sockaddr, length: socklen_t) -> Result<SocketAddr> {
    if (length as usize) < size_of::<libc::sockaddr_in>() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller says; it is long enough for a family.
    let is_v6 = unsafe { from.as_ref() }.is_some_and(|one| one.sa_family == libc::AF_INET6 as u16);
    if is_v6 && (length as usize) < size_of::<libc::sockaddr_in6>() {
        return Err(Errno::INVALID);
    }
    // SAFETY: long enough for its family.
    unsafe { address::read(from) }
}

/// Gives the program an address, as much of it as it has room for.
///
/// # Safety
/// The program's room, of the length that it says.
pub(super) unsafe fn give(
    family: c_int,
    found: Option<SocketAddr>,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> Result<()> {
    // SAFETY: as the caller says.
    let length = unsafe { entry::write(length) }?;
    let unknown = match family {
        libc::AF_INET6 => SocketAddr::from(([0u16; 8], 0)),
        _ => SocketAddr::from(([0u8; 4], 0)),
    };
    let found = found.unwrap_or(unknown);
    let whole = match found {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    let room = whole.min(*length as usize);
    if room > 0 {
        if to.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        let from = address::write(found);
        // SAFETY: as the caller says.
        unsafe { std::ptr::copy_nonoverlapping((&raw const from).cast(), to.cast::<u8>(), room) };
    }
    *length = whole as socklen_t;
    Ok(())
}

pub(crate) unsafe extern "C" fn rbind(
    number: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> c_int {
    entry::count(|| {
        match table::of(number)? {
            Any::Stream(socket) => {
                // SAFETY: the program's address.
                socket.id.bind(unsafe { read(to, length) }?)?;
                socket.change(|state| state.phase = Phase::Bound);
            }
            // SAFETY: the program's address.
            Any::Datagram(socket) => unsafe { socket.bind(to, length) }?,
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rlisten(number: c_int, backlog: c_int) -> c_int {
    entry::count(|| {
        let socket = Socket::of(number)?;
        // As many as the system's own listeners have at least, so that bursts are not refused.
        let backlog = usize::try_from(backlog).unwrap_or(0).max(128);
        match socket.state().phase {
            Phase::Listening => return Ok(0),
            Phase::New | Phase::Bound => {}
            _ => return Err(Errno::INVALID),
        }
        if socket.state().phase == Phase::New {
            let any: SocketAddr = match socket.family {
                libc::AF_INET6 => ([0u16; 8], 0).into(),
                _ => ([0u8; 4], 0).into(),
            };
            socket.id.bind(any)?;
        }
        socket.change(|state| (state.phase, state.backlog) = (Phase::Listening, backlog));
        let listens = service::add(&socket).and_then(|()| Ok(socket.id.listen(backlog)?));
        if listens.is_err() {
            socket.change(|state| state.phase = Phase::Bound);
        }
        listens.map(|()| 0)
    })
}

pub(crate) unsafe extern "C" fn raccept(
    number: c_int,
    peer: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    entry::count(|| {
        let socket = Socket::of(number)?;
        let nonblocking = socket.state().nonblocking;
        let accepted = socket.wait(!nonblocking, None, |state| match state.phase {
            Phase::Listening => state.queue.pop_front().map(Ok),
            _ => Some(Err(Errno(libc::EINVAL))),
        })??;
        if !peer.is_null() && !length.is_null() {
            let (_, from) = accepted.addresses();
            // SAFETY: the program's room.
            unsafe { give(accepted.family, from, peer, length) }?;
        }
        accepted.give()
    })
}

/// Starts on the way to the peer.
fn start(socket: &Arc<Socket>, to: SocketAddr) -> Result<()> {
    let before = socket.state().phase;
    match before {
        Phase::New | Phase::Bound => {}
        Phase::Opening => return Err(Errno(libc::EALREADY)),
        Phase::Connected { .. } => return Err(Errno(libc::EISCONN)),
        Phase::Listening => return Err(Errno(libc::EOPNOTSUPP)),
        // An id is good for one connection.
        Phase::Refused | Phase::Disconnected | Phase::Failed => return Err(Errno::INVALID),
    }
    socket.change(|state| state.phase = Phase::Opening);
    let wait = Duration::from_secs(1);
    let asked =
        service::add(socket).and_then(|()| Ok(socket.id.resolve_address(None, to, wait)?));
    if asked.is_err() {
        service::remove(&**socket);
        socket.change(|state| state.phase = before);
    }
    asked
}

pub(crate) unsafe extern "C" fn rconnect(
    number: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> c_int {
    entry::count(|| {
        let socket = match table::of(number)? {
            Any::Stream(socket) => socket,
            Any::Datagram(socket) => {
                // SAFETY: the program's address.
                unsafe { socket.connect(to, length) }?;
                return Ok(0);
            }
        };
        // SAFETY: the program's address.
        let to = unsafe { read(to, length) }?;
        if let Err(error) = start(&socket, to) {
            // A second call is how some programs ask how the first went.
            let again = error.0 == libc::EALREADY && !socket.state().nonblocking;
            if !again {
                return Err(error);
            }
        }
        let nonblocking = socket.state().nonblocking;
        let came = socket.wait(!nonblocking, None, |state| match state.phase {
            Phase::Opening => None,
            Phase::Connected { .. } => Some(Ok(())),
            _ => Some(Err(state.take_error().unwrap_or(Errno(libc::ECONNREFUSED)))),
        });
        match came {
            Err(Errno(libc::EAGAIN)) => Err(Errno(libc::EINPROGRESS)),
            Err(error) => Err(error),
            Ok(how) => how.map(|()| 0),
        }
    })
}

/// Ends one direction or both: the peer is told, and all that was sent has arrived when this returns.
fn shut(socket: &Socket, how: c_int, deadline: Option<Instant>) -> Result<()> {
    let message = {
        let mut state = socket.state();
        let Phase::Connected { readable, writable } = state.phase else {
            return match state.phase {
                Phase::Disconnected | Phase::Failed => Ok(()),
                _ => Err(Errno(libc::ENOTCONN)),
            };
        };
        let (readable, now) = match how {
            libc::SHUT_RDWR => (false, false),
            libc::SHUT_WR => (readable, false),
            libc::SHUT_RD => (false, writable),
            _ => return Err(Errno::INVALID),
        };
        state.phase = Phase::Connected { readable, writable: now };
        state.wake();
        match (readable, now) {
            (false, false) => Message::Disconnect,
            (true, false) if writable => Message::Shutdown,
            // Nothing that the peer would have to know; or it does.
            _ => return Ok(()),
        }
    };
    let mut told = false;
    let arrived = socket.wait(true, deadline, |state| {
        let connected = state.phase.is_connected();
        let link = state.link.as_mut().filter(|_| connected);
        let Some(link) = link else { return Some(Ok(())) };
        if !told {
            match link.control(message) {
                Ok(done) => told = done,
                Err(error) => return Some(Err(error)),
            }
        }
        (told && link.is_idle()).then_some(Ok(()))
    });
    if message == Message::Disconnect {
        socket.change(|state| {
            if state.phase.is_connected() {
                state.phase = Phase::Disconnected;
            }
        });
    }
    arrived?
}

pub(crate) unsafe extern "C" fn rshutdown(number: c_int, how: c_int) -> c_int {
    entry::count(|| {
        match table::of(number)? {
            Any::Stream(socket) => shut(&socket, how, None)?,
            Any::Datagram(socket) => socket.shut_down(how)?,
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rclose(number: c_int) -> c_int {
    entry::count(|| {
        if epoll::close(number) {
            return Ok(0);
        }
        match table::take(number)? {
            Any::Stream(socket) => close(&socket, None),
            Any::Datagram(socket) => socket.close(None),
        }
        Ok(0)
    })
}

fn close(socket: &Arc<Socket>, deadline: Option<Instant>) {
    // A connection that is over, or never was, has nothing to shut.
    let _ = shut(socket, libc::SHUT_RDWR, deadline);
    service::remove(&**socket);
    let waiting = socket.change(|state| {
        state.phase = Phase::Disconnected;
        std::mem::take(&mut state.queue)
    });
    for unaccepted in waiting {
        close(&unaccepted, deadline);
    }
    socket.id.close();
}

/// The process ends: what it has sent shall arrive, and peers hear of the end.
pub(crate) fn leave() {
    let deadline = Instant::now() + PARTING;
    for socket in table::all() {
        match socket {
            Any::Stream(socket) if socket.is_ours() => close(&socket, Some(deadline)),
            Any::Datagram(socket) if socket.is_ours() => socket.close(Some(deadline)),
            Any::Stream(_) | Any::Datagram(_) => {}
        }
    }
}

pub(crate) unsafe extern "C" fn rgetpeername(
    number: c_int,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    entry::count(|| {
        let socket = match table::of(number)? {
            Any::Stream(socket) => socket,
            Any::Datagram(socket) => {
                // SAFETY: the program's room.
                unsafe { socket.name(true, to, length) }?;
                return Ok(0);
            }
        };
        let (_, peer) = socket.addresses();
        if peer.is_none() {
            return Err(Errno(libc::ENOTCONN));
        }
        // SAFETY: the program's room.
        unsafe { give(socket.family, peer, to, length) }?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rgetsockname(
    number: c_int,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    entry::count(|| {
        let socket = match table::of(number)? {
            Any::Stream(socket) => socket,
            Any::Datagram(socket) => {
                // SAFETY: the program's room.
                unsafe { socket.name(false, to, length) }?;
                return Ok(0);
            }
        };
        let (local, _) = socket.addresses();
        // SAFETY: the program's room.
        unsafe { give(socket.family, local, to, length) }?;
        Ok(0)
    })
}
