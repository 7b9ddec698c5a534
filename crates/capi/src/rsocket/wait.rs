//! Threads that wait for sockets.
//!
//! A thread sleeps on the descriptors of what it waits for, and on one of its own. By that it hears of what another thread
//! has found: whoever takes completions or an event of a socket wakes all who wait there, so that they look again, and
//! ask for events again.
//!
//! What they wait for is a socket's state behind its lock, of a stream or of datagrams: [`Progress`].

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ferroce::Context;

use crate::context::lock;
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
fn sleep(list: &mut [libc::pollfd], deadline: Option<Instant>) -> Result<()> {
    let timeout = deadline.map_or(-1, |deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up: who wakes too early would spin for the rest.
        c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
    });
    // SAFETY: a list of ours.
    let ready = unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, timeout) };
    if ready < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// Waits until a descriptor of the system's is ready.
pub(super) fn sleep_on(fd: RawFd, events: i16) -> Result<()> {
    sleep(&mut [interest(fd, events)], None)
}

/// Threads that wait for a socket, and how often they had reason to wake up.
#[derive(Default)]
pub(super) struct Waiters {
    threads: Vec<Arc<Waker>>,
    changes: Cell<u64>,
}

impl Waiters {
    pub(super) fn enter(&mut self, waker: &Arc<Waker>) {
        self.threads.push(Arc::clone(waker));
    }

    pub(super) fn leave(&mut self, waker: &Arc<Waker>) {
        if let Some(place) = self.threads.iter().position(|one| Arc::ptr_eq(one, waker)) {
            self.threads.swap_remove(place);
        }
    }

    pub(super) fn wake(&self) {
        self.changes.set(self.changes.get().wrapping_add(1));
        self.threads.iter().for_each(|waiter| waiter.wake());
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }
}

/// What a thread sleeps on: descriptors, and the devices behind them.
pub(super) struct Sources {
    list: Vec<libc::pollfd>,
    contexts: Vec<Context>,
}

impl Sources {
    /// These, of the system's own.
    pub(super) fn new(list: Vec<libc::pollfd>) -> Self {
        Self { list, contexts: Vec::new() }
    }

    /// Events of completions of this device's.
    pub(super) fn add(&mut self, fd: RawFd, context: &Context) {
        self.list.push(interest(fd, libc::POLLIN));
        self.contexts.push(context.clone());
    }

    /// Sleeps, and leaves packets to the devices' own threads meanwhile.
    pub(super) fn sleep(&mut self, deadline: Option<Instant>) -> Result<()> {
        self.contexts.iter().for_each(Context::stop_polling);
        sleep(&mut self.list, deadline)
    }
}

/// The state of a socket, as who waits for it sees it.
pub(super) trait Progress {
    /// Looks at what has completed.
    fn progress(&mut self);

    /// What poll(2) says of a socket in this state.
    fn readiness(&mut self) -> i16;

    /// Counts what may have changed its readiness: what completed, connections that came and went.
    fn changes(&self) -> u64;

    /// Whether something may complete at any moment: it is looked for a while before a thread sleeps.
    fn is_live(&self) -> bool;

    /// Asks for an event on the next completion: true if that is new, and one has to look once more.
    fn arm(&mut self) -> bool;

    /// A thread waits for it from now on, and sleeps on these.
    fn enter(&mut self, waker: &Arc<Waker>, sources: &mut Sources);

    /// It does no longer.
    fn leave(&mut self, waker: &Arc<Waker>);
}

/// Waits until the test has a result, or says `EAGAIN` where that is not wanted. `ETIMEDOUT` after the deadline.
pub(super) fn until<S: Progress, T>(
    place: &Mutex<S>,
    wait: bool,
    deadline: Option<Instant>,
    mut test: impl FnMut(&mut S) -> Option<T>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let mut state = lock(place);
        state.progress();
        if let Some(result) = test(&mut state) {
            return Ok(result);
        }
        if !wait {
            return Err(Errno(libc::EAGAIN));
        }
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Err(Errno(libc::ETIMEDOUT));
        }
        if state.is_live() && now < start + LOOK {
            drop(state);
            std::thread::yield_now();
            continue;
        }
        if state.arm() {
            continue;
        }
        let waker = Waker::mine()?;
        let mut sources = Sources::new(vec![interest(waker.fd(), libc::POLLIN)]);
        state.enter(&waker, &mut sources);
        drop(state);
        // A signal's handler has run then: programs whose calls are to end by it use `rpoll`.
        let _ = sources.sleep(deadline);
        lock(place).leave(&waker);
        waker.clear();
    }
}
