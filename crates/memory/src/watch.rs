//! Which parts of regions the program has unmapped since they were registered.
//!
//! Hardware pins the pages of a region: what the program maps at the same addresses later is out of its reach. We reach
//! memory by its address, so we have to know. [`crate::hooks`] reports every unmapping before it happens; the part becomes a
//! hole of the region, and accesses to it are refused from then on. Registering again makes a new region, without holes.
//!
//! [`unmapped`] runs in the midst of whatever called `munmap`, the allocator with its locks held among them. So nothing here
//! allocates: regions are linked through themselves, and holes have a fixed room.

use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Holes of a region that are told apart. When there are more, the two that are nearest are one.
const HOLES: usize = 8;

/// The state of one region's memory. Part of the region, and so at one place for as long as it is linked.
#[derive(Debug)]
pub(crate) struct Watch {
    start: usize,
    end: usize,
    /// Accesses at this moment.
    users: AtomicU32,
    /// Whether there are holes.
    torn: AtomicBool,
    /// Protected by the list's lock.
    holes: UnsafeCell<Holes>,
    /// The neighbours in the list, protected by its lock.
    next: AtomicPtr<Watch>,
    previous: AtomicPtr<Watch>,
}

// SAFETY: what is not atomic is used under the list's lock.
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

#[derive(Clone, Copy, Debug)]
struct Holes {
    list: [(usize, usize); HOLES],
    count: usize,
}

impl Holes {
    /// Adds a hole, joined with those that it meets. There are never more than there is room for.
    fn add(&mut self, mut start: usize, mut end: usize) {
        let mut index = 0;
        while index < self.count {
            let (from, to) = self.list[index];
            if from <= end && start <= to {
                (start, end) = (start.min(from), end.max(to));
                self.count -= 1;
                self.list[index] = self.list[self.count];
                index = 0;
            } else {
                index += 1;
            }
        }
        if self.count == HOLES {
            let distance = |&(from, to): &(usize, usize)| from.max(start) - to.min(end);
            let nearest = (0..HOLES).min_by_key(|&index| distance(&self.list[index]));
            let (from, to) = self.list[nearest.unwrap_or(0)];
            // What is between them is refused, too: better than to reach what is not the region's.
            return self.add(start.min(from), end.max(to));
        }
        self.list[self.count] = (start, end);
        self.count += 1;
    }

    fn meets(&self, start: usize, end: usize) -> bool {
        self.list[..self.count].iter().any(|&(from, to)| from < end && start < to)
    }
}

/// The first of all regions that are watched.
static FIRST: Mutex<Head> = Mutex::new(Head(null_mut()));
/// No region is outside of these: most memory that is unmapped is found to be nobody's without a lock.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// The process whose regions these are: a forked child has none, and the lock may be taken for ever there.
static OWNER: AtomicU32 = AtomicU32::new(0);

struct Head(*mut Watch);

// SAFETY: the pointer is used under the lock.
unsafe impl Send for Head {}

fn lock() -> MutexGuard<'static, Head> {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    pub(crate) fn new(start: usize, length: usize) -> Self {
        let holes = Holes { list: [(0, 0); HOLES], count: 0 };
        Self {
            start,
            end: start.saturating_add(length),
            users: AtomicU32::new(0),
            torn: AtomicBool::new(false),
            holes: UnsafeCell::new(holes),
            next: AtomicPtr::default(),
            previous: AtomicPtr::default(),
        }
    }

    /// Another one for the same memory, with the same holes.
    pub(crate) fn again(&self) -> Self {
        let mut again = Self::new(self.start, self.end - self.start);
        let _first = lock();
        // SAFETY: under the lock.
        let holes = unsafe { *self.holes.get() };
        *again.torn.get_mut() = holes.count > 0;
        *again.holes.get_mut() = holes;
        again
    }

    /// Watches it from now on.
    ///
    /// # Safety
    /// It stays where it is until it is dropped.
    pub(crate) unsafe fn link(&self) {
        LOWEST.fetch_min(self.start, Ordering::SeqCst);
        HIGHEST.fetch_max(self.end, Ordering::SeqCst);
        let this = std::ptr::from_ref(self).cast_mut();
        let mut first = lock();
        OWNER.store(std::process::id(), Ordering::SeqCst);
        self.next.store(first.0, Ordering::Relaxed);
        self.previous.store(null_mut(), Ordering::Relaxed);
        // SAFETY: what is in the list is there until it takes itself out, under the lock.
        if let Some(next) = unsafe { first.0.as_ref() } {
            next.previous.store(this, Ordering::Relaxed);
        }
        first.0 = this;
    }

    /// Does an access to `length` bytes at `address`, unless a part of them is gone.
    #[inline]
    pub(crate) fn access<T>(
        &self,
        address: usize,
        length: usize,
        act: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        // Who makes a hole sees this, or we see the hole.
        self.users.fetch_add(1, Ordering::SeqCst);
        if self.torn.load(Ordering::SeqCst) {
            self.users.fetch_sub(1, Ordering::Release);
            self.enter_torn(address, length)?;
        }
        let done = act();
        self.users.fetch_sub(1, Ordering::Release);
        done
    }

    /// Counts an access to a region with holes, unless it meets one.
    #[cold]
    fn enter_torn(&self, address: usize, length: usize) -> Option<()> {
        let _first = lock();
        // SAFETY: under the lock.
        if unsafe { &*self.holes.get() }.meets(address, address.saturating_add(length)) {
            return None;
        }
        self.users.fetch_add(1, Ordering::SeqCst);
        Some(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let this: *mut Self = self;
        let mut first = lock();
        let (next, previous) = (*self.next.get_mut(), *self.previous.get_mut());
        // SAFETY: neighbours are in the list until they take themselves out, under the lock.
        unsafe {
            match previous.as_ref() {
                Some(previous) => previous.next.store(next, Ordering::Relaxed),
                None if first.0 == this => first.0 = next,
                // It was never in the list.
                None => {}
            }
            if let Some(next) = next.as_ref() {
                next.previous.store(previous, Ordering::Relaxed);
            }
        }
    }
}

