//! Helpers for the system calls that rustix does not have, made through libc.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libc::{c_int, c_void, socklen_t};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType};

/// Returns the result of a system call, or `errno` if it is negative.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// As [`check`], for calls that return a number of bytes.
pub(crate) fn check_length(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The error number, or 0.
pub(crate) fn errno(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(0)
}

/// Opens a non-blocking socket that is closed on exec.
pub(crate) fn socket(
    family: AddressFamily,
    kind: SocketType,
    protocol: Option<Protocol>,
) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, kind, flags, protocol)?)
}

/// Sets a socket option that rustix does not have to a plain value: a number or a C structure.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: `value` outlives the call, and the length is its size.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast::<c_void>(),
            size_of::<T>() as socklen_t,
        )
    })
    .map(drop)
}

/// A C structure of all zeroes, as the kernel requires of fields that the caller does not know.
///
/// # Safety
/// All zeroes must be a value of `T`, as they are for every C structure of numbers and pointers.
pub(crate) unsafe fn zeroed<T>() -> T {
    // SAFETY: the caller's promise.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
