//! Threads that wait for sockets.
//!
//! A thread sleeps on the descriptors of what it waits for, and on one of its own. By that it hears of what another thread
//! has found: whoever takes completions or an event of a socket wakes all who wait there, so that they look again, and
//! ask for events again.

use std::cell::RefCell;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::entry::{Errno, Result};

/// How long a thread looks again and again before it sleeps. Long enough for a peer that answers at once; rdma-core has
/// 10 µs, for devices that are faster than ours.
pub(super) const LOOK: Duration = Duration::from_micros(30);

/// Wakes a thread.
pub(super) struct Waker {
    event: OwnedFd,
    process: u32,
}

thread_local! {
    static MINE: RefCell<Option<Arc<Waker>>> = const { RefCell::new(None) };
}

impl Waker {
    fn new() -> Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: just made, and nobody else's.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { event, process: std::process::id() })
    }

    /// That of this thread.
    pub(super) fn mine() -> Result<Arc<Self>> {
        let process = std::process::id();
        let known = MINE.try_with(|mine| {
            let mut mine = mine.borrow_mut();
            match &*mine {
                // A child would share its parent's.
                Some(known) if known.process == process => Ok(Arc::clone(known)),
                _ => Ok(Arc::clone(mine.insert(Arc::new(Self::new()?)))),
            }
        });
        // A thread that ends has nothing of its own any more.
        known.unwrap_or_else(|_| Ok(Arc::new(Self::new()?)))
    }

    pub(super) fn wake(&self) {
        let one = 1u64;
        // SAFETY: 8 bytes of ours. It fails only when it is set already.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Forgets that it was woken.
    pub(super) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: 8 bytes of ours; it does not wait.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    pub(super) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

pub(super) fn interest(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Sleeps until one of these is ready, at most until the deadline. Signals end it with `EINTR`.
pub(super) fn sleep(list: &mut [libc::pollfd], deadline: Option<Instant>) -> Result<()> {
    let timeout = deadline.map_or(-1, |deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up: who wakes too early would spin for the rest.
        c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
    });
    // SAFETY: a list of ours.
    let ready = unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, timeout) };
    if ready < 0 { Err(Errno::last()) } else { Ok(()) }
}
