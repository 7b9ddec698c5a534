//! One process at a time takes a slot of an address and binds its socket.
//!
//! Steering works as long as sockets are bound in the order in which slots were claimed. Processes that start together
//! (the ranks of a parallel program) would mix the two orders, and every packet would be forwarded from then on. The
//! lock is a listening Unix socket with a fixed name. A process that finds it taken connects to it, and the connection
//! breaks when the lock is free, however its owner ended.
//!
//! Only speed depends on it: claims are exclusive without it, and it is skipped where another user has taken the name.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use crate::clock;
use crate::error::Error;
use crate::net::device_fd::DeviceFd;
use crate::net::unix_diag;
use crate::net::unix_name::{self, is_ours};
use crate::poll::{Interest, Poller};
use crate::syscall::{check, errno};

/// How long to wait for others, in nanoseconds. The lock is held for microseconds; a process that was stopped while it
/// held the lock must not stop us.
const PATIENCE: u64 = 2_000_000_000;

/// How many may wait.
const BACKLOG: i32 = 256;

/// The start-up lock of an address, held until this is dropped.
#[derive(Debug)]
pub(crate) struct StartLock {
    _fd: DeviceFd,
}

/// What an attempt to take it led to.
enum Attempt {
    Taken(StartLock),
    /// Another process has it; this socket can wait for it.
    Busy(DeviceFd),
}

fn name_of(address: SocketAddr) -> String {
    unix_name::prefix(address) + "lock"
}

impl StartLock {
    /// Takes the lock; `None` after 2 s, or at once when another user has its name.
    pub(crate) fn acquire(address: SocketAddr) -> Result<Option<Self>, Error> {
        Self::acquire_until(address, clock::now() + PATIENCE)
    }

    pub(crate) fn acquire_until(address: SocketAddr, deadline: u64) -> Result<Option<Self>, Error> {
        let text = name_of(address);
        let (name, length) = unix_name::raw(&text);
        while clock::now() < deadline {
            let waiting = match Self::attempt(address)? {
                Attempt::Taken(lock) => return Ok(Some(lock)),
                Attempt::Busy(waiting) => waiting,
            };
            // SAFETY: the name is a local, as long as said.
            let connected = check(unsafe {
                libc::connect(waiting.as_raw_fd(), (&raw const name).cast(), length)
            });
            if !is_held_by_us(&text) {
                // Unless it has just become free.
                match Self::attempt(address)? {
                    Attempt::Taken(lock) => return Ok(Some(lock)),
                    Attempt::Busy(_) if !is_held_by_us(&text) => return Ok(None),
                    Attempt::Busy(_) => continue,
                }
            }
            if connected.is_ok() {
                let mut poller = Poller::new();
                poller.watch(&waiting.as_fd(), Interest::Read);
                poller.wait(Some(deadline))?;
            } else {
                // The owner is between two calls, or has ended, or very many wait.
                std::thread::yield_now();
            }
        }
        Ok(None)
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_acquire(address: SocketAddr) -> Result<Option<Self>, Error> {
        Ok(match Self::attempt(address)? {
            Attempt::Taken(lock) => Some(lock),
            Attempt::Busy(_) => None,
        })
    }

    fn attempt(address: SocketAddr) -> Result<Attempt, Error> {
        let failed = |error| Error::system("open a Unix socket", error);
        let fd = DeviceFd::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).map_err(failed)?;
        let (name, length) = unix_name::raw(&name_of(address));
        // SAFETY: the name is a local, as long as said.
        let bound = check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), length) });
        match bound {
            Ok(_) => {
                // SAFETY: the call takes no pointers.
                check(unsafe { libc::listen(fd.as_raw_fd(), BACKLOG) }).map_err(failed)?;
                Ok(Attempt::Taken(Self { _fd: fd }))
            }
            Err(error) if errno(&error) == libc::EADDRINUSE => Ok(Attempt::Busy(fd)),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Whether a process of this user holds the lock. If the table cannot be read, no other owner is assumed.
fn is_held_by_us(name: &str) -> bool {
    unix_diag::named(name)
        .map_or(true, |found| found.iter().any(|one| one.name == name && is_ours(one)))
}
