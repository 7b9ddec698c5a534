//! A stream socket: how far it has come, and who waits for it.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

use ferroce::cm::{CmId, EventChannel, PortSpace};

use super::link::{Link, Outcome};
use super::options::Options;
use super::settings::Settings;
use super::table::{self, Any};
use super::wait::{self, Progress, Sources, Waiters, Waker};
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
    waiters: Waiters,
}

pub(super) struct Socket {
    /// The descriptor of its event channel.
    pub(super) events: RawFd,
    /// What the program calls it: a descriptor that is new at that time. librspreload makes one of its own first, and
    /// where ours is the lower of the two, its `select` takes one for the other (rdma-core 44).
    number: OnceLock<OwnedFd>,
    pub(super) channel: EventChannel,
    pub(super) id: CmId,
    pub(super) family: c_int,
    process: u32,
    state: Mutex<State>,
    /// Held by whoever sends or receives: what several threads send is not mixed.
    pub(super) sending: Mutex<()>,
    pub(super) receiving: Mutex<()>,
}

impl Socket {
    pub(super) fn new(family: c_int, nonblocking: bool) -> Result<Arc<Self>> {
        let channel = EventChannel::from_env()?;
        let id = CmId::new(&channel, PortSpace::Tcp)?;
        Self::with_id(channel, id, family, nonblocking, Settings::default())
    }

    pub(super) fn with_id(
        channel: EventChannel,
        id: CmId,
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
            waiters: Waiters::default(),
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
        table::insert(number, Any::Stream(Arc::clone(self)));
        Ok(number)
    }

    /// The program's socket, for calls that only streams have.
    pub(super) fn of(number: c_int) -> Result<Arc<Self>> {
        match table::of(number)? {
            Any::Stream(socket) => Ok(socket),
            Any::Datagram(_) => Err(Errno::UNSUPPORTED),
        }
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
        test: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T> {
        wait::until(&self.state, wait, deadline, test)
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

    /// Wakes all who wait for it.
    pub(super) fn wake(&self) {
        self.waiters.wake();
    }
}

impl Progress for State {
    fn progress(&mut self) {
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

    fn readiness(&mut self) -> i16 {
        let has_data = self.link.as_ref().is_some_and(|link| link.has_data());
        match self.phase {
            Phase::Connected { readable, writable } => {
                let input = has_data || !readable;
                let output = !writable || self.link.as_mut().is_some_and(|link| link.can_send());
                (if input { libc::POLLIN } else { 0 })
                    | (if output { libc::POLLOUT } else { 0 })
                    | (if readable { 0 } else { libc::POLLRDHUP })
            }
            // Programs take an end for the end of what there is to read: rstream does.
            Phase::Disconnected | Phase::Failed if has_data => libc::POLLIN | libc::POLLOUT,
            Phase::Disconnected => libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP | libc::POLLHUP,
            Phase::Refused | Phase::Failed => {
                libc::POLLIN | libc::POLLOUT | libc::POLLERR | libc::POLLHUP
            }
            Phase::Listening if !self.queue.is_empty() => libc::POLLIN,
            Phase::New | Phase::Bound | Phase::Listening | Phase::Opening => 0,
        }
    }

    fn changes(&self) -> u64 {
        self.waiters.changes()
    }

    fn is_live(&self) -> bool {
        self.phase.is_connected()
    }

    fn arm(&mut self) -> bool {
        match &mut self.link {
            Some(link) if self.phase.is_connected() => link.completions.arm(),
            _ => false,
        }
    }

    fn enter(&mut self, waker: &Arc<Waker>, sources: &mut Sources) {
        self.waiters.enter(waker);
        if let Some(link) = &self.link {
            sources.add(link.completions.event_fd(), link.completions.context());
        }
    }

    fn leave(&mut self, waker: &Arc<Waker>) {
        self.waiters.leave(waker);
        if self.link.as_mut().is_some_and(|link| link.completions.take_event()) {
            self.wake();
        }
    }
}
