//! The ring between device and application: completions in order, and whether the next one raises an event.

use std::collections::VecDeque;

#[cfg(ferroce_loom)]
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(not(ferroce_loom))]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[cfg(not(ferroce_loom))]
use crate::Mutex;

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
    fn set_capacity(&self, capacity: usize);

    /// The ring has this many entries, of which `added` are new.
    fn set_length(&self, length: usize, added: u64);

    /// An entry was refused because the ring is full.
    fn count_overrun(&self);
}

/// Nobody is told.
impl Observer for () {
    fn set_capacity(&self, _: usize) {}

    fn set_length(&self, _: usize, _: u64) {}

    fn count_overrun(&self) {}
}

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
            entries.armed = Armed::No;
            entries.announced = entries.list.len();
            self.awaiting.store(false, Ordering::Relaxed);
        }
        Ok(notify)
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
        if entries.announced == 0 && !entries.list.is_empty() {
            let raises = !solicited_only || entries.list.iter().any(is_solicited);
            if raises {
                entries.armed = Armed::No;
                entries.announced = entries.list.len();
                self.awaiting.store(false, Ordering::Relaxed);
                return true;
            }
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

#[cfg(all(test, not(ferroce_loom)))]
mod tests {
    use super::{CompletionRing, Full};

    fn all(ring: &CompletionRing<u32>) -> Vec<u32> {
        let mut found = Vec::new();
        ring.take(usize::MAX, |entry| found.push(entry));
        found
    }

    #[test]
    fn keeps_order_and_capacity() {
        let ring = CompletionRing::new(2, ());
        assert_eq!((ring.push(1, false), ring.push(2, false)), (Ok(false), Ok(false)));
        assert_eq!(ring.push(3, false), Err(Full));
        assert_eq!(ring.resize(1), Err(Full));
        assert_eq!(ring.resize(3), Ok(()));
        assert_eq!(ring.push(4, false), Ok(false));
        ring.retain(|entry| *entry != 2);
        assert_eq!(all(&ring), [1, 4]);
        assert_eq!(all(&ring), [0_u32; 0]);
    }

    #[test]
    fn raises_one_event_and_only_when_armed_for_it() {
        let ring = CompletionRing::new(8, ());
        assert!(!ring.arm(true, |_| false));
        assert_eq!((ring.push(1, false), ring.push(2, true)), (Ok(false), Ok(true)));
        assert_eq!(ring.push(3, true), Ok(false));
        assert!(!ring.arm(false, |_| false));
        assert!(!ring.arm(true, |_| false));
        assert_eq!((ring.push(4, false), ring.push(5, false)), (Ok(true), Ok(false)));
    }

    #[test]
    fn entries_between_polling_and_arming_raise_one_event() {
        let ring = CompletionRing::new(8, ());
        ring.push(1, false).unwrap();
        assert!(!ring.arm(true, |entry| *entry > 1), "not solicited");
        ring.push(2, false).unwrap();
        assert!(ring.arm(true, |entry| *entry > 1));
        assert!(!ring.arm(false, |_| false), "announced before");
        // The first one has been armed for an entry after these.
        assert_eq!(ring.push(3, false), Ok(true));
        assert_eq!(all(&ring), [1, 2, 3]);
        ring.push(4, false).unwrap();
        assert!(ring.arm(false, |_| false));
        ring.retain(|_| false);
        assert!(!ring.arm(false, |_| false));
    }
}

#[cfg(all(test, ferroce_loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::CompletionRing;
    use crate::models::explore;

    /// An application that polls, arms and then sleeps is woken, or has found every entry.
    #[test]
    fn no_completion_is_slept_through() {
        loom::model(|| {
            let ring = Arc::new(CompletionRing::new(4, ()));
            let engine = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || {
                    (1..=2).filter(|entry| ring.push(*entry, false).unwrap()).count()
                })
            };
            let mut found = Vec::new();
            ring.take(4, |entry| found.push(entry));
            let at_once = ring.arm(false, |_| false);
            assert!(!at_once || ring.take(4, |entry| found.push(entry)) > 0);
            let raised = engine.join().unwrap() + usize::from(at_once);
            assert!(raised <= 1, "armed once, {raised} events");
            assert!(raised == 1 || found == [1, 2], "no event, and found {found:?}");
            ring.take(4, |entry| found.push(entry));
            assert_eq!(found, [1, 2]);
        });
    }

    /// Two shards complete requests in one CQ: the application is woken, or has found the entries of both.
    #[test]
    fn entries_of_two_shards_raise_one_event() {
        loom::model(|| {
            let ring = Arc::new(CompletionRing::new(4, ()));
            let shard = |entry: u32| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.push(entry, false).unwrap())
            };
            let (one, other) = (shard(1), shard(2));
            let at_once = ring.arm(false, |_| false);
            let raised = [one.join().unwrap(), other.join().unwrap(), at_once];
            assert_eq!(raised.iter().filter(|raised| **raised).count(), 1);
            let mut found = Vec::new();
            ring.take(4, |entry| found.push(entry));
            found.sort_unstable();
            assert_eq!(found, [1, 2]);
        });
    }

    /// Two polling threads share the entries: each entry goes to one of them, in order.
    #[test]
    fn each_entry_is_taken_once() {
        explore(|| {
            let ring = Arc::new(CompletionRing::new(4, ()));
            ring.push(1, false).unwrap();
            let engine = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.push(2, false).unwrap())
            };
            let poll = |ring: &CompletionRing<u32>| {
                let mut found = Vec::new();
                ring.take(1, |entry| found.push(entry));
                ring.take(1, |entry| found.push(entry));
                found
            };
            let other = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || poll(&ring))
            };
            let mut found = poll(&ring);
            assert!(found.is_sorted());
            let others = other.join().unwrap();
            assert!(others.is_sorted());
            engine.join().unwrap();
            found.extend(others);
            ring.take(4, |entry| found.push(entry));
            found.sort_unstable();
            assert_eq!(found, [1, 2]);
        });
    }

    /// Two threads wait for the entries of one CQ: each polls, arms and polls again. No entry is left without an event.
    #[test]
    fn no_entry_is_slept_through_by_two_threads() {
        explore(|| {
            let ring = Arc::new(CompletionRing::new(4, ()));
            let wait = |ring: &CompletionRing<u32>| {
                let mut found = 0;
                found += ring.take(1, |_| {});
                let at_once = ring.arm(false, |_| false);
                found += ring.take(1, |_| {});
                (found, usize::from(at_once))
            };
            let other = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || wait(&ring))
            };
            let engine = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || usize::from(ring.push(1, false).unwrap()))
            };
            let (found, at_once) = wait(&ring);
            let (others, others_at_once) = other.join().unwrap();
            let raised = engine.join().unwrap() + at_once + others_at_once;
            assert!(found + others + raised > 0, "both sleep, and there is an entry");
            assert!(raised <= 1, "{raised} events for one entry");
        });
    }
}
