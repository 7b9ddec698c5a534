//! A queue of events behind a file descriptor.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::Instant;

use ferroce_sys::{Event, Interest, Poller};

use crate::error::{SystemError, WaitError};
use crate::sync::lock;
use crate::time::nanos;

/// The length at which [`EventQueue::is_full`] stops the producer.
const CAPACITY: usize = 1024;

/// Events for one consumer. The descriptor is readable while the queue is not empty.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    readable: Event,
    events: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Result<Self, SystemError> {
        Ok(Self { readable: Event::counting()?, events: Mutex::default() })
    }

    pub(crate) fn push(&self, event: T) {
        lock(&self.events).push_back(event);
        // The eventfd counts to 2^64 - 2, so this cannot fail for want of space.
        let _ = self.readable.signal();
    }

    /// Whether the consumer is too slow to be given more. Further events stay in the state machine, which has limits of
    /// its own.
    pub(crate) fn is_full(&self) -> bool {
        lock(&self.events).len() >= CAPACITY
    }

    pub(crate) fn take(&self) -> Result<Option<T>, WaitError> {
        if self.readable.take()? == 0 {
            return Ok(None);
        }
        Ok(lock(&self.events).pop_front())
    }

    /// Waits for an event until `deadline`.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Result<Option<T>, WaitError> {
        let deadline = nanos(deadline);
        let mut poller = Poller::new();
        poller.watch(&self.readable, Interest::Read);
        loop {
            if let Some(event) = self.take()? {
                return Ok(Some(event));
            }
            if poller.wait(deadline)? == 0 {
                return Ok(None);
            }
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}
