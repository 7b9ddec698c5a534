//! `repoll_create`, `repoll_ctl` and `repoll_wait`: epoll(7) for rsockets and other descriptors together.
//!
//! A set is an epoll instance of the kernel, which holds the descriptors that are not rsockets, beside a list of
//! rsockets. The calls behave as those of epoll(7), errors included: −1 with `errno`, where rdma-core 65 returns the
//! error's number.
//!
//! Edge triggering (`EPOLLET`) uses the change count of a socket: an entry is reported once for each change while it is
//! ready. Like the kernel, that may report a superfluous edge, and never misses one.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ferroce_sys::{Epoll, EpollEvent};

use crate::error::{Errno, Result};
use crate::sync::lock;
use crate::table::{self, Socket};
use crate::wait::{SPIN_TIME, WaitSet, Waiters, Waker, poll_entry};

/// The interest in one rsocket, and what was reported of it.
#[derive(Debug)]
struct Interest {
    /// The requested events, with `EPOLLET` and `EPOLLONESHOT`.
    events: u32,
    /// The program's data.
    data: u64,
    /// The change count at the last report.
    reported: Option<u64>,
    /// A one-shot entry was reported, and waits for `EPOLL_CTL_MOD`.
    disabled: bool,
}

impl Interest {
    fn new(events: u32, data: u64) -> Self {
        Self { events, data, reported: None, disabled: false }
    }

    fn has(&self, flag: c_int) -> bool {
        self.events & flag as u32 != 0
    }

    /// Returns the event to report for a socket with this readiness and change count, if there is one.
    fn take_event(&mut self, readiness: i16, changes: u64) -> Option<EpollEvent> {
        if self.disabled {
            return None;
        }
        // The bits of poll(2) are those of epoll(7).
        let wanted = self.events | (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        let events = u32::from(readiness as u16) & wanted;
        if events == 0 || (self.has(libc::EPOLLET) && self.reported == Some(changes)) {
            return None;
        }
        self.reported = Some(changes);
        self.disabled = self.has(libc::EPOLLONESHOT);
        Some(EpollEvent { events, u64: self.data })
    }
}

/// An rsocket of a set.
struct Member {
    socket: Socket,
    interest: Interest,
}

impl Member {
    fn take_event(&mut self) -> Option<EpollEvent> {
        if self.interest.disabled {
            return None;
        }
        let (readiness, changes) = self.socket.with(|state| {
            state.process_completions();
            (state.readiness(), state.change_count())
        });
        self.interest.take_event(readiness, changes)
    }
}

#[derive(Default)]
struct Members {
    sockets: BTreeMap<RawFd, Member>,
    /// The kernel's instance has had descriptors.
    has_others: bool,
    /// The rsocket reported last: the next check starts after it, so that a few busy sockets do not starve the others.
    last: RawFd,
    /// The kernel's instance is checked first.
    others_first: bool,
    waiters: Waiters,
    closed: bool,
}

/// The keys of a map in round-robin order: those after `last`, then the rest.
fn round_robin<V>(map: &BTreeMap<RawFd, V>, last: RawFd) -> Vec<RawFd> {
    let mut order: Vec<_> = map.range((Excluded(last), Unbounded)).map(|(&fd, _)| fd).collect();
    order.extend(map.range(..=last).map(|(&fd, _)| fd));
    order
}

impl Members {
    /// Removes sockets that the program has closed, as the kernel does.
    fn remove_closed(&mut self) {
        self.sockets.retain(|&fd, member| {
            table::find(fd).is_some_and(|known| known.is_same(&member.socket))
        });
    }

    /// Reports rsockets that are ready, up to the length of `out`.
    fn check(&mut self, out: &mut [EpollEvent]) -> usize {
        let mut found = 0;
        for fd in round_robin(&self.sockets, self.last) {
            if found == out.len() {
                break;
            }
            if let Some(event) = self.sockets.get_mut(&fd).and_then(Member::take_event) {
                out[found] = event;
                found += 1;
                self.last = fd;
            }
        }
        found
    }
}

struct Set {
    /// Its descriptor is that of the set.
    epoll: Epoll,
    members: Mutex<Members>,
}

static SETS: Mutex<BTreeMap<RawFd, Arc<Set>>> = Mutex::new(BTreeMap::new());

fn set(fd: RawFd) -> Result<Arc<Set>> {
    lock(&SETS).get(&fd).cloned().ok_or(Errno(libc::EINVAL))
}

impl Set {
    fn members(&self) -> MutexGuard<'_, Members> {
        lock(&self.members)
    }

