//! A datagram socket: its queue pairs, its peers, and what has come.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::super::options::Options;
use super::super::service;
use super::super::settings::Settings;
use super::super::table::{self, Any};
use super::super::wait::{self, Progress, Sources, Waiters, Waker};
use super::peers::{Peer, Peers};
use super::queue::{PLACE, Place, Queue, Route};
use super::udp::Udp;
use super::wire::most_bytes;
use crate::context::lock;
use crate::entry::{Errno, Result};

/// A datagram that the program has not read.
struct Arrived {
    from: SocketAddr,
    data: Bytes,
}

/// Where it is.
enum Bytes {
    /// Where the device put it, in this queue.
    Placed(usize, Place),
    /// It came by UDP.
    Held(Vec<u8>),
}

/// What the program is told of a datagram.
pub(in super::super) struct Received {
    /// Its bytes, which may be more than were copied.
    pub(in super::super) length: usize,
    pub(in super::super) from: SocketAddr,
}

pub(in super::super) struct State {
    pub(in super::super) nonblocking: bool,
    pub(in super::super) options: Options,
    pub(super) settings: Settings,
    /// How long a receive waits (`SO_RCVTIMEO`).
    pub(super) patience: Option<Duration>,
    /// Where it is, once that is known.
    pub(super) local: Option<SocketAddr>,
    /// The one that it is connected to.
    pub(super) peer: Option<SocketAddr>,
    /// What `SO_ERROR` tells.
    pub(super) error: c_int,
    /// `rshutdown` was not called for these.
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// It is the program's no more.
    closed: bool,
    /// The service's thread sees to it.
    served: bool,
    queues: Vec<Queue>,
    peers: Peers,
    arrived: VecDeque<Arrived>,
    /// Of these, so many came by UDP.
    held: usize,
    waiters: Waiters,
}

pub(in super::super) struct Datagram {
    /// Its descriptor is what the program calls the socket.
    pub(super) udp: Udp,
    process: u32,
    state: Mutex<State>,
}

impl Datagram {
    pub(in super::super) fn new(family: c_int, nonblocking: bool) -> Result<Arc<Self>> {
        let state = State {
            nonblocking,
            options: Options::default(),
            settings: Settings::default(),
            patience: None,
            local: None,
            peer: None,
            error: 0,
            readable: true,
            writable: true,
            closed: false,
            served: false,
            queues: Vec::new(),
            peers: Peers::default(),
            arrived: VecDeque::new(),
            held: 0,
            waiters: Waiters::default(),
        };
        let process = std::process::id();
        Ok(Arc::new(Self { udp: Udp::new(family)?, process, state: Mutex::new(state) }))
    }

    /// Gives it to the program.
    pub(in super::super) fn give(self: &Arc<Self>) -> c_int {
        table::insert(self.udp.fd(), Any::Datagram(Arc::clone(self)));
        self.udp.fd()
    }

