//! Hazard pointers: the memory regions that threads are accessing.
//!
//! A thread that accesses a region publishes that in a record of its own, and then checks again that the region is
//! registered and fully mapped. A thread that deregisters a region, or learns that a part of it is unmapped, publishes
//! that and then waits until no record refers to the region. Locks and counters would do the same, but each access
//! would need four locked instructions, a sixth of the time of a short message. Here it needs none: deregistering
//! executes the heavy one of the two [fences](ferroce_sync::asymmetric_fence).
//!
//! # A thread that holds a hazard takes no lock
//! [`wait_for`] is called with locks held: that of the list of regions ([`crate::watch`]), and those that the program holds
//! when it unmaps memory, such as the allocator's, because `free` calls `munmap`. A thread that waited for one of them during an
//! access would never end the access. So an access copies, and does nothing else: it takes no lock and allocates nothing. In
//! debug builds, [`assert_none`] checks this at every lock of this crate: that of the list, those of the slots and that of the free
//! slots. Only regions that are accessed by pointer
//! have hazards ([`crate::table`]); others are accessed by means that allocate.
//!
//! A record is used by one thread and for one access at a time. An access that is nested in another one, in a signal handler, takes the
//! locks and so breaks the rule: verbs are not async-signal-safe (docs/porting.md).
//! [`wait_for`] runs where nothing may be allocated, so it uses no thread-local variables either.

use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicPtr, AtomicU32, forks, heavy, light, thread_id, yield_now};
use crate::watch::Watch;

/// A hazard pointer. Records are never freed, only reused by other threads.
#[derive(Debug)]
#[repr(align(128))]
struct Record {
    /// The watch of the region that is being accessed, or null.
    region: AtomicPtr<Watch>,
    /// The thread that uses the record; 0 if it is free.
    thread: AtomicU32,
    /// The number of forks at creation: a forked child has the records of its parent's threads, but not the threads.
    forks: u32,
    next: AtomicPtr<Record>,
}

#[cfg(not(ferroce_loom))]
static RECORDS: AtomicPtr<Record> = AtomicPtr::new(null_mut());
#[cfg(ferroce_loom)]
loom::lazy_static! {
    static ref RECORDS: AtomicPtr<Record> = AtomicPtr::new(null_mut());
}

/// The records of this process.
fn records() -> impl Iterator<Item = &'static Record> {
    // SAFETY: records are never freed.
    let get = |record: &AtomicPtr<Record>| unsafe { record.load(Ordering::Acquire).as_ref() };
    let all = std::iter::successors(get(&RECORDS), move |record| get(&record.next));
    all.filter(|record| record.forks == forks())
}

/// The record of the calling thread.
#[cfg(not(ferroce_loom))]
mod mine {
    use std::cell::Cell;
    use std::sync::atomic::Ordering;

    use super::Record;

    thread_local! {
        static MINE: Cell<Option<&'static Record>> = const { Cell::new(None) };
        static GIVEN_BACK_AT_EXIT: GiveBack = const { GiveBack };
    }

    struct GiveBack;

    impl Drop for GiveBack {
        fn drop(&mut self) {
            if let Some(record) = MINE.take() {
                record.thread.store(0, Ordering::Release);
            }
        }
    }

    #[inline]
    pub(super) fn get() -> Option<&'static Record> {
        MINE.get()
    }

    pub(super) fn set(record: &'static Record) {
        MINE.set(Some(record));
    }

    /// Whether the thread is exiting, so that a record would not be given back.
    pub(super) fn is_exiting() -> bool {
        GIVEN_BACK_AT_EXIT.try_with(|_| ()).is_err()
    }
}

/// The same for loom, whose thread-local variables are not references with a lifetime of their own.
#[cfg(ferroce_loom)]
mod mine {
    use super::{Ordering, Record, records, thread_id};

    pub(super) fn get() -> Option<&'static Record> {
        records().find(|record| record.thread.load(Ordering::Relaxed) == thread_id())
    }

    pub(super) fn set(_: &'static Record) {}

    pub(super) fn is_exiting() -> bool {
        false
    }
}

