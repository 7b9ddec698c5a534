//! A queue of events behind a file descriptor.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ferroce_sys::Event;

use crate::error::{SystemError, WaitError};
use crate::sync::lock;

/// The length at which [`EventQueue::is_full`] stops the producer.
const CAPACITY: usize = 1024;

/// Pending events. The descriptor is readable while there are any.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    /// Counts the pending events, and is only touched under their lock: a read never blocks, even if the program has
    /// cleared O_NONBLOCK.
    readable: Event,
    pending: Mutex<VecDeque<T>>,
    /// Notified when an event is added.
    raised: Condvar,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Result<Self, SystemError> {
        let readable = Event::counting()?;
        Ok(Self { readable, pending: Mutex::default(), raised: Condvar::new() })
    }

    pub(crate) fn raise(&self, event: T) {
        let mut pending = lock(&self.pending);
        pending.push_back(event);
        // The eventfd counts to 2^64 - 2, so this cannot fail for want of space.
        let _ = self.readable.signal();
        self.raised.notify_all();
    }

    /// Whether the consumer is too slow to be given more. Further events stay in the state machine, which has limits of
    /// its own.
    pub(crate) fn is_full(&self) -> bool {
        lock(&self.pending).len() >= CAPACITY
    }

    pub(crate) fn take(&self) -> Result<Option<T>, WaitError> {
        let mut pending = lock(&self.pending);
        if pending.is_empty() {
            return Ok(None);
        }
        self.readable.take()?;
        Ok(pending.pop_front())
    }

    /// Waits for an event; `None` at the deadline.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Result<Option<T>, WaitError> {
        self.wait_for(deadline, |_| true)
    }

    /// Waits for an event that `is_wanted` accepts, and leaves all others to the threads that wait for them. `None` at the
    /// deadline.
    pub(crate) fn wait_for(
        &self,
        deadline: Option<Instant>,
        is_wanted: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, WaitError> {
        let mut pending = lock(&self.pending);
        loop {
            if let Some(at) = pending.iter().position(&is_wanted) {
                self.readable.take()?;
                return Ok(pending.remove(at));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            pending = match left {
                None => self.raised.wait(pending).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return Ok(None),
                Some(left) => {
                    let woken = self.raised.wait_timeout(pending, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Removes and returns the events that `is_wanted` accepts.
    pub(crate) fn take_all(&self, is_wanted: impl Fn(&T) -> bool) -> VecDeque<T> {
        let mut pending = lock(&self.pending);
        let (taken, others): (VecDeque<_>, _) = pending.drain(..).partition(is_wanted);
        *pending = others;
        for _ in &taken {
            let _ = self.readable.take();
        }
        taken
    }
}

impl<T> AsFd for EventQueue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}
