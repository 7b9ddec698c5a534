//! One process at a time takes its place at an address.
//!
//! Steering works as long as sockets are bound in the order in which slots were claimed. Processes that start together
//! (the ranks of a parallel program) would mix the two orders, and every packet would be forwarded from then on. So
//! both happen behind a door: a listening Unix socket with a name of its own. Who finds it taken connects to it, and
//! hears that it is free when the connection breaks, however the owner went.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::clock;
use crate::error::Error;
use crate::mailbox::{Name, name_of};
use crate::poll::{Interest, Poller};
use crate::system::{check, errno, socket};

/// How long to wait for others, in nanoseconds. Entering takes microseconds; a process that was stopped just then must
/// not stop us, and the worst that follows is forwarding.
const PATIENCE: u64 = 2_000_000_000;

/// How many may wait.
const CROWD: i32 = 256;

/// The door of an address, closed behind us until this is dropped.
#[derive(Debug)]
pub(crate) struct Door {
    _fd: OwnedFd,
}

impl Door {
    /// Enters, or after some time goes round it: `None`.
    pub(crate) fn enter(address: SocketAddr) -> Result<Option<Self>, Error> {
        let deadline = clock::now() + PATIENCE;
        let (name, length) = name_of(address, Name::Door);
        let failed = |error| Error::system("open a Unix socket", error);
        while clock::now() < deadline {
            let door = socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).map_err(failed)?;
            // SAFETY: the name is a local, as long as said.
            let bound =
                check(unsafe { libc::bind(door.as_raw_fd(), (&raw const name).cast(), length) });
            match bound {
                Ok(_) => {
                    // SAFETY: the call takes no pointers.
                    check(unsafe { libc::listen(door.as_raw_fd(), CROWD) }).map_err(failed)?;
                    return Ok(Some(Self { _fd: door }));
                }
                Err(error) if errno(&error) == libc::EADDRINUSE => {}
                Err(error) => return Err(failed(error)),
            }
            // SAFETY: as above.
            let waiting =
                check(unsafe { libc::connect(door.as_raw_fd(), (&raw const name).cast(), length) });
            if waiting.is_ok() {
                let mut poller = Poller::new();
                poller.watch(&door.as_fd(), Interest::Read);
                poller.wait(Some(deadline))?;
            } else {
                // The owner is between two calls, or has left, or very many wait.
                std::thread::yield_now();
            }
        }
        Ok(None)
    }
}
