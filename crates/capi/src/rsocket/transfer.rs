//! Sending and receiving.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;

use ferroce_rsocket::{Socket, table};
use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::connect::rgetpeername;
use super::memory::{input, inputs, output, outputs, read_address, write_address};
use crate::entry::{self, Errno, Result};

/// Runs a call that returns a number of bytes, or −1 with `errno`.
fn size(body: impl FnOnce() -> Result<usize>) -> ssize_t {
    match entry::run(body) {
        Ok(bytes) => bytes as ssize_t,
        Err(error) => {
            error.set();
            -1
        }
    }
}

pub(crate) unsafe extern "C" fn rrecv(
    number: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    size(|| {
        let socket = table::get(number)?;
        // SAFETY: the program's buffer.
        let out = unsafe { output(buffer, length) }?;
        Ok(match socket {
            Socket::Stream(socket) => socket.receive(out, flags)?,
            Socket::Datagram(socket) => socket.receive(&mut [out], flags)?.bytes,
        })
    })
}

pub(crate) unsafe extern "C" fn rrecvfrom(
    number: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_length: *mut socklen_t,
) -> ssize_t {
    if let Some(Socket::Datagram(socket)) = table::find(number) {
        return size(|| {
            // SAFETY: the program's buffer.
            let out = unsafe { output(buffer, length) }?;
            let received = socket.receive(&mut [out], flags)?;
            if !from.is_null() {
                // SAFETY: the program's buffer.
                unsafe { write_address(socket.family(), received.from, from, from_length) }?;
            }
            Ok(received.bytes)
        });
    }
    // SAFETY: the program's arguments.
    let received = unsafe { rrecv(number, buffer, length, flags) };
    if received > 0 && !from.is_null() {
        // SAFETY: the program's arguments.
        unsafe { rgetpeername(number, from, from_length) };
    }
    received
}

pub(crate) unsafe extern "C" fn rread(
    number: c_int,
    buffer: *mut c_void,
    length: size_t,
) -> ssize_t {
    // SAFETY: the program's arguments.
    unsafe { rrecv(number, buffer, length, 0) }
}

pub(crate) unsafe extern "C" fn rreadv(number: c_int, list: *const iovec, count: c_int) -> ssize_t {
    size(|| {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        // SAFETY: the program's list.
        let mut out = unsafe { outputs(entry::list(list, count)?) }?;
        Ok(match table::get(number)? {
            Socket::Stream(socket) => socket.receive_vectored(&mut out, 0)?,
            Socket::Datagram(socket) => socket.receive(&mut out, 0)?.bytes,
        })
    })
}

pub(crate) unsafe extern "C" fn rrecvmsg(
    number: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    size(|| {
        // SAFETY: the program's structure.
        let message = unsafe { entry::write(message) }?;
        // SAFETY: the program's list.
        let list = unsafe { entry::list(message.msg_iov, message.msg_iovlen as usize) }?;
        let socket = table::get(number)?;
        // SAFETY: the buffers of the program's list.
        let mut out = unsafe { outputs(list) }?;
        let (received, from, truncated) = match &socket {
            Socket::Stream(socket) => {
                (socket.receive_vectored(&mut out, flags)?, socket.peer_address(), false)
            }
            Socket::Datagram(socket) => {
                let received = socket.receive(&mut out, flags)?;
                (received.bytes, received.from, received.truncated)
            }
        };
        message.msg_flags = if truncated { libc::MSG_TRUNC } else { 0 };
        // There is never any ancillary data.
        message.msg_controllen = 0;
        if !message.msg_name.is_null() {
            let mut length = message.msg_namelen;
            let name = message.msg_name.cast();
            // SAFETY: the program's buffer.
            unsafe { write_address(socket.family(), from, name, &raw mut length) }?;
            message.msg_namelen = length;
        }
        Ok(received)
    })
}

pub(crate) unsafe extern "C" fn rsend(
    number: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    size(|| {
        let socket = table::get(number)?;
        // SAFETY: the program's buffer.
        let bytes = unsafe { input(buffer, length) }?;
        Ok(match socket {
            Socket::Stream(socket) => socket.send(bytes, flags)?,
            Socket::Datagram(socket) => socket.send(&[bytes], None, flags)?,
        })
    })
}

pub(crate) unsafe extern "C" fn rsendto(
    number: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_length: socklen_t,
) -> ssize_t {
    size(|| {
        let socket = table::get(number)?;
        // SAFETY: the program's buffer.
        let bytes = unsafe { input(buffer, length) }?;
        Ok(match socket {
            // The address is ignored, as by Linux's TCP: sockperf passes one. rdma-core fails with EISCONN.
            Socket::Stream(socket) => socket.send(bytes, flags)?,
            Socket::Datagram(socket) => {
                // SAFETY: the program's address.
                let to = unsafe { destination(to, to_length) }?;
                socket.send(&[bytes], to, flags)?
            }
        })
    })
}

pub(crate) unsafe extern "C" fn rwrite(
    number: c_int,
    buffer: *const c_void,
    length: size_t,
) -> ssize_t {
    // SAFETY: the program's arguments.
    unsafe { rsend(number, buffer, length, 0) }
}

/// The destination of a datagram, if the program passed one.
///
/// # Safety
/// The address is the program's, with this length, or null.
unsafe fn destination(to: *const sockaddr, length: socklen_t) -> Result<Option<SocketAddr>> {
    if to.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    unsafe { read_address(to, length) }.map(Some)
}

pub(crate) unsafe extern "C" fn rwritev(
    number: c_int,
    list: *const iovec,
    count: c_int,
) -> ssize_t {
    size(|| {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        // SAFETY: the program's list.
        let parts = unsafe { inputs(entry::list(list, count)?) }?;
        Ok(match table::get(number)? {
            Socket::Stream(socket) => socket.send_vectored(&parts, 0)?,
            Socket::Datagram(socket) => socket.send(&parts, None, 0)?,
        })
    })
}

pub(crate) unsafe extern "C" fn rsendmsg(
    number: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    size(|| {
        // SAFETY: the program's structure.
        let message = unsafe { entry::read(message) }?;
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return Err(Errno(libc::ENOTSUP));
        }
        // SAFETY: the program's list.
        let list = unsafe { entry::list(message.msg_iov, message.msg_iovlen as usize) }?;
        let socket = table::get(number)?;
        // SAFETY: the buffers of the program's list.
        let parts = unsafe { inputs(list) }?;
        Ok(match socket {
            Socket::Stream(socket) => socket.send_vectored(&parts, flags)?,
            Socket::Datagram(socket) => {
                // SAFETY: the program's address.
                let to = unsafe { destination(message.msg_name.cast(), message.msg_namelen) }?;
                socket.send(&parts, to, flags)?
            }
        })
    })
}
