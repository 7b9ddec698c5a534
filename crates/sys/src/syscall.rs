//! The few shapes that system calls have, each wrapped once.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_void, socklen_t};

/// What a system call returned, or the error it left behind.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for calls that count bytes.
pub(crate) fn check_length(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A number of the operating system's, as `errno` has it.
pub(crate) fn errno(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(0)
}

/// Opens a non-blocking socket that programs started from this one do not inherit.
///
/// By the system's own call: a library that puts itself before the C library's `socket`, to have it made of our devices, must
/// not have theirs.
pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_socket, family, kind, protocol) };
    let fd = check(fd as c_int)?;
    // SAFETY: the descriptor is new, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a socket option to a plain value: a number or one of the C structures.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: `value` lives through the call, and the length is its own.
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

/// Reads a socket option that is a C `int`.
pub(crate) fn int_option(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: both pointers are to locals, and the length is that of the value.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast::<c_void>(),
            &raw mut length,
        )
    })?;
    Ok(value)
}

/// A C structure of all zeroes, which is how the kernel's interfaces want unknown fields.
///
/// # Safety
/// All zeroes must be a value of `T`, as they are for every C structure of numbers and pointers.
pub(crate) unsafe fn zeroed<T>() -> T {
    // SAFETY: the caller's promise.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
