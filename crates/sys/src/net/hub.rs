//! Rings between the processes of one user: how they are offered, accepted and woken, and how their end is noticed.
//!
//! Each process listens on an abstract Unix socket for each of its slots. A process that wants to send records to another
//! connects, checks the user at the other end, and passes the memory of a ring over the connection. It need not wait for
//! the answer: the connection tells that the other process accepts rings, and records that were written before it mapped
//! the ring are in it. The connection stays open. Each side wakes the other by a message over it, and the kernel hangs it
//! up when a process ends, for any reason.
//!
//! As in [`crate::net::peer_socket`], connections of other users are closed at once. A forked child loses the sockets. Network namespaces have names of their own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::epoll::{Epoll, EpollEvent};
use crate::error::Error;
use crate::event::Event;
use crate::net::device_fd::DeviceFd;
use crate::net::peer_socket::{accept_all, connect, listen, send_ring, take_ring, wait_for_end};
use crate::net::slot::SLOTS;
use crate::net::unix_name::{self, Directory, Role as Name};
use crate::ring::{Consumer, Producer, RingFile};

/// The size of the largest ring that a process accepts.
pub const MAX_RING_SIZE: usize = 1 << 20;

/// The maximum number of rings that other processes have offered, for each address: each of its 255 slots may have an
/// earlier owner whose ring is not closed yet.
const MAX_INCOMING: usize = 2 * SLOTS as usize;

/// The maximum number of connections that wait to be accepted, and of events that are handled in one call.
const BACKLOG: usize = 1024;

/// "Ferroce ring", version 5: the first message on a connection. The name of the socket has the version, too.
const OFFER: &[u8] = b"Fr\0\x05";

/// A message that wakes the other side.
const BELL: &[u8] = b"!";

/// A ring to another process.
#[derive(Debug)]
pub struct Outgoing {
    /// Its number, from 1 on, for [`Change::Ended`].
    pub id: u64,
    /// The records. One thread at a time writes them.
    pub producer: ferroce_sync::Mutex<Producer>,
    connection: Arc<DeviceFd>,
}

/// A ring from another process.
#[derive(Debug)]
pub struct Incoming {
    /// Its number, from 1 on, for [`Change::Ended`].
    pub id: u64,
    /// The records.
    pub consumer: Consumer,
    /// The other process has ended. Its last records may still be there.
    ended: AtomicBool,
    connection: Arc<DeviceFd>,
}

impl Outgoing {
    /// Wakes the process that reads.
    pub fn wake(&self) {
        ring(&self.connection);
    }

    /// Whether the process that reads has ended.
    pub fn has_ended(&self) -> bool {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        !matches!(recv(&*self.connection, &mut [0; 1], flags), Err(Errno::AGAIN | Errno::INTR))
            && wait_for_end(&self.connection, Duration::ZERO)
    }
}

impl Incoming {
    /// Wakes the process that writes.
    pub fn wake(&self) {
        ring(&self.connection);
    }

    /// Whether the other process has ended, and all its records were taken.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) && self.consumer.is_empty()
    }
}

fn ring(connection: &DeviceFd) {
    // If the buffer is full, the other side has not taken earlier messages, and is awake or about to be.
    let _ = send(connection, BELL, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes a few messages: more are taken the next time.
fn drain(connection: BorrowedFd<'_>) {
    for _ in 0..4 {
        if recv(connection, &mut [0; 8], RecvFlags::DONTWAIT).is_err() {
            break;
        }
    }
}

/// What happened to the rings.
#[derive(Debug)]
pub enum Change {
    /// Another process offered a ring.
    Accepted(Arc<Incoming>),
    /// The process that reads a ring of this one has ended, or has closed it.
    Ended(u64),
}

/// The role of a descriptor in the epoll set.
#[derive(Debug)]
enum Role {
    /// Accepts connections.
    Listener(DeviceFd),
    /// A connection whose ring has not arrived yet.
    Accepted(Arc<DeviceFd>),
    /// The connection of a ring to another process.
    Outgoing(Arc<DeviceFd>),
    /// The connection of a ring from another process.
    Incoming(Arc<Incoming>),
}

impl Role {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listener(fd) => fd.as_fd(),
            Self::Accepted(fd) | Self::Outgoing(fd) => fd.as_fd(),
            Self::Incoming(ring) => ring.connection.as_fd(),
        }
    }
}

#[derive(Debug, Default)]
struct Entries {
    entries: HashMap<u64, Role>,
    next: u64,
}

impl Entries {
    /// Whether another process may offer a ring.
    fn may_accept(&self) -> bool {
        let is_listener = |role: &&Role| matches!(role, Role::Listener(_));
        let is_incoming = |role: &&Role| matches!(role, Role::Accepted(_) | Role::Incoming(_));
        let roles = || self.entries.values();
        roles().filter(is_incoming).count() < MAX_INCOMING * roles().filter(is_listener).count()
    }
}

/// The rings of a process. Its descriptor is readable when [`Hub::run`] must be called.
#[derive(Debug)]
pub struct Hub {
    epoll: Epoll,
    bells: Epoll,
    /// Rung by this process itself. Its number is 0.
    own_bell: Event,
    entries: Mutex<Entries>,
}

impl Hub {
    /// Creates a hub without rings, which accepts none.
    pub fn new() -> Result<Self, Error> {
        let epoll =
            || Epoll::new(true).map_err(|error| Error::system("create an epoll set", error));
        let (bells, own_bell) = (epoll()?, Event::new()?);
        bells
            .add(own_bell.as_raw_fd(), libc::EPOLLIN as u32, 0)
            .map_err(|error| Error::system("watch an event", error))?;
        Ok(Self { epoll: epoll()?, bells, own_bell, entries: Mutex::default() })
    }

