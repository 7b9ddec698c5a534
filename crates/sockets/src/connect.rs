//! Connections over rsockets, and connecting.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::mem::{size_of, zeroed};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libc::{sockaddr, socklen_t, timeval};

use crate::address::Address;
use crate::closer::{self, Task};
use crate::lock::Spin;
use crate::next::{self, errno, fail};
use crate::table::{self, Entry};
use crate::{epoll, rdma};

/// How long a client waits for the peer's connection manager before it falls back to TCP. A running one responds within
/// milliseconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The same in milliseconds, set by the environment; 0 stands for [`RESPONSE_TIMEOUT`].
static RESPONSE_TIMEOUT_MS: AtomicU32 = AtomicU32::new(0);

/// Called when the library is loaded.
pub(crate) fn at_load() {
    let set = std::env::var("FERROCE_SOCKETS_WAIT").ok().and_then(|value| value.parse().ok());
    RESPONSE_TIMEOUT_MS.store(set.unwrap_or(0), Ordering::Relaxed);
}

fn response_timeout() -> Duration {
    match RESPONSE_TIMEOUT_MS.load(Ordering::Relaxed) {
        0 => RESPONSE_TIMEOUT,
        milliseconds => Duration::from_millis(milliseconds.into()),
    }
}

/// How long TCP is used without an attempt for a host whose connection manager did not respond.
const TCP_FALLBACK_TIME: Duration = Duration::from_secs(60);
const MAX_SILENT_HOSTS: usize = 256;

/// `TCP_CLOSE` of `enum tcp_state`: neither connected nor connecting.
const TCP_CLOSE: u8 = 7;

/// A connection over an rsocket.
pub(crate) struct Connection {
    pub(crate) rsocket: c_int,
    /// The family of the program's socket.
    pub(crate) family: c_int,
    /// The number of the program's descriptors that refer to it.
    descriptors: AtomicUsize,
    closed: AtomicBool,
    shut: AtomicBool,
    shutdowns: Spin<Shutdowns>,
    nonblocking: AtomicBool,
    /// `SO_RCVTIMEO` and `SO_SNDTIMEO` in milliseconds; 0 stands for none.
    pub(crate) receive_timeout: AtomicU32,
    pub(crate) send_timeout: AtomicU32,
    /// Counts calls after which epoll may report a new edge: all that receive, and sends that would have blocked.
    pub(crate) reads: AtomicU32,
    pub(crate) blocked_writes: AtomicU32,
}

/// Calls of shutdown(2) that another thread runs, and whether the rsocket is to be closed after them.
#[derive(Default)]
struct Shutdowns {
    running: u32,
    close: bool,
}

impl Connection {
    pub(crate) fn new(rsocket: c_int, family: c_int, nonblocking: bool) -> Arc<Self> {
        rdma::set_nonblocking(rsocket, nonblocking);
        Arc::new(Self {
            rsocket,
            family,
            descriptors: AtomicUsize::new(1),
            closed: AtomicBool::new(false),
            shut: AtomicBool::new(false),
            shutdowns: Spin::default(),
            nonblocking: AtomicBool::new(nonblocking),
            receive_timeout: AtomicU32::new(0),
            send_timeout: AtomicU32::new(0),
            reads: AtomicU32::new(0),
            blocked_writes: AtomicU32::new(0),
        })
    }

    pub(crate) fn add_descriptor(&self) {
        self.descriptors.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the rsocket with the last descriptor.
    pub(crate) fn remove_descriptor(self: &Arc<Self>) {
        if self.descriptors.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.closed.store(true, Ordering::Release);
        let at_once = self.shutdowns.with(|shutdowns| {
            shutdowns.close = shutdowns.running > 0;
            !shutdowns.close
        });
        match at_once {
            true if self.is_nonblocking() => closer::submit(Task::Close(Arc::clone(self))),
            true => self.close_rsocket(),
            // The last shutdown closes it.
            false => {}
        }
    }

    pub(crate) fn close_rsocket(&self) {
        // SAFETY: the call takes no pointers.
        unsafe { rdma::rclose(self.rsocket) };
    }

    /// shutdown(2). That of a nonblocking connection does not wait until the peer has acknowledged everything.
    pub(crate) fn shut_down(self: &Arc<Self>, how: c_int) -> c_int {
        let writes = matches!(how, libc::SHUT_WR | libc::SHUT_RDWR);
        if writes && self.is_nonblocking() && self.is_connected() {
            self.shutdowns.with(|shutdowns| shutdowns.running += 1);
            self.shut.store(true, Ordering::Release);
            closer::submit(Task::ShutDown(Arc::clone(self), how));
            return 0;
        }
        // SAFETY: the call takes no pointers.
        unsafe { rdma::rshutdown(self.rsocket, how) }
    }

    pub(crate) fn end_of_shutdown(&self) {
        let close = self.shutdowns.with(|shutdowns| {
            shutdowns.running -= 1;
            shutdowns.running == 0 && shutdowns.close
        });
        if close {
            self.close_rsocket();
        }
    }

    /// The program has called shutdown(2) for sending.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    fn is_connected(&self) -> bool {
        rdma::wait(self.rsocket, 0, 0).is_ok_and(|ready| ready & libc::POLLHUP == 0)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
        rdma::set_nonblocking(self.rsocket, nonblocking);
    }
}

/// Reads a numeric option of a kernel socket.
pub(crate) fn option(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let (mut value, mut length) = (0, size_of::<c_int>() as socklen_t);
    let to: *mut c_void = (&raw mut value).cast();
    // SAFETY: a local number.
    (unsafe { next::getsockopt(fd, level, name, to, &raw mut length) } == 0).then_some(value)
}

