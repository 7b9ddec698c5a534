//! `rpoll` and `rselect`: waiting for rsockets and other descriptors at once.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, timeval};

use super::table::{self, Any};
use super::wait::{LOOK, Sources, Waker, interest};
use crate::entry::{self, Errno, Result};

/// These words mean the same.
fn plain(events: i16) -> i16 {
    let mut plain = events;
    if events & libc::POLLRDNORM != 0 {
        plain |= libc::POLLIN;
    }
    if events & libc::POLLWRNORM != 0 {
        plain |= libc::POLLOUT;
    }
    plain
}

/// What the program asked for, with its sockets. Closing one of them in another thread does not end them here.
struct List<'a> {
    asked: &'a mut [pollfd],
    sockets: Vec<Option<Any>>,
    others: bool,
}

impl<'a> List<'a> {
    fn new(asked: &'a mut [pollfd]) -> Self {
        let sockets: Vec<_> = asked.iter().map(|one| table::find(one.fd)).collect();
        let others = sockets.iter().any(Option::is_none);
        Self { asked, sockets, others }
    }

    /// Looks at all of them once, and counts those that are ready.
    fn look(&mut self) -> Result<c_int> {
        let mut ready = 0;
        if self.others {
            self.look_at_others()?;
        }
        for (one, socket) in self.asked.iter_mut().zip(&self.sockets) {
            if let Some(socket) = socket {
                let ready = socket.with(|state| {
                    state.progress();
                    state.readiness()
                });
                let always = libc::POLLERR | libc::POLLHUP;
                one.revents = ready & (plain(one.events) | always);
            }
            ready += c_int::from(one.revents != 0);
        }
        Ok(ready)
    }

    /// The system looks at those that are not ours.
    fn look_at_others(&mut self) -> Result<()> {
        let mut list = self.others();
        // SAFETY: a list of ours.
        let found = unsafe { libc::poll(list.as_mut_ptr(), list.len() as nfds_t, 0) };
        if found < 0 {
            return Err(Errno::last());
        }
        let mut list = list.iter();
        for (one, socket) in self.asked.iter_mut().zip(&self.sockets) {
            if socket.is_none() {
                one.revents = list.next().map_or(0, |other| other.revents);
            }
        }
        Ok(())
    }

    fn others(&self) -> Vec<pollfd> {
        let all = self.asked.iter().zip(&self.sockets);
        let others = all.filter(|(_, socket)| socket.is_none());
        others.map(|(one, _)| interest(one.fd, one.events)).collect()
    }

    /// Asks for events of all sockets. True if one has to look once more.
    fn arm(&self) -> bool {
        let mut new = false;
        for socket in self.sockets.iter().flatten() {
            new |= socket.with(|state| state.arm());
        }
        new
    }

    /// Sleeps until something may have changed.
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<()> {
        let waker = Waker::mine()?;
        let mut list = self.others();
        list.push(interest(waker.fd(), libc::POLLIN));
        let mut sources = Sources::new(list);
        for socket in self.sockets.iter().flatten() {
            socket.with(|state| state.enter(&waker, &mut sources));
        }
        // What has changed since the last look wakes nobody: so look once more now that we would be woken.
        let looked = self.look();
        let slept = match looked {
            Ok(0) => sources.sleep(deadline),
            other => other.map(|_| ()),
        };
        for socket in self.sockets.iter().flatten() {
            socket.with(|state| state.leave(&waker));
        }
        waker.clear();
        slept
    }
}

/// Waits until one is ready, or the time is over.
fn wait(asked: &mut [pollfd], timeout: Option<Duration>) -> Result<c_int> {
    let mut list = List::new(asked);
    let start = Instant::now();
    // One that is too far is none.
    let deadline = timeout.and_then(|timeout| start.checked_add(timeout));
    let ours = list.sockets.iter().any(Option::is_some);
    loop {
        let ready = list.look()?;
        let now = Instant::now();
        if ready > 0 || deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(ready);
        }
        if ours && now < start + LOOK {
            std::thread::yield_now();
            continue;
        }
        if list.arm() {
            continue;
        }
        list.sleep(deadline)?;
    }
}

pub(crate) unsafe extern "C" fn rpoll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    entry::count(|| {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        let asked = match count {
            0 => &mut [],
            _ if list.is_null() => return Err(Errno(libc::EFAULT)),
            // SAFETY: the program's list.
            _ => unsafe { std::slice::from_raw_parts_mut(list, count) },
        };
        wait(asked, u64::try_from(timeout).ok().map(Duration::from_millis))
    })
}

/// The three sets of select(2), where there are some.
struct Sets([*mut fd_set; 3]);

impl Sets {
    const EVENTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];

    /// # Safety
    /// The program's sets, or null.
    unsafe fn has(&self, set: usize, fd: RawFd) -> bool {
        // SAFETY: as the caller says.
        !self.0[set].is_null() && unsafe { libc::FD_ISSET(fd, self.0[set]) }
    }

    /// # Safety
    /// The program's sets, or null.
    unsafe fn clear(&self) {
        for &set in self.0.iter().filter(|set| !set.is_null()) {
            // SAFETY: as the caller says.
            unsafe { libc::FD_ZERO(set) };
        }
    }

    /// # Safety
    /// The program's sets, or null.
    unsafe fn add(&self, set: usize, fd: RawFd) -> bool {
        if self.0[set].is_null() {
            return false;
        }
        // SAFETY: as the caller says.
        unsafe { libc::FD_SET(fd, self.0[set]) };
        true
    }
}

pub(crate) unsafe extern "C" fn rselect(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    exceptional: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    entry::count(|| {
        if !(0..=libc::FD_SETSIZE as c_int).contains(&count) {
            return Err(Errno::INVALID);
        }
        let sets = Sets([readable, writable, exceptional]);
        let mut asked = Vec::new();
        for fd in 0..count {
            // SAFETY: the program's sets.
            let wanted = [0, 1, 2].map(|set| unsafe { sets.has(set, fd) });
            let events = (0..3).filter(|&set| wanted[set]).map(|set| Sets::EVENTS[set]);
            let events = events.fold(0, |all, one| all | one);
            if events != 0 {
                asked.push((interest(fd, events), wanted));
            }
        }
        // SAFETY: the program's structure, or null.
        let timeout = unsafe { timeout.as_ref() }.map(|given| {
            let seconds = Duration::from_secs(u64::try_from(given.tv_sec).unwrap_or(0));
            seconds + Duration::from_micros(u64::try_from(given.tv_usec).unwrap_or(0))
        });
        let mut list: Vec<_> = asked.iter().map(|(one, _)| *one).collect();
        wait(&mut list, timeout)?;
        if list.iter().any(|one| one.revents & libc::POLLNVAL != 0) {
            return Err(Errno(libc::EBADF));
        }
        // SAFETY: the program's sets.
        unsafe { sets.clear() };
        let mut ready = 0;
        // As select(2) has it: an end is readable, and an error is both.
        let of_set = [
            libc::POLLIN | libc::POLLHUP | libc::POLLERR,
            libc::POLLOUT | libc::POLLERR,
            libc::POLLPRI,
        ];
        for (one, (_, wanted)) in list.iter().zip(&asked) {
            for set in 0..3 {
                if wanted[set] && one.revents & of_set[set] != 0 {
                    // SAFETY: the program's sets.
                    ready += c_int::from(unsafe { sets.add(set, one.fd) });
                }
            }
        }
        Ok(ready)
    })
}
