//! `repoll_create`, `repoll_ctl` and `repoll_wait`: epoll(7) for rsockets and other descriptors at once.
//!
//! A set is a kernel's epoll instance, which holds the descriptors that are not ours, beside a list of rsockets. The calls
//! do what those of epoll(7) do, errors included: −1 with `errno`, where rdma-core 65 returns the error's number.
//!
//! Edge triggering (`EPOLLET`) goes by the changes that a socket counts: an entry is reported once for each time that
//! something completed or changed while it is ready. Like the kernel's, that may report an edge too many, and never one
//! too few.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use libc::epoll_event;

use super::table::{self, Any};
use super::wait::{LOOK, Sources, Waiters, Waker, interest};
use crate::context::lock;
use crate::entry::{self, Errno, Result};

/// An rsocket of a set.
struct Entry {
    socket: Any,
    /// What is waited for, with `EPOLLET` and `EPOLLONESHOT`.
    events: u32,
    /// The program's own.
    data: u64,
    /// The socket's count of changes when it was last reported.
    reported: Option<u64>,
    /// A one-shot entry was reported, and waits to be armed by `EPOLL_CTL_MOD`.
    disabled: bool,
}

impl Entry {
    fn has(&self, flag: c_int) -> bool {
        self.events & flag as u32 != 0
    }

    /// What there is to report now, if anything.
    fn take_ready(&mut self) -> Option<epoll_event> {
        if self.disabled {
            return None;
        }
        let (ready, changes) = self.socket.with(|state| {
            state.progress();
            (state.readiness(), state.changes())
        });
        // The bits of poll(2) are those of epoll(7).
        let wanted = self.events | (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        let events = u32::from(ready as u16) & wanted;
        if events == 0 || (self.has(libc::EPOLLET) && self.reported == Some(changes)) {
            return None;
        }
        self.reported = Some(changes);
        self.disabled = self.has(libc::EPOLLONESHOT);
        Some(epoll_event { events, u64: self.data })
    }
}

#[derive(Default)]
struct Members {
    sockets: BTreeMap<RawFd, Entry>,
    /// The kernel's instance has had descriptors.
    others: bool,
    /// The rsocket that was reported last: the next look starts behind it, so that a few busy ones do not hide others.
    last: RawFd,
    /// The kernel's instance has the first turn.
    others_first: bool,
    waiters: Waiters,
    closed: bool,
}

impl Members {
    /// Forgets sockets that the program has closed, as a kernel does.
    fn forget_closed(&mut self) {
        self.sockets.retain(|&number, entry| {
            table::find(number).is_some_and(|known| known.is_same(&entry.socket))
        });
    }

    /// Reports rsockets that are ready, as many as there is room for.
    fn look(&mut self, out: &mut [epoll_event]) -> usize {
        let behind = (Excluded(self.last), Unbounded);
        let mut order: Vec<_> = self.sockets.range(behind).map(|(&number, _)| number).collect();
        order.extend(self.sockets.range(..=self.last).map(|(&number, _)| number));
        let mut found = 0;
        for number in order {
            if found == out.len() {
                break;
            }
            let ready = self.sockets.get_mut(&number).and_then(Entry::take_ready);
            if let Some(event) = ready {
                out[found] = event;
                found += 1;
                self.last = number;
            }
        }
        found
    }
}

struct Set {
    /// Its number is the set's.
    epoll: OwnedFd,
    members: Mutex<Members>,
}

static SETS: Mutex<BTreeMap<RawFd, Arc<Set>>> = Mutex::new(BTreeMap::new());

impl Set {
    fn of(number: c_int) -> Result<Arc<Self>> {
        lock(&SETS).get(&number).cloned().ok_or(Errno::INVALID)
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        lock(&self.members)
    }

