//! The program's memory as slices, and its socket addresses.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;

use libc::{iovec, size_t, sockaddr, socklen_t};

use crate::entry::{self, Errno, Result};
use crate::socket_address;

/// A buffer to write to, or `EFAULT` for null.
///
/// # Safety
/// The buffer is the program's, with this length.
pub(super) unsafe fn output<'a>(buffer: *mut c_void, length: size_t) -> Result<&'a mut [u8]> {
    if length == 0 {
        return Ok(&mut []);
    }
    if buffer.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: as the caller promises; no length exceeds what C allows.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length.min(isize::MAX as usize)) })
}

/// A buffer to read, or `EFAULT` for null.
///
/// # Safety
/// The buffer is the program's, with this length.
pub(super) unsafe fn input<'a>(buffer: *const c_void, length: size_t) -> Result<&'a [u8]> {
    // SAFETY: as the caller promises.
    unsafe { entry::list(buffer.cast::<u8>(), length.min(isize::MAX as usize)) }
        .map_err(|_| Errno(libc::EFAULT))
}

/// The buffers of an I/O vector, to write to.
///
/// # Safety
/// The list is the program's, with the buffers it points to.
pub(super) unsafe fn outputs<'a>(list: &[iovec]) -> Result<Vec<&'a mut [u8]>> {
    // SAFETY: as the caller promises.
    list.iter().map(|part| unsafe { output(part.iov_base, part.iov_len) }).collect()
}

/// The buffers of an I/O vector, to read.
///
/// # Safety
/// The list is the program's, with the buffers it points to.
pub(super) unsafe fn inputs<'a>(list: &[iovec]) -> Result<Vec<&'a [u8]>> {
    // SAFETY: as the caller promises.
    list.iter().map(|part| unsafe { input(part.iov_base, part.iov_len) }).collect()
}

/// The bytes of a socket address, which the kernel is to check.
///
/// # Safety
/// The address is the program's, with this length.
pub(super) unsafe fn address_bytes<'a>(
    from: *const sockaddr,
    length: socklen_t,
) -> Result<&'a [u8]> {
    if c_int::try_from(length).is_err() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises.
    unsafe { input(from.cast(), length as usize) }
}

/// Reads a socket address of this length.
///
/// # Safety
/// The address is the program's, with this length, or null.
pub(super) unsafe fn read_address(from: *const sockaddr, length: socklen_t) -> Result<SocketAddr> {
    if (length as usize) < size_of::<libc::sockaddr_in>() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises; it is long enough for a family.
    let is_v6 =
        unsafe { from.as_ref() }.is_some_and(|from| from.sa_family == libc::AF_INET6 as u16);
    if is_v6 && (length as usize) < size_of::<libc::sockaddr_in6>() {
        return Err(Errno::INVALID);
    }
    // SAFETY: long enough for its family.
    unsafe { socket_address::read(from) }
}

/// Writes a socket address, truncated to the program's buffer, and its full length. `None` is the unspecified address.
///
/// # Safety
/// The buffer is the program's, with the length that `length` points to.
pub(super) unsafe fn write_address(
    family: c_int,
    found: Option<SocketAddr>,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> Result<()> {
    // SAFETY: as the caller promises.
    let length = unsafe { entry::write(length) }?;
    let unspecified = match family {
        libc::AF_INET6 => SocketAddr::from(([0u16; 8], 0)),
        _ => SocketAddr::from(([0u8; 4], 0)),
    };
    let found = found.unwrap_or(unspecified);
    let whole = match found {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    let copied = whole.min(*length as usize);
    if copied > 0 {
        if to.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        let from = socket_address::write(found);
        // SAFETY: as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping((&raw const from).cast(), to.cast::<u8>(), copied) };
    }
    *length = whole as socklen_t;
    Ok(())
}