    pub(in super::super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// As [`wait::until`].
    pub(super) fn wait<T>(
        &self,
        wait: bool,
        deadline: Option<Instant>,
        test: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T> {
        wait::until(&self.state, wait, deadline, test)
    }

    /// Sees to it that it has a port, and that what comes to it is seen to.
    pub(super) fn prepare(self: &Arc<Self>) -> Result<SocketAddr> {
        if let Some(known) = self.state().local {
            return Ok(known);
        }
        let mut local = self.udp.local()?;
        if local.port() == 0 {
            // Another thread may have been first.
            let bound = self.udp.bind_any();
            local = self.udp.local()?;
            if local.port() == 0 {
                bound?;
            }
        }
        self.serve()?;
        self.state().local = Some(local);
        Ok(local)
    }

    /// What comes to it is seen to from now on.
    pub(super) fn serve(self: &Arc<Self>) -> Result<()> {
        let served = std::mem::replace(&mut self.state().served, true);
        if served {
            return Ok(());
        }
        let added = service::add(self);
        self.state().served = added.is_ok();
        added
    }

    /// Takes it back: what was sent has left when this returns, or the deadline is over.
    pub(in super::super) fn close(self: &Arc<Self>, deadline: Option<Instant>) {
        service::remove(&**self);
        // Its port is free when the last who has the socket is gone.
        service::settle();
        // What a child has of its parent's is not its own to wait for.
        if self.process == std::process::id() {
            let idle = |state: &mut State| state.queues.iter().all(Queue::is_idle).then_some(());
            let _ = self.wait(true, deadline, idle);
        }
        let mut state = self.state();
        state.closed = true;
        state.arrived.clear();
        state.peers.clear();
        let queues = std::mem::take(&mut state.queues);
        state.wake();
        drop(state);
        drop(queues);
    }

    /// Whether this process made it: a child has copies of its parent's.
    pub(in super::super) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

impl State {
    /// Wakes all who wait for it.
    pub(super) fn wake(&self) {
        self.waiters.wake();
    }

    pub(super) fn has_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    /// The error that waits to be told, which is told once.
    pub(super) fn take_error(&mut self) -> Option<Errno> {
        let error = std::mem::replace(&mut self.error, 0);
        (error != 0).then_some(Errno(error))
    }

    /// Why nothing can be done with it any more.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed { Err(Errno(libc::EBADF)) } else { Ok(()) }
    }

    /// A peer, which is new unless it is known, and our queue pair that leads there.
    pub(super) fn meet(
        &mut self,
        local: SocketAddr,
        at: SocketAddr,
    ) -> Result<(&mut Peer, &mut Queue)> {
        self.check_open()?;
        if self.peers.get(at).is_none() {
            let route = Route::find(local.ip(), at)?;
            let longest = most_bytes(at.ip(), route.packet_bytes, PLACE);
            let known = self.queues.iter().position(|queue| queue.local() == route.local);
            let queue = match known {
                Some(queue) => queue,
                None => {
                    self.queues.push(Queue::new(route, &self.settings)?);
                    // Who sleeps does not sleep on this one.
                    self.wake();
                    self.queues.len() - 1
                }
            };
            self.peers.add(at, Peer::new(queue, longest));
        }
        let peer = self.peers.get(at).ok_or(Errno(libc::ENOMEM))?;
        let queue = self.queues.get_mut(peer.queue).ok_or(Errno(libc::ENODEV))?;
        Ok((peer, queue))
    }

    /// A datagram has come by UDP. It is lost if too many wait already, as any datagram may be.
    pub(super) fn hold(&mut self, from: SocketAddr, data: &[u8]) {
        let (_, receives) = self.settings.datagrams(PLACE as u32);
        if self.held < receives.into() {
            self.held += 1;
            self.arrived.push_back(Arrived { from, data: Bytes::Held(data.to_vec()) });
            self.wake();
        }
    }

    /// The next datagram that the program has not read, if there is one; it stays there if the program only peeks.
    pub(super) fn read(&mut self, out: &mut [&mut [u8]], peek: bool) -> Option<Received> {
        let arrived = self.arrived.front()?;
        let from = arrived.from;
        let length = match &arrived.data {
            Bytes::Placed(queue, place) => {
                let queue = self.queues.get(*queue)?;
                queue.copy(place, out);
                if !peek {
                    queue.free(place);
                }
                place.length
            }
            Bytes::Held(data) => {
                let mut rest = data.as_slice();
                for part in out {
                    let (some, more) = rest.split_at(rest.len().min(part.len()));
                    part[..some.len()].copy_from_slice(some);
                    rest = more;
                }
                if !peek {
                    self.held -= 1;
                }
                data.len()
            }
        };
        if !peek {
            self.arrived.pop_front();
        }
        Some(Received { length, from })
    }
}

/// Whether an address is a peer's: what comes between queue pairs does not tell of all of it.
fn is_of(peer: SocketAddr, from: SocketAddr) -> bool {
    peer.ip() == from.ip() && peer.port() == from.port()
}

impl Progress for State {
    fn progress(&mut self) {
        let (peer, mut any) = (self.peer, false);
        for (number, queue) in self.queues.iter_mut().enumerate() {
            any |= queue.progress(|from, place| {
                // connect(2): a socket that has a peer hears of no other.
                if peer.is_some_and(|peer| !is_of(peer, from)) {
                    return false;
                }
                if let Some(known) = self.peers.get(from) {
                    known.hear();
                }
                self.arrived.push_back(Arrived { from, data: Bytes::Placed(number, place) });
                true
            });
        }
        if any {
            self.wake();
        }
    }

    fn readiness(&mut self) -> i16 {
        let input = !self.arrived.is_empty() || !self.readable;
        // Of one without a peer nobody knows where the next datagram goes.
        let output = self.queues.iter().all(Queue::can_send);
        let error = self.error != 0 || self.closed;
        (if input || error { libc::POLLIN } else { 0 })
            | (if output || error { libc::POLLOUT } else { 0 })
            | (if error { libc::POLLERR } else { 0 })
    }

    fn changes(&self) -> u64 {
        self.waiters.changes()
    }

    fn is_live(&self) -> bool {
        self.has_queues()
    }

    fn arm(&mut self) -> bool {
        let mut new = false;
        for queue in &mut self.queues {
            new |= queue.completions.arm();
        }
        new
    }

    fn enter(&mut self, waker: &Arc<Waker>, sources: &mut Sources) {
        self.waiters.enter(waker);
        for queue in &self.queues {
            sources.add(queue.completions.event_fd(), queue.completions.context());
        }
    }

    fn leave(&mut self, waker: &Arc<Waker>) {
        self.waiters.leave(waker);
        let mut any = false;
        for queue in &mut self.queues {
            any |= queue.completions.take_event();
        }
        if any {
            self.wake();
        }
    }
}
