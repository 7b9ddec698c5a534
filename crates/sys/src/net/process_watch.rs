//! Liveness of other local processes: a notification when one has ended, for any reason.
//!
//! Each process listens on an abstract Unix socket for each slot it owns. A process that watches it connects and keeps the
//! connection, which the kernel hangs up when the watched process ends. No data is sent. The sockets are [`DeviceFd`]s, so
//! a forked child that keeps running does not hide the end of its parent.
//!
//! Only processes of the same user are accepted ([`crate::net::peer_socket`]). The kernel lets only processes of one user
//! share a port, so this loses nothing.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::epoll::{Epoll, EpollEvent};
use crate::error::Error;
use crate::net::device_fd::DeviceFd;
use crate::net::peer_socket::{accept_all, connect, listen};
use crate::net::unix_name::{self, Directory, Role as Name};

/// Maximum number of connections from other processes; an address has 255 slots.
const MAX_WATCHERS: usize = 1024;

/// A message from a process that starts to collect packets: the receiver looks for it ([`crate::capture_link`]).
pub(super) const CAPTURE_NOTICE: &[u8] = b"Fc?\x01";

/// A process, identified by an address of its device and its slot, the upper 8 bits of its QPNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessName {
    /// The address.
    pub address: IpAddr,
    /// The UDP port.
    pub port: u16,
    /// The slot.
    pub slot: u8,
}

/// The role of a descriptor in the epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Accepts connections from processes that watch this one.
    Listener,
    /// A connection from a process that watches this one.
    Watcher,
    /// A connection to a watched process.
    Watched(ProcessName),
}

#[derive(Debug, Default)]
struct Entries {
    entries: HashMap<u64, (Role, DeviceFd)>,
    next: u64,
}

/// The processes that this one watches, and the names under which others watch it. The descriptor is readable when
/// [`Processes::take_ended`] must be called.
#[derive(Debug)]
pub struct Processes {
    epoll: Epoll,
    entries: Mutex<Entries>,
    /// A process has started to collect packets.
    capture_started: AtomicBool,
}

impl Processes {
    /// Creates an empty set: watches no process, and is not announced.
    pub fn new() -> Result<Self, Error> {
        let epoll =
            Epoll::new(true).map_err(|error| Error::system("create an epoll set", error))?;
        Ok(Self { epoll, entries: Mutex::default(), capture_started: AtomicBool::new(false) })
    }

    /// Lets other processes watch this one under a name. Returns false if no socket could be opened: they then notice its
    /// end by timeouts only.
    pub fn announce(&self, name: ProcessName) -> bool {
        let bound = unix_name::new(name.at(), Name::Liveness(name.slot));
        let Ok(socket) = listen(&bound, MAX_WATCHERS as i32) else { return false };
        self.add(&mut self.lock(), libc::EPOLLIN, socket, Role::Listener)
    }

    /// Watches a process. Returns false if there is no local process of this name.
    pub fn watch(&self, name: ProcessName) -> bool {
        let mut entries = self.lock();
        if entries.watches(name) {
            return true;
        }
        let Ok(directory) = Directory::read(name.at()) else { return false };
        let Some(listener) = directory.liveness(name.slot) else { return false };
        let Ok(socket) = connect(&listener.name) else { return false };
        self.add(&mut entries, libc::EPOLLRDHUP, socket, Role::Watched(name))
    }

    /// Whether a process is watched and has not ended.
    pub fn is_alive(&self, name: ProcessName) -> bool {
        self.lock().watches(name)
    }

    /// Returns the watched processes that have ended since the last call, and stops watching them.
    pub fn take_ended(&self) -> Vec<ProcessName> {
        let mut ended = Vec::new();
        let mut entries = self.lock();
        loop {
            let mut events = [EpollEvent { events: 0, u64: 0 }; 16];
            let found = self.epoll.wait(&mut events, Some(Duration::ZERO)).unwrap_or(0);
            for event in &events[..found] {
                let key = event.u64;
                let Some((role, fd)) = entries.entries.get(&key) else { continue };
                match *role {
                    Role::Listener => {
                        for watcher in accept_all(fd) {
                            if entries.entries.len() < 2 * MAX_WATCHERS {
                                let interest = libc::EPOLLIN | libc::EPOLLRDHUP;
                                self.add(&mut entries, interest, watcher, Role::Watcher);
                            }
                        }
                    }
                    Role::Watcher => match recv(fd, &mut [0; 8], RecvFlags::DONTWAIT) {
                        Ok((_, length)) if length == CAPTURE_NOTICE.len() => {
                            self.capture_started.store(true, Ordering::Release);
                        }
                        Err(Errno::AGAIN | Errno::INTR) => {}
                        _ => self.remove(&mut entries, key),
                    },
                    Role::Watched(name) => {
                        self.remove(&mut entries, key);
                        ended.push(name);
                    }
                }
            }
            if found < events.len() {
                return ended;
            }
        }
    }

    /// Whether a process of this user has started to collect packets since the last call. To be asked after
    /// [`Processes::take_ended`].
    pub fn take_capture_start(&self) -> bool {
        self.capture_started.swap(false, Ordering::AcqRel)
    }

    fn add(&self, entries: &mut Entries, interest: libc::c_int, fd: DeviceFd, role: Role) -> bool {
        entries.next += 1;
        let added = self.epoll.add(fd.as_raw_fd(), interest as u32, entries.next).is_ok();
        if added {
            entries.entries.insert(entries.next, (role, fd));
        }
        added
    }

    fn remove(&self, entries: &mut Entries, key: u64) {
        let Some((_, fd)) = entries.entries.remove(&key) else { return };
        // Closing does not remove it from the set if a child created by a raw clone(2) has it open as well.
        let _ = self.epoll.remove(fd.as_raw_fd());
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn watches(&self, name: ProcessName) -> bool {
        self.entries.values().any(|(role, _)| *role == Role::Watched(name))
    }
}

impl AsFd for Processes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl ProcessName {
    fn at(self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}
