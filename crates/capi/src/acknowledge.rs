//! Events that a program has got and not acknowledged: what they are about cannot go before.

use std::sync::{Condvar, Mutex, PoisonError};

/// How many there are of one object.
#[derive(Default)]
pub(crate) struct Unacknowledged {
    count: Mutex<u64>,
    done: Condvar,
}

impl Unacknowledged {
    /// The program got one.
    pub(crate) fn given(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// The program acknowledges so many.
    pub(crate) fn acknowledge(&self, events: u64) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_sub(events);
        self.done.notify_all();
    }

    /// Waits until all are acknowledged, as the man pages of the destroying calls say.
    pub(crate) fn wait(&self) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.done.wait_while(count, |count| *count > 0));
    }
}
