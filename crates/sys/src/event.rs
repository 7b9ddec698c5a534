//! A descriptor that becomes readable when told to: how one thread wakes another out of [`crate::Poller::wait`], and
//! what an application polls for completions.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::Error;
use crate::system::{check, check_length, errno};

/// An event: a counter in the kernel behind a file descriptor (`eventfd`).
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
}

impl Event {
    /// An event that [`Event::take`] resets, however often it was signalled before: for waking.
    pub fn new() -> Result<Self, Error> {
        Self::open(0)
    }

    /// An event from which each [`Event::take`] takes one signal: for counting, as a completion channel does.
    pub fn counting() -> Result<Self, Error> {
        Self::open(libc::EFD_SEMAPHORE)
    }

    fn open(flags: libc::c_int) -> Result<Self, Error> {
        // SAFETY: the call takes no pointers.
        let fd = check(unsafe { libc::eventfd(0, flags | libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
            .map_err(|error| Error::system("create an event", error))?;
        // SAFETY: the descriptor is new, so nobody else owns it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Makes it readable. Any thread may, at any time, also in a signal handler.
    pub fn signal(&self) -> Result<(), Error> {
        let one = 1u64;
        loop {
            // SAFETY: eight bytes of a local, as eventfd wants them.
            let written = check_length(unsafe {
                libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), size_of::<u64>())
            });
            return match written {
                Ok(_) => Ok(()),
                Err(error) => match errno(&error) {
                    libc::EINTR => continue,
                    // The counter is full, so the event is signalled.
                    libc::EAGAIN => Ok(()),
                    _ => Err(Error::system("signal an event", error)),
                },
            };
        }
    }

    /// Takes what was signalled: everything, or one signal of a counting event. Zero when nothing was.
    pub fn take(&self) -> Result<u64, Error> {
        let mut count = 0u64;
        loop {
            // SAFETY: eight bytes of a local, as eventfd gives them.
            let read = check_length(unsafe {
                libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>())
            });
            return match read {
                Ok(_) => Ok(count),
                Err(error) => match errno(&error) {
                    libc::EINTR => continue,
                    libc::EAGAIN => Ok(0),
                    _ => Err(Error::system("read an event", error)),
                },
            };
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> libc::c_int {
        self.fd.as_raw_fd()
    }
}
