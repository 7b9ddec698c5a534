//! epoll(7) with managed descriptors.
//!
//! The program's epoll instance is the kernel's. It holds all descriptors that are not managed, and of listeners the
//! TCP socket. A [`Set`] beside it lists the members that have an rsocket, and epoll_wait(2) polls these together with
//! the kernel's instance, or waits for that alone if there are none.
//!
//! The kernel's instance also holds the set's eventfd, which wakes waiting threads when the list changes.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use libc::{epoll_event, pollfd, sigset_t};

use crate::connect::{Connection, idle_tcp};
use crate::interest::{Calls, Interest};
use crate::listen::Listener;
use crate::lock::Spin;
use crate::next::{self, fail};
use crate::rdma;
use crate::table::{self, Entry};
use crate::wait::{Deadline, masked_poll};

/// The data of the eventfd's event: a value that no program is likely to use.
const WAKE: u64 = 0x0fe2_20ce_70c4_e750;

/// All sets, for sockets that get an rsocket while they are members.
pub(crate) static SETS: Spin<Vec<Weak<Set>>> = Spin::new(Vec::new());

/// The number of threads blocked with edge-triggered members.
static EDGE_SLEEPERS: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone)]
enum Target {
    Connection(Arc<Connection>),
    Listener(Arc<Listener>),
}

impl Target {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Connection(one), Self::Connection(other)) => Arc::ptr_eq(one, other),
            (Self::Listener(one), Self::Listener(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.is_closed(),
            Self::Listener(listener) => listener.is_closed(),
        }
    }

    fn rsocket(&self, fd: c_int) -> Option<c_int> {
        match self {
            Self::Connection(connection) => Some(connection.rsocket),
            Self::Listener(listener) => listener.wait_on(fd),
        }
    }

    fn calls(&self) -> Calls {
        match self {
            Self::Connection(connection) => Calls {
                reads: connection.reads.load(Ordering::SeqCst),
                blocked_writes: connection.blocked_writes.load(Ordering::SeqCst),
            },
            Self::Listener(listener) => {
                Calls { reads: listener.accepts.load(Ordering::SeqCst), blocked_writes: 0 }
            }
        }
    }
}

struct Member {
    target: Target,
    interest: Interest,
    data: u64,
}

#[derive(Default)]
struct Members {
    managed: BTreeMap<c_int, Member>,
    /// Members of the kernel's instance that may get an rsocket: TCP sockets that neither listen nor are connected.
    idle: BTreeMap<c_int, (u32, u64)>,
    /// Counts changes that blocked threads have to see.
    version: u64,
    /// The number of blocked threads, and of those that have not seen the newest version. While there are any, the
    /// eventfd stays readable.
    sleeping: usize,
    unseen: usize,
    /// The member at which the next check starts, so that all are reported in turn.
    first: c_int,
}

pub(crate) struct Set {
    wake: OwnedFd,
    members: Mutex<Members>,
}

