//! Counts of events that a program has received and not acknowledged; destroying the object they refer to waits for
//! them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::sync::lock;

/// The unacknowledged events of one object.
#[derive(Default)]
pub(crate) struct Unacknowledged {
    count: Mutex<u64>,
    done: Condvar,
    /// Threads that wait.
    waiting: AtomicU32,
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
        // Waking makes a system call, and a program acknowledges every event.
        if *count == 0 && self.waiting.load(Ordering::Relaxed) > 0 {
            self.done.notify_all();
        }
    }

    /// Blocks until all are acknowledged, as the man pages of the destroying calls specify.
    pub(crate) fn wait(&self) {
        let count = lock(&self.count);
        // Changed under the lock, so that the last acknowledgement sees it.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waited = self.done.wait_while(count, |count| *count > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

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
