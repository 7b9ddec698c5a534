//! The ring between device and application: completions in order, and whether the next one raises an event.

use std::collections::VecDeque;

#[cfg(not(ferroce_loom))]
use crate::Mutex;
use crate::primitives::{AtomicBool, AtomicUsize, Ordering};

/// Loom checks the mutex by itself: the ring has one that is a single step.
#[cfg(ferroce_loom)]
#[derive(Debug)]
struct Mutex<T>(loom::sync::Mutex<T>);

#[cfg(ferroce_loom)]
impl<T> Mutex<T> {
    fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// Which completion the next event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    /// A solicited completion, or one that failed (IBA 11.4.2.2).
    Solicited,
    Any,
}

#[derive(Debug)]
struct Entries<T> {
    list: VecDeque<T>,
    capacity: usize,
    armed: Armed,
    /// Entries at the front that were there when the last event was raised.
    announced: usize,
}

/// What is told of each change of a [`CompletionRing`], under its lock, so that no update is lost.
pub trait Observer {
    /// The ring takes this many entries from now on.
    fn set_capacity(&self, _capacity: usize) {}

    /// The ring has this many entries, of which `added` are new.
    fn set_length(&self, _length: usize, _added: u64) {}

    /// An entry was refused because the ring is full.
    fn count_overrun(&self) {}
}

/// Nobody is told.
impl Observer for () {}

/// The entries of a completion queue.
#[derive(Debug)]
pub struct CompletionRing<T, O = ()> {
    entries: Mutex<Entries<T>>,
    /// The length of the list, so that polling an empty ring takes no lock.
    length: AtomicUsize,
    /// The ring is armed, and no event was raised yet.
    awaiting: AtomicBool,
    observer: O,
}

/// The ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl<T, O: Observer> CompletionRing<T, O> {
    /// An empty ring that takes this many entries.
    pub fn new(capacity: usize, observer: O) -> Self {
        observer.set_capacity(capacity);
        let entries = Entries { list: VecDeque::new(), capacity, armed: Armed::No, announced: 0 };
        Self {
            entries: Mutex::new(entries),
            length: AtomicUsize::new(0),
            awaiting: AtomicBool::new(false),
            observer,
        }
    }

    /// Publishes the number of entries after a change, of which `added` are new.
    #[inline]
    fn show(&self, entries: &Entries<T>, added: u64) {
        self.length.store(entries.list.len(), Ordering::Release);
        self.observer.set_length(entries.list.len(), added);
    }

    /// Adds an entry. Returns whether the ring was armed for it: the caller then raises an event.
    pub fn push(&self, entry: T, solicited: bool) -> Result<bool, Full> {
        let mut entries = self.entries.lock();
        if entries.list.len() >= entries.capacity {
            self.observer.count_overrun();
            return Err(Full);
        }
        entries.list.push_back(entry);
        self.show(&entries, 1);
        let notify = match entries.armed {
            Armed::No => false,
            Armed::Solicited => solicited,
            Armed::Any => true,
        };
        if notify {
            self.announce(&mut entries);
        }
        Ok(notify)
    }

    /// The caller raises the event.
    #[inline]
    fn announce(&self, entries: &mut Entries<T>) {
        entries.armed = Armed::No;
        entries.announced = entries.list.len();
        self.awaiting.store(false, Ordering::Relaxed);
    }

    /// Takes up to `max` entries from the front, and returns their number.
    #[inline]
    pub fn take(&self, max: usize, each: impl FnMut(T)) -> usize {
        if self.length.load(Ordering::Acquire) == 0 { 0 } else { self.drain(max, each) }
    }

    fn drain(&self, max: usize, mut each: impl FnMut(T)) -> usize {
        let mut entries = self.entries.lock();
        let mut count = 0;
        while count < max {
            let Some(entry) = entries.list.pop_front() else { break };
            each(entry);
            count += 1;
        }
        entries.announced = entries.announced.saturating_sub(count);
        self.show(&entries, 0);
        count
    }

    /// Requests an event for the next entry. A thread that arms, takes once more and then sleeps misses no entry:
    /// [`CompletionRing::take`] reads the length without the lock, but arming takes the lock after any earlier push released it.
    ///
    /// A program may also poll until the ring is empty, arm and sleep, as UCX does: hardware compares the consumer index of
    /// the request with its own, and raises the event for entries added in between. So does this: returns whether the caller
    /// raises an event at once, because there are entries for it and no earlier event announced them. A program that arms
    /// after an event, before it polls, gets no second event for the same entries.
    #[must_use]
    pub fn arm(&self, solicited_only: bool, is_solicited: impl FnMut(&T) -> bool) -> bool {
        let mut entries = self.entries.lock();
        let unannounced = entries.announced == 0 && !entries.list.is_empty();
        if unannounced && (!solicited_only || entries.list.iter().any(is_solicited)) {
            self.announce(&mut entries);
            return true;
        }
        // IBA 11.4.2.2: a request for any completion is not replaced by one for solicited completions.
        if entries.armed != Armed::Any {
            entries.armed = if solicited_only { Armed::Solicited } else { Armed::Any };
        }
        self.awaiting.store(true, Ordering::Relaxed);
        false
    }

    /// Whether an event was requested and not raised yet.
    pub fn is_armed(&self) -> bool {
        self.awaiting.load(Ordering::Relaxed)
    }

    /// Removes the entries that are not to be kept.
    pub fn retain(&self, keep: impl FnMut(&T) -> bool) {
        let mut entries = self.entries.lock();
        entries.list.retain(keep);
        entries.announced = entries.announced.min(entries.list.len());
        self.show(&entries, 0);
    }

    /// The number of entries that it takes.
    pub fn capacity(&self) -> usize {
        self.entries.lock().capacity
    }

    /// Changes the number of entries that it takes, unless it has more already.
    pub fn resize(&self, capacity: usize) -> Result<(), Full> {
        let mut entries = self.entries.lock();
        if entries.list.len() > capacity {
            return Err(Full);
        }
        entries.capacity = capacity;
        self.observer.set_capacity(capacity);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