/// These addresses are about to be unmapped, or to become other memory: regions have a hole there from now on, and no
/// access to it is under way when this returns.
pub(crate) fn unmapped(start: usize, length: usize) {
    let end = start.saturating_add(length);
    if start >= HIGHEST.load(Ordering::SeqCst)
        || end <= LOWEST.load(Ordering::SeqCst)
        || OWNER.load(Ordering::SeqCst) != std::process::id()
    {
        return;
    }
    let first = lock();
    let mut at = first.0;
    // SAFETY: what is in the list is there until it takes itself out, under the lock.
    while let Some(watch) = unsafe { at.as_ref() } {
        let (from, to) = (start.max(watch.start), end.min(watch.end));
        if from < to {
            // SAFETY: under the lock.
            unsafe { &mut *watch.holes.get() }.add(from, to);
            watch.torn.store(true, Ordering::SeqCst);
            // Copies are short, and wait for nobody; whoever comes now waits for the lock.
            while watch.users.load(Ordering::SeqCst) != 0 {
                std::thread::yield_now();
            }
        }
        at = watch.next.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holes(list: &[(usize, usize)]) -> Vec<(usize, usize)> {
        let mut holes = Holes { list: [(0, 0); HOLES], count: 0 };
        list.iter().for_each(|&(start, end)| holes.add(start, end));
        let mut found = holes.list[..holes.count].to_vec();
        found.sort_unstable();
        found
    }

    #[test]
    fn holes_that_meet_are_one() {
        assert_eq!(holes(&[(10, 20), (30, 40)]), [(10, 20), (30, 40)]);
        assert_eq!(holes(&[(10, 20), (30, 40), (20, 30)]), [(10, 40)]);
        assert_eq!(holes(&[(10, 20), (12, 14)]), [(10, 20)]);
        assert_eq!(holes(&[(30, 40), (10, 20), (0, 100)]), [(0, 100)]);
    }

    #[test]
    fn more_holes_than_there_is_room_for_cover_what_is_between() {
        let many: Vec<_> = (0..HOLES + 1).map(|index| (index * 100, index * 100 + 50)).collect();
        let found = holes(&many);
        assert_eq!(found.len(), HOLES);
        let covered = |at: usize| found.iter().any(|&(start, end)| (start..end).contains(&at));
        assert!(many.iter().all(|&(start, end)| covered(start) && covered(end - 1)));
    }

    #[test]
    fn accesses_are_refused_where_memory_is_gone() {
        let watch = Box::new(Watch::new(0x1000, 0x3000));
        // SAFETY: in a box.
        unsafe { watch.link() };
        let reaches = |address, length| watch.access(address, length, || Some(())).is_some();
        assert!(reaches(0x1000, 0x3000));
        unmapped(0x8000, 0x1000);
        assert!(reaches(0x1000, 0x3000));
        unmapped(0x2000, 0x1000);
        assert!(!reaches(0x1000, 0x3000) && !reaches(0x2fff, 1) && !reaches(0x1fff, 2));
        assert!(reaches(0x1000, 0x1000) && reaches(0x3000, 0x1000));
        let again = Box::new(Watch::new(0x1000, 0x3000));
        // SAFETY: in a box.
        unsafe { again.link() };
        assert!(again.access(0x2000, 8, || Some(())).is_some());
        drop(watch);
        unmapped(0x1000, 1);
        assert!(again.access(0x1000, 8, || Some(())).is_none());
    }
}
