//! Descriptors that come and go: close(2), dup(2), fcntl(2), ioctl(2), fork(2).

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use crate::next::{self, errno, set_errno};
use crate::table::{self, Entry};
use crate::transfer;

impl Entry {
    fn add_descriptor(&self) {
        match self {
            Self::Connection(connection) => connection.add_descriptor(),
            Self::Listener(listener) => listener.add_descriptor(),
            // It is closed with its last reference.
            Self::Set(_) => {}
        }
    }

    fn remove_descriptor(&self) {
        match self {
            Self::Connection(connection) => connection.remove_descriptor(),
            Self::Listener(listener) => listener.remove_descriptor(),
            Self::Set(_) => {}
        }
    }
}

/// Removes a descriptor that is about to be closed from the table.
pub(crate) fn forget(fd: c_int) {
    if table::is_managed(fd) && table::is_this_process() {
        let before = errno();
        if let Some(entry) = table::set(fd, None) {
            entry.remove_descriptor();
        }
        set_errno(before);
    }
}

/// Adds the copy of a managed descriptor to the table.
fn copied(fd: c_int, to: c_int) {
    if !table::is_managed(fd) || !table::is_this_process() {
        return;
    }
    if let Some(entry) = table::get(fd) {
        entry.add_descriptor();
        table::set(to, Some(entry));
    }
}

/// close(2).
pub(crate) fn close(fd: c_int) -> c_int {
    forget(fd);
    // SAFETY: the call takes no pointers.
    unsafe { next::close(fd) }
}

/// close_range(2).
pub(crate) fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    /// `CLOSE_RANGE_CLOEXEC` of `linux/close_range.h`.
    const AT_EXEC: c_int = 4;
    if flags & AT_EXEC == 0 && first <= last && table::is_this_process() {
        table::managed(first as usize, last as usize).for_each(forget);
    }
    // SAFETY: the call takes no pointers.
    unsafe { next::close_range(first, last, flags) }
}

/// dup(2).
pub(crate) fn dup(fd: c_int) -> c_int {
    // SAFETY: the call takes no pointers.
    let copy = unsafe { next::dup(fd) };
    if copy >= 0 {
        copied(fd, copy);
    }
    copy
}

/// dup2(2), and dup3(2) with flags.
pub(crate) fn dup_to(fd: c_int, to: c_int, flags: Option<c_int>) -> c_int {
    // SAFETY: the calls take no pointers.
    let call = || unsafe {
        match flags {
            Some(flags) => next::dup3(fd, to, flags),
            None => next::dup2(fd, to),
        }
    };
    if fd == to {
        return call();
    }
    // SAFETY: the call takes no pointers.
    if unsafe { next::fcntl(fd, libc::F_GETFD, 0) } >= 0 {
        forget(to);
    }
    let copy = call();
    if copy >= 0 {
        copied(fd, copy);
    }
    copy
}

/// fcntl(2) of a managed descriptor.
pub(crate) fn control(entry: &Entry, fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: the program's argument.
    let result = unsafe { next::fcntl(fd, command, argument) };
    if result < 0 {
        return result;
    }
    let nonblocking = argument as c_int & libc::O_NONBLOCK != 0;
    match (command, entry) {
        (libc::F_DUPFD | libc::F_DUPFD_CLOEXEC, _) => copied(fd, result),
        (libc::F_SETFL, Entry::Connection(connection)) => connection.set_nonblocking(nonblocking),
        (libc::F_SETFL, Entry::Listener(listener)) => {
            listener.set_nonblocking(nonblocking);
            let flags = argument | c_long::from(libc::O_NONBLOCK);
            // SAFETY: the call takes no pointers.
            unsafe { next::fcntl(fd, libc::F_SETFL, flags) };
        }
        (libc::F_GETFL, Entry::Listener(listener)) if !listener.is_nonblocking() => {
            return result & !libc::O_NONBLOCK;
        }
        _ => {}
    }
    result
}

/// ioctl(2) of a managed descriptor.
///
/// # Safety
/// The program's argument.
pub(crate) unsafe fn device_control(
    entry: &Entry,
    fd: c_int,
    request: c_ulong,
    argument: *mut c_void,
) -> c_int {
    let number = argument.cast::<c_int>();
    match (request, entry) {
        (libc::FIONBIO, Entry::Connection(_) | Entry::Listener(_)) if !number.is_null() => {
            // SAFETY: the argument of this request is a number.
            let nonblocking = unsafe { number.read_unaligned() } != 0;
            let flags = control(entry, fd, libc::F_GETFL, 0) & !libc::O_NONBLOCK;
            let flags = if nonblocking { flags | libc::O_NONBLOCK } else { flags };
            control(entry, fd, libc::F_SETFL, flags.into()).min(0)
        }
        (libc::FIONREAD, Entry::Connection(connection)) if !number.is_null() => {
            // SAFETY: as above.
            unsafe { number.write_unaligned(transfer::readable_bytes(connection)) };
            0
        }
        (libc::TIOCOUTQ, Entry::Connection(_)) if !number.is_null() => {
            // librdmacm does not report the bytes in flight.
            // SAFETY: as above.
            unsafe { number.write_unaligned(0) };
            0
        }
        // SAFETY: as the caller promises.
        _ => unsafe { next::ioctl(fd, request, argument) },
    }
}

/// Before fork(2): closes the rsockets of listeners that this process has not waited on, so that a child can open them.
pub(crate) fn before_fork() {
    let before = errno();
    for fd in table::managed(0, usize::MAX) {
        if let Some(Entry::Listener(listener)) = table::get(fd) {
            listener.before_fork();
        }
    }
    set_errno(before);
}
