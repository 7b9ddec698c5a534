//! Options and addresses of connections.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use libc::{sockaddr, socklen_t};

use crate::address::Address;
use crate::connect::{Connection, timeout};
use crate::{next, rdma};

/// setsockopt(2) of a connection. The kernel's socket validates the option and keeps its value. It is passed to the
/// rsocket as well, whose errors are ignored: it supports few options.
///
/// # Safety
/// The program's value.
pub(crate) unsafe fn set(
    connection: &Connection,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    // SAFETY: as the caller promises.
    let result = unsafe { next::setsockopt(fd, level, name, value, length) };
    if result < 0 {
        return result;
    }
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
            connection.receive_timeout.store(timeout(fd, name), Ordering::Relaxed);
        }
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
            connection.send_timeout.store(timeout(fd, name), Ordering::Relaxed);
        }
        _ => {
            // SAFETY: as the caller promises.
            unsafe { rdma::rsetsockopt(connection.rsocket, level, name, value, length) };
        }
    }
    result
}

/// getsockopt(2) of a connection.
///
/// # Safety
/// The program's buffer.
pub(crate) unsafe fn get(
    connection: &Connection,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let of_connection = matches!(
        (level, name),
        (libc::SOL_SOCKET, libc::SO_ERROR)
            | (libc::IPPROTO_TCP, libc::TCP_INFO | libc::TCP_MAXSEG | libc::TCP_CONGESTION)
    );
    if of_connection {
        // SAFETY: as the caller promises.
        let result = unsafe { rdma::rgetsockopt(connection.rsocket, level, name, value, length) };
        if result == 0 {
            return result;
        }
    }
    // SAFETY: as the caller promises.
    unsafe { next::getsockopt(fd, level, name, value, length) }
}

/// getsockname(2) and getpeername(2) of a connection.
///
/// # Safety
/// The program's buffer.
pub(crate) unsafe fn name(
    connection: &Connection,
    peer: bool,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if to.is_null() || length.is_null() {
        return next::fail(libc::EFAULT);
    }
    let (mut address, mut room) = Address::empty();
    let function = if peer { rdma::rgetpeername } else { rdma::rgetsockname };
    // SAFETY: a local variable.
    let result = unsafe { function(connection.rsocket, address.out(), &raw mut room) };
    if result == 0 {
        // SAFETY: as the caller promises.
        unsafe { address.give(connection.family, to, length) };
    }
    result
}
