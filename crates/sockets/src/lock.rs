//! A lock that a forked child can reset.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// A spin lock, held for a few instructions at a time. Waiting threads yield.
#[derive(Default)]
pub(crate) struct Spin<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by one thread at a time, the one that holds the lock.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T> Spin<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `body` with the value. It must be short, must not panic, and must not take the same lock.
    pub(crate) fn with<T2>(&self, body: impl FnOnce(&mut T) -> T2) -> T2 {
        self.acquire();
        // SAFETY: this thread holds the lock.
        let result = body(unsafe { &mut *self.value.get() });
        self.release();
        result
    }

    /// Takes the lock until [`release`](Self::release), for the handlers of fork.
    pub(crate) fn acquire(&self) {
        while self.locked.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Releases the lock. In a forked child, also if a thread of the parent held it.
    pub(crate) fn release(&self) {
        self.locked.store(false, Ordering::Release);
    }
}