/// Reads a timeout of a kernel socket, in milliseconds.
pub(crate) fn timeout(fd: c_int, name: c_int) -> u32 {
    // SAFETY: all zeroes is a valid value.
    let mut value: timeval = unsafe { zeroed() };
    let mut length = size_of::<timeval>() as socklen_t;
    let to: *mut c_void = (&raw mut value).cast();
    // SAFETY: a local structure.
    if unsafe { next::getsockopt(fd, libc::SOL_SOCKET, name, to, &raw mut length) } < 0 {
        return 0;
    }
    let milliseconds = value.tv_sec.saturating_mul(1000) + (value.tv_usec + 999) / 1000;
    u32::try_from(milliseconds).unwrap_or(u32::MAX)
}

/// The family of a TCP socket that is neither connected, connecting nor listening.
pub(crate) fn idle_tcp(fd: c_int) -> Option<c_int> {
    if option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)? != libc::IPPROTO_TCP {
        return None;
    }
    let family = option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    // The state is the first byte of `struct tcp_info`.
    let (mut state, mut length) = (0u8, 1);
    let to: *mut c_void = (&raw mut state).cast();
    // SAFETY: a local byte.
    let told =
        unsafe { next::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut length) };
    (told == 0 && state == TCP_CLOSE).then_some(family)
}

/// The address that a kernel socket is bound to.
pub(crate) fn bound_to(fd: c_int) -> Option<Address> {
    let (mut address, mut length) = Address::empty();
    // SAFETY: a local address.
    (unsafe { next::getsockname(fd, address.out(), &raw mut length) } == 0).then_some(address)
}

pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: the call takes no pointers.
    unsafe { next::fcntl(fd, libc::F_GETFL, 0) & libc::O_NONBLOCK != 0 }
}

/// Hosts whose connection manager did not respond, and when that was.
pub(crate) static SILENT: Spin<BTreeMap<IpAddr, Instant>> = Spin::new(BTreeMap::new());

fn is_silent(host: IpAddr) -> bool {
    let since = SILENT.with(|silent| silent.get(&host).copied());
    since.is_some_and(|since| since.elapsed() < TCP_FALLBACK_TIME)
}

fn note_silent(host: IpAddr) {
    SILENT.with(|silent| {
        silent.retain(|_, since| since.elapsed() < TCP_FALLBACK_TIME);
        if silent.len() < MAX_SILENT_HOSTS {
            silent.insert(host, Instant::now());
        }
    });
}

/// Connects an rsocket within [`response_timeout`], whether or not the program's socket blocks. A nonblocking connect
/// that fell back to TCP later would have to move the socket between the program's epoll sets and the kernel's
/// instances.
fn attempt(rsocket: c_int, from: Option<Address>, to: Address) -> bool {
    rdma::set_nonblocking(rsocket, true);
    if let Some(from) = from {
        // SAFETY: a local address.
        if unsafe { rdma::rbind(rsocket, from.pointer(), from.length()) } < 0 {
            return false;
        }
    }
    // SAFETY: a local address.
    if unsafe { rdma::rconnect(rsocket, to.pointer(), to.length()) } == 0 {
        return true;
    }
    if errno() != libc::EINPROGRESS {
        return false;
    }
    let deadline = Instant::now() + response_timeout();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match rdma::wait(rsocket, libc::POLLOUT, left.as_millis() as c_int) {
            Ok(0) if left.is_zero() => {
                note_silent(to.ip());
                return false;
            }
            Ok(0) | Err(libc::EINTR) => {}
            Ok(ready) => return ready & (libc::POLLERR | libc::POLLHUP) == 0,
            Err(_) => return false,
        }
    }
}

/// Connects to the peer over an rsocket, if the peer has one.
fn connection(fd: c_int, to: Address) -> Option<Arc<Connection>> {
    if rdma::is_inside() {
        return None;
    }
    let family = idle_tcp(fd)?;
    let to = to.plain();
    if is_silent(to.ip()) || !rdma::is_there() {
        return None;
    }
    // SAFETY: the call takes no pointers.
    let rsocket = unsafe { rdma::rsocket(to.family(), libc::SOCK_STREAM, 0) };
    if rsocket < 0 {
        return None;
    }
    let from = bound_to(fd).map(Address::plain).filter(Address::has_port);
    if rdma::is_short_of_descriptors(rsocket) || !attempt(rsocket, from, to) {
        // SAFETY: the call takes no pointers.
        unsafe { rdma::rclose(rsocket) };
        return None;
    }
    let connection = Connection::new(rsocket, family, is_nonblocking(fd));
    connection.receive_timeout.store(timeout(fd, libc::SO_RCVTIMEO), Ordering::Relaxed);
    connection.send_timeout.store(timeout(fd, libc::SO_SNDTIMEO), Ordering::Relaxed);
    Some(connection)
}

/// connect(2).
///
/// # Safety
/// The program's address.
pub(crate) unsafe fn connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    if table::connection(fd).is_some() {
        return fail(libc::EISCONN);
    }
    // SAFETY: as the caller promises.
    let address = unsafe { Address::read(to, length) };
    let before = errno();
    if let Some(connection) = address.and_then(|address| connection(fd, address)) {
        table::set(fd, Some(Entry::Connection(Arc::clone(&connection))));
        epoll::connected(fd, &connection);
        return 0;
    }
    next::set_errno(before);
    // SAFETY: as the caller promises.
    unsafe { next::connect(fd, to, length) }
}
