//! The parts of regions that the program has unmapped since they were registered.
//!
//! Hardware pins the pages of a region, so it does not access memory that the program maps at the same addresses later. This
//! crate accesses memory by address, so it has to track unmapping. [`crate::hooks`] reports every unmapping before it
//! happens; the part becomes a hole of the region, and accesses to it fail from then on. Registering the range again makes a
//! new region without holes.
//!
//! [`mark_unmapped`] runs inside the caller of `munmap`, which may be the allocator with its locks held. So this module does
//! not allocate: the list is intrusive, and the number of holes is fixed.

use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hazard;

/// Maximum number of holes of a region. Beyond that, the two nearest are joined.
const MAX_HOLES: usize = 8;

/// The holes of one region. It is part of the region, and so does not move while it is in the list.
#[derive(Debug)]
pub(crate) struct Watch {
    start: usize,
    end: usize,
    /// Accesses in progress that are not announced otherwise ([`hazard`]).
    accesses: AtomicU32,
    /// Whether there are holes.
    has_holes: AtomicBool,
    /// Protected by the list's lock.
    holes: UnsafeCell<Holes>,
    /// Links of the list, protected by its lock.
    next: AtomicPtr<Watch>,
    previous: AtomicPtr<Watch>,
}

// SAFETY: fields that are not atomic are used under the list's lock.
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

#[derive(Clone, Copy, Debug)]
struct Holes {
    list: [(usize, usize); MAX_HOLES],
    count: usize,
}

impl Holes {
    /// Adds a hole, and joins it with those that it touches.
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
        if self.count == MAX_HOLES {
            let distance = |&(from, to): &(usize, usize)| from.max(start) - to.min(end);
            let nearest = (0..MAX_HOLES).min_by_key(|&index| distance(&self.list[index]));
            let (from, to) = self.list[nearest.unwrap_or(0)];
            // Accesses to the memory between them fail too, which is better than accessing other memory.
            return self.add(start.min(from), end.max(to));
        }
        self.list[self.count] = (start, end);
        self.count += 1;
    }

    fn overlaps(&self, start: usize, end: usize) -> bool {
        self.list[..self.count].iter().any(|&(from, to)| from < end && start < to)
    }
}

/// The list of watched regions.
static WATCHES: Mutex<Head> = Mutex::new(Head(null_mut()));
/// All regions are within these addresses: most unmapping is found irrelevant without a lock.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// The process that registered the regions: a forked child has none, and the lock may be held for ever there.
static OWNER: AtomicU32 = AtomicU32::new(0);

struct Head(*mut Watch);

// SAFETY: the pointer is used under the lock.
unsafe impl Send for Head {}

