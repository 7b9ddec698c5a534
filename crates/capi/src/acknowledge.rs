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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn waiting_ends_with_the_last_acknowledgement() {
        let events = Unacknowledged::default();
        events.wait();
        events.add();
        events.add();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                events.wait();
                ended.store(true, Ordering::SeqCst);
            });
            events.acknowledge(1);
            assert!(!ended.load(Ordering::SeqCst));
            events.acknowledge(1);
            waiter.join().unwrap();
        });
        assert!(ended.load(Ordering::SeqCst));
    }

    #[test]
    fn too_many_acknowledgements_do_no_harm() {
        let events = Unacknowledged::default();
        events.add();
        events.acknowledge(9);
        events.wait();
        events.add();
        assert_eq!(*lock(&events.count), 1);
    }
}
