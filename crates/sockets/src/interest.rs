//! The interest in a member of an epoll set, and when it is reported: level-triggered, edge-triggered, one-shot.
//!
//! An rsocket reports whether it is ready, not when it became ready. An edge is therefore a readiness that was not
//! reported since the last call that could have ended it: any receive, for input, and a send that would have blocked,
//! for output. Like the kernel, that may report a superfluous edge, and never misses one for a program that reads and
//! writes until `EAGAIN`, as epoll(7) requires.

use libc::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLPRI, EPOLLRDHUP};

/// The numbers of poll(2) and epoll(7) are the same.
const INPUT: u32 = (EPOLLIN | EPOLLPRI | EPOLLRDHUP | libc::EPOLLRDNORM) as u32;
const OUTPUT: u32 = (EPOLLOUT | libc::EPOLLWRNORM) as u32;
/// Events that are always reported.
const ALWAYS: u32 = (EPOLLERR | EPOLLHUP) as u32;

/// Counts of the calls after which a new edge is possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) reads: u32,
    pub(crate) blocked_writes: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Interest {
    events: u32,
    /// Edges that were reported and have not ended.
    reported: u32,
    calls: Calls,
    /// Reported once, and not armed again by `EPOLL_CTL_MOD`.
    disabled: bool,
}

impl Interest {
    pub(crate) fn new(events: u32, calls: Calls) -> Self {
        Self { events, reported: 0, calls, disabled: false }
    }

    pub(crate) fn is_edge_triggered(&self) -> bool {
        self.events & EPOLLET as u32 != 0
    }

    /// Events to poll for now; `None` if there is nothing that could be reported.
    pub(crate) fn wanted(&mut self, calls: Calls) -> Option<i16> {
        if self.disabled {
            return None;
        }
        let wanted = self.events & (INPUT | OUTPUT);
        if !self.is_edge_triggered() {
            return Some(wanted as i16);
        }
        if calls.reads != self.calls.reads {
            self.reported &= !INPUT;
        }
        if calls.blocked_writes != self.calls.blocked_writes {
            self.reported &= !OUTPUT;
        }
        self.calls = calls;
        let wanted = wanted & !self.reported;
        // poll(2) always reports these, so it would return immediately.
        (wanted != 0 || self.reported & ALWAYS == 0).then_some(wanted as i16)
    }

    /// The events to report when the socket has this readiness.
    pub(crate) fn report(&mut self, ready: i16) -> Option<u32> {
        let ready = u32::from(ready as u16) & (self.events | ALWAYS);
        let new = if self.is_edge_triggered() { ready & !self.reported } else { ready };
        if self.disabled || new == 0 {
            return None;
        }
        self.reported |= ready;
        self.disabled = self.events & EPOLLONESHOT as u32 != 0;
        Some(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{POLLHUP, POLLIN, POLLOUT};

    const NONE: Calls = Calls { reads: 0, blocked_writes: 0 };

    fn both() -> u32 {
        (EPOLLIN | EPOLLOUT) as u32
    }

    #[test]
    fn level_triggered_interest_is_reported_while_ready() {
        let mut interest = Interest::new(EPOLLIN as u32, NONE);
        for _ in 0..2 {
            assert_eq!(interest.wanted(NONE), Some(POLLIN));
            assert_eq!(interest.report(POLLIN), Some(EPOLLIN as u32));
        }
        assert_eq!(interest.report(0), None);
        assert_eq!(interest.report(POLLOUT), None);
        assert_eq!(interest.report(POLLHUP), Some(EPOLLHUP as u32));
    }

    #[test]
    fn an_edge_is_reported_once_until_a_call_makes_another_possible() {
        let mut interest = Interest::new(both() | EPOLLET as u32, NONE);
        assert_eq!(interest.report(POLLOUT), Some(EPOLLOUT as u32));
        assert_eq!(interest.wanted(NONE), Some(POLLIN));
        assert_eq!(interest.report(POLLIN), Some(EPOLLIN as u32));
        assert_eq!(interest.wanted(NONE), Some(0));
        assert_eq!(interest.report(POLLIN | POLLOUT), None);
        let read = Calls { reads: 1, blocked_writes: 0 };
        assert_eq!(interest.wanted(read), Some(POLLIN));
        assert_eq!(interest.report(POLLIN), Some(EPOLLIN as u32));
        let wrote = Calls { reads: 1, blocked_writes: 1 };
        assert_eq!(interest.wanted(wrote), Some(POLLOUT));
        assert_eq!(interest.report(POLLOUT), Some(EPOLLOUT as u32));
    }

    #[test]
    fn a_hangup_reported_as_an_edge_is_not_polled_again() {
        let mut interest = Interest::new(both() | EPOLLET as u32, NONE);
        assert_eq!(interest.report(POLLIN | POLLOUT), Some(both()));
        assert_eq!(interest.report(POLLIN | POLLOUT | POLLHUP), Some(both() | EPOLLHUP as u32));
        assert_eq!(interest.wanted(NONE), None);
        assert_eq!(interest.wanted(Calls { reads: 1, blocked_writes: 0 }), Some(POLLIN));
    }

    #[test]
    fn one_shot_interest_is_reported_once() {
        let mut interest = Interest::new(both() | EPOLLONESHOT as u32, NONE);
        assert_eq!(interest.report(POLLIN), Some(EPOLLIN as u32));
        assert_eq!(interest.wanted(NONE), None);
        assert_eq!(interest.report(POLLIN), None);
    }
}
