//! Sending and receiving.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::connect::{give, read, rgetpeername};
use super::datagram::{Datagram, Received, mapped};
use super::link::SHORTEST;
use super::socket::{Phase, Socket, State};
use super::table::{self, Any};
use crate::context::lock;
use crate::entry::{self, Errno, Result};

/// For calls that return how many bytes, or −1 with `errno`.
fn size(body: impl FnOnce() -> Result<usize>) -> ssize_t {
    match entry::run(body) {
        Ok(bytes) => bytes as ssize_t,
        Err(error) => {
            error.set();
            -1
        }
    }
}

/// Whether a call waits.
fn waits(socket: &Socket, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT == 0 && !socket.state().nonblocking
}

/// Why nothing can be received, or sent, where there is no connection; `Ok` where there is or was one.
fn connection(state: &mut State) -> Option<Result<()>> {
    match state.phase {
        Phase::Opening => None,
        Phase::Connected { .. } | Phase::Disconnected => Some(Ok(())),
        Phase::Refused | Phase::Failed => Some(state.take_error().map_or(Ok(()), Err)),
        Phase::New | Phase::Bound | Phase::Listening => Some(Err(Errno(libc::ENOTCONN))),
    }
}

/// Receives what there is, and waits if there is nothing. 0 is the end of the stream.
fn receive_some(socket: &Socket, out: &mut [u8], wait: bool, peek: bool) -> Result<usize> {
    socket.wait(wait, None, |state| {
        // What came before the end, or a failure, comes first.
        if let Some(link) = state.link.as_mut().filter(|link| link.has_data()) {
            let received = link.receive(out, peek);
            let outcome = if state.phase.is_connected() { link.tell_room() } else { None };
            state.settle(outcome);
            return Some(Ok(received));
        }
        if state.phase.is_readable() {
            return None;
        }
        Some(connection(state)?.map(|()| 0))
    })?
}

fn receive(socket: &Socket, out: &mut [u8], flags: c_int) -> Result<usize> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    if out.is_empty() {
        return Ok(0);
    }
    let wait = waits(socket, flags);
    let (peek, all) = (flags & libc::MSG_PEEK != 0, flags & libc::MSG_WAITALL != 0);
    let _turn = lock(&socket.receiving);
    let mut done = 0;
    loop {
        match receive_some(socket, &mut out[done..], wait, peek) {
            Ok(0) => return Ok(done),
            Ok(received) => done += received,
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done),
        }
        if !all || peek || done == out.len() {
            return Ok(done);
        }
    }
}

/// Sends all of it, or as much as there is room for where that is not waited for.
fn send(socket: &Socket, bytes: &[u8], flags: c_int) -> Result<usize> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    let wait = waits(socket, flags);
    let _turn = lock(&socket.sending);
    let (mut done, mut longest) = (0, SHORTEST);
    // Even of nothing it is told whether it could be sent.
    while done < bytes.len() || done == 0 {
        let sent = socket.wait(wait, None, |state| {
            if state.phase.is_writable() {
                return send_some(state, &bytes[done..], &mut longest);
            }
            Some(match connection(state)? {
                // Shut by this side, or over.
                Ok(()) if state.phase.is_connected() => Err(Errno(libc::EPIPE)),
                Ok(()) => Err(Errno(libc::ECONNRESET)),
                Err(error) => Err(error),
            })
        });
        match sent.and_then(|sent| sent) {
            Ok(0) => break,
            Ok(sent) => done += sent,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn send_some(state: &mut State, bytes: &[u8], longest: &mut usize) -> Option<Result<usize>> {
    let link = state.link.as_mut()?;
    if let Some(done) = link.tell_maps() {
        if let Err(error) = done {
            return Some(Err(error));
        }
    } else {
        return None;
    }
    if bytes.is_empty() {
        return Some(Ok(0));
    }
    match link.send(bytes, longest) {
        Ok(0) => None,
        other => Some(other),
    }
}

/// # Safety
/// The program's memory.
unsafe fn room<'a>(buffer: *mut c_void, length: size_t) -> Result<&'a mut [u8]> {
    if length == 0 {
        return Ok(&mut []);
    }
    if buffer.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: as the caller says; no length is beyond what C allows.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length.min(isize::MAX as usize)) })
}

/// # Safety
/// The program's memory.
unsafe fn bytes<'a>(buffer: *const c_void, length: size_t) -> Result<&'a [u8]> {
    // SAFETY: as the caller says.
    unsafe { entry::list(buffer.cast::<u8>(), length.min(isize::MAX as usize)) }
        .map_err(|_| Errno(libc::EFAULT))
}

