//! Counts of events that a program has received and not acknowledged; destroying the object they refer to waits for
//! them.

use std::sync::{Condvar, Mutex, PoisonError};

use libc::{pthread_cond_t, pthread_mutex_t};

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

/// Adds to the counter of acknowledged events in the public fields of an object, and signals the object's condition, as
/// rdma-core does. Programs may read the counter, as UCX does, and wait for it.
///
/// # Safety
/// All point to fields of one of the program's objects, which is not destroyed during the call. Its mutex and condition
/// are initialised: all zero, as with PTHREAD_MUTEX_INITIALIZER.
pub(crate) unsafe fn show(
    mutex: *mut pthread_mutex_t,
    cond: *mut pthread_cond_t,
    counter: *mut u32,
    events: u32,
) {
    // SAFETY: as the caller promises; the mutex protects the counter.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        counter.write(counter.read().wrapping_add(events));
        libc::pthread_cond_signal(cond);
        libc::pthread_mutex_unlock(mutex);
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
