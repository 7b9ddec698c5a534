//! Waiting for any of several descriptors, until a deadline.

use std::os::fd::{AsFd, AsRawFd};

use libc::c_short;

use crate::clock;
use crate::error::Error;
use crate::system::{check, errno};

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to receive.
    Read,
    /// Room to send.
    Write,
    /// Either.
    Both,
    /// Nothing for now: the entry keeps its place.
    Nothing,
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There is something to receive.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// It is in error, hung up, or was closed while it stood here.
    pub broken: bool,
}

/// A list of descriptors to wait for, kept between waits.
///
/// The few sockets of a device are best served by `poll`: no kernel object, and the list is the state.
#[derive(Debug, Default)]
pub struct Poller {
    entries: Vec<libc::pollfd>,
}

impl Poller {
    /// An empty list: waiting with it is waiting for the deadline.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a descriptor and returns its index. Keep it open while it is here: a closed one is reported as broken, and
    /// a descriptor that takes its number is waited for instead.
    pub fn watch(&mut self, what: &impl AsFd, interest: Interest) -> usize {
        let fd = what.as_fd().as_raw_fd();
        self.entries.push(libc::pollfd { fd, events: events(interest), revents: 0 });
        self.entries.len() - 1
    }

    /// Changes what an entry waits for. An index that `watch` did not return is ignored.
    pub fn set(&mut self, index: usize, interest: Interest) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.events = events(interest);
        }
    }

    /// Forgets all entries from this index on.
    pub fn truncate(&mut self, index: usize) {
        self.entries.truncate(index);
    }

    /// Forgets all descriptors.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Waits until one is ready or [`clock::now`] reaches the deadline, and returns how many are ready. Without a
    /// deadline it waits for ever; with one in the past it only looks.
    pub fn wait(&mut self, deadline: Option<u64>) -> Result<usize, Error> {
        loop {
            let timeout = deadline.map(|deadline| {
                let left = deadline.saturating_sub(clock::now());
                libc::timespec {
                    tv_sec: (left / 1_000_000_000) as libc::time_t,
                    tv_nsec: (left % 1_000_000_000) as libc::c_long,
                }
            });
            let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: the entries are as many as said, the timeout is null or a local, and no signal mask is given.
            let ready = check(unsafe {
                libc::ppoll(
                    self.entries.as_mut_ptr(),
                    self.entries.len() as libc::nfds_t,
                    timeout,
                    std::ptr::null(),
                )
            });
            match ready {
                Ok(ready) => return Ok(ready.unsigned_abs() as usize),
                Err(error) if errno(&error) == libc::EINTR => {}
                Err(error) => {
                    // What was seen in an earlier wait is not true of this one.
                    self.entries.iter_mut().for_each(|entry| entry.revents = 0);
                    return Err(Error::system("wait for sockets", error));
                }
            }
        }
    }

    /// What the last wait found of an entry.
    pub fn readiness(&self, index: usize) -> Readiness {
        let seen = self.entries.get(index).map_or(0, |entry| entry.revents);
        Readiness {
            readable: seen & libc::POLLIN != 0,
            writable: seen & libc::POLLOUT != 0,
            broken: seen & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0,
        }
    }
}

fn events(interest: Interest) -> c_short {
    match interest {
        Interest::Read => libc::POLLIN,
        Interest::Write => libc::POLLOUT,
        Interest::Both => libc::POLLIN | libc::POLLOUT,
        Interest::Nothing => 0,
    }
}