fn lock() -> MutexGuard<'static, Head> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    pub(crate) fn new(start: usize, length: usize) -> Self {
        let holes = Holes { list: [(0, 0); MAX_HOLES], count: 0 };
        Self {
            start,
            end: start.saturating_add(length),
            accesses: AtomicU32::new(0),
            has_holes: AtomicBool::new(false),
            holes: UnsafeCell::new(holes),
            next: AtomicPtr::default(),
            previous: AtomicPtr::default(),
        }
    }

    /// Makes another one for the same memory with the same holes.
    pub(crate) fn duplicate(&self) -> Self {
        let mut duplicate = Self::new(self.start, self.end - self.start);
        let _list = lock();
        // SAFETY: under the lock.
        let holes = unsafe { *self.holes.get() };
        *duplicate.has_holes.get_mut() = holes.count > 0;
        *duplicate.holes.get_mut() = holes;
        duplicate
    }

    /// Adds it to the list.
    ///
    /// # Safety
    /// It does not move until it is dropped.
    pub(crate) unsafe fn link(&self) {
        LOWEST.fetch_min(self.start, Ordering::SeqCst);
        HIGHEST.fetch_max(self.end, Ordering::SeqCst);
        let this = std::ptr::from_ref(self).cast_mut();
        let mut list = lock();
        OWNER.store(std::process::id(), Ordering::SeqCst);
        self.next.store(list.0, Ordering::Relaxed);
        self.previous.store(null_mut(), Ordering::Relaxed);
        // SAFETY: entries stay in the list until they remove themselves under the lock.
        if let Some(next) = unsafe { list.0.as_ref() } {
            next.previous.store(this, Ordering::Relaxed);
        }
        list.0 = this;
    }

    /// Calls `act` for an access to `length` bytes at `address`, unless it overlaps a hole.
    #[inline]
    pub(crate) fn access<T>(
        &self,
        address: usize,
        length: usize,
        act: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        // Either a thread that adds a hole sees this access, or this thread sees the hole.
        self.accesses.fetch_add(1, Ordering::SeqCst);
        if self.has_holes() {
            self.accesses.fetch_sub(1, Ordering::Release);
            self.enter_with_holes(address, length)?;
        }
        let done = act();
        self.accesses.fetch_sub(1, Ordering::Release);
        done
    }

    /// Whether parts of the region are unmapped.
    #[inline]
    pub(crate) fn has_holes(&self) -> bool {
        self.has_holes.load(Ordering::SeqCst)
    }

    /// Whether these bytes overlap no hole now. An access has to look again: there may be one by then.
    #[inline]
    pub(crate) fn is_whole(&self, address: usize, length: usize) -> bool {
        !self.has_holes() || self.overlaps_no_hole(address, length)
    }

    #[cold]
    fn overlaps_no_hole(&self, address: usize, length: usize) -> bool {
        let _list = lock();
        // SAFETY: under the lock.
        !unsafe { &*self.holes.get() }.overlaps(address, address.saturating_add(length))
    }

    /// Counts an access to a region with holes, unless it overlaps one.
    #[cold]
    fn enter_with_holes(&self, address: usize, length: usize) -> Option<()> {
        let _list = lock();
        // SAFETY: under the lock.
        if unsafe { &*self.holes.get() }.overlaps(address, address.saturating_add(length)) {
            return None;
        }
        self.accesses.fetch_add(1, Ordering::SeqCst);
        Some(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let this: *mut Self = self;
        let mut list = lock();
        let (next, previous) = (*self.next.get_mut(), *self.previous.get_mut());
        // SAFETY: entries stay in the list until they remove themselves under the lock.
        unsafe {
            match previous.as_ref() {
                Some(previous) => previous.next.store(next, Ordering::Relaxed),
                None if list.0 == this => list.0 = next,
                // It was never added to the list.
                None => {}
            }
            if let Some(next) = next.as_ref() {
                next.previous.store(previous, Ordering::Relaxed);
            }
        }
    }
}