pub(crate) unsafe extern "C" fn rrecv(
    number: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    size(|| {
        let socket = table::of(number)?;
        // SAFETY: the program's memory.
        let out = unsafe { room(buffer, length) }?;
        match socket {
            Any::Stream(socket) => receive(&socket, out, flags),
            Any::Datagram(socket) => Ok(receive_datagram(&socket, &mut [out], flags)?.bytes),
        }
    })
}

/// A datagram that the program has received.
struct Taken {
    /// What the call returns.
    bytes: usize,
    cut: bool,
    from: Option<SocketAddr>,
}

/// Receives a datagram, as much of it as there is room for: the rest is lost, as recv(2) has it.
fn receive_datagram(socket: &Datagram, out: &mut [&mut [u8]], flags: c_int) -> Result<Taken> {
    let Some(Received { length, from }) = socket.receive(out, flags)? else {
        return Ok(Taken { bytes: 0, cut: false, from: None });
    };
    let room = out.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
    let whole = flags & libc::MSG_TRUNC != 0;
    let bytes = if whole { length } else { length.min(room) };
    // As a socket of its family has it.
    let from = if socket.family() == libc::AF_INET6 { mapped(from) } else { from };
    Ok(Taken { bytes, cut: length > room, from: Some(from) })
}

pub(crate) unsafe extern "C" fn rrecvfrom(
    number: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_length: *mut socklen_t,
) -> ssize_t {
    if let Some(Any::Datagram(socket)) = table::find(number) {
        return size(|| {
            // SAFETY: the program's memory.
            let out = unsafe { room(buffer, length) }?;
            let taken = receive_datagram(&socket, &mut [out], flags)?;
            if !from.is_null() {
                // SAFETY: the program's room.
                unsafe { give(socket.family(), taken.from, from, from_length) }?;
            }
            Ok(taken.bytes)
        });
    }
    // SAFETY: as the program says.
    let received = unsafe { rrecv(number, buffer, length, flags) };
    if received > 0 && !from.is_null() {
        // SAFETY: as the program says.
        unsafe { rgetpeername(number, from, from_length) };
    }
    received
}

pub(crate) unsafe extern "C" fn rread(
    number: c_int,
    buffer: *mut c_void,
    length: size_t,
) -> ssize_t {
    // SAFETY: as the program says.
    unsafe { rrecv(number, buffer, length, 0) }
}