    /// The kernel's own, without waiting.
    fn look_at_others(&self, out: &mut [epoll_event]) -> Result<usize> {
        let most = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
        if most == 0 {
            return Ok(0);
        }
        // SAFETY: a list of this length.
        let found = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), out.as_mut_ptr(), most, 0) };
        usize::try_from(found).map_err(|_| Errno::last())
    }

    /// Looks at everything once.
    fn look(&self, out: &mut [epoll_event]) -> Result<usize> {
        let mut members = self.members();
        if members.closed {
            return Err(Errno(libc::EBADF));
        }
        members.forget_closed();
        members.others_first = !members.others_first;
        let mut found = 0;
        if members.others && members.others_first {
            found += self.look_at_others(out)?;
        }
        found += members.look(&mut out[found..]);
        if members.others && !members.others_first {
            found += self.look_at_others(&mut out[found..])?;
        }
        Ok(found)
    }

    fn sockets(&self) -> Vec<Any> {
        let members = self.members();
        let active = members.sockets.values().filter(|entry| !entry.disabled);
        active.map(|entry| entry.socket.clone()).collect()
    }

    /// Sleeps until something may have changed. What was ready just before it is returned.
    fn sleep(&self, out: &mut [epoll_event], deadline: Option<Instant>) -> Result<usize> {
        let waker = Waker::mine()?;
        let mut sources = Sources::new(vec![
            interest(waker.fd(), libc::POLLIN),
            interest(self.epoll.as_raw_fd(), libc::POLLIN),
        ]);
        self.members().waiters.enter(&waker);
        // From here on changes of the set wake this thread.
        let sockets = self.sockets();
        for socket in &sockets {
            socket.with(|state| state.enter(&waker, &mut sources));
        }
        // And from here on changes of the sockets, so look once more at what came before.
        let found = match self.look(out) {
            Ok(0) => sources.sleep(deadline).map(|()| 0),
            found => found,
        };
        for socket in &sockets {
            socket.with(|state| state.leave(&waker));
        }
        self.members().waiters.leave(&waker);
        waker.clear();
        found
    }

    fn wait(&self, out: &mut [epoll_event], timeout: Option<Duration>) -> Result<usize> {
        let start = Instant::now();
        // One that is too far is none.
        let deadline = timeout.and_then(|timeout| start.checked_add(timeout));
        loop {
            let found = self.look(out)?;
            let now = Instant::now();
            if found > 0 || deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(found);
            }
            let sockets = self.sockets();
            if !sockets.is_empty() && now < start + LOOK {
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
            let found = self.sleep(out, deadline)?;
            if found > 0 {
                return Ok(found);
            }
        }
    }

    /// # Safety
    /// The event is the program's, or null.
    unsafe fn change_other(&self, op: c_int, fd: RawFd, event: *mut epoll_event) -> Result<()> {
        // SAFETY: as the caller says.
        if unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, event) } < 0 {
            return Err(Errno::last());
        }
        self.members().others |= op == libc::EPOLL_CTL_ADD;
        Ok(())
    }

    /// # Safety
    /// The event is the program's, or null.
    unsafe fn change(
        &self,
        op: c_int,
        fd: RawFd,
        socket: Any,
        event: *const epoll_event,
    ) -> Result<()> {
        let mut members = self.members();
        members.forget_closed();
        let known = members.sockets.contains_key(&fd);
        match op {
            libc::EPOLL_CTL_ADD if known => return Err(Errno(libc::EEXIST)),
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !known => {
                return Err(Errno(libc::ENOENT));
            }
            libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {
                if event.is_null() {
                    return Err(Errno(libc::EFAULT));
                }
                // SAFETY: as the caller says; the structure is packed.
                let epoll_event { events, u64: data } = unsafe { event.read_unaligned() };
                let entry = Entry { socket, events, data, reported: None, disabled: false };
                members.sockets.insert(fd, entry);
            }
            libc::EPOLL_CTL_DEL => drop(members.sockets.remove(&fd)),
            _ => return Err(Errno::INVALID),
        }
        members.waiters.wake();
        Ok(())
    }
}

pub(crate) unsafe extern "C" fn repoll_create(flags: c_int) -> c_int {
    entry::count(|| {
        // rdma-core takes O_NONBLOCK, too, which means nothing here.
        if flags & !(libc::EPOLL_CLOEXEC | libc::O_NONBLOCK) != 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::epoll_create1(flags & libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: just made, and nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        lock(&SETS).insert(fd, Arc::new(Set { epoll, members: Mutex::default() }));
        Ok(fd)
    })
}

pub(crate) unsafe extern "C" fn repoll_ctl(
    number: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    entry::count(|| {
        let set = Set::of(number)?;
        match table::find(fd) {
            // SAFETY: the program's event.
            Some(socket) => unsafe { set.change(op, fd, socket, event) }?,
            // SAFETY: as above.
            None => unsafe { set.change_other(op, fd, event) }?,
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn repoll_wait(
    number: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    entry::count(|| {
        let set = Set::of(number)?;
        let most = usize::try_from(most).ok().filter(|&most| most > 0).ok_or(Errno::INVALID)?;
        if events.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the program's list. A set cannot report more than there are descriptors.
        let out = unsafe { std::slice::from_raw_parts_mut(events, most) };
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        Ok(set.wait(out, timeout)? as c_int)
    })
}

/// Closes a set. False if it is none.
pub(super) fn close(number: c_int) -> bool {
    let Some(set) = lock(&SETS).remove(&number) else { return false };
    let mut members = set.members();
    members.closed = true;
    let gone = std::mem::take(&mut members.sockets);
    members.waiters.wake();
    drop(members);
    drop(gone);
    true
}
