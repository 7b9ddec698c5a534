//! A set of descriptors that is one itself, readable while one of them is.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::Error;
use crate::system::check;

/// A set of descriptors behind one (`epoll`), for those that come and go while a thread waits: unlike
/// [`crate::Poller`], it does not keep what is closed meanwhile alive, so that a name that was claimed is free at once.
#[derive(Debug)]
pub struct Watch {
    fd: OwnedFd,
}

impl Watch {
    /// An empty set: it is never readable.
    pub fn new() -> Result<Self, Error> {
        // SAFETY: the call takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
            .map_err(|error| Error::system("create a set of descriptors", error))?;
        // SAFETY: the descriptor is new, so nobody else owns it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Adds a descriptor: the set is readable while there is something to receive from it.
    pub fn add(&self, what: &impl AsFd) -> Result<(), Error> {
        self.control(libc::EPOLL_CTL_ADD, what)
    }

    /// Removes a descriptor. Closing it does the same, unless a forked process has it open, too.
    pub fn remove(&self, what: &impl AsFd) -> Result<(), Error> {
        self.control(libc::EPOLL_CTL_DEL, what)
    }

    fn control(&self, operation: libc::c_int, what: &impl AsFd) -> Result<(), Error> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        let fd = what.as_fd().as_raw_fd();
        // SAFETY: the event is a local, which the kernel reads.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &raw mut event) })
            .map_err(|error| Error::system("change a set of descriptors", error))?;
        Ok(())
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
