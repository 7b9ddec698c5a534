//! A stream socket: its state, and the threads that wait for it.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Instant;

use ferroce::cm::{CmId, EventChannel, PortSpace};

use super::connection::{Connection, Outcome};
use super::options::StreamOptions;
use crate::error::{Errno, Result};
use crate::fcntl::FileFlags;
use crate::settings::Settings;
use crate::sync::lock;
use crate::wait::{self, Pollable, WaitSet, Waiters, Waker};

/// The phase of a stream's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    New,
    Bound,
    Listening,
    /// Connecting, or accepted and not established: the service thread continues it.
    Connecting,
    Connected {
        /// The peer may send more.
        readable: bool,
        /// This side may send more.
        writable: bool,
    },
    /// The connection was not established.
    Refused,
    /// The connection was established, and both sides ended it.
    Disconnected,
    /// The connection was established, and failed.
    Failed,
}

impl Phase {
    pub(crate) fn is_connected(self) -> bool {
        matches!(self, Self::Connected { .. })
    }

    pub(crate) fn is_readable(self) -> bool {
        matches!(self, Self::Connected { readable: true, .. })
    }

    pub(crate) fn is_writable(self) -> bool {
        matches!(self, Self::Connected { writable: true, .. })
    }
}

pub(crate) struct State {
    pub(crate) phase: Phase,
    /// The value of `SO_ERROR`.
    pub(crate) error: c_int,
    pub(crate) flags: FileFlags,
    pub(crate) settings: Settings,
    pub(crate) options: StreamOptions,
    pub(crate) connection: Option<Connection>,
    /// Of a listener: connections that the program has not accepted, and their maximum number.
    pub(crate) accept_queue: VecDeque<Arc<StreamSocket>>,
    pub(crate) backlog: usize,
    /// Of an accepted connection.
    pub(crate) listener: Weak<StreamSocket>,
    /// When the peer was last known to be reachable.
    pub(crate) last_heard: Instant,
    waiters: Waiters,
}

/// A stream socket (`SOCK_STREAM`).
pub struct StreamSocket {
    /// The program's descriptor, a duplicate made when the program gets the socket. librspreload opens a descriptor of
    /// its own first, and if ours were the lower of the two, its `select` would confuse them (rdma-core 44).
    descriptor: OnceLock<OwnedFd>,
    pub(crate) channel: EventChannel,
    pub(crate) id: CmId,
    family: c_int,
    process: u32,
    state: Mutex<State>,
    /// Held while sending and while receiving, so that the data of concurrent calls is not interleaved.
    pub(crate) sending: Mutex<()>,
    pub(crate) receiving: Mutex<()>,
}

impl StreamSocket {
    /// Creates a socket of the family `AF_INET` or `AF_INET6`.
    pub fn new(family: c_int, nonblocking: bool) -> Result<Arc<Self>> {
        let channel = EventChannel::from_env()?;
        let id = CmId::new(&channel, PortSpace::Tcp)?;
        let state = State::new(FileFlags::new(nonblocking), Settings::STREAM);
        Ok(Self::with_id(channel, id, family, state))
    }

    pub(crate) fn with_id(
        channel: EventChannel,
        id: CmId,
        family: c_int,
        state: State,
    ) -> Arc<Self> {
        Arc::new(Self {
            descriptor: OnceLock::new(),
            channel,
            id,
            family,
            process: std::process::id(),
            state: Mutex::new(state),
            sending: Mutex::new(()),
            receiving: Mutex::new(()),
        })
    }

    /// Returns the program's descriptor, which is opened by the first call.
    pub(crate) fn descriptor(&self) -> Result<RawFd> {
        let copy = self.channel.as_fd().try_clone_to_owned();
        let copy = copy.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EMFILE)))?;
        Ok(self.descriptor.get_or_init(|| copy).as_raw_fd())
    }

    /// The address family, `AF_INET` or `AF_INET6`.
    pub fn family(&self) -> c_int {
        self.family
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Changes the state, and wakes the threads that wait for the socket.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        state.wake();
        result
    }

    /// Waits for a condition: see [`wait::wait_until`].
    pub(crate) fn wait_until<T>(
        &self,
        wait: bool,
        deadline: Option<Instant>,
        test: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T> {
        wait::wait_until(&self.state, wait, deadline, test)
    }

    /// Whether a call with these flags waits.
    pub(crate) fn waits(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT == 0 && !self.state().flags.nonblocking
    }

    /// Whether this process created the socket: a forked child has copies of its parent's.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// The local address, once the socket is bound or connected.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// The peer's address, once the socket is connected.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.id.peer_address()
    }

    /// Performs a command of fcntl(2).
    pub fn control(&self, command: c_int, argument: c_int) -> Result<c_int> {
        self.state().flags.control(command, argument)
    }
}

