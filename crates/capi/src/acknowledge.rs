//! Counts of events that a program has received and not acknowledged; destroying the object they refer to waits for
//! them.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::sync::lock;

/// The unacknowledged events of one object.
#[derive(Default)]
pub(crate) struct Unacknowledged {
    counts: Mutex<Counts>,
    done: Condvar,
}

#[derive(Default)]
struct Counts {
    events: u64,
    /// Threads in [`Unacknowledged::wait`]. Notifying is a system call even without them, and programs acknowledge every event.
    waiting: u32,
}

impl Unacknowledged {
    /// Counts an event that the program received.
    pub(crate) fn add(&self) {
        lock(&self.counts).events += 1;
    }

    /// Subtracts events that the program acknowledged.
    pub(crate) fn acknowledge(&self, events: u64) {
        let mut counts = lock(&self.counts);
        counts.events = counts.events.saturating_sub(events);
        if counts.events == 0 && counts.waiting > 0 {
            self.done.notify_all();
        }
    }

    /// Blocks until all are acknowledged, as the man pages of the destroying calls specify.
    pub(crate) fn wait(&self) {
        let mut counts = lock(&self.counts);
        counts.waiting += 1;
        let waited = self.done.wait_while(counts, |counts| counts.events > 0);
        waited.unwrap_or_else(PoisonError::into_inner).waiting -= 1;
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
        assert_eq!(lock(&events.counts).events, 1);
    }
}