/// An access to a region, in progress.
#[derive(Debug)]
pub(crate) struct Hazard(&'static Record);

impl Hazard {
    /// Publishes an access to a region. The caller then checks that the region is still registered, and does not use it
    /// otherwise. `None` if the thread has to use locks.
    #[inline]
    pub(crate) fn announce(region: *mut Watch) -> Option<Self> {
        let record = match mine::get() {
            Some(record) if record.forks == forks() => record,
            _ => find_record()?,
        };
        if !record.region.load(Ordering::Relaxed).is_null() {
            return None;
        }
        record.region.store(region, Ordering::Relaxed);
        light();
        Some(Self(record))
    }
}

impl Drop for Hazard {
    #[inline]
    fn drop(&mut self) {
        self.0.region.store(null_mut(), Ordering::Release);
    }
}

/// Claims a free record for the calling thread, or adds one. `None` if the thread is exiting.
#[cold]
fn find_record() -> Option<&'static Record> {
    if mine::is_exiting() {
        return None;
    }
    let thread = thread_id();
    let take = |record: &Record| {
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        record.thread.compare_exchange(0, thread, order, failed).is_ok()
    };
    let record = records().find(|record| take(record)).unwrap_or_else(|| add_record(thread));
    mine::set(record);
    Some(record)
}

fn add_record(thread: u32) -> &'static Record {
    let record: &'static Record = Box::leak(Box::new(Record {
        region: AtomicPtr::default(),
        thread: AtomicU32::new(thread),
        forks: forks(),
        next: AtomicPtr::default(),
    }));
    let this = std::ptr::from_ref(record).cast_mut();
    let mut first = RECORDS.load(Ordering::Acquire);
    loop {
        record.next.store(first, Ordering::Relaxed);
        let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
        match RECORDS.compare_exchange_weak(first, this, order, failed) {
            Ok(_) => return record,
            Err(now) => first = now,
        }
    }
}

/// Waits until no other thread accesses a region that no thread can start to access any more.
pub(crate) fn wait_for(region: &Watch) {
    heavy();
    let this = thread_id();
    for record in records().filter(|record| record.thread.load(Ordering::Relaxed) != this) {
        // Copies are short and do not block.
        while std::ptr::eq(record.region.load(Ordering::Acquire), region) {
            yield_now();
        }
    }
}

/// Panics in debug builds if the calling thread accesses a region, because it is about to take a lock.
#[inline]
pub(crate) fn assert_none() {
    // Without a thread-local variable, because this runs inside the program's `munmap`.
    #[cfg(debug_assertions)]
    {
        let this = thread_id();
        let is_mine = |record: &&Record| record.thread.load(Ordering::Relaxed) == this;
        let mine = records().find(is_mine);
        let has_access =
            mine.is_some_and(|record| !record.region.load(Ordering::Relaxed).is_null());
        assert!(!has_access, "a lock is taken, or memory unmapped, during an access to a region");
    }
}

#[cfg(all(test, not(ferroce_loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;

    use super::*;

    fn watch() -> Watch {
        Watch::new(0, 0)
    }

    fn announce(region: &Watch) -> Option<Hazard> {
        Hazard::announce(std::ptr::from_ref(region).cast_mut())
    }

    #[test]
    fn a_thread_announces_one_access_at_a_time() {
        let (first, second) = (watch(), watch());
        let hazard = announce(&first).unwrap();
        assert!(announce(&second).is_none() && announce(&first).is_none());
        // A thread does not wait for its own access.
        wait_for(&first);
        drop(hazard);
        assert!(announce(&second).is_some());
    }

    #[test]
    fn the_end_of_an_access_is_waited_for() {
        let (region, other, has_ended) = (watch(), watch(), AtomicBool::new(false));
        let ((begun, begins), (go_on, goes_on)) = (channel(), channel());
        std::thread::scope(|scope| {
            let (region, has_ended) = (&region, &has_ended);
            scope.spawn(move || {
                let hazard = announce(region).unwrap();
                begun.send(()).unwrap();
                goes_on.recv().unwrap();
                (0..1000).for_each(|_| yield_now());
                has_ended.store(true, Ordering::Relaxed);
                drop(hazard);
            });
            begins.recv().unwrap();
            wait_for(&other);
            assert!(!has_ended.load(Ordering::Relaxed), "waited for another region");
            go_on.send(()).unwrap();
            wait_for(region);
            assert!(has_ended.load(Ordering::Relaxed), "the access has not ended");
        });
    }

    #[test]
    fn records_of_threads_that_ended_are_used_again() {
        let region = watch();
        let used = || {
            let accesses = || drop(announce(&region).unwrap());
            std::thread::scope(|scope| scope.spawn(accesses).join().unwrap());
            records().count()
        };
        // Tests in other threads of this process have records as well.
        let counts: Vec<usize> = (0..100).map(|_| used()).collect();
        assert!(counts[99] < counts[0] + 50, "{counts:?}");
    }
}
