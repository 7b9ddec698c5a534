//! Which processes of this machine are alive: an event when one has ended, however it ended.
//!
//! Each process listens on an abstract Unix socket of its own for each slot it has. Another one that wants to know of
//! its end connects to it and keeps the connection: the kernel hangs it up when the process ends. Nothing is ever sent.
//! The sockets are [`DeviceFd`]s, so a forked child that lives on does not hide the end of its parent.
//!
//! The names end with a random number ([`crate::net::unix_name`]), so no other user can take one in advance, and the kernel says
//! who is at the other end of a connection: only processes of the same user are believed. (The kernel lets only
//! processes of one user share a port, so nothing is lost.)

use std::collections::HashMap;
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_int, socklen_t, ucred};

use crate::error::Error;
use crate::net::device_fd::DeviceFd;
use crate::net::mailbox;
use crate::net::unix_name::{self, Directory, Role as Name};
use crate::syscall::check;

/// Connections of other processes that are kept: there are 255 slots.
const MOST_GUESTS: usize = 1024;

/// A process, by what its queue pairs' numbers begin with, and an address of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessName {
    /// The address.
    pub address: IpAddr,
    /// The UDP port.
    pub port: u16,
    /// The slot.
    pub slot: u8,
}

/// What a descriptor of the epoll set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Others come here to watch us.
    Listener,
    /// A connection of one who does. Only kept.
    Guest,
    /// Our connection to a process that we watch.
    Connection(ProcessName),
}

#[derive(Debug, Default)]
struct Entries {
    entries: HashMap<u64, (Role, DeviceFd)>,
    next: u64,
}

/// The processes that are watched, and the names by which this one is. The descriptor is readable when
/// [`Processes::take_ended`] has something to do.
#[derive(Debug)]
pub struct Processes {
    epoll: OwnedFd,
    entries: Mutex<Entries>,
}

impl Processes {
    /// Watches nobody, and can be watched by nobody.
    pub fn new() -> Result<Self, Error> {
        // SAFETY: the call takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
            .map_err(|error| Error::system("create an epoll set", error))?;
        // SAFETY: the descriptor is new, so nobody else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { epoll, entries: Mutex::default() })
    }

    /// Lets other processes watch this one by a name. False when the system has no socket for it: then they learn of
    /// our end by timeouts only.
    pub fn announce(&self, name: ProcessName) -> bool {
        let Ok(socket) = open() else { return false };
        if mailbox::bind(&socket, &unix_name::new(name.at(), Name::Liveness(name.slot))).is_err() {
            return false;
        }
        // SAFETY: the call takes no pointers.
        if unsafe { libc::listen(socket.as_raw_fd(), MOST_GUESTS as c_int) } < 0 {
            return false;
        }
        self.add(&mut self.lock(), libc::EPOLLIN, socket, Role::Listener)
    }

    /// Watches a process from now on, if there is one of this name on this machine. Says whether there is.
    pub fn watch(&self, name: ProcessName) -> bool {
        let mut entries = self.lock();
        if entries.watches(name) {
            return true;
        }
        let Ok(directory) = Directory::read(name.at()) else { return false };
        let Some(listener) = directory.liveness(name.slot) else { return false };
        let Ok(socket) = open() else { return false };
        let (raw, length) = unix_name::raw(&listener.name);
        // SAFETY: the name is a local, as long as said.
        let connected =
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const raw).cast(), length) };
        connected == 0
            && is_ours(socket.as_fd())
            && self.add(&mut entries, libc::EPOLLRDHUP, socket, Role::Connection(name))
    }

    /// Whether a watched process has not ended. Another one is not known to live.
    pub fn is_alive(&self, name: ProcessName) -> bool {
        self.lock().watches(name)
    }

    /// The watched processes that have ended since the last call. They are not watched any more.
    pub fn take_ended(&self) -> Vec<ProcessName> {
        let mut ended = Vec::new();
        let mut entries = self.lock();
        loop {
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
            let (set, most) = (self.epoll.as_raw_fd(), events.len() as c_int);
            // SAFETY: the list is a local, as long as said.
            let found = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), most, 0) };
            let found = usize::try_from(found).unwrap_or(0);
            for event in &events[..found] {
                let key = event.u64;
                let Some((role, fd)) = entries.entries.get(&key) else { continue };
                match *role {
                    Role::Listener => {
                        for guest in accept_all(fd.as_fd()) {
                            let room = entries.entries.len() < 2 * MOST_GUESTS;
                            if room && is_ours(guest.as_fd()) {
                                self.add(&mut entries, libc::EPOLLRDHUP, guest, Role::Guest);
                            }
                        }
                    }
                    Role::Guest => self.remove(&mut entries, key),
                    Role::Connection(name) => {
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

    fn add(&self, entries: &mut Entries, interest: c_int, fd: DeviceFd, role: Role) -> bool {
        entries.next += 1;
        let mut event = libc::epoll_event { events: interest as u32, u64: entries.next };
        let (set, raw) = (self.epoll.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: the event is a local.
        let added = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, raw, &raw mut event) };
        if added == 0 {
            entries.entries.insert(entries.next, (role, fd));
        }
        added == 0
    }

    fn remove(&self, entries: &mut Entries, key: u64) {
        let Some((_, fd)) = entries.entries.remove(&key) else { return };
        // Closing alone would not take it out of the set: a child made by a raw clone(2) may have it open as well.
        // SAFETY: no event is needed.
        unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd.as_raw_fd(),
                std::ptr::null_mut(),
            )
        };
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn watches(&self, name: ProcessName) -> bool {
        self.entries.values().any(|(role, _)| *role == Role::Connection(name))
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

fn open() -> io::Result<DeviceFd> {
    DeviceFd::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)
}

/// Whether a process of this user is at the other end of a connection.
fn is_ours(fd: BorrowedFd<'_>) -> bool {
    let mut peer = ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<ucred>() as socklen_t;
    // SAFETY: both pointers are to locals, and the length is that of the value.
    let read = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    read == 0 && peer.uid == unix_name::user()
}

/// All connections that wait at a listener.
fn accept_all(listener: BorrowedFd<'_>) -> Vec<DeviceFd> {
    let accept = || {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let none = std::ptr::null_mut::<libc::sockaddr>();
        // SAFETY: no address is asked for.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_accept4,
                listener.as_raw_fd(),
                none,
                std::ptr::null_mut::<socklen_t>(),
                flags,
            )
        };
        let fd = check(fd as c_int)?;
        // SAFETY: the descriptor is new, so nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    std::iter::from_fn(|| DeviceFd::open(accept).ok()).take(MOST_GUESTS).collect()
}