/// # Safety
/// The program's list, with all that it points to.
unsafe fn receive_list(socket: &Socket, list: &[iovec], flags: c_int) -> Result<usize> {
    let mut done = 0;
    for one in list {
        // SAFETY: as the caller says.
        let out = unsafe { room(one.iov_base, one.iov_len) }?;
        let wanted = out.len();
        // Only for the first bytes is waited, unless all are wanted.
        let later = done > 0 && flags & libc::MSG_WAITALL == 0;
        let flags = if later { flags | libc::MSG_DONTWAIT } else { flags };
        match receive(socket, out, flags) {
            Ok(received) => done += received,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        // A look at the same bytes again would be none at the next.
        if done < wanted || flags & libc::MSG_PEEK != 0 && done > 0 {
            break;
        }
    }
    Ok(done)
}

/// # Safety
/// The program's list, with all that it points to.
unsafe fn rooms<'a>(list: &[iovec]) -> Result<Vec<&'a mut [u8]>> {
    // SAFETY: as the caller says.
    list.iter().map(|one| unsafe { room(one.iov_base, one.iov_len) }).collect()
}

pub(crate) unsafe extern "C" fn rreadv(number: c_int, list: *const iovec, count: c_int) -> ssize_t {
    size(|| {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        // SAFETY: the program's list.
        let list = unsafe { entry::list(list, count) }?;
        match table::of(number)? {
            // SAFETY: as above.
            Any::Stream(socket) => unsafe { receive_list(&socket, list, 0) },
            Any::Datagram(socket) => {
                // SAFETY: as above.
                let mut rooms = unsafe { rooms(list) }?;
                Ok(receive_datagram(&socket, &mut rooms, 0)?.bytes)
            }
        }
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
        let (received, family, from, cut) = match table::of(number)? {
            Any::Stream(socket) => {
                // SAFETY: as above.
                let received = unsafe { receive_list(&socket, list, flags) }?;
                (received, socket.family, socket.addresses().1, false)
            }
            Any::Datagram(socket) => {
                // SAFETY: as above.
                let mut rooms = unsafe { rooms(list) }?;
                let taken = receive_datagram(&socket, &mut rooms, flags)?;
                (taken.bytes, socket.family(), taken.from, taken.cut)
            }
        };
        message.msg_flags = if cut { libc::MSG_TRUNC } else { 0 };
        // There is never any ancillary data.
        message.msg_controllen = 0;
        if !message.msg_name.is_null() {
            let mut length = message.msg_namelen;
            // SAFETY: the program's room.
            unsafe { give(family, from, message.msg_name.cast(), &raw mut length) }?;
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
        let socket = table::of(number)?;
        // SAFETY: the program's memory.
        let bytes = unsafe { bytes(buffer, length) }?;
        match socket {
            Any::Stream(socket) => send(&socket, bytes, flags),
            Any::Datagram(socket) => socket.send(&[bytes], None, flags),
        }
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
        let socket = table::of(number)?;
        // SAFETY: the program's memory.
        let bytes = unsafe { bytes(buffer, length) }?;
        match socket {
            // The address is ignored, as Linux's TCP does. sockperf passes one; rdma-core says EISCONN.
            Any::Stream(socket) => send(&socket, bytes, flags),
            Any::Datagram(socket) => {
                // SAFETY: the program's address.
                let to = unsafe { receiver(to, to_length) }?;
                socket.send(&[bytes], to, flags)
            }
        }
    })
}

pub(crate) unsafe extern "C" fn rwrite(
    number: c_int,
    buffer: *const c_void,
    length: size_t,
) -> ssize_t {
    // SAFETY: as the program says.
    unsafe { rsend(number, buffer, length, 0) }
}

/// Whom a datagram is for, where the program says so.
///
/// # Safety
/// The program's address, of this length, or null.
unsafe fn receiver(to: *const sockaddr, length: socklen_t) -> Result<Option<SocketAddr>> {
    if to.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller says.
    unsafe { read(to, length) }.map(Some)
}

/// # Safety
/// The program's list, with all that it points to.
unsafe fn send_datagram(
    socket: &Arc<Datagram>,
    list: &[iovec],
    to: Option<SocketAddr>,
    flags: c_int,
) -> Result<usize> {
    // SAFETY: as the caller says.
    let parts = list.iter().map(|one| unsafe { bytes(one.iov_base, one.iov_len) });
    socket.send(&parts.collect::<Result<Vec<_>>>()?, to, flags)
}

/// # Safety
/// The program's list, with all that it points to.
unsafe fn send_list(socket: &Socket, list: &[iovec], flags: c_int) -> Result<usize> {
    /// As much is put together, to be few messages.
    const TOGETHER: usize = 1 << 16;
    let total = list.iter().fold(0usize, |sum, one| sum.saturating_add(one.iov_len));
    if list.len() > 1 && total <= TOGETHER {
        let mut all = Vec::with_capacity(total);
        for one in list {
            // SAFETY: as the caller says.
            all.extend_from_slice(unsafe { bytes(one.iov_base, one.iov_len) }?);
        }
        return send(socket, &all, flags);
    }
    let mut done = 0;
    for one in list {
        // SAFETY: as the caller says.
        match send(socket, unsafe { bytes(one.iov_base, one.iov_len) }?, flags) {
            Ok(sent) if sent < one.iov_len => return Ok(done + sent),
            Ok(sent) => done += sent,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

pub(crate) unsafe extern "C" fn rwritev(
    number: c_int,
    list: *const iovec,
    count: c_int,
) -> ssize_t {
    size(|| {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        // SAFETY: the program's list.
        let list = unsafe { entry::list(list, count) }?;
        match table::of(number)? {
            // SAFETY: as above.
            Any::Stream(socket) => unsafe { send_list(&socket, list, 0) },
            // SAFETY: as above.
            Any::Datagram(socket) => unsafe { send_datagram(&socket, list, None, 0) },
        }
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
        match table::of(number)? {
            // SAFETY: as above.
            Any::Stream(socket) => unsafe { send_list(&socket, list, flags) },
            Any::Datagram(socket) => {
                // SAFETY: the program's address.
                let to = unsafe { receiver(message.msg_name.cast(), message.msg_namelen) }?;
                // SAFETY: as above.
                unsafe { send_datagram(&socket, list, to, flags) }
            }
        }
    })
}