    /// Checks the kernel's instance, without blocking.
    fn check_others(&self, out: &mut [EpollEvent]) -> Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        Ok(self.epoll.wait(out, Some(Duration::ZERO))?)
    }

    /// Checks everything once.
    fn check(&self, out: &mut [EpollEvent]) -> Result<usize> {
        let mut members = self.members();
        if members.closed {
            return Err(Errno(libc::EBADF));
        }
        members.remove_closed();
        members.others_first = !members.others_first;
        let mut found = 0;
        if members.has_others && members.others_first {
            found += self.check_others(out)?;
        }
        found += members.check(&mut out[found..]);
        if members.has_others && !members.others_first {
            found += self.check_others(&mut out[found..])?;
        }
        Ok(found)
    }

    fn active_sockets(&self) -> Vec<Socket> {
        let members = self.members();
        let active = members.sockets.values().filter(|member| !member.interest.disabled);
        active.map(|member| member.socket.clone()).collect()
    }

    /// Blocks until a member may have become ready. Returns events that became ready just before it blocked.
    fn block(&self, out: &mut [EpollEvent], deadline: Option<Instant>) -> Result<usize> {
        let waker = Waker::current()?;
        let mut set = WaitSet::new(vec![
            poll_entry(waker.fd(), libc::POLLIN),
            poll_entry(self.epoll.as_raw_fd(), libc::POLLIN),
        ]);
        // From here on, changes of the set wake this thread,
        self.members().waiters.add(&waker);
        let sockets = self.active_sockets();
        for socket in &sockets {
            socket.with(|state| state.add_waiter(&waker, &mut set));
        }
        // and from here on changes of the sockets, so check once more for earlier ones.
        let found = match self.check(out) {
            Ok(0) => set.block(deadline).map(|()| 0),
            found => found,
        };
        for socket in &sockets {
            socket.with(|state| state.remove_waiter(&waker));
        }
        self.members().waiters.remove(&waker);
        waker.clear();
        found
    }

    fn wait(&self, out: &mut [EpollEvent], timeout: Option<Duration>) -> Result<usize> {
        let start = Instant::now();
        // A deadline beyond the clock's range is none.
        let deadline = timeout.and_then(|timeout| start.checked_add(timeout));
        loop {
            let found = self.check(out)?;
            let now = Instant::now();
            if found > 0 || deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(found);
            }
            let sockets = self.active_sockets();
            if !sockets.is_empty() && now < start + SPIN_TIME {
                std::thread::yield_now();
                continue;
            }
            let mut armed = false;
            for socket in &sockets {
                armed |= socket.with(|state| state.arm());
            }
            if armed {
                continue;
            }
            let found = self.block(out, deadline)?;
            if found > 0 {
                return Ok(found);
            }
        }
    }

    /// Changes a descriptor of the kernel's instance.
    fn control_other(&self, operation: c_int, fd: RawFd, event: Option<(u32, u64)>) -> Result<()> {
        match (operation, event) {
            (libc::EPOLL_CTL_ADD, Some((events, data))) => {
                self.epoll.add(fd, events, data)?;
                self.members().has_others = true;
            }
            (libc::EPOLL_CTL_MOD, Some((events, data))) => self.epoll.modify(fd, events, data)?,
            (libc::EPOLL_CTL_DEL, _) => self.epoll.remove(fd)?,
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, None) => return Err(Errno(libc::EFAULT)),
            _ => return Err(Errno(libc::EINVAL)),
        }
        Ok(())
    }

    /// Changes an rsocket of the set.
    fn control(
        &self,
        operation: c_int,
        fd: RawFd,
        socket: Socket,
        event: Option<(u32, u64)>,
    ) -> Result<()> {
        let mut members = self.members();
        members.remove_closed();
        let known = members.sockets.contains_key(&fd);
        match operation {
            libc::EPOLL_CTL_ADD if known => return Err(Errno(libc::EEXIST)),
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !known => {
                return Err(Errno(libc::ENOENT));
            }
            libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {
                let (events, data) = event.ok_or(Errno(libc::EFAULT))?;
                let interest = Interest::new(events, data);
                members.sockets.insert(fd, Member { socket, interest });
            }
            libc::EPOLL_CTL_DEL => drop(members.sockets.remove(&fd)),
            _ => return Err(Errno(libc::EINVAL)),
        }
        members.waiters.wake();
        Ok(())
    }
}

/// Creates a set, and returns its descriptor. `flags` are those of epoll_create1(2).
pub fn create(flags: c_int) -> Result<RawFd> {
    // rdma-core accepts O_NONBLOCK as well, without effect.
    if flags & !(libc::EPOLL_CLOEXEC | libc::O_NONBLOCK) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let epoll = Epoll::new(flags & libc::EPOLL_CLOEXEC != 0)?;
    let fd = epoll.as_raw_fd();
    lock(&SETS).insert(fd, Arc::new(Set { epoll, members: Mutex::default() }));
    Ok(fd)
}

/// Adds, changes or removes a descriptor (`EPOLL_CTL_ADD`, `EPOLL_CTL_MOD`, `EPOLL_CTL_DEL`). The event is the mask and
/// the program's data.
pub fn control(
    set_fd: RawFd,
    operation: c_int,
    fd: RawFd,
    event: Option<(u32, u64)>,
) -> Result<()> {
    let set = set(set_fd)?;
    match table::find(fd) {
        Some(socket) => set.control(operation, fd, socket, event),
        None => set.control_other(operation, fd, event),
    }
}

/// Waits until a member is ready or the timeout ends, and returns the number of events written to `out`.
pub fn wait(set_fd: RawFd, out: &mut [EpollEvent], timeout: Option<Duration>) -> Result<usize> {
    set(set_fd)?.wait(out, timeout)
}

/// Closes a set. Returns false if there is none with this descriptor.
pub fn close(fd: RawFd) -> bool {
    let Some(set) = lock(&SETS).remove(&fd) else { return false };
    let mut members = set.members();
    members.closed = true;
    let removed = std::mem::take(&mut members.sockets);
    members.waiters.wake();
    drop(members);
    drop(removed);
    true
}

#[cfg(test)]
#[path = "epoll_tests.rs"]
mod tests;
