//! A mutex that a forked child finds unlocked.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::net::device_fd;

/// A child and its parent use different mutexes, unless this many generations lie between them.
const GENERATIONS: usize = 16;

/// A mutex for a static whose value is locked by threads that the library has started. The program does not know when
/// they hold it, so it may fork at that moment, and the child would wait for a thread that only its parent has. Here each
/// generation of processes has a mutex and a value of its own. A value must say which process it is of: the great-great-…
/// grandchild that gets to the same one finds the value of its ancestor.
#[derive(Debug)]
pub struct ForkMutex<T>([Mutex<T>; GENERATIONS]);

impl<T> ForkMutex<T> {
    /// Creates one with a value for each generation.
    pub const fn new(values: [Mutex<T>; GENERATIONS]) -> Self {
        Self(values)
    }

    /// Locks the mutex of this process, and ignores poisoning.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let generation = device_fd::forks() as usize % GENERATIONS;
        self.0[generation].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
