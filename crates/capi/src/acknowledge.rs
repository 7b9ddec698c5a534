//! Counts of events that a program has received and not acknowledged; destroying the object they refer to waits for
//! them.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::sync::lock;

/// The unacknowledged events of one object.
#[derive(Default)]
pub(crate) struct Unacknowledged {
    count: Mutex<u64>,
    done: Condvar,
}

impl Unacknowledged {
    /// Counts an event that the program received.
    pub(crate) fn add(&self) {
        *lock(&self.count) += 1;
    }

    /// Subtracts events that the program acknowledged.
    pub(crate) fn acknowledge(&self, events: u64) {
        let mut count = lock(&self.count);
        *count = count.saturating_sub(events);
        self.done.notify_all();
    }

    /// Blocks until all are acknowledged, as the man pages of the destroying calls specify.
    pub(crate) fn wait(&self) {
        let waited = self.done.wait_while(lock(&self.count), |count| *count > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
