//! Waiting for descriptors of which some are managed: poll(2), select(2), and the parts that epoll(7) uses.

use std::ffi::c_int;
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use libc::{fd_set, pollfd, sigset_t, timespec, timeval};

use crate::next::{self, errno, fail};
use crate::rdma;
use crate::table::{self, Entry};

/// The deadline of a call.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// `None` stands for no deadline, as does a time beyond the clock's range.
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// A negative number stands for no deadline.
    pub(crate) fn after_milliseconds(timeout: c_int) -> Self {
        Self::after(u64::try_from(timeout).ok().map(Duration::from_millis))
    }

    pub(crate) fn is_over(self) -> bool {
        self.0.is_some_and(|deadline| deadline <= Instant::now())
    }

    fn left(self) -> Option<Duration> {
        self.0.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// For poll(2), rounded up.
    pub(crate) fn milliseconds(self) -> c_int {
        self.left().map_or(-1, |left| {
            c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
        })
    }
}

/// # Safety
/// The program's time, or null.
pub(crate) unsafe fn duration(time: *const timespec) -> Option<Duration> {
    // SAFETY: as the caller promises.
    unsafe { time.as_ref() }.map(|time| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
    })
}

/// # Safety
/// The program's time, or null.
pub(crate) unsafe fn duration_of_select(time: *const timeval) -> Option<Duration> {
    // SAFETY: as the caller promises.
    unsafe { time.as_ref() }.map(|time| {
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    })
}

/// The signal mask of ppoll(2), pselect(2) and epoll_pwait(2), in force while this exists.
///
/// A signal that the mask unblocks stays blocked meanwhile, and a signalfd reports a pending one. It is delivered by a
/// ppoll(2) with the mask, so that none is delivered just before the thread blocks and goes unnoticed.
struct Mask {
    mask: sigset_t,
    before: sigset_t,
    /// −1 if the mask unblocks nothing.
    pending: c_int,
}

impl Mask {
    fn new(mask: &sigset_t) -> Self {
        // SAFETY: local sets, which the calls fill.
        unsafe {
            let (mut before, mut unblocked): (sigset_t, sigset_t) = (zeroed(), zeroed());
            libc::pthread_sigmask(libc::SIG_BLOCK, mask, &raw mut before);
            libc::sigemptyset(&raw mut unblocked);
            let mut any = false;
            for signal in 1..=libc::SIGRTMAX() {
                let blocked = libc::sigismember(&raw const before, signal) == 1;
                if blocked && libc::sigismember(mask, signal) == 0 {
                    libc::sigaddset(&raw mut unblocked, signal);
                    any = true;
                }
            }
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let pending = if any { libc::signalfd(-1, &raw const unblocked, flags) } else { -1 };
            Self { mask: *mask, before, pending }
        }
    }

    /// Runs the handlers of pending signals. Returns false if there was none: another thread took it.
    fn deliver(&self) -> bool {
        let now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: no list, and local structures.
        let result = unsafe { next::ppoll(null_mut(), 0, &raw const now, &raw const self.mask) };
        result < 0 && errno() == libc::EINTR
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        let error = errno();
        // SAFETY: a local set, and an owned descriptor.
        unsafe {
            if self.pending >= 0 {
                next::close(self.pending);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut());
        }
        next::set_errno(error);
    }
}

/// Polls rsockets and kernel descriptors with a signal mask, or without one. Returns the result of poll(2).
///
/// # Safety
/// The program's mask, or null.
pub(crate) unsafe fn masked_poll(
    list: &mut Vec<pollfd>,
    deadline: Deadline,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: as the caller promises.
    let Some(mask) = (unsafe { mask.as_ref() }) else {
        return rdma::poll(list, deadline.milliseconds());
    };
    let mask = Mask::new(mask);
    list.push(pollfd { fd: mask.pending, events: libc::POLLIN, revents: 0 });
    let result = loop {
        let ready = rdma::poll(list, deadline.milliseconds());
        let signal = list.last().is_some_and(|last| last.revents != 0);
        match ready {
            1 if signal && !mask.deliver() => {}
            1 if signal => break fail(libc::EINTR),
            _ if ready > 0 && signal => break ready - 1,
            _ => break ready,
        }
    };
    list.pop();
    result
}

/// The program's list, with rsockets in place of their descriptors.
struct Translated {
    list: Vec<pollfd>,
    /// The program's descriptor of each entry.
    owners: Vec<usize>,
}

impl Translated {
    fn new(asked: &[pollfd]) -> Self {
        let mut all = Self { list: Vec::new(), owners: Vec::new() };
        for (owner, one) in asked.iter().enumerate() {
            match table::get(one.fd) {
                Some(Entry::Connection(connection)) => {
                    all.push(owner, connection.rsocket, one.events);
                }
                Some(Entry::Listener(listener)) => {
                    all.push(owner, one.fd, one.events);
                    if let Some(rsocket) = listener.wait_on(one.fd) {
                        all.push(owner, rsocket, one.events);
                    }
                }
                Some(Entry::Set(set)) => {
                    all.push(owner, one.fd, one.events);
                    if one.events & libc::POLLIN != 0 {
                        set.interests(|rsocket, events| all.push(owner, rsocket, events));
                    }
                }
                None => all.push(owner, one.fd, one.events),
            }
        }
        all
    }

