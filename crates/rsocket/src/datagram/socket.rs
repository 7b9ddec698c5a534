//! A datagram socket: its QPs, its peers, and the datagrams received.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::peers::{Peer, Peers};
use super::queue::{Queue, Route, SLOT_BYTES, SlotDatagram};
use super::udp::Udp;
use super::wire::max_payload;
use crate::error::{Errno, Result};
use crate::fcntl::FileFlags;
use crate::service;
use crate::settings::Settings;
use crate::sync::lock;
use crate::wait::{self, Pollable, WaitSet, Waiters, Waker};

/// A datagram that the program has not read.
struct Unread {
    from: SocketAddr,
    data: UnreadData,
}

enum UnreadData {
    /// In a slot of this queue.
    Slot(usize, SlotDatagram),
    /// Received by UDP, and copied.
    Copied(Vec<u8>),
}

pub(crate) struct State {
    pub(crate) flags: FileFlags,
    pub(super) settings: Settings,
    /// How long a receive waits (`SO_RCVTIMEO`).
    pub(super) receive_timeout: Option<Duration>,
    /// The local address, once it is known.
    pub(super) local: Option<SocketAddr>,
    /// The peer that the socket is connected to.
    pub(super) peer: Option<SocketAddr>,
    /// The value of `SO_ERROR`.
    pub(super) error: c_int,
    /// Whether `rshutdown` has ended these directions.
    pub(super) readable: bool,
    pub(super) writable: bool,
    closed: bool,
    /// Registered with the service thread.
    served: bool,
    queues: Vec<Queue>,
    peers: Peers,
    unread: VecDeque<Unread>,
    /// The number of unread datagrams that were received by UDP.
    copied: usize,
    waiters: Waiters,
}

/// A datagram socket (`SOCK_DGRAM`).
pub struct DatagramSocket {
    /// Its descriptor is the program's.
    pub(super) udp: Udp,
    process: u32,
    state: Mutex<State>,
}

impl DatagramSocket {
    /// Creates a socket of the family `AF_INET` or `AF_INET6`.
    pub fn new(family: c_int, nonblocking: bool) -> Result<Arc<Self>> {
        let state = Mutex::new(State::new(nonblocking));
        Ok(Arc::new(Self { udp: Udp::new(family)?, process: std::process::id(), state }))
    }

