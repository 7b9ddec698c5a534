//! Sending and receiving on a connection.
//!
//! A call that waits polls, and does not use librdmacm's blocking calls: those continue to wait when a signal arrives.

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::sync::atomic::Ordering;

use libc::{iovec, msghdr, off_t, size_t, ssize_t};

use crate::connect::Connection;
use crate::next::{errno, set_errno};
use crate::{epoll, next, rdma};

/// Fails a call that returns a number of bytes.
fn fail(error: c_int) -> ssize_t {
    set_errno(error);
    -1
}

/// Whether an interrupted call is to be restarted: if all signal handlers of the program have `SA_RESTART`. It is not
/// known which of them has run.
pub(crate) fn signals_restart() -> bool {
    (1..=libc::SIGRTMAX()).all(|signal| {
        // SAFETY: all zeroes is a valid value, which the call overwrites.
        let mut action: libc::sigaction = unsafe { zeroed() };
        // SAFETY: a local structure; nothing is changed.
        let told = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
        told < 0
            || matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
            || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// Waits as a call on a blocking socket does. Fails with `EAGAIN` after the timeout of the socket, or with `EINTR`.
fn wait(connection: &Connection, events: i16, timeout: u32) -> Result<(), c_int> {
    let timeout = if timeout == 0 { -1 } else { c_int::try_from(timeout).unwrap_or(c_int::MAX) };
    loop {
        match rdma::wait(connection.rsocket, events, timeout) {
            Ok(0) => return Err(libc::EAGAIN),
            Ok(_) => return Ok(()),
            Err(libc::EINTR) if signals_restart() => {}
            Err(error) => return Err(error),
        }
    }
}

fn waits(connection: &Connection, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT == 0 && !connection.is_nonblocking()
}

/// Calls `receive` without blocking, and repeats it until there are bytes.
fn receive_with(
    connection: &Connection,
    flags: c_int,
    receive: impl Fn(c_int) -> ssize_t,
) -> ssize_t {
    if flags & libc::MSG_ERRQUEUE != 0 {
        return fail(libc::EAGAIN);
    }
    let before = errno();
    let waits = waits(connection, flags);
    let received = loop {
        let received = receive(flags | libc::MSG_DONTWAIT);
        if received >= 0 || errno() != libc::EAGAIN || !waits {
            break received;
        }
        let timeout = connection.receive_timeout.load(Ordering::Relaxed);
        if let Err(error) = wait(connection, libc::POLLIN, timeout) {
            break fail(error);
        }
    };
    if received >= 0 {
        set_errno(before);
    }
    connection.reads.fetch_add(1, Ordering::SeqCst);
    epoll::edge();
    received
}

/// recv(2).
///
/// # Safety
/// The program's buffer.
pub(crate) unsafe fn receive(
    connection: &Connection,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    let all = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0;
    let mut done = 0;
    loop {
        let (to, room) = (buffer.wrapping_byte_add(done), length - done);
        // SAFETY: as the caller promises.
        let received = receive_with(connection, flags & !libc::MSG_WAITALL, |flags| unsafe {
            rdma::rrecv(connection.rsocket, to, room, flags)
        });
        match usize::try_from(received) {
            Ok(bytes) => done += bytes,
            Err(_) if done == 0 => return received,
            Err(_) => return done as ssize_t,
        }
        if !all || received == 0 || done == length {
            return done as ssize_t;
        }
    }
}

/// recvmsg(2). Returns as soon as there are bytes, also with `MSG_WAITALL`.
///
/// # Safety
/// The program's structure.
pub(crate) unsafe fn receive_message(
    connection: &Connection,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the caller promises.
    receive_with(connection, flags, |flags| unsafe {
        rdma::rrecvmsg(connection.rsocket, message, flags)
    })
}

/// readv(2).
///
/// # Safety
/// The program's list.
pub(crate) unsafe fn receive_list(
    connection: &Connection,
    list: *const iovec,
    count: c_int,
) -> ssize_t {
    let Some(mut message) = message(list, count) else { return fail(libc::EINVAL) };
    // SAFETY: as the caller promises.
    unsafe { receive_message(connection, &raw mut message, 0) }
}

fn message(list: *const iovec, count: c_int) -> Option<msghdr> {
    // SAFETY: all zeroes is a valid, empty message.
    let mut message: msghdr = unsafe { zeroed() };
    message.msg_iov = list.cast_mut();
    message.msg_iovlen = usize::try_from(count).ok()?;
    Some(message)
}

/// Sends all parts. If it would block and must not, it returns the number of bytes sent.
///
/// # Safety
/// The parts are the program's memory.
unsafe fn send_parts(connection: &Connection, parts: &[iovec], flags: c_int) -> ssize_t {
    let before = errno();
    let total = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.iov_len));
    let total = total.min(isize::MAX as usize);
    let mut rest = parts.to_vec();
    let mut done = 0;
    let error = loop {
        if connection.is_shut() {
            break Some(libc::EPIPE);
        }
        // SAFETY: all zeroes is a valid, empty message.
        let mut message: msghdr = unsafe { zeroed() };
        message.msg_iov = rest.as_mut_ptr();
        message.msg_iovlen = rest.len();
        let flags = flags | libc::MSG_DONTWAIT;
        let sent = match &rest[..] {
            // SAFETY: as the caller promises.
            [one] => unsafe { rdma::rsend(connection.rsocket, one.iov_base, one.iov_len, flags) },
            // SAFETY: as the caller promises.
            _ => unsafe { rdma::rsendmsg(connection.rsocket, &raw const message, flags) },
        };
        let Ok(sent) = usize::try_from(sent) else {
            let error = errno();
            if error != libc::EAGAIN || !waits(connection, flags & !libc::MSG_DONTWAIT) {
                break Some(error);
            }
            let timeout = connection.send_timeout.load(Ordering::Relaxed);
            match wait(connection, libc::POLLOUT, timeout) {
                Ok(()) => continue,
                Err(error) => break Some(error),
            }
        };
        done += sent;
        if done >= total {
            break None;
        }
        advance(&mut rest, sent);
    };
    if done < total {
        connection.blocked_writes.fetch_add(1, Ordering::SeqCst);
        epoll::edge();
    }
    match error {
        Some(error) if done == 0 => {
            if error == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 {
                // SAFETY: the call takes no pointers.
                unsafe { libc::raise(libc::SIGPIPE) };
            }
            fail(error)
        }
        _ => {
            set_errno(before);
            done as ssize_t
        }
    }
}

/// Removes bytes from the front.
fn advance(parts: &mut Vec<iovec>, mut bytes: usize) {
    let whole = parts.iter().take_while(|part| {
        let fits = part.iov_len <= bytes;
        bytes -= if fits { part.iov_len } else { 0 };
        fits
    });
    let whole = whole.count();
    parts.drain(..whole);
    if let Some(first) = parts.first_mut() {
        first.iov_base = first.iov_base.wrapping_byte_add(bytes);
        first.iov_len -= bytes;
    }
}

/// send(2).
///
/// # Safety
/// The program's bytes.
pub(crate) unsafe fn send(
    connection: &Connection,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    let part = iovec { iov_base: buffer.cast_mut(), iov_len: length };
    // SAFETY: as the caller promises.
    unsafe { send_parts(connection, &[part], flags) }
}

/// writev(2), and sendmsg(2) of which only the list is used.
///
/// # Safety
/// The program's list.
pub(crate) unsafe fn send_list(
    connection: &Connection,
    list: *const iovec,
    count: usize,
    flags: c_int,
) -> ssize_t {
    let parts = match count {
        0 => &[],
        1..=1024 if !list.is_null() => {
            // SAFETY: as the caller promises.
            unsafe { std::slice::from_raw_parts(list, count) }
        }
        1..=1024 => return fail(libc::EFAULT),
        // IOV_MAX of Linux.
        _ => return fail(libc::EINVAL),
    };
    if parts.is_empty() {
        return 0;
    }
    // SAFETY: as the caller promises.
    unsafe { send_parts(connection, parts, flags) }
}

/// sendfile(2).
///
/// # Safety
/// The program's offset, or null.
pub(crate) unsafe fn send_file(
    connection: &Connection,
    file: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    const CHUNK: usize = 1 << 16;
    let start = if offset.is_null() {
        // SAFETY: the call takes no pointers.
        unsafe { libc::lseek(file, 0, libc::SEEK_CUR) }
    } else {
        // SAFETY: as the caller promises.
        unsafe { *offset }
    };
    if start < 0 {
        // The kernel requires a file that it can map, and such files are seekable.
        return fail(libc::EINVAL);
    }
    let mut buffer = vec![0u8; count.min(CHUNK)];
    let mut done = 0;
    let mut result = 0;
    while done < count {
        let room = (count - done).min(CHUNK);
        let at = start + done as off_t;
        // SAFETY: a local variable.
        let read = unsafe { libc::pread(file, buffer.as_mut_ptr().cast(), room, at) };
        if read <= 0 {
            result = read;
            break;
        }
        // SAFETY: a local buffer of this length.
        result = unsafe { send(connection, buffer.as_ptr().cast(), read as usize, 0) };
        if result < 0 {
            break;
        }
        done += result as usize;
        if result < read {
            break;
        }
    }
    if done == 0 && result < 0 {
        return -1;
    }
    let end = start + done as off_t;
    if offset.is_null() {
        // SAFETY: the call takes no pointers.
        unsafe { libc::lseek(file, end, libc::SEEK_SET) };
    } else {
        // SAFETY: as the caller promises.
        unsafe { *offset = end };
    }
    done as ssize_t
}

/// The number of bytes that can be received (`FIONREAD`).
pub(crate) fn readable_bytes(connection: &Connection) -> c_int {
    /// The default size of an rsocket's receive buffer.
    const MAX_BYTES: usize = 1 << 17;
    let mut buffer = vec![0u8; MAX_BYTES];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    let before = next::errno();
    // SAFETY: a local variable.
    let bytes =
        unsafe { rdma::rrecv(connection.rsocket, buffer.as_mut_ptr().cast(), MAX_BYTES, flags) };
    set_errno(before);
    c_int::try_from(bytes).unwrap_or(0).max(0)
}