impl State {
    pub(crate) fn new(flags: FileFlags, settings: Settings) -> Self {
        Self {
            phase: Phase::New,
            error: 0,
            flags,
            settings,
            options: StreamOptions::default(),
            connection: None,
            accept_queue: VecDeque::new(),
            backlog: 0,
            listener: Weak::new(),
            last_heard: Instant::now(),
            waiters: Waiters::default(),
        }
    }

    /// Enters the phase that follows from a change of the connection.
    pub(crate) fn apply(&mut self, outcome: Option<Outcome>) {
        match (outcome, self.phase) {
            (Some(Outcome::Shutdown), Phase::Connected { writable: true, .. }) => {
                self.phase = Phase::Connected { readable: false, writable: true };
            }
            (Some(Outcome::Shutdown | Outcome::Closed), _) => self.phase = Phase::Disconnected,
            (Some(Outcome::Failed(error)), _) => {
                self.phase = Phase::Failed;
                self.error = error;
            }
            (None, _) => {}
        }
    }

    /// Takes the pending error, which is reported once.
    pub(crate) fn take_error(&mut self) -> Option<Errno> {
        let error = std::mem::replace(&mut self.error, 0);
        (error != 0).then_some(Errno(error))
    }

    /// Wakes the threads that wait for the socket.
    pub(crate) fn wake(&self) {
        self.waiters.wake();
    }
}

impl Pollable for State {
    fn process_completions(&mut self) {
        let (true, Some(connection)) = (self.phase.is_connected(), &mut self.connection) else {
            return;
        };
        let (any, outcome) = connection.process_completions();
        if any {
            self.last_heard = Instant::now();
        }
        self.apply(outcome);
        if any || outcome.is_some() {
            self.wake();
        }
    }

    fn readiness(&mut self) -> i16 {
        let has_data = self.connection.as_ref().is_some_and(Connection::has_data);
        match self.phase {
            Phase::Connected { readable, writable } => {
                let input = has_data || !readable;
                let can_send = self.connection.as_mut().is_some_and(Connection::can_send);
                let output = !writable || can_send;
                (if input { libc::POLLIN } else { 0 })
                    | (if output { libc::POLLOUT } else { 0 })
                    | (if readable { 0 } else { libc::POLLRDHUP })
            }
            // Programs such as rstream take a hangup for the end of the data.
            Phase::Disconnected | Phase::Failed if has_data => libc::POLLIN | libc::POLLOUT,
            Phase::Disconnected => libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP | libc::POLLHUP,
            Phase::Refused | Phase::Failed => {
                libc::POLLIN | libc::POLLOUT | libc::POLLERR | libc::POLLHUP
            }
            Phase::Listening if !self.accept_queue.is_empty() => libc::POLLIN,
            Phase::New | Phase::Bound | Phase::Listening | Phase::Connecting => 0,
        }
    }

    fn change_count(&self) -> u64 {
        self.waiters.wakeups()
    }

    fn expects_completions(&self) -> bool {
        self.phase.is_connected()
    }

    fn arm(&mut self) -> bool {
        match &mut self.connection {
            Some(connection) if self.phase.is_connected() => connection.completions.arm(),
            _ => false,
        }
    }

    fn add_waiter(&mut self, waker: &Arc<Waker>, set: &mut WaitSet) {
        self.waiters.add(waker);
        if let Some(connection) = &self.connection {
            set.add(&connection.completions);
        }
    }

    fn remove_waiter(&mut self, waker: &Arc<Waker>) {
        self.waiters.remove(waker);
        let connection = self.connection.as_mut();
        if connection.is_some_and(|connection| connection.completions.take_event()) {
            self.wake();
        }
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
