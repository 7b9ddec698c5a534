//! A value that one thread owns at a time, and that no thread waits for.
//!
//! A thread that finds the value owned leaves a request and returns. The owner serves requests before it gives the
//! value up, so whatever a thread did before its request is seen by a pass of the owner.

use std::ops::{Deref, DerefMut};

use crate::primitives::{AtomicU32, Ordering, UnsafeCell};

/// A thread owns the value.
const OWNED: u32 = 1 << 31;
/// A thread panicked while it owned the value, which may be inconsistent, or gave it up for good: no thread can own it
/// again.
const FAILED: u32 = 1 << 30;

/// What threads ask the owner to do: any combination of the lower 30 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests(u32);

impl Requests {
    /// No request.
    pub const NONE: Self = Self(0);

    /// The request with this number, from 0 to 29.
    pub const fn bit(number: u32) -> Self {
        assert!(number < 30);
        Self(1 << number)
    }

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that `other` does not have.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the two have a request in common.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A value with the word that says which thread owns it.
#[derive(Debug)]
pub struct Owned<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a `Guard`, and the word lets one thread at a time have one, with
// acquire and release ordering between two owners.
unsafe impl<T: Send> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// A value that no thread owns.
    pub fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the value if no thread owns it.
    #[inline]
    pub fn try_own(&self) -> Option<Guard<'_, T>> {
        // Acquire: this thread sees what the last owner did.
        let free = self.word.compare_exchange(0, OWNED, Ordering::AcqRel, Ordering::Relaxed);
        free.is_ok().then(|| Guard::new(self))
    }

    /// Takes the value, or leaves requests for its owner. `None`: the owner serves the requests, unless the value has
    /// failed.
    #[inline]
    pub fn own_or_request(&self, requests: Requests) -> Option<Guard<'_, T>> {
        let mut word = 0;
        loop {
            if word & FAILED != 0 {
                return None;
            }
            let next = if word & OWNED == 0 { OWNED } else { word | requests.0 };
            // Release: the owner sees what this thread did before, even if an equal request was there already.
            match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if word & OWNED == 0 => return Some(Guard::new(self)),
                Ok(_) => return None,
                Err(found) => word = found,
            }
        }
    }

    /// Whether no thread can own the value again.
    pub fn has_failed(&self) -> bool {
        self.word.load(Ordering::Acquire) & FAILED != 0
    }
}

/// Ownership of the value. Release it with [`Guard::release`] or [`Guard::give_up`]: both say whether requests remain.
/// A guard that is dropped discards them.
#[derive(Debug)]
pub struct Guard<'a, T> {
    owned: &'a Owned<T>,
    /// Whether the thread was panicking already: a destructor may take the value during an unrelated panic.
    panicking: bool,
}

impl<'a, T> Guard<'a, T> {
    fn new(owned: &'a Owned<T>) -> Self {
        Self { owned, panicking: std::thread::panicking() }
    }

    /// Releases the value if there is no request; otherwise returns the requests with the guard.
    #[inline]
    pub fn release(self) -> Result<(), (Self, Requests)> {
        let word = &self.owned.word;
        // Release: the next owner sees what this one did. Acquire: this one sees what was done before the requests.
        match word.compare_exchange(OWNED, 0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                std::mem::forget(self);
                Ok(())
            }
            Err(_) => {
                let requests = Requests(word.swap(OWNED, Ordering::AcqRel) & !OWNED);
                Err((self, requests))
            }
        }
    }

    /// Gives the value up for good: no thread can own it again.
    pub fn fail(self) {
        self.owned.word.store(FAILED, Ordering::Release);
        std::mem::forget(self);
    }

    /// Releases the value and returns the requests that were not served: another thread has to.
    #[must_use]
    #[inline]
    pub fn give_up(self) -> Requests {
        let requests = Requests(self.owned.word.swap(0, Ordering::AcqRel) & !OWNED);
        std::mem::forget(self);
        requests
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        let failed = std::thread::panicking() && !self.panicking;
        self.owned.word.store(if failed { FAILED } else { 0 }, Ordering::Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time (see `Owned`), and it lends the value only as long as it is borrowed.
        self.owned.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the guard is borrowed mutably.
        self.owned.value.with_mut(|value| unsafe { &mut *value })
    }
}

#[cfg(test)]
mod tests;
