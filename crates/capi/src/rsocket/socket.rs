//! A stream socket: how far it has come, and who waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Instant;

use ferroce::cm::{EventChannel, Id, PortSpace};

use super::link::{Link, Outcome};
use super::options::Options;
use super::settings::Settings;
use super::wait::{LOOK, Waker, interest, sleep};
use crate::context::{lock, make_blocking};
use crate::entry::{Errno, Result};

/// How far a socket has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Bound,
    Listening,
    /// On its way to a peer, or accepted and not ready: the service's thread sees to it.
    Opening,
    Connected {
        /// More may come from the peer.
        readable: bool,
        /// More may go there.
        writable: bool,
    },
    /// It did not come to be.
    Refused,
    /// It was, and both sides are through.
    Disconnected,
    /// It was, and something went wrong.
    Failed,
}

impl Phase {
    pub(super) fn is_connected(self) -> bool {
        matches!(self, Self::Connected { .. })
    }

    pub(super) fn is_readable(self) -> bool {
        matches!(self, Self::Connected { readable: true, .. })
    }

    pub(super) fn is_writable(self) -> bool {
        matches!(self, Self::Connected { writable: true, .. })
    }
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// What `SO_ERROR` tells.
    pub(super) error: c_int,
    pub(super) nonblocking: bool,
    pub(super) settings: Settings,
    pub(super) options: Options,
    pub(super) link: Option<Link>,
    /// Of a listener: connections that wait to be accepted by the program, and how many may.
    pub(super) queue: VecDeque<Arc<Socket>>,
    pub(super) backlog: usize,
    /// Of a connection that came by it.
    pub(super) listener: Weak<Socket>,
    /// When it was last known that the peer is there.
    pub(super) heard: Instant,
    waiters: Vec<Arc<Waker>>,
}

pub(super) struct Socket {
    /// The descriptor of its event channel.
    pub(super) events: RawFd,
    /// What the program calls it: a descriptor that is new at that time. librspreload makes one of its own first, and
    /// where ours is the lower of the two, its `select` takes one for the other (rdma-core 44).
    number: OnceLock<OwnedFd>,
    pub(super) channel: EventChannel,
    pub(super) id: Id,
    pub(super) family: c_int,
    process: u32,
    state: Mutex<State>,
    /// Held by whoever sends or receives: what several threads send is not mixed.
    pub(super) sending: Mutex<()>,
    pub(super) receiving: Mutex<()>,
}

/// Sockets that the program has, by their numbers.
static TABLE: RwLock<BTreeMap<RawFd, Arc<Socket>>> = RwLock::new(BTreeMap::new());

impl Socket {
    pub(super) fn new(family: c_int, nonblocking: bool) -> Result<Arc<Self>> {
        let channel = EventChannel::new()?;
        let id = Id::new(&channel, PortSpace::Tcp)?;
        Self::with_id(channel, id, family, nonblocking, Settings::default())
    }

    pub(super) fn with_id(
        channel: EventChannel,
        id: Id,
        family: c_int,
        nonblocking: bool,
        settings: Settings,
    ) -> Result<Arc<Self>> {
        let events = make_blocking(channel.as_fd())?;
        let number = OnceLock::new();
        let state = State {
            phase: Phase::New,
            error: 0,
            nonblocking,
            settings,
            options: Options::default(),
            link: None,
            queue: VecDeque::new(),
            backlog: 0,
            listener: Weak::new(),
            heard: Instant::now(),
            waiters: Vec::new(),
        };
        let (sending, receiving) = (Mutex::new(()), Mutex::new(()));
        let state = Mutex::new(state);
        let process = std::process::id();
        Ok(Arc::new(Self {
            events,
            number,
            channel,
            id,
            family,
            process,
            state,
            sending,
            receiving,
        }))
    }

