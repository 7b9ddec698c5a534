//! eventfd(2): a descriptor that becomes readable when it is signalled.
//!
//! One thread wakes another out of [`crate::Poller::wait`] with it, and applications poll it for completions.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, retry_on_intr, write};

use crate::error::Error;

/// A counter in the kernel behind a file descriptor.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
}

impl Event {
    /// Creates an event that [`Event::take`] resets, however often it was signalled: for wakeups.
    pub fn new() -> Result<Self, Error> {
        Self::open(EventfdFlags::empty())
    }

    /// Creates an event from which each [`Event::take`] takes one signal: for counting, as a completion channel does.
    pub fn counting() -> Result<Self, Error> {
        Self::open(EventfdFlags::SEMAPHORE)
    }

    fn open(flags: EventfdFlags) -> Result<Self, Error> {
        eventfd(0, flags | EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| Self { fd })
            .map_err(|error| Error::system("create an event", error))
    }

    /// Makes the descriptor readable. Safe to call from any thread and from a signal handler.
    pub fn signal(&self) -> Result<(), Error> {
        match retry_on_intr(|| write(&self.fd, &1u64.to_ne_bytes())) {
            // EAGAIN: the counter is at its maximum, so the event is signalled.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(Error::system("signal an event", error)),
        }
    }

    /// Takes the signals: all of them, or one from a counting event. Returns how many, zero if there are none.
    pub fn take(&self) -> Result<u64, Error> {
        let mut count = [0; 8];
        match retry_on_intr(|| read(&self.fd, &mut count)) {
            Ok(_) => Ok(u64::from_ne_bytes(count)),
            Err(Errno::AGAIN) => Ok(0),
            Err(error) => Err(Error::system("read an event", error)),
        }
    }
}

impl ferroce_sync::Wake for Event {
    fn wake(&self) {
        let _ = self.signal();
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
