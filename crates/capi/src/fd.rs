//! File descriptors that programs see: their blocking mode, waiting for input, and the identity of the file behind one.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::entry::{Errno, Next, Result};

/// Clears `O_NONBLOCK`: programs expect reads of a new descriptor to block.
pub(crate) fn make_blocking(fd: BorrowedFd<'_>) -> Result<c_int> {
    let fd = fd.as_raw_fd();
    // SAFETY: the calls take no pointers.
    let done = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK)
    };
    if done < 0 { Err(Errno::last()) } else { Ok(fd) }
}

/// Whether reads of a descriptor block.
pub(crate) fn is_blocking(fd: c_int) -> bool {
    // SAFETY: the call takes no pointers.
    unsafe { libc::fcntl(fd, libc::F_GETFL) & libc::O_NONBLOCK == 0 }
}

/// Requests a wait until the descriptor is readable, or fails with `EAGAIN` if the program made it non-blocking.
pub(crate) fn until_readable(fd: c_int) -> Result<Next> {
    // SAFETY: the call takes no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 || flags & libc::O_NONBLOCK != 0 {
        return Err(Errno(if flags < 0 { libc::EBADF } else { libc::EAGAIN }));
    }
    Ok(Next::Readable(fd))
}

/// Blocks until the descriptor is readable, under the conditions of [`until_readable`]. Not a cancellation point.
pub(crate) fn wait_readable(fd: c_int) -> Result<()> {
    until_readable(fd)?;
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, owned by this frame.
    let ready = unsafe { libc::poll(&raw mut entry, 1, -1) };
    if ready < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// Identity of a file: device and inode number.
pub(crate) type FileId = (u64, u64);

/// Returns the identity of the file that a descriptor refers to.
pub(crate) fn file_id(fd: c_int) -> Result<FileId> {
    // SAFETY: all zeroes is a valid value of the structure.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is owned by this frame.
    if unsafe { libc::fstat(fd, &raw mut status) } < 0 {
        return Err(Errno::last());
    }
    Ok((status.st_dev, status.st_ino))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_nonblocking_descriptor_is_not_waited_for() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let fd = one.as_raw_fd();
        assert!(is_blocking(fd));
        assert_eq!(until_readable(fd), Ok(Next::Readable(fd)));
        one.set_nonblocking(true).unwrap();
        assert!(!is_blocking(fd));
        assert_eq!(until_readable(fd), Err(Errno(libc::EAGAIN)));
        assert_eq!(make_blocking(one.as_fd()), Ok(fd));
        assert!(is_blocking(fd));
        assert_eq!(until_readable(-1), Err(Errno(libc::EBADF)));
    }

    #[test]
    fn copies_of_a_descriptor_have_the_same_file_id() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let copy = file.try_clone().unwrap();
        let other = std::fs::File::open("/dev/zero").unwrap();
        let id = |file: &std::fs::File| file_id(file.as_raw_fd()).unwrap();
        assert_eq!(id(&file), id(&copy));
        assert_ne!(id(&file), id(&other));
        assert!(file_id(-1).is_err());
    }
}
