//! Opening, binding, listening, accepting, connecting, shutting down and closing.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use ferroce_rsocket::{DatagramSocket, Socket, StreamSocket, epoll, table};
use libc::{sockaddr, socklen_t};

use super::memory::{address_bytes, read_address, write_address};
use crate::entry::{self, Errno, Result};
use crate::fd::make_blocking;

/// Enters a socket into the table. The descriptor of a stream is put into blocking mode, as programs expect of a new
/// socket.
fn publish(socket: Socket) -> Result<c_int> {
    let is_stream = matches!(socket, Socket::Stream(_));
    let fd = table::insert(socket)?;
    if is_stream {
        // SAFETY: just opened, and not closed before this returns.
        make_blocking(unsafe { BorrowedFd::borrow_raw(fd) })?;
    }
    Ok(fd)
}

pub(crate) unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    entry::count(|| {
        let flags = kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
        let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        if !matches!(domain, libc::AF_INET | libc::AF_INET6) {
            return Err(Errno(libc::ENOTSUP));
        }
        // A bad `FERROCE_*` variable is reported here, before the first socket exists.
        ferroce::Options::from_env()?;
        publish(match (kind & !flags, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
                Socket::Stream(StreamSocket::new(domain, nonblocking)?)
            }
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
                Socket::Datagram(DatagramSocket::new(domain, nonblocking)?)
            }
            // librspreload then opens a socket of the kernel.
            _ => return Err(Errno(libc::ENOTSUP)),
        })
    })
}

pub(crate) unsafe extern "C" fn rbind(
    number: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> c_int {
    entry::count(|| {
        match table::get(number)? {
            // SAFETY: the program's address.
            Socket::Stream(socket) => socket.bind(unsafe { read_address(to, length) }?)?,
            // SAFETY: the program's address.
            Socket::Datagram(socket) => socket.bind(unsafe { address_bytes(to, length) }?)?,
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rlisten(number: c_int, backlog: c_int) -> c_int {
    entry::count(|| {
        table::stream(number)?.listen(usize::try_from(backlog).unwrap_or(0))?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn raccept(
    number: c_int,
    peer: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    entry::count(|| {
        let accepted = table::stream(number)?.accept()?;
        if !peer.is_null() && !length.is_null() {
            let (family, from) = (accepted.family(), accepted.peer_address());
            // SAFETY: the program's buffer.
            unsafe { write_address(family, from, peer, length) }?;
        }
        publish(Socket::Stream(accepted))
    })
}

pub(crate) unsafe extern "C" fn rconnect(
    number: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> c_int {
    entry::count(|| {
        match table::get(number)? {
            // SAFETY: the program's address.
            Socket::Stream(socket) => socket.connect(unsafe { read_address(to, length) }?)?,
            // SAFETY: the program's address.
            Socket::Datagram(socket) => socket.connect(unsafe { address_bytes(to, length) }?)?,
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rshutdown(number: c_int, how: c_int) -> c_int {
    entry::count(|| {
        match table::get(number)? {
            Socket::Stream(socket) => socket.shutdown(how)?,
            Socket::Datagram(socket) => socket.shutdown(how)?,
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rclose(number: c_int) -> c_int {
    entry::count(|| {
        if !epoll::close(number) {
            table::close(number)?;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rgetpeername(
    number: c_int,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    entry::count(|| {
        let socket = table::get(number)?;
        let peer = match &socket {
            Socket::Stream(socket) => socket.peer_address().ok_or(Errno(libc::ENOTCONN))?,
            Socket::Datagram(socket) => socket.peer_address()?,
        };
        // SAFETY: the program's buffer.
        unsafe { write_address(socket.family(), Some(peer), to, length) }?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rgetsockname(
    number: c_int,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    entry::count(|| {
        let socket = table::get(number)?;
        let local = match &socket {
            Socket::Stream(socket) => socket.local_address(),
            Socket::Datagram(socket) => Some(socket.local_address()?),
        };
        // SAFETY: the program's buffer.
        unsafe { write_address(socket.family(), local, to, length) }?;
        Ok(0)
    })
}
