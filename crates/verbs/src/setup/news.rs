//! What a machine has to tell, behind a file descriptor.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use ferroce_sys::{Event, Interest, Poller};

use crate::error::Error;
use crate::sync::lock;

/// How much waits here at most.
const MOST: usize = 1024;

/// A queue that can be waited for.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    event: Event,
    waiting: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self { event: Event::counting()?, waiting: Mutex::default() })
    }

    pub(crate) fn push(&self, news: T) {
        lock(&self.waiting).push_back(news);
        // Its counter holds more than memory does: it cannot fail for being full.
        let _ = self.event.signal();
    }

    /// Whether it has as much as an owner who does not look can be given. The rest stays with the machine, which has
    /// limits of its own.
    pub(crate) fn is_full(&self) -> bool {
        lock(&self.waiting).len() >= MOST
    }

    pub(crate) fn take(&self) -> Result<Option<T>, Error> {
        if self.event.take()? == 0 {
            return Ok(None);
        }
        Ok(lock(&self.waiting).pop_front())
    }

    /// Waits, at most until the deadline in nanoseconds of the monotonic clock.
    pub(crate) fn wait(&self, deadline: Option<u64>) -> Result<Option<T>, Error> {
        let mut poller = Poller::new();
        poller.watch(&self.event, Interest::Read);
        loop {
            if let Some(news) = self.take()? {
                return Ok(Some(news));
            }
            if poller.wait(deadline)? == 0 {
                return Ok(None);
            }
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
