//! The parts of regions that the program has unmapped since they were registered.
//!
//! Hardware pins the pages of a region, so it does not access memory that the program maps at the same addresses later. This
//! crate accesses memory by address, so it has to track unmapping. [`crate::hooks`] reports every unmapping before it
//! happens; the part becomes a hole of the region, and accesses to it fail from then on. Registering the range again makes a
//! new region without holes.
//!
//! [`mark_unmapped`] runs inside the caller of `munmap`, which may be the allocator with its locks held. So this module does
//! not allocate: the list is intrusive, and the number of holes is fixed. It waits for accesses while it holds the lock of the
//! list, so a thread does not lock the list during an access ([`hazard`]).

use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::hazard;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, MutexGuard, forks, yield_now};

/// Maximum number of holes of a region. Beyond that, the two nearest are joined.
const MAX_HOLES: usize = 8;

/// The holes of one region. It is part of the region, and so does not move while it is in the list.
#[derive(Debug)]
pub(crate) struct Watch {
    start: usize,
    end: usize,
    /// The process that registered the region, as [`forks`] counts them: a forked child inherits regions, but has a list of
    /// its own.
    forks: u32,
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

/// The list of watched regions. A thread that a forked child does not have may hold the lock.
#[cfg(not(ferroce_loom))]
static WATCHES: ferroce_sys::ForkMutex<Head> =
    ferroce_sys::ForkMutex::new([const { std::sync::Mutex::new(Head::EMPTY) }; 16]);
#[cfg(ferroce_loom)]
loom::lazy_static! {
    static ref WATCHES: loom::sync::Mutex<Head> = loom::sync::Mutex::new(Head::EMPTY);
}
/// All regions are within these addresses: most unmapping is found irrelevant without a lock.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// The process that registered the regions. A child of a raw clone(2), which [`forks`] does not count, has none.
static OWNER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

struct Head {
    first: *mut Watch,
    /// The process whose list it is.
    forks: u32,
}

impl Head {
    const EMPTY: Self = Self { first: null_mut(), forks: 0 };
}

// SAFETY: the pointer is used under the lock.
unsafe impl Send for Head {}

/// Locks the list of this process. A thread that accesses a region must not call this: the thread that has the lock may be
/// waiting for the end of that access.
fn lock() -> MutexGuard<'static, Head> {
    hazard::assert_none();
    #[cfg(not(ferroce_loom))]
    let mut list = WATCHES.lock();
    #[cfg(ferroce_loom)]
    let mut list = WATCHES.lock().unwrap();
    if list.forks != forks() {
        // The list of an ancestor.
        *list = Head { forks: forks(), ..Head::EMPTY };
    }
    list
}

impl Watch {
    pub(crate) fn new(start: usize, length: usize) -> Self {
        let holes = Holes { list: [(0, 0); MAX_HOLES], count: 0 };
        Self {
            start,
            end: start.saturating_add(length),
            forks: forks(),
            accesses: AtomicU32::new(0),
            has_holes: AtomicBool::new(false),
            holes: UnsafeCell::new(holes),
            next: AtomicPtr::default(),
            previous: AtomicPtr::default(),
        }
    }

    /// Makes another one for the same memory with the same holes.
    pub(crate) fn duplicate(&self) -> Self {
        let list = lock();
        // SAFETY: under the lock.
        let holes = unsafe { *self.holes.get() };
        drop(list);
        let mut duplicate = Self::new(self.start, self.end - self.start);
        duplicate.has_holes.store(holes.count > 0, Ordering::Relaxed);
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
        self.next.store(list.first, Ordering::Relaxed);
        self.previous.store(null_mut(), Ordering::Relaxed);
        // SAFETY: entries stay in the list until they remove themselves under the lock.
        if let Some(next) = unsafe { list.first.as_ref() } {
            next.previous.store(this, Ordering::Relaxed);
        }
        list.first = this;
    }

    /// Adds a hole, which no access uses any more when this returns.
    pub(crate) fn mark_unmapped(&self, from: usize, to: usize) {
        self.add_hole(&lock(), from, to);
    }

    fn add_hole(&self, _list: &MutexGuard<'_, Head>, from: usize, to: usize) {
        if from >= to {
            return;
        }
        // SAFETY: under the lock.
        unsafe { &mut *self.holes.get() }.add(from, to);
        self.has_holes.store(true, Ordering::SeqCst);
        // Copies are short and do not block; new accesses wait for the lock.
        while self.accesses.load(Ordering::SeqCst) != 0 {
            yield_now();
        }
        hazard::wait_for(self);
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
        if self.forks != forks() {
            return; // In the list of the process that this one was forked from.
        }
        let this: *mut Self = self;
        let mut list = lock();
        let (next, previous) =
            (self.next.load(Ordering::Relaxed), self.previous.load(Ordering::Relaxed));
        // SAFETY: entries stay in the list until they remove themselves under the lock.
        unsafe {
            match previous.as_ref() {
                Some(previous) => previous.next.store(next, Ordering::Relaxed),
                None if list.first == this => list.first = next,
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
    let mut at = list.first;
    // SAFETY: entries stay in the list until they remove themselves under the lock.
    while let Some(watch) = unsafe { at.as_ref() } {
        watch.add_hole(&list, start.max(watch.start), end.min(watch.end));
        at = watch.next.load(Ordering::Relaxed);
    }
}

#[cfg(all(test, not(ferroce_loom)))]
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

    /// The child would wait for a thread that only its parent has.
    #[cfg(not(miri))]
    #[test]
    fn a_child_that_is_forked_while_the_list_is_locked_has_its_own() {
        // The fork handlers are installed with the first device.
        let _published = ferroce_sys::PublishedMemory::create("test").unwrap();
        let inherited = Box::new(Watch::new(0x1000, 0x1000));
        // SAFETY: in a box.
        unsafe { inherited.link() };
        let list = lock();
        // SAFETY: the child makes calls that are allowed after a fork in glibc, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child if it waits for the lock.
            unsafe { libc::alarm(10) };
            let watch = Box::new(Watch::new(0x3000, 0x1000));
            // SAFETY: in a box.
            unsafe { watch.link() };
            mark_unmapped(0x3000, 1);
            let sees_holes = watch.has_holes() && !watch.is_whole(0x3000, 8);
            drop((watch, inherited));
            // SAFETY: ends the child without the handlers of the test program.
            unsafe { libc::_exit(if sees_holes { 0 } else { 1 }) };
        }
        drop(list);
        let mut status = 0;
        // SAFETY: a local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "SIGALRM is {}", libc::SIGALRM);
        assert!(!inherited.has_holes());
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