    /// The descriptor of the UDP socket.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.udp.fd()
    }

    /// The address family, `AF_INET` or `AF_INET6`.
    pub fn family(&self) -> c_int {
        self.udp.family()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits for a condition: see [`wait::wait_until`].
    pub(super) fn wait_until<T>(
        &self,
        wait: bool,
        deadline: Option<Instant>,
        test: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T> {
        wait::wait_until(&self.state, wait, deadline, test)
    }

    /// Whether a call with these flags waits.
    pub(super) fn waits(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT == 0 && !self.state().flags.nonblocking
    }

    /// Binds the socket to a free port if necessary, registers it with the service thread, and returns its local
    /// address.
    pub(super) fn prepare(self: &Arc<Self>) -> Result<SocketAddr> {
        if let Some(known) = self.state().local {
            return Ok(known);
        }
        let mut local = self.udp.local()?;
        if local.port() == 0 {
            // Another thread may bind it at the same time.
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

    /// Registers the socket with the service thread.
    pub(super) fn serve(self: &Arc<Self>) -> Result<()> {
        let served = std::mem::replace(&mut self.state().served, true);
        if served {
            return Ok(());
        }
        let added = service::add(self);
        self.state().served = added.is_ok();
        added
    }

    /// Closes the socket. Waits until its sends have completed, at most until the deadline.
    pub(crate) fn close(self: &Arc<Self>, deadline: Option<Instant>) {
        service::remove(&**self);
        // The port is free when the last reference to the socket is dropped.
        service::wait_for_pass();
        // A forked child does not wait for its parent's sends.
        if self.is_own() {
            let idle = |state: &mut State| state.queues.iter().all(Queue::is_idle).then_some(());
            let _ = self.wait_until(true, deadline, idle);
        }
        let mut state = self.state();
        state.closed = true;
        state.unread.clear();
        state.peers.clear();
        let queues = std::mem::take(&mut state.queues);
        state.wake();
        drop(state);
        drop(queues);
    }

    /// Whether this process created the socket: a forked child has copies of its parent's.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Performs a command of fcntl(2).
    pub fn control(&self, command: c_int, argument: c_int) -> Result<c_int> {
        self.state().flags.control(command, argument)
    }
}

impl State {
    fn new(nonblocking: bool) -> Self {
        Self {
            flags: FileFlags::new(nonblocking),
            settings: Settings::DATAGRAM,
            receive_timeout: None,
            local: None,
            peer: None,
            error: 0,
            readable: true,
            writable: true,
            closed: false,
            served: false,
            queues: Vec::new(),
            peers: Peers::default(),
            unread: VecDeque::new(),
            copied: 0,
            waiters: Waiters::default(),
        }
    }

    /// Wakes the threads that wait for the socket.
    pub(super) fn wake(&self) {
        self.waiters.wake();
    }

    pub(super) fn has_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Takes the pending error, which is reported once.
    pub(super) fn take_error(&mut self) -> Option<Errno> {
        let error = std::mem::replace(&mut self.error, 0);
        (error != 0).then_some(Errno(error))
    }

    /// Fails with `EBADF` if the socket is closed.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed { Err(Errno(libc::EBADF)) } else { Ok(()) }
    }

    /// Returns a peer, which is added if it is unknown, and the local QP whose route leads to it.
    pub(super) fn peer_at(
        &mut self,
        local: SocketAddr,
        address: SocketAddr,
    ) -> Result<(&mut Peer, &mut Queue)> {
        self.check_open()?;
        if self.peers.get(address).is_none() {
            let route = Route::find(local.ip(), address)?;
            let max_payload = max_payload(address.ip(), route.packet_bytes, SLOT_BYTES);
            let known = self.queues.iter().position(|queue| queue.local() == route.local);
            let queue = match known {
                Some(queue) => queue,
                None => {
                    self.queues.push(Queue::new(route, &self.settings)?);
                    // Threads that wait do not wait for this queue yet.
                    self.wake();
                    self.queues.len() - 1
                }
            };
            self.peers.add(address, Peer::new(queue, max_payload, Instant::now()));
        }
        let peer = self.peers.get(address).ok_or(Errno(libc::ENOMEM))?;
        let queue = self.queues.get_mut(peer.queue).ok_or(Errno(libc::ENODEV))?;
        Ok((peer, queue))
    }

    /// Keeps a datagram that was received by UDP. It is dropped if too many are unread.
    pub(super) fn keep_copy(&mut self, from: SocketAddr, data: &[u8]) {
        let (_, receives) = self.settings.datagram_queues(SLOT_BYTES as u32);
        if self.copied < receives.into() {
            self.copied += 1;
            self.unread.push_back(Unread { from, data: UnreadData::Copied(data.to_vec()) });
            self.wake();
        }
    }

    /// Copies the next unread datagram to the program, and returns its length and sender. It remains unread if the
    /// program only peeks.
    pub(super) fn read(
        &mut self,
        out: &mut [&mut [u8]],
        peek: bool,
    ) -> Option<(usize, SocketAddr)> {
        let unread = self.unread.front()?;
        let from = unread.from;
        let length = match &unread.data {
            UnreadData::Slot(queue, datagram) => {
                let queue = self.queues.get(*queue)?;
                queue.copy(datagram, out);
                if !peek {
                    queue.free(datagram);
                }
                datagram.length
            }
            UnreadData::Copied(data) => {
                let mut rest = data.as_slice();
                for part in out {
                    let (some, more) = rest.split_at(rest.len().min(part.len()));
                    part[..some.len()].copy_from_slice(some);
                    rest = more;
                }
                if !peek {
                    self.copied -= 1;
                }
                data.len()
            }
        };
        if !peek {
            self.unread.pop_front();
        }
        Some((length, from))
    }
}

/// Whether a datagram is from this peer. The header between QPs has no scope id.
fn is_from(peer: SocketAddr, from: SocketAddr) -> bool {
    peer.ip() == from.ip() && peer.port() == from.port()
}

impl Pollable for State {
    fn process_completions(&mut self) {
        let (peer, mut any) = (self.peer, false);
        for (index, queue) in self.queues.iter_mut().enumerate() {
            any |= queue.process_completions(|from, datagram| {
                // connect(2): a connected socket receives from its peer only.
                if peer.is_some_and(|peer| !is_from(peer, from)) {
                    return false;
                }
                if let Some(known) = self.peers.get(from) {
                    known.hear(Instant::now());
                }
                self.unread.push_back(Unread { from, data: UnreadData::Slot(index, datagram) });
                true
            });
        }
        if any {
            self.wake();
        }
    }

    fn readiness(&mut self) -> i16 {
        let input = !self.unread.is_empty() || !self.readable;
        // Without a peer, any queue may be the one to send from.
        let output = self.queues.iter().all(Queue::can_send);
        let error = self.error != 0 || self.closed;
        (if input || error { libc::POLLIN } else { 0 })
            | (if output || error { libc::POLLOUT } else { 0 })
            | (if error { libc::POLLERR } else { 0 })
    }

    fn change_count(&self) -> u64 {
        self.waiters.wakeups()
    }

    fn expects_completions(&self) -> bool {
        self.has_queues()
    }

    fn arm(&mut self) -> bool {
        let mut new = false;
        for queue in &mut self.queues {
            new |= queue.completions.arm();
        }
        new
    }

    fn add_waiter(&mut self, waker: &Arc<Waker>, set: &mut WaitSet) {
        self.waiters.add(waker);
        for queue in &self.queues {
            set.add(&queue.completions);
        }
    }

    fn remove_waiter(&mut self, waker: &Arc<Waker>) {
        self.waiters.remove(waker);
        let mut any = false;
        for queue in &mut self.queues {
            any |= queue.completions.take_event();
        }
        if any {
            self.wake();
        }
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
