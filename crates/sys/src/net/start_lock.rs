//! The start-up lock of an address: one process at a time claims a slot and binds its socket.
//!
//! Steering requires that sockets are bound in the order in which slots are claimed. Processes that start together (the
//! ranks of a parallel program) would mix the two orders, and every packet would have to be forwarded from then on. The
//! lock is a listening Unix socket with a fixed name. A process that finds it held connects to it; the connection breaks
//! when the lock is released, also if its holder crashes.
//!
//! The lock affects performance only: claims are exclusive without it, and it is skipped if another user has bound the
//! name.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen};

use crate::clock;
use crate::error::Error;
use crate::net::device_fd::DeviceFd;
use crate::net::unix_diag;
use crate::net::unix_name::{self, belongs_to_this_user};
use crate::poll::{Interest, Poller};

/// Timeout for acquiring the lock, in nanoseconds. The lock is held for microseconds; a process that was stopped while
/// holding it must not block others.
const ACQUIRE_TIMEOUT: u64 = 2_000_000_000;

/// Maximum number of processes that wait.
const BACKLOG: i32 = 256;

/// The start-up lock of an address, held until this is dropped.
#[derive(Debug)]
pub(crate) struct StartLock {
    _fd: DeviceFd,
}

/// The result of an attempt to acquire the lock.
enum Attempt {
    Acquired(StartLock),
    /// Another process holds it; this socket can wait for its release.
    Busy(DeviceFd),
}

const ACTION: &str = "open a Unix socket";

fn socket_address(name: &str) -> Result<SocketAddrUnix, Error> {
    unix_name::socket_address(name).map_err(|error| Error::system(ACTION, error))
}

fn name_of(address: SocketAddr) -> String {
    unix_name::prefix(address) + "lock"
}

impl StartLock {
    /// Acquires the lock, or returns `None` after 2 s, or immediately if another user has bound its name.
    pub(crate) fn acquire(address: SocketAddr) -> Result<Option<Self>, Error> {
        Self::acquire_until(address, clock::now() + ACQUIRE_TIMEOUT)
    }

    pub(crate) fn acquire_until(address: SocketAddr, deadline: u64) -> Result<Option<Self>, Error> {
        let text = name_of(address);
        let name = socket_address(&text)?;
        while clock::now() < deadline {
            let waiting = match Self::attempt(address)? {
                Attempt::Acquired(lock) => return Ok(Some(lock)),
                Attempt::Busy(waiting) => waiting,
            };
            let connected = connect(&waiting, &name);
            if !is_held_by_this_user(&text) {
                // It may have been released just now.
                match Self::attempt(address)? {
                    Attempt::Acquired(lock) => return Ok(Some(lock)),
                    Attempt::Busy(_) if !is_held_by_this_user(&text) => return Ok(None),
                    Attempt::Busy(_) => continue,
                }
            }
            if connected.is_ok() {
                let mut poller = Poller::new();
                poller.watch(&waiting.as_fd(), Interest::Read);
                poller.wait(Some(deadline))?;
            } else {
                // The holder does not listen yet, or has ended, or its backlog is full.
                std::thread::yield_now();
            }
        }
        Ok(None)
    }

    /// Acquires the lock if it is free.
    pub(crate) fn try_acquire(address: SocketAddr) -> Result<Option<Self>, Error> {
        Ok(match Self::attempt(address)? {
            Attempt::Acquired(lock) => Some(lock),
            Attempt::Busy(_) => None,
        })
    }

    fn attempt(address: SocketAddr) -> Result<Attempt, Error> {
        let fd = DeviceFd::socket(AddressFamily::UNIX, SocketType::STREAM, None)
            .map_err(|error| Error::system(ACTION, error))?;
        match bind(&fd, &socket_address(&name_of(address))?) {
            Ok(()) => {
                listen(&fd, BACKLOG).map_err(|error| Error::system(ACTION, error))?;
                Ok(Attempt::Acquired(Self { _fd: fd }))
            }
            Err(Errno::ADDRINUSE) => Ok(Attempt::Busy(fd)),
            Err(error) => Err(Error::system(ACTION, error)),
        }
    }
}

/// Whether a process of this user holds the lock. True if the table of sockets cannot be read.
fn is_held_by_this_user(name: &str) -> bool {
    unix_diag::named(name).map_or(true, |found| {
        found.iter().any(|socket| socket.name == name && belongs_to_this_user(socket))
    })
}
