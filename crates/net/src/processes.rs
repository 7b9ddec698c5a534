//! Which processes of this machine are alive: an event when one has ended, however it ended.
//!
//! Each process listens on an abstract Unix socket of its own for each slot it has. Another one that wants to know of
//! its end connects to it and keeps the connection: the kernel hangs it up when the process ends. Nothing is ever sent.
//! A forked child of the process would keep the socket open, so the process itself is watched, too (`pidfd_open`, where
//! the kernel has it and shows us the process).
//!
//! Only processes of the same user are believed, and root's: the names are anybody's to take. (The kernel lets only
//! processes of one user share a port, so nothing is lost.)

use std::collections::HashMap;
use std::mem::{offset_of, size_of};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_int, sa_family_t, sockaddr_un, socklen_t, ucred};

use crate::error::Error;
use crate::system::{check, socket, zeroed};

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
    /// The process itself.
    Process(ProcessName),
}

#[derive(Debug, Default)]
struct Entries {
    entries: HashMap<u64, (Role, OwnedFd)>,
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

    /// Lets other processes watch this one by a name. False when the name is taken: then they learn of our end by
    /// timeouts only.
    pub fn announce(&self, name: ProcessName) -> bool {
        let Ok(socket) = socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0) else { return false };
        let (raw, length) = name.raw();
        let fd = socket.as_raw_fd();
        // SAFETY: the name is a local, as long as said.
        let bound = unsafe { libc::bind(fd, (&raw const raw).cast(), length) };
        // SAFETY: the call takes no pointers.
        if bound < 0 || unsafe { libc::listen(fd, MOST_GUESTS as c_int) } < 0 {
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
        let Ok(socket) = socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0) else { return false };
        let (raw, length) = name.raw();
        // SAFETY: the name is a local, as long as said.
        let connected =
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const raw).cast(), length) };
        if connected < 0 {
            return false;
        }
        let Some(owner) = peer(socket.as_fd()).filter(is_trusted) else { return false };
        // Opened while the connection stands, so this is the process and not one that has its number since.
        if let Some(process) = process(owner.pid) {
            self.add(&mut entries, libc::EPOLLIN, process, Role::Process(name));
        }
        self.add(&mut entries, libc::EPOLLRDHUP, socket, Role::Connection(name))
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
                            if room && peer(guest.as_fd()).as_ref().is_some_and(is_trusted) {
                                self.add(&mut entries, libc::EPOLLRDHUP, guest, Role::Guest);
                            }
                        }
                    }
                    Role::Guest => self.remove(&mut entries, |it, _| it == key),
                    Role::Connection(name) | Role::Process(name) => {
                        let parts = [Role::Connection(name), Role::Process(name)];
                        self.remove(&mut entries, |_, role| parts.contains(&role));
                        ended.push(name);
                    }
                }
            }
            if found < events.len() {
                return ended;
            }
        }
    }

    fn add(&self, entries: &mut Entries, interest: c_int, fd: OwnedFd, role: Role) -> bool {
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

    fn remove(&self, entries: &mut Entries, which: impl Fn(u64, Role) -> bool) {
        let set = self.epoll.as_raw_fd();
        entries.entries.retain(|&key, (role, fd)| {
            let remove = which(key, *role);
            if remove {
                // Closing alone would not take it out of the set: a forked child may have it open as well.
                // SAFETY: no event is needed.
                unsafe {
                    libc::epoll_ctl(set, libc::EPOLL_CTL_DEL, fd.as_raw_fd(), std::ptr::null_mut())
                };
            }
            !remove
        });
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
    /// The abstract name of its socket: `ferroce-up/<user>/<address>/<port>/<slot>`, 79 bytes at most.
    fn raw(self) -> (sockaddr_un, socklen_t) {
        // SAFETY: a sockaddr_un is numbers.
        let mut raw: sockaddr_un = unsafe { zeroed() };
        raw.sun_family = libc::AF_UNIX as sa_family_t;
        let Self { address, port, slot } = self;
        let text = format!("ferroce-up/{}/{address}/{port}/{slot}", user());
        for (to, from) in raw.sun_path[1..].iter_mut().zip(text.bytes()) {
            *to = from as _;
        }
        let length = offset_of!(sockaddr_un, sun_path) + 1 + text.len();
        (raw, length.min(size_of::<sockaddr_un>()) as socklen_t)
    }
}

fn user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

fn is_trusted(it: &ucred) -> bool {
    it.uid == user() || it.uid == 0
}

/// Who is at the other end of a connection.
fn peer(fd: BorrowedFd<'_>) -> Option<ucred> {
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
    (read == 0).then_some(peer)
}

/// A descriptor that is readable when the process has ended.
fn process(pid: libc::pid_t) -> Option<OwnedFd> {
    if pid <= 0 {
        return None; // Of another PID namespace.
    }
    // SAFETY: the call takes no pointers.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as c_int).ok()?;
    // SAFETY: the descriptor is new, so nobody else owns it. It is closed on exec by itself.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Everybody who waits at a listener.
fn accept_all(listener: BorrowedFd<'_>) -> Vec<OwnedFd> {
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
        let fd = check(fd as c_int).ok()?;
        // SAFETY: the descriptor is new, so nobody else owns it.
        Some(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    std::iter::from_fn(accept).take(MOST_GUESTS).collect()
}
