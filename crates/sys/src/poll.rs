//! Waiting for any of several descriptors: ppoll(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::clock;
use crate::error::Error;

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data to receive.
    Read,
    /// Space to send.
    Write,
    /// Either.
    Both,
    /// Nothing for now; the entry keeps its index.
    Nothing,
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There is data to receive.
    pub readable: bool,
    /// There is space to send.
    pub writable: bool,
    /// It has an error, is hung up, or was closed while it was watched.
    pub broken: bool,
}

/// A list of descriptors to wait for, kept between waits.
///
/// poll(2) suits the few sockets of a device: it needs no kernel object, and the list is the only state.
#[derive(Debug, Default)]
pub struct Poller {
    entries: Vec<PollFd<'static>>,
}

impl Poller {
    /// Creates an empty list: a wait on it waits for the deadline.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a descriptor and returns its index. Keep it open while it is in the list: a closed one is reported as broken,
    /// and if its number is reused, the other file is waited for instead.
    pub fn watch(&mut self, what: &impl AsFd, interest: Interest) -> usize {
        // SAFETY: a descriptor is never -1. poll(2) only asks about it, and reports one that was closed since.
        let fd = unsafe { BorrowedFd::borrow_raw(what.as_fd().as_raw_fd()) };
        self.entries.push(PollFd::from_borrowed_fd(fd, flags(interest)));
        self.entries.len() - 1
    }

    /// Changes what an entry waits for. Ignores an index that `watch` did not return.
    pub fn set(&mut self, index: usize, interest: Interest) {
        if let Some(entry) = self.entries.get_mut(index) {
            // SAFETY: as in `watch`.
            let fd = unsafe { BorrowedFd::borrow_raw(entry.as_fd().as_raw_fd()) };
            *entry = PollFd::from_borrowed_fd(fd, flags(interest));
        }
    }

    /// Removes all entries from this index on.
    pub fn truncate(&mut self, index: usize) {
        self.entries.truncate(index);
    }

    /// Removes all descriptors.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Waits until a descriptor is ready or [`clock::now`] reaches the deadline, and returns how many are ready. Without
    /// a deadline it waits indefinitely; with one in the past it does not wait.
    pub fn wait(&mut self, deadline: Option<u64>) -> Result<usize, Error> {
        loop {
            let timeout = deadline.map(|deadline| {
                let left = deadline.saturating_sub(clock::now());
                Timespec {
                    tv_sec: (left / 1_000_000_000) as i64,
                    tv_nsec: (left % 1_000_000_000) as _,
                }
            });
            match rustix::event::poll(&mut self.entries, timeout.as_ref()) {
                Ok(ready) => return Ok(ready),
                Err(Errno::INTR) => {}
                Err(error) => {
                    // The results of an earlier wait do not hold for this one.
                    self.entries.iter_mut().for_each(PollFd::clear_revents);
                    return Err(Error::system("wait for sockets", error));
                }
            }
        }
    }

    /// The result of the last wait for an entry.
    pub fn readiness(&self, index: usize) -> Readiness {
        let found = self.entries.get(index).map_or(PollFlags::empty(), PollFd::revents);
        Readiness {
            readable: found.contains(PollFlags::IN),
            writable: found.contains(PollFlags::OUT),
            broken: found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
        }
    }
}

fn flags(interest: Interest) -> PollFlags {
    match interest {
        Interest::Read => PollFlags::IN,
        Interest::Write => PollFlags::OUT,
        Interest::Both => PollFlags::IN | PollFlags::OUT,
        Interest::Nothing => PollFlags::empty(),
    }
}

/// An entry of [`poll_numbers`]: `struct pollfd`.
pub type PollEntry = libc::pollfd;

/// Polls descriptors that the caller knows by number, and returns how many are ready.
///
/// As poll(2): entries with a negative number are ignored, a number that is not open is reported as `POLLNVAL`, and a
/// signal handler ends the call with `EINTR`. `None` waits without a timeout, zero does not wait. Nothing is rounded to
/// milliseconds.
pub fn poll_numbers(list: &mut [PollEntry], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    let asked = list.iter().filter(|entry| entry.fd >= 0).map(|entry| {
        // SAFETY: not -1. The kernel checks the number, and poll(2) neither reads, writes nor closes it.
        let fd = unsafe { BorrowedFd::borrow_raw(entry.fd) };
        PollFd::from_borrowed_fd(fd, PollFlags::from_bits_retain(entry.events as _))
    });
    let mut asked: Vec<_> = asked.collect();
    let ready = rustix::event::poll(&mut asked, timeout.as_ref())?;
    let mut asked = asked.iter();
    for entry in list {
        let found = if entry.fd < 0 { None } else { asked.next() };
        entry.revents = found.map_or(0, |found| found.revents().bits() as i16);
    }
    Ok(ready)
}

#[cfg(test)]
mod tests;