    fn push(&mut self, owner: usize, fd: c_int, events: i16) {
        self.list.push(pollfd { fd, events, revents: 0 });
        self.owners.push(owner);
    }

    /// Writes the results to the program's list, and returns the number of descriptors that are ready.
    fn give(&self, asked: &mut [pollfd]) -> c_int {
        asked.iter_mut().for_each(|one| one.revents = 0);
        for (found, &owner) in self.list.iter().zip(&self.owners) {
            let one = &mut asked[owner];
            let is_set = found.fd != one.fd && matches!(table::get(one.fd), Some(Entry::Set(_)));
            // A member that is ready makes its set readable.
            let ready = if is_set && found.revents != 0 { libc::POLLIN } else { found.revents };
            one.revents |= ready;
        }
        asked.iter().filter(|one| one.revents != 0).count() as c_int
    }
}

/// poll(2) and ppoll(2) of a list with managed descriptors.
///
/// # Safety
/// The program's mask, or null.
pub(crate) unsafe fn poll(
    asked: &mut [pollfd],
    deadline: Deadline,
    mask: *const sigset_t,
) -> c_int {
    let mut translated = Translated::new(asked);
    // SAFETY: as the caller promises.
    match unsafe { masked_poll(&mut translated.list, deadline, mask) } {
        0.. => translated.give(asked),
        error => error,
    }
}

/// The three sets of select(2).
pub(crate) struct Sets {
    pub(crate) count: c_int,
    pub(crate) sets: [*mut fd_set; 3],
}

impl Sets {
    const EVENTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    /// As in select(2), the end of a stream is readable, and an error is readable and writable.
    const READY: [i16; 3] = [
        libc::POLLIN | libc::POLLHUP | libc::POLLERR,
        libc::POLLOUT | libc::POLLERR,
        libc::POLLPRI,
    ];

    /// # Safety
    /// The program's sets with this number of bits, or null.
    unsafe fn has(&self, set: usize, fd: c_int) -> bool {
        // SAFETY: as the caller promises.
        !self.sets[set].is_null() && unsafe { libc::FD_ISSET(fd, self.sets[set]) }
    }

    /// # Safety
    /// As above.
    unsafe fn asked(&self) -> Vec<pollfd> {
        let count = self.count.clamp(0, libc::FD_SETSIZE as c_int);
        let all = (0..count).map(|fd| {
            // SAFETY: as the caller promises.
            let wanted = (0..3).filter(|&set| unsafe { self.has(set, fd) });
            let events = wanted.fold(0, |all, set| all | Self::EVENTS[set]);
            pollfd { fd, events, revents: 0 }
        });
        all.filter(|one| one.events != 0).collect()
    }

    /// Whether one of them is managed.
    ///
    /// # Safety
    /// As above.
    pub(crate) unsafe fn any_managed(&self) -> bool {
        let count = self.count.clamp(0, libc::FD_SETSIZE as c_int);
        (0..count).any(|fd| {
            // SAFETY: as the caller promises.
            table::is_managed(fd) && (0..3).any(|set| unsafe { self.has(set, fd) })
        })
    }

    /// select(2) and pselect(2) with managed descriptors.
    ///
    /// # Safety
    /// As above; the program's mask, or null.
    pub(crate) unsafe fn wait(&self, deadline: Deadline, mask: *const sigset_t) -> c_int {
        // SAFETY: as the caller promises.
        let mut asked = unsafe { self.asked() };
        // SAFETY: as the caller promises.
        let polled = unsafe { poll(&mut asked, deadline, mask) };
        if polled < 0 {
            return polled;
        }
        if asked.iter().any(|one| one.revents & libc::POLLNVAL != 0) {
            return fail(libc::EBADF);
        }
        let mut ready = 0;
        for one in &asked {
            for set in 0..3 {
                // SAFETY: as the caller promises.
                unsafe {
                    if !self.has(set, one.fd) {
                        continue;
                    }
                    if one.revents & Self::READY[set] == 0 {
                        libc::FD_CLR(one.fd, self.sets[set]);
                    } else {
                        ready += 1;
                    }
                }
            }
        }
        ready
    }
}

/// Writes back the rest of the timeout, as Linux's select(2) does.
///
/// # Safety
/// The program's time, or null.
pub(crate) unsafe fn write_left(deadline: Deadline, time: *mut timeval) {
    // SAFETY: as the caller promises.
    if let (Some(left), Some(time)) = (deadline.left(), unsafe { time.as_mut() }) {
        time.tv_sec = left.as_secs() as libc::time_t;
        time.tv_usec = left.subsec_micros().into();
    }
}

/// No mask.
pub(crate) const UNMASKED: *const sigset_t = null();
