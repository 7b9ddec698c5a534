//! `rpoll` and `rselect`.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::time::Duration;

use ferroce_rsocket::{PollEntry, poll};
use libc::{fd_set, nfds_t, pollfd, timeval};

use crate::entry::{self, Errno};

pub(crate) unsafe extern "C" fn rpoll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    entry::count(|| {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        let entries: &mut [PollEntry] = match count {
            0 => &mut [],
            _ if list.is_null() => return Err(Errno(libc::EFAULT)),
            // SAFETY: the program's list.
            _ => unsafe { std::slice::from_raw_parts_mut(list, count) },
        };
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        Ok(poll(entries, timeout)? as c_int)
    })
}

/// The three sets of select(2), each of which may be null.
struct Sets([*mut fd_set; 3]);

impl Sets {
    const EVENTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    /// The results that put a descriptor into a set, as in select(2): a hangup is readable, an error is readable and
    /// writable.
    const RESULTS: [i16; 3] = [
        libc::POLLIN | libc::POLLHUP | libc::POLLERR,
        libc::POLLOUT | libc::POLLERR,
        libc::POLLPRI,
    ];

    /// # Safety
    /// The sets are the program's, or null.
    unsafe fn has(&self, set: usize, fd: RawFd) -> bool {
        // SAFETY: as the caller promises.
        !self.0[set].is_null() && unsafe { libc::FD_ISSET(fd, self.0[set]) }
    }

    /// # Safety
    /// The sets are the program's, or null.
    unsafe fn clear(&self) {
        for &set in self.0.iter().filter(|set| !set.is_null()) {
            // SAFETY: as the caller promises.
            unsafe { libc::FD_ZERO(set) };
        }
    }

    /// # Safety
    /// The sets are the program's, or null.
    unsafe fn add(&self, set: usize, fd: RawFd) -> bool {
        if self.0[set].is_null() {
            return false;
        }
        // SAFETY: as the caller promises.
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
        let mut requested = Vec::new();
        for fd in 0..count {
            // SAFETY: the program's sets.
            let wanted = [0, 1, 2].map(|set| unsafe { sets.has(set, fd) });
            let events = (0..3).filter(|&set| wanted[set]).map(|set| Sets::EVENTS[set]);
            let events = events.fold(0, |all, event| all | event);
            if events != 0 {
                requested.push((PollEntry { fd, events, revents: 0 }, wanted));
            }
        }
        // SAFETY: the program's structure, or null.
        let timeout = unsafe { timeout.as_ref() }.map(|given| {
            let seconds = Duration::from_secs(u64::try_from(given.tv_sec).unwrap_or(0));
            seconds + Duration::from_micros(u64::try_from(given.tv_usec).unwrap_or(0))
        });
        let mut list: Vec<_> = requested.iter().map(|(entry, _)| *entry).collect();
        poll(&mut list, timeout)?;
        if list.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(Errno(libc::EBADF));
        }
        // SAFETY: the program's sets.
        unsafe { sets.clear() };
        let mut ready = 0;
        for (entry, (_, wanted)) in list.iter().zip(&requested) {
            for (set, results) in Sets::RESULTS.into_iter().enumerate() {
                if wanted[set] && entry.revents & results != 0 {
                    // SAFETY: the program's sets.
                    ready += c_int::from(unsafe { sets.add(set, entry.fd) });
                }
            }
        }
        Ok(ready)
    })
}
