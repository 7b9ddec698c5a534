//! Listeners: a kernel's TCP socket, and an rsocket at the same address.
//!
//! listen(2) opens the rsocket, which belongs to one process. fork(2) closes it if the process has not waited for
//! connections yet, and the first process that does, parent or child, opens it again. A process that finds the port
//! taken by another one has TCP clients only.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libc::{pollfd, sockaddr, socklen_t};

use crate::address::Address;
use crate::connect::{Connection, bound_to, idle_tcp, is_nonblocking, option, timeout};
use crate::next::{self, errno, fail};
use crate::table::{self, Entry};
use crate::{epoll, rdma};

/// How long after a failure another attempt to open the rsocket is made.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Open {
    rsocket: Option<c_int>,
    failed: Option<Instant>,
}

pub(crate) struct Listener {
    family: c_int,
    backlog: c_int,
    open: Mutex<Open>,
    /// The program has waited for connections in this process.
    waited: AtomicBool,
    /// The program's setting: the kernel socket is always nonblocking.
    nonblocking: AtomicBool,
    descriptors: AtomicUsize,
    /// Counts calls of accept(2), after which a new edge may be reported.
    pub(crate) accepts: AtomicU32,
}

impl Listener {
    fn new(family: c_int, backlog: c_int, nonblocking: bool) -> Arc<Self> {
        Arc::new(Self {
            family,
            backlog,
            open: Mutex::default(),
            waited: AtomicBool::new(false),
            nonblocking: AtomicBool::new(nonblocking),
            descriptors: AtomicUsize::new(1),
            accepts: AtomicU32::new(0),
        })
    }

    /// The listener of a forked child. Takes no lock.
    pub(crate) fn inherited(&self) -> Arc<Self> {
        Self::new(self.family, self.backlog, self.is_nonblocking())
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_descriptor(&self) {
        self.descriptors.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the rsocket with the last descriptor.
    pub(crate) fn remove_descriptor(&self) {
        if self.descriptors.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.descriptors.load(Ordering::Acquire) == 0
    }

    fn close(&self) {
        if let Some(rsocket) = self.open().rsocket.take() {
            // SAFETY: the call takes no pointers.
            unsafe { rdma::rclose(rsocket) };
        }
    }

    /// Closes the rsocket, so that another process can wait for connections.
    pub(crate) fn before_fork(&self) {
        if !self.waited.load(Ordering::Relaxed) {
            self.close();
        }
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Called when the program waits for connections: opens the rsocket if necessary, and returns it.
    pub(crate) fn wait_on(&self, fd: c_int) -> Option<c_int> {
        self.waited.store(true, Ordering::Relaxed);
        self.rsocket(fd)
    }

    fn rsocket(&self, fd: c_int) -> Option<c_int> {
        let mut open = self.open();
        if open.rsocket.is_none()
            && open.failed.is_none_or(|when| when.elapsed() >= REOPEN_INTERVAL)
        {
            let before = errno();
            open.rsocket = self.listen(fd);
            open.failed = if open.rsocket.is_some() { None } else { Some(Instant::now()) };
            next::set_errno(before);
        }
        open.rsocket
    }

    /// Opens an rsocket that listens at the kernel socket's address.
    fn listen(&self, fd: c_int) -> Option<c_int> {
        let address = bound_to(fd).filter(Address::has_port)?.plain();
        let one_family = option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
        // SAFETY: a local address and option.
        unsafe {
            let rsocket = rdma::rsocket(address.family(), libc::SOCK_STREAM, 0);
            if rsocket < 0 {
                return None;
            }
            rdma::set_nonblocking(rsocket, true);
            if let (libc::AF_INET6, Some(value)) = (address.family(), one_family) {
                let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
                let length = size_of::<c_int>() as socklen_t;
                let value: *const c_void = (&raw const value).cast();
                rdma::rsetsockopt(rsocket, level, name, value, length);
            }
            let listens = rdma::rbind(rsocket, address.pointer(), address.length()) == 0
                && rdma::rlisten(rsocket, self.backlog) == 0;
            if !listens {
                rdma::rclose(rsocket);
                return None;
            }
            Some(rsocket)
        }
    }
}

/// listen(2). The rsocket listens before the TCP port is open.
pub(crate) fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the call takes no pointers.
    let as_kernel = || unsafe { next::listen(fd, backlog) };
    if rdma::is_inside() || matches!(table::get(fd), Some(Entry::Listener(_))) {
        return as_kernel();
    }
    let Some(family) = idle_tcp(fd).filter(|_| rdma::is_there()) else { return as_kernel() };
    let listener = Listener::new(family, backlog, is_nonblocking(fd));
    if bound_to(fd).is_some_and(|address| address.has_port()) {
        listener.rsocket(fd);
    }
    let listens = as_kernel();
    if listens < 0 {
        let error = errno();
        listener.close();
        return fail(error);
    }
    // The port of a socket that was not bound is known only now.
    listener.rsocket(fd);
    // SAFETY: the calls take no pointers.
    unsafe {
        let flags = next::fcntl(fd, libc::F_GETFL, 0);
        next::fcntl(fd, libc::F_SETFL, (flags | libc::O_NONBLOCK).into());
    }
    table::set(fd, Some(Entry::Listener(Arc::clone(&listener))));
    epoll::listens(fd, &listener);
    listens
}

/// Accepts a connection from the rsocket, if there is one, and returns a descriptor for it.
///
/// # Safety
/// The program's buffer.
unsafe fn accept_rsocket(
    listener: &Listener,
    rsocket: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> Option<c_int> {
    let (mut peer, mut room) = Address::empty();
    // SAFETY: a local variable.
    let accepted = unsafe { rdma::raccept(rsocket, peer.out(), &raw mut room) };
    if accepted < 0 {
        return None;
    }
    let flags = flags & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(listener.family, libc::SOCK_STREAM | flags, 0) };
    if fd < 0 {
        let error = errno();
        // SAFETY: the call takes no pointers.
        unsafe { rdma::rclose(accepted) };
        return Some(fail(error));
    }
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    let connection = Connection::new(accepted, listener.family, nonblocking);
    table::set(fd, Some(Entry::Connection(connection)));
    // SAFETY: as the caller promises.
    unsafe { peer.give(listener.family, from, length) };
    Some(fd)
}

/// accept4(2).
///
/// # Safety
/// The program's buffer.
pub(crate) unsafe fn accept(
    listener: &Listener,
    fd: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    listener.accepts.fetch_add(1, Ordering::SeqCst);
    epoll::edge();
    loop {
        let rsocket = listener.wait_on(fd);
        if let Some(rsocket) = rsocket {
            // SAFETY: as the caller promises.
            if let Some(fd) = unsafe { accept_rsocket(listener, rsocket, from, length, flags) } {
                return fd;
            }
        }
        // SAFETY: as the caller promises.
        let accepted = unsafe { next::accept4(fd, from, length, flags) };
        if accepted >= 0 || errno() != libc::EAGAIN || listener.is_nonblocking() {
            return accepted;
        }
        let limit = match timeout(fd, libc::SO_RCVTIMEO) {
            0 => -1,
            milliseconds => c_int::try_from(milliseconds).unwrap_or(c_int::MAX),
        };
        // A negative descriptor is skipped.
        let mut list =
            [fd, rsocket.unwrap_or(-1)].map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 });
        match rdma::poll(&mut list, limit) {
            0 => return fail(libc::EAGAIN),
            1.. => {}
            _ if errno() == libc::EINTR && crate::transfer::signals_restart() => {}
            _ => return -1,
        }
    }
}