impl Set {
    /// Returns the set of an epoll instance, and creates it if there is none. Fails if the descriptor is not an epoll
    /// instance.
    fn of(number: c_int) -> Result<Arc<Self>, c_int> {
        if let Some(Entry::Set(set)) = table::get(number) {
            return Ok(set);
        }
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(next::errno());
        }
        // SAFETY: just opened, and not owned elsewhere.
        let wake = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: WAKE };
        // SAFETY: a local event.
        if unsafe { next::epoll_ctl(number, libc::EPOLL_CTL_ADD, fd, &raw mut event) } < 0 {
            return Err(next::errno());
        }
        let set = Arc::new(Self { wake, members: Mutex::default() });
        SETS.with(|sets| {
            sets.retain(|set| set.strong_count() > 0);
            sets.push(Arc::downgrade(&set));
        });
        table::set(number, Some(Entry::Set(Arc::clone(&set))));
        Ok(set)
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes blocked threads check the members again.
    fn changed(&self, members: &mut Members) {
        members.version += 1;
        members.unseen = members.sleeping;
        if members.sleeping > 0 {
            let one = 1u64;
            // SAFETY: 8 local bytes.
            unsafe { next::write(self.wake.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// Records that a thread which blocked at this version was woken.
    fn woke(&self, slept_at: u64) {
        let mut members = self.members();
        members.sleeping -= 1;
        if members.version == slept_at {
            return;
        }
        members.unseen = members.unseen.saturating_sub(1);
        if members.unseen == 0 {
            let mut count = 0u64;
            // SAFETY: 8 local bytes; it does not wait.
            unsafe { next::read(self.wake.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
    }

    /// Calls `each` with the rsockets and their events, for poll(2) of the instance.
    pub(crate) fn interests(&self, mut each: impl FnMut(c_int, i16)) {
        for (&fd, member) in &mut self.members().managed {
            let wanted = member.interest.wanted(member.target.calls());
            let rsocket = if member.target.is_closed() { None } else { member.target.rsocket(fd) };
            if let (Some(events), Some(rsocket)) = (wanted, rsocket) {
                each(rsocket, events);
            }
        }
    }

    fn change(&self, op: c_int, fd: c_int, target: Target, event: Option<(u32, u64)>) -> c_int {
        let mut members = self.members();
        members.idle.remove(&fd);
        let known = members.managed.get(&fd).is_some_and(|one| one.target.is_same(&target));
        match (op, event) {
            (libc::EPOLL_CTL_ADD, _) if known => return fail(libc::EEXIST),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, _) if !known => return fail(libc::ENOENT),
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, Some((events, data))) => {
                let interest = Interest::new(events, target.calls());
                members.managed.insert(fd, Member { target, interest, data });
            }
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, None) => return fail(libc::EFAULT),
            (libc::EPOLL_CTL_DEL, _) => drop(members.managed.remove(&fd)),
            _ => return fail(libc::EINVAL),
        }
        self.changed(&mut members);
        0
    }

    /// Reports polled rsockets that are ready, up to the length of `out`.
    fn report(&self, polled: &[(c_int, pollfd)], out: &mut [epoll_event]) -> usize {
        let mut members = self.members();
        let split = polled.partition_point(|(fd, _)| *fd < members.first);
        let mut found = 0;
        for (fd, polled) in polled[split..].iter().chain(&polled[..split]) {
            if found == out.len() {
                members.first = *fd;
                break;
            }
            let Some(member) = members.managed.get_mut(fd).filter(|_| polled.revents != 0) else {
                continue;
            };
            if member.target.is_closed() {
                continue;
            }
            if let Some(events) = member.interest.report(polled.revents) {
                out[found] = epoll_event { events, u64: member.data };
                found += 1;
            }
        }
        found
    }
}

/// Wakes blocked threads with edge-triggered members, after a call that makes a new edge possible: they poll again.
pub(crate) fn edge() {
    if EDGE_SLEEPERS.load(Ordering::SeqCst) > 0 {
        for set in SETS.with(|sets| sets.clone()).iter().filter_map(Weak::upgrade) {
            let mut members = set.members();
            if members.sleeping > 0 {
                set.changed(&mut members);
            }
        }
    }
}

/// Moves a member that got an rsocket from the kernel's instance to the set, in all sets that contain it.
fn upgrade(fd: c_int, target: &Target) {
    for set in SETS.with(|sets| sets.clone()).iter().filter_map(Weak::upgrade) {
        let known = set.members().idle.remove(&fd);
        if let Some(event) = known {
            set.change(libc::EPOLL_CTL_ADD, fd, target.clone(), Some(event));
        }
    }
}

/// Moves a socket that was connected over an rsocket out of the kernel's epoll instances.
pub(crate) fn connected(fd: c_int, connection: &Arc<Connection>) {
    for set in instances_with(fd) {
        // SAFETY: no event is needed to remove one.
        unsafe { next::epoll_ctl(set, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }
    upgrade(fd, &Target::Connection(Arc::clone(connection)));
}

/// Adds a new listener's rsocket to the sets. Its TCP socket stays in the kernel's epoll instances.
pub(crate) fn listens(fd: c_int, listener: &Arc<Listener>) {
    upgrade(fd, &Target::Listener(Arc::clone(listener)));
}

/// The epoll instances whose set contains this idle socket.
fn instances_with(fd: c_int) -> Vec<c_int> {
    let instances = table::managed(0, usize::MAX).filter(|&number| match table::get(number) {
        Some(Entry::Set(set)) => set.members().idle.contains_key(&fd),
        _ => false,
    });
    instances.collect()
}

/// Called after epoll_create(2): creates the set of a new instance.
pub(crate) fn created(number: c_int) -> c_int {
    if number >= 0 && !rdma::is_inside() {
        // If this fails, adding the first managed member retries it and reports the error.
        let _ = Set::of(number);
    }
    number
}

/// epoll_ctl(2).
///
/// # Safety
/// The program's event, or null.
pub(crate) unsafe fn control(
    number: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if rdma::is_inside() {
        // SAFETY: as the caller promises.
        return unsafe { next::epoll_ctl(number, op, fd, event) };
    }
    // SAFETY: as the caller promises; the structure is packed.
    let asked = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
    let asked = asked.map(|event| (event.events, event.u64));
    // SAFETY: as the caller promises.
    let as_kernel = || unsafe { next::epoll_ctl(number, op, fd, event) };
    let target = match table::get(fd) {
        Some(Entry::Connection(connection)) => Target::Connection(connection),
        Some(Entry::Listener(listener)) => {
            let result = as_kernel();
            if result < 0 {
                return result;
            }
            listener.wait_on(fd);
            Target::Listener(listener)
        }
        _ => {
            let result = as_kernel();
            if result == 0 {
                note_idle(number, op, fd, asked);
            }
            return result;
        }
    };
    let is_listener = matches!(target, Target::Listener(_));
    match Set::of(number) {
        Ok(set) => {
            let result = set.change(op, fd, target, asked);
            // The result for a listener is that of the TCP socket.
            if is_listener { 0 } else { result }
        }
        Err(_) if is_listener => 0,
        Err(error) => fail(error),
    }
}

/// Records sockets that may get an rsocket while they are members of the kernel's instance.
fn note_idle(number: c_int, op: c_int, fd: c_int, event: Option<(u32, u64)>) {
    let before = next::errno();
    match (op, event, table::get(number)) {
        (libc::EPOLL_CTL_ADD, Some(event), _) if idle_tcp(fd).is_some() => {
            if let Ok(set) = Set::of(number) {
                set.members().idle.insert(fd, event);
            }
        }
        (libc::EPOLL_CTL_MOD, Some(event), Some(Entry::Set(set))) => {
            set.members().idle.entry(fd).and_modify(|known| *known = event);
        }
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_DEL, _, Some(Entry::Set(set))) => {
            let mut members = set.members();
            members.idle.remove(&fd);
            // The number belonged to a managed socket before.
            members.managed.remove(&fd);
        }
        _ => {}
    }
    next::set_errno(before);
}

/// Removes the event of the set's eventfd from those that the kernel reported.
fn without_wake(events: &mut [epoll_event]) -> usize {
    let mut kept = 0;
    for index in 0..events.len() {
        let event = events[index];
        if { event.u64 } != WAKE {
            events[kept] = event;
            kept += 1;
        }
    }
    kept
}

/// epoll_wait(2), epoll_pwait(2) and epoll_pwait2(2) of an instance with a set.
///
/// # Safety
/// The program's mask, or null.
pub(crate) unsafe fn wait(
    number: c_int,
    set: &Set,
    out: &mut [epoll_event],
    deadline: Deadline,
    mask: *const sigset_t,
) -> c_int {
    loop {
        let mut list = vec![pollfd { fd: number, events: libc::POLLIN, revents: 0 }];
        let mut owners = Vec::new();
        let sleep = Sleep::new(set, |fd, rsocket, events| {
            list.push(pollfd { fd: rsocket, events, revents: 0 });
            owners.push(fd);
        });
        let mut found = 0;
        if owners.is_empty() {
            let (first, max) = (out.as_mut_ptr(), c_int::try_from(out.len()).unwrap_or(c_int::MAX));
            // SAFETY: a list of this length; the rest is as the caller promises.
            let ready =
                unsafe { next::epoll_pwait(number, first, max, deadline.milliseconds(), mask) };
            let Ok(ready) = usize::try_from(ready) else { return -1 };
            found = without_wake(&mut out[..ready]);
        } else {
            // SAFETY: as the caller promises.
            let ready = unsafe { masked_poll(&mut list, deadline, mask) };
            if ready < 0 {
                return -1;
            }
            if list[0].revents != 0 {
                found = collect(number, out);
            }
            let polled: Vec<_> = owners.into_iter().zip(list[1..].iter().copied()).collect();
            found += set.report(&polled, &mut out[found..]);
        }
        drop(sleep);
        if found > 0 || deadline.is_over() {
            return found as c_int;
        }
    }
}

/// A thread that blocks on a set.
struct Sleep<'a> {
    set: &'a Set,
    version: u64,
    edges: bool,
}

impl<'a> Sleep<'a> {
    /// Calls `each` for every member to poll: the program's descriptor, the rsocket, the events.
    fn new(set: &'a Set, mut each: impl FnMut(c_int, c_int, i16)) -> Self {
        let mut members = set.members();
        members.managed.retain(|_, member| !member.target.is_closed());
        let edges = members.managed.values().any(|one| one.interest.is_edge_triggered());
        // Before the counts of calls are read: see `edge`.
        EDGE_SLEEPERS.fetch_add(usize::from(edges), Ordering::SeqCst);
        for (&fd, member) in &mut members.managed {
            let Some(events) = member.interest.wanted(member.target.calls()) else { continue };
            if let Some(rsocket) = member.target.rsocket(fd) {
                each(fd, rsocket, events);
            }
        }
        members.sleeping += 1;
        Self { set, version: members.version, edges }
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        let error = next::errno();
        EDGE_SLEEPERS.fetch_sub(usize::from(self.edges), Ordering::SeqCst);
        self.set.woke(self.version);
        next::set_errno(error);
    }
}

/// Collects the events of the kernel's instance, without blocking.
fn collect(number: c_int, out: &mut [epoll_event]) -> usize {
    let max = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
    // SAFETY: a list of this length.
    let found = unsafe { next::epoll_wait(number, out.as_mut_ptr(), max, 0) };
    without_wake(&mut out[..usize::try_from(found).unwrap_or(0)])
}
