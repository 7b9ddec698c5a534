//! `rpoll`: waiting for rsockets and other descriptors together.

use std::time::{Duration, Instant};

use ferroce_sys::poll::{PollEntry, poll_numbers};

use crate::error::Result;
use crate::table::{self, Socket};
use crate::wait::{SPIN_TIME, WaitSet, Waker, poll_entry};

/// Adds the events of which `POLLRDNORM` and `POLLWRNORM` are synonyms.
fn with_synonyms(events: i16) -> i16 {
    let mut all = events;
    if events & libc::POLLRDNORM != 0 {
        all |= libc::POLLIN;
    }
    if events & libc::POLLWRNORM != 0 {
        all |= libc::POLLOUT;
    }
    all
}

/// The program's list, with its sockets. A socket that another thread closes meanwhile stays open here.
struct List<'a> {
    entries: &'a mut [PollEntry],
    sockets: Vec<Option<Socket>>,
    has_others: bool,
}

impl<'a> List<'a> {
    fn new(entries: &'a mut [PollEntry]) -> Self {
        let sockets: Vec<_> = entries.iter().map(|entry| table::find(entry.fd)).collect();
        let has_others = sockets.iter().any(Option::is_none);
        Self { entries, sockets, has_others }
    }

    /// Checks all entries once, and returns the number of those that are ready.
    fn check(&mut self) -> Result<usize> {
        if self.has_others {
            self.check_others()?;
        }
        let mut count = 0;
        for (entry, socket) in self.entries.iter_mut().zip(&self.sockets) {
            if let Some(socket) = socket {
                let ready = socket.with(|state| {
                    state.process_completions();
                    state.readiness()
                });
                let always = libc::POLLERR | libc::POLLHUP;
                entry.revents = ready & (with_synonyms(entry.events) | always);
            }
            count += usize::from(entry.revents != 0);
        }
        Ok(count)
    }

    /// Polls the descriptors that are not rsockets.
    fn check_others(&mut self) -> Result<()> {
        let mut list = self.others();
        poll_numbers(&mut list, Some(Duration::ZERO))?;
        let mut list = list.iter();
        for (entry, socket) in self.entries.iter_mut().zip(&self.sockets) {
            if socket.is_none() {
                entry.revents = list.next().map_or(0, |other| other.revents);
            }
        }
        Ok(())
    }

    fn others(&self) -> Vec<PollEntry> {
        let all = self.entries.iter().zip(&self.sockets);
        let others = all.filter(|(_, socket)| socket.is_none());
        others.map(|(entry, _)| poll_entry(entry.fd, entry.events)).collect()
    }

    /// Requests events of all sockets. Returns true if the entries have to be checked once more.
    fn arm(&self) -> bool {
        let mut new = false;
        for socket in self.sockets.iter().flatten() {
            new |= socket.with(|state| state.arm());
        }
        new
    }

    /// Blocks until an entry may have become ready.
    fn block(&mut self, deadline: Option<Instant>) -> Result<()> {
        let waker = Waker::current()?;
        let mut list = self.others();
        list.push(poll_entry(waker.fd(), libc::POLLIN));
        let mut set = WaitSet::new(list);
        for socket in self.sockets.iter().flatten() {
            socket.with(|state| state.add_waiter(&waker, &mut set));
        }
        // Changes since the last check did not wake this thread: check once more.
        let blocked = match self.check() {
            Ok(0) => set.block(deadline),
            checked => checked.map(|_| ()),
        };
        for socket in self.sockets.iter().flatten() {
            socket.with(|state| state.remove_waiter(&waker));
        }
        waker.clear();
        blocked
    }
}

/// Waits until a descriptor is ready or the timeout ends, as poll(2) does, and returns the number of those that are
/// ready. A signal handler ends it with `EINTR`.
pub fn poll(entries: &mut [PollEntry], timeout: Option<Duration>) -> Result<usize> {
    let mut list = List::new(entries);
    let start = Instant::now();
    // A deadline beyond the clock's range is none.
    let deadline = timeout.and_then(|timeout| start.checked_add(timeout));
    let has_sockets = list.sockets.iter().any(Option::is_some);
    loop {
        let ready = list.check()?;
        let now = Instant::now();
        if ready > 0 || deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(ready);
        }
        if has_sockets && now < start + SPIN_TIME {
            std::thread::yield_now();
            continue;
        }
        if list.arm() {
            continue;
        }
        list.block(deadline)?;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn synonyms_are_added() {
        assert_eq!(with_synonyms(libc::POLLRDNORM) & libc::POLLIN, libc::POLLIN);
        assert_eq!(with_synonyms(libc::POLLWRNORM) & libc::POLLOUT, libc::POLLOUT);
        assert_eq!(with_synonyms(libc::POLLPRI), libc::POLLPRI);
    }

    #[test]
    fn descriptors_that_are_not_rsockets_are_polled_too() {
        let event = ferroce_sys::Event::new().unwrap();
        let mut list = [poll_entry(event.as_raw_fd(), libc::POLLIN), poll_entry(-1, libc::POLLIN)];
        assert_eq!(poll(&mut list, Some(Duration::ZERO)), Ok(0));
        event.signal().unwrap();
        assert_eq!(poll(&mut list, None), Ok(1));
        assert_eq!((list[0].revents, list[1].revents), (libc::POLLIN, 0));
    }

    #[test]
    fn a_timeout_ends_the_wait_without_ready_entries() {
        let start = Instant::now();
        assert_eq!(poll(&mut [], Some(Duration::from_millis(3))), Ok(0));
        assert!(start.elapsed() >= Duration::from_millis(3));
    }
}