    /// Gives it to the program.
    pub(super) fn give(self: &Arc<Self>) -> Result<c_int> {
        let copy = self.channel.as_fd().try_clone_to_owned();
        let copy = copy.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EMFILE)))?;
        let number = self.number.get_or_init(|| copy).as_raw_fd();
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(number, Arc::clone(self));
        Ok(number)
    }

    /// The program's socket.
    pub(super) fn of(number: c_int) -> Result<Arc<Self>> {
        Self::find(number).ok_or(Errno(libc::EBADF))
    }

    pub(super) fn find(number: c_int) -> Option<Arc<Self>> {
        let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&number).cloned()
    }

    /// Takes it back from the program.
    pub(super) fn take(number: c_int) -> Result<Arc<Self>> {
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(&number).ok_or(Errno(libc::EBADF))
    }

    /// All that the program has, for who cannot wait: none when somebody is at the table just now.
    pub(super) fn all() -> Vec<Arc<Self>> {
        let table = TABLE.try_read();
        table.map_or_else(|_| Vec::new(), |table| table.values().cloned().collect())
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Changes its state, and lets all know who wait for it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        state.wake();
        result
    }

    /// Waits until the test has a result, or says `EAGAIN` where that is not wanted. `ETIMEDOUT` after the deadline.
    pub(super) fn wait<T>(
        &self,
        wait: bool,
        deadline: Option<Instant>,
        mut test: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T> {
        let start = Instant::now();
        loop {
            let mut state = self.state();
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
            if state.phase.is_connected() && now < start + LOOK {
                drop(state);
                std::thread::yield_now();
                continue;
            }
            if state.arm() {
                continue;
            }
            let waker = Waker::mine()?;
            state.enter(&waker);
            let mut list = vec![interest(waker.fd(), libc::POLLIN)];
            let context = state.link.as_ref().map(|link| {
                list.push(interest(link.event_fd(), libc::POLLIN));
                link.context().clone()
            });
            drop(state);
            if let Some(context) = context {
                context.rest();
            }
            // A signal's handler has run then: programs whose calls are to end by it use `rpoll`.
            let _ = sleep(&mut list, deadline);
            self.state().leave(&waker);
            waker.clear();
        }
    }

    /// Whether this process made it: a child has copies of its parent's.
    pub(super) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Where it is, and where its peer.
    pub(super) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        (self.id.local_address(), self.id.peer_address())
    }
}

impl State {
    /// Looks at what has completed.
    pub(super) fn progress(&mut self) {
        let (true, Some(link)) = (self.phase.is_connected(), &mut self.link) else { return };
        let (any, outcome) = link.progress();
        if any {
            self.heard = Instant::now();
        }
        self.settle(outcome);
        if any || outcome.is_some() {
            self.wake();
        }
    }

    /// Takes note of how the connection stands.
    pub(super) fn settle(&mut self, outcome: Option<Outcome>) {
        match (outcome, self.phase) {
            (Some(Outcome::Shutdown), Phase::Connected { writable: true, .. }) => {
                self.phase = Phase::Connected { readable: false, writable: true };
            }
            (Some(Outcome::Shutdown | Outcome::Over), _) => self.phase = Phase::Disconnected,
            (Some(Outcome::Failed(error)), _) => {
                self.phase = Phase::Failed;
                self.error = error;
            }
            (None, _) => {}
        }
    }

    /// The error that waits to be told, which is told once.
    pub(super) fn take_error(&mut self) -> Option<Errno> {
        let error = std::mem::replace(&mut self.error, 0);
        (error != 0).then_some(Errno(error))
    }

    /// Asks for an event on the next completion: true if that is new, and one has to look once more.
    pub(super) fn arm(&mut self) -> bool {
        match &mut self.link {
            Some(link) if self.phase.is_connected() => link.arm(),
            _ => false,
        }
    }

    /// A thread waits for it from now on.
    pub(super) fn enter(&mut self, waker: &Arc<Waker>) {
        self.waiters.push(Arc::clone(waker));
    }

    /// It does no longer.
    pub(super) fn leave(&mut self, waker: &Arc<Waker>) {
        if let Some(place) = self.waiters.iter().position(|one| Arc::ptr_eq(one, waker)) {
            self.waiters.swap_remove(place);
        }
        if self.link.as_mut().is_some_and(Link::take_event) {
            self.wake();
        }
    }

    /// Wakes all who wait for it.
    pub(super) fn wake(&self) {
        self.waiters.iter().for_each(|waiter| waiter.wake());
    }
}