    /// Lets other processes offer rings to the owner of a slot. Returns false if no socket could be opened.
    pub fn announce(&self, address: SocketAddr, slot: u8) -> bool {
        let name = unix_name::new(address, Name::Ring(slot));
        let Ok(socket) = listen(&name, BACKLOG as i32) else { return false };
        self.add(&mut self.lock(), libc::EPOLLIN, Role::Listener(socket)).is_some()
    }

    /// Makes a ring of `size` bytes to the owner of a slot. `None` if it accepts none, or the memory is missing.
    pub fn connect(&self, address: SocketAddr, slot: u8, size: usize) -> Option<Outgoing> {
        let directory = Directory::read(address).ok()?;
        let socket = connect(&directory.ring(slot)?.name).ok()?;
        let file = RingFile::create(size).ok()?;
        let producer = Producer::new(&file).ok()?;
        send_ring(&socket, OFFER, &file).ok()?;
        let connection = Arc::new(socket);
        let role = Role::Outgoing(Arc::clone(&connection));
        let id = self.add(&mut self.lock(), libc::EPOLLRDHUP, role)?;
        self.watch_bell(&connection, id);
        Some(Outgoing { id, producer: ferroce_sync::Mutex::new(producer), connection })
    }

    /// Accepts rings, and reports those whose other end is gone.
    pub fn run(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut entries = self.lock();
        // A connection that is accepted may have its ring already. Bounded, in case new ones keep coming.
        for _ in 0..BACKLOG {
            let mut events = [EpollEvent { events: 0, u64: 0 }; 16];
            let found = self.epoll.wait(&mut events, Some(Duration::ZERO)).unwrap_or(0);
            for event in &events[..found] {
                self.handle(&mut entries, event.u64, &mut changes);
            }
            if found == 0 {
                break;
            }
        }
        // What a process sent before it ended comes before its end.
        changes.sort_by_key(|change| matches!(change, Change::Ended(_)));
        changes
    }

    fn handle(&self, entries: &mut Entries, id: u64, changes: &mut Vec<Change>) {
        match entries.entries.get(&id) {
            None => {}
            Some(Role::Listener(listener)) => {
                for socket in accept_all(listener) {
                    if entries.may_accept() {
                        let role = Role::Accepted(Arc::new(socket));
                        self.add(entries, libc::EPOLLIN | libc::EPOLLRDHUP, role);
                    }
                }
            }
            Some(Role::Accepted(connection)) => {
                let connection = Arc::clone(connection);
                let Some(consumer) = take_ring(&connection, OFFER, MAX_RING_SIZE) else {
                    return self.forget(entries, id);
                };
                let _ = self.epoll.modify(connection.as_raw_fd(), libc::EPOLLRDHUP as u32, id);
                self.watch_bell(&connection, id);
                let ended = AtomicBool::new(false);
                let ring = Arc::new(Incoming { id, consumer, ended, connection });
                entries.entries.insert(id, Role::Incoming(Arc::clone(&ring)));
                changes.push(Change::Accepted(ring));
            }
            Some(Role::Outgoing(_)) => {
                self.forget(entries, id);
                changes.push(Change::Ended(id));
            }
            Some(Role::Incoming(ring)) => {
                ring.ended.store(true, Ordering::Release);
                self.forget(entries, id);
            }
        }
    }

    /// Stops using a ring: the other side sees that it has ended.
    pub fn close(&self, id: u64) {
        self.forget(&mut self.lock(), id);
    }

    /// Announces that a thread of this process will sleep until [`Hub::bells`] is readable. If there are records in the
    /// rings already, or `awake` returns true, it is. `awake` is called after wakeups were taken.
    pub fn sleep(&self, rings: &[Arc<Incoming>], awake: impl FnOnce() -> bool) {
        self.silence();
        // All of them, whatever the first says.
        if rings.iter().filter(|ring| !ring.consumer.sleep()).count() > 0 || awake() {
            let _ = self.own_bell.signal();
        }
    }

    /// Takes the wakeups that have come. Those that come later wake the thread in vain, which does no harm.
    fn silence(&self) {
        let mut events = [EpollEvent { events: 0, u64: 0 }; 16];
        let found = self.bells.wait(&mut events, Some(Duration::ZERO)).unwrap_or(0);
        if found == 0 {
            return;
        }
        let entries = self.lock();
        for event in &events[..found] {
            let id = event.u64;
            match entries.entries.get(&id) {
                Some(role) => drain(role.fd()),
                None => drop(self.own_bell.take()),
            }
        }
    }

    /// The descriptor that is readable when a process that this one waits for, at the other end of a ring, has woken it.
    pub fn bells(&self) -> BorrowedFd<'_> {
        self.bells.as_fd()
    }

    fn watch_bell(&self, connection: &DeviceFd, id: u64) {
        let _ = self.bells.add(connection.as_raw_fd(), libc::EPOLLIN as u32, id);
    }

    fn add(&self, entries: &mut Entries, interest: libc::c_int, role: Role) -> Option<u64> {
        entries.next += 1;
        let id = entries.next;
        self.epoll.add(role.fd().as_raw_fd(), interest as u32, id).ok()?;
        entries.entries.insert(id, role);
        Some(id)
    }

    fn forget(&self, entries: &mut Entries, id: u64) {
        let Some(role) = entries.entries.remove(&id) else { return };
        // Closing does not remove it from the sets if a child created by a raw clone(2) has it open as well.
        let _ = self.epoll.remove(role.fd().as_raw_fd());
        let _ = self.bells.remove(role.fd().as_raw_fd());
        if !matches!(role, Role::Listener(_)) {
            // Others may still hold it.
            let _ = shutdown(role.fd(), Shutdown::Both);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Hub {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