/// Records that these addresses are about to be unmapped or replaced: regions have a hole there from now on, and no access
/// to it is in progress when this returns.
pub(crate) fn mark_unmapped(start: usize, length: usize) {
    let end = start.saturating_add(length);
    if start >= HIGHEST.load(Ordering::SeqCst)
        || end <= LOWEST.load(Ordering::SeqCst)
        || OWNER.load(Ordering::SeqCst) != std::process::id()
    {
        return;
    }
    let list = lock();
    let mut at = list.0;
    // SAFETY: entries stay in the list until they remove themselves under the lock.
    while let Some(watch) = unsafe { at.as_ref() } {
        let (from, to) = (start.max(watch.start), end.min(watch.end));
        if from < to {
            // SAFETY: under the lock.
            unsafe { &mut *watch.holes.get() }.add(from, to);
            watch.has_holes.store(true, Ordering::SeqCst);
            // Copies are short and do not block; new accesses wait for the lock.
            while watch.accesses.load(Ordering::SeqCst) != 0 {
                std::thread::yield_now();
            }
            hazard::wait_for(watch);
        }
        at = watch.next.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holes(list: &[(usize, usize)]) -> Vec<(usize, usize)> {
        let mut holes = Holes { list: [(0, 0); MAX_HOLES], count: 0 };
        list.iter().for_each(|&(start, end)| holes.add(start, end));
        let mut found = holes.list[..holes.count].to_vec();
        found.sort_unstable();
        found
    }

    #[test]
    fn adjacent_holes_are_joined() {
        assert_eq!(holes(&[(10, 20), (30, 40)]), [(10, 20), (30, 40)]);
        assert_eq!(holes(&[(10, 20), (30, 40), (20, 30)]), [(10, 40)]);
        assert_eq!(holes(&[(10, 20), (12, 14)]), [(10, 20)]);
        assert_eq!(holes(&[(30, 40), (10, 20), (0, 100)]), [(0, 100)]);
    }

    #[test]
    fn holes_beyond_the_maximum_are_joined_with_the_nearest() {
        let many: Vec<_> =
            (0..MAX_HOLES + 1).map(|index| (index * 100, index * 100 + 50)).collect();
        let found = holes(&many);
        assert_eq!(found.len(), MAX_HOLES);
        let covered = |at: usize| found.iter().any(|&(start, end)| (start..end).contains(&at));
        assert!(many.iter().all(|&(start, end)| covered(start) && covered(end - 1)));
    }

    #[test]
    fn accesses_to_unmapped_parts_fail() {
        let watch = Box::new(Watch::new(0x1000, 0x3000));
        // SAFETY: in a box.
        unsafe { watch.link() };
        let reaches = |address, length| watch.access(address, length, || Some(())).is_some();
        assert!(reaches(0x1000, 0x3000));
        mark_unmapped(0x8000, 0x1000);
        assert!(reaches(0x1000, 0x3000));
        mark_unmapped(0x2000, 0x1000);
        assert!(!reaches(0x1000, 0x3000) && !reaches(0x2fff, 1) && !reaches(0x1fff, 2));
        assert!(reaches(0x1000, 0x1000) && reaches(0x3000, 0x1000));
        let second = Box::new(Watch::new(0x1000, 0x3000));
        // SAFETY: in a box.
        unsafe { second.link() };
        assert!(second.access(0x2000, 8, || Some(())).is_some());
        drop(watch);
        mark_unmapped(0x1000, 1);
        assert!(second.access(0x1000, 8, || Some(())).is_none());
    }

    /// Another thread writes to the region as fast as it can. What is mapped at its place afterwards is never written.
    #[test]
    fn no_access_is_in_progress_after_unmapping() {
        use std::sync::atomic::AtomicU64;

        use ferroce_proto::memory::{AccessFlags, Memory, PdId, Sge};
        use ferroce_wire::number::{LKey, VirtualAddress};

        use crate::{AddressRange, Registry};

        const LENGTH: usize = 256;
        let rounds = if cfg!(miri) { 5 } else { 2000 };
        let (registry, pd) = (Registry::new(3), PdId(1));
        // Words, because the test reads them while the other thread may write.
        let words: [AtomicU64; LENGTH / 8] = std::array::from_fn(|_| AtomicU64::new(0));
        let address = words.as_ptr().expose_provenance();
        let (current, stop) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut memory = &registry;
                while !stop.load(Ordering::Acquire) {
                    let key = LKey(current.load(Ordering::Acquire));
                    let sge =
                        Sge { key, address: VirtualAddress(address as u64), length: LENGTH as u32 };
                    let _ = memory.write_local(pd, sge, &[0xab; LENGTH]);
                }
            });
            let is_written_late = (0..rounds).any(|_| {
                // SAFETY: the words outlive the registry's regions.
                let range = unsafe { AddressRange::new(address, LENGTH) };
                let iova = VirtualAddress(address as u64);
                let keys = registry.register(pd, range, iova, AccessFlags::LOCAL_WRITE).unwrap();
                current.store(keys.lkey.0, Ordering::Release);
                while words[0].load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                mark_unmapped(address, LENGTH);
                let is_written = (0..10).any(|_| {
                    words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                    std::thread::yield_now();
                    words.iter().any(|word| word.load(Ordering::Relaxed) != 0)
                });
                registry.deregister(keys.lkey).unwrap();
                is_written
            });
            stop.store(true, Ordering::Release);
            assert!(!is_written_late, "written after it was unmapped");
        });
    }
}
