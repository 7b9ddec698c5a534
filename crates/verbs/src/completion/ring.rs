//! The ring that engine and application share: entries in order, and whether somebody wants to hear of the next.

use std::collections::VecDeque;

#[cfg(ferroce_loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
#[cfg(not(ferroce_loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use std::sync::PoisonError;

/// Which completion the next event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    /// One whose sender asked for an event, or that failed (IBA 11.4.2.2).
    Solicited,
    Any,
}

#[derive(Debug)]
struct Entries<T> {
    list: VecDeque<T>,
    capacity: usize,
    armed: Armed,
}

#[derive(Debug)]
pub(super) struct Ring<T> {
    entries: Mutex<Entries<T>>,
    /// How many are there: who polls an empty ring takes no lock.
    length: AtomicUsize,
    /// Somebody asked to be told of an entry, and was not told yet.
    awaited: AtomicBool,
}

/// There was no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl<T> Ring<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let entries = Entries { list: VecDeque::new(), capacity, armed: Armed::No };
        Self {
            entries: Mutex::new(entries),
            length: AtomicUsize::new(0),
            awaited: AtomicBool::new(false),
        }
    }

    /// Locks, whatever became of who held it before: the entries are valid at every moment.
    fn lock(&self) -> MutexGuard<'_, Entries<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry. True when somebody asked to be told of one like it, and is now to be told.
    pub(super) fn push(&self, entry: T, solicited: bool) -> Result<bool, Full> {
        let mut entries = self.lock();
        if entries.list.len() >= entries.capacity {
            return Err(Full);
        }
        entries.list.push_back(entry);
        self.length.store(entries.list.len(), Ordering::Release);
        let wanted = match entries.armed {
            Armed::No => false,
            Armed::Solicited => solicited,
            Armed::Any => true,
        };
        if wanted {
            entries.armed = Armed::No;
            self.awaited.store(false, Ordering::Relaxed);
        }
        Ok(wanted)
    }

    /// Takes up to `most` from the front, and returns how many.
    pub(super) fn take(&self, most: usize, each: impl FnMut(T)) -> usize {
        if self.length.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut entries = self.lock();
        let count = entries.list.len().min(most);
        entries.list.drain(..count).for_each(each);
        self.length.store(entries.list.len(), Ordering::Release);
        count
    }

    /// Asks to be told of the next entry. Who looks once more afterwards misses none: what was there before is found,
    /// although [`Ring::take`] looks without the lock, because it is taken here after whoever pushed it.
    pub(super) fn arm(&self, solicited_only: bool) {
        let mut entries = self.lock();
        // IBA 11.4.2.2: asking for any is not undone by asking for less.
        if entries.armed != Armed::Any {
            entries.armed = if solicited_only { Armed::Solicited } else { Armed::Any };
        }
        self.awaited.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked to be told of an entry, and was not told yet.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed)
    }

    pub(super) fn retain(&self, keep: impl FnMut(&T) -> bool) {
        let mut entries = self.lock();
        entries.list.retain(keep);
        self.length.store(entries.list.len(), Ordering::Release);
    }

    pub(super) fn capacity(&self) -> usize {
        self.lock().capacity
    }

    pub(super) fn resize(&self, capacity: usize) -> Result<(), Full> {
        let mut entries = self.lock();
        if entries.list.len() > capacity {
            return Err(Full);
        }
        entries.capacity = capacity;
        Ok(())
    }
}

#[cfg(all(test, not(ferroce_loom)))]
mod tests {
    use super::{Full, Ring};

    fn all(ring: &Ring<u32>) -> Vec<u32> {
        let mut found = Vec::new();
        ring.take(usize::MAX, |one| found.push(one));
        found
    }

    #[test]
    fn keeps_order_and_capacity() {
        let ring = Ring::new(2);
        assert_eq!((ring.push(1, false), ring.push(2, false)), (Ok(false), Ok(false)));
        assert_eq!(ring.push(3, false), Err(Full));
        assert_eq!(ring.resize(1), Err(Full));
        assert_eq!(ring.resize(3), Ok(()));
        assert_eq!(ring.push(4, false), Ok(false));
        ring.retain(|one| *one != 2);
        assert_eq!(all(&ring), [1, 4]);
        assert_eq!(all(&ring), []);
    }

    #[test]
    fn tells_once_and_only_of_what_was_asked_for() {
        let ring = Ring::new(8);
        ring.arm(true);
        assert_eq!((ring.push(1, false), ring.push(2, true)), (Ok(false), Ok(true)));
        assert_eq!(ring.push(3, true), Ok(false));
        ring.arm(false);
        ring.arm(true);
        assert_eq!((ring.push(4, false), ring.push(5, false)), (Ok(true), Ok(false)));
    }
}

#[cfg(all(test, ferroce_loom))]
mod tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::Ring;

    /// An application that polls, arms, polls once more and only then sleeps is woken, or has found everything.
    #[test]
    fn nobody_sleeps_over_a_completion() {
        loom::model(|| {
            let ring = Arc::new(Ring::new(4));
            let engine = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || (1..=2).filter(|one| ring.push(*one, false).unwrap()).count())
            };
            let mut found = Vec::new();
            ring.take(4, |one| found.push(one));
            ring.arm(false);
            ring.take(4, |one| found.push(one));
            let told = engine.join().unwrap();
            assert!(told <= 1, "armed once, told {told} times");
            assert!(told == 1 || found == [1, 2], "not told, and found {found:?}");
            ring.take(4, |one| found.push(one));
            assert_eq!(found, [1, 2]);
        });
    }

    /// Two threads that poll share the entries: each goes to one of them, and each sees its own in order.
    #[test]
    fn each_entry_is_taken_once() {
        loom::model(|| {
            let ring = Arc::new(Ring::new(4));
            ring.push(1, false).unwrap();
            let engine = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.push(2, false).unwrap())
            };
            let poll = |ring: &Ring<u32>| {
                let mut found = Vec::new();
                ring.take(1, |one| found.push(one));
                ring.take(1, |one| found.push(one));
                found
            };
            let other = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || poll(&ring))
            };
            let mut found = poll(&ring);
            assert!(found.is_sorted());
            let theirs = other.join().unwrap();
            assert!(theirs.is_sorted());
            engine.join().unwrap();
            found.extend(theirs);
            ring.take(4, |one| found.push(one));
            found.sort_unstable();
            assert_eq!(found, [1, 2]);
        });
    }
}
