//! A mutex that is unlocked without a locked instruction.
//!
//! The mutex of the standard library is unlocked by an atomic exchange, which returns whether a thread waits. Here a
//! plain store unlocks, and waiters are counted in a second word: the unlocking thread checks the count after its
//! store, and a thread that is about to wait checks the lock after it has incremented the count. Both need a fence in
//! between, and the waiting thread executes the [heavy] one. A message through shared
//! memory takes nine mutexes, all usually uncontended.
//!
//! There is no poisoning: the data that these mutexes guard is valid between any two statements.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use self::parking::Parking;
use crate::asymmetric_fence::{heavy, light};
use crate::primitives::{AtomicU32, Ordering, UnsafeCell};

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;

/// How often a thread polls a locked mutex before it waits in the kernel: critical sections are short.
const SPINS: u32 = if cfg!(ferroce_loom) { 0 } else { 100 };

/// A mutex for data that one thread uses most of the time.
pub struct Mutex<T> {
    state: AtomicU32,
    /// The number of threads that wait or are about to.
    waiters: AtomicU32,
    parking: Parking,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed only through a guard, which one thread at a time holds, with acquire and release
// ordering between two holders.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(UNLOCKED),
            waiters: AtomicU32::new(0),
            parking: Default::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks the mutex. Waits while another thread holds it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if !self.try_acquire() {
            self.acquire();
        }
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
        self.state.compare_exchange(UNLOCKED, LOCKED, order, failed).is_ok()
    }

    #[cold]
    fn acquire(&self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.state.load(Ordering::Relaxed) == UNLOCKED && self.try_acquire() {
                return;
            }
        }
        self.waiters.fetch_add(1, Ordering::Relaxed);
        // From here on, a thread that unlocks sees the waiter, or its unlocking store is visible already.
        heavy();
        while !self.try_acquire() {
            self.parking.wait(&self.state, LOCKED);
        }
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_locked = self.state.load(Ordering::Relaxed) != UNLOCKED;
        f.debug_struct("Mutex").field("locked", &is_locked).finish_non_exhaustive()
    }
}

/// A locked [`Mutex`], which is unlocked when the guard is dropped.
#[must_use = "the mutex is unlocked when its guard is dropped"]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// Not `Send`, as in the standard library: a lock belongs to its thread.
    not_send: PhantomData<*const ()>,
}

// SAFETY: the guard gives access to the value only.
unsafe impl<T: Sync> Sync for MutexGuard<'_, T> {}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let mutex = self.mutex;
        mutex.state.store(UNLOCKED, Ordering::Release);
        light();
        if mutex.waiters.load(Ordering::Relaxed) != 0 {
            mutex.parking.wake(&mutex.state);
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread has locked the mutex, and lends the value only as long as the guard is borrowed.
        self.mutex.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the guard is borrowed mutably.
        self.mutex.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Waiting in futex(2).
#[cfg(not(ferroce_loom))]
mod parking {
    use std::sync::atomic::AtomicU32;

    use rustix::thread::futex;

    #[derive(Default)]
    pub(super) struct Parking;

    impl Parking {
        /// Waits while the word has this value; may return spuriously.
        pub(super) fn wait(&self, word: &AtomicU32, value: u32) {
            let _ = futex::wait(word, futex::Flags::PRIVATE, value, None);
        }

        /// Wakes one waiting thread.
        #[cold]
        pub(super) fn wake(&self, word: &AtomicU32) {
            let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
        }
    }
}

/// The same for loom.
#[cfg(ferroce_loom)]
mod parking {
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};

    /// The kernel's wait queue, which compares the word under a lock.
    #[derive(Default)]
    pub(super) struct Parking(Mutex<()>, Condvar);

    impl Parking {
        pub(super) fn wait(&self, word: &AtomicU32, value: u32) {
            let queue = self.0.lock().unwrap();
            if word.load(Ordering::Relaxed) == value {
                drop(self.1.wait(queue).unwrap());
            }
        }

        pub(super) fn wake(&self, _: &AtomicU32) {
            drop(self.0.lock().unwrap());
            self.1.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
