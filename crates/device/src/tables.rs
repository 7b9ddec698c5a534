//! The objects of a device that packets address by number: its QPs, and the SRQs that XRC requests name.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use ferroce_proto::memory::PdId;
use ferroce_sync::{Mutex, PostedQueue};
use ferroce_wire::number::Qpn;

use crate::handle::{Handle, Schedulable};
use crate::numbers::Numbers;

/// The QPs and SRQs of a process, by number, and which QPs are queued. `Q`: the handle of a QP; `R`: that of a receive queue.
#[derive(Debug)]
pub struct Tables<Q, R> {
    /// The slot in the top bits of this process's QPNs.
    slot: u8,
    queue_pairs: Mutex<Directory<Q>>,
    /// Changes when a QPN is released.
    version: AtomicU32,
    numbers: Mutex<Numbers>,
    objects: Arc<Objects<R>>,
    /// The QPs that threads have queued which do not own the device.
    pub posted: PostedQueue<Q>,
}

/// The objects that all shards of a device share.
#[derive(Debug)]
pub struct Objects<R> {
    receive_queues: Mutex<BTreeMap<u32, R>>,
    /// The number of PDs created.
    pds: AtomicU32,
}

impl<R> Default for Objects<R> {
    fn default() -> Self {
        Self { receive_queues: Mutex::new(BTreeMap::new()), pds: AtomicU32::new(0) }
    }
}

/// Entries of a page, and pages: a QPN has 16 bits besides the slot.
const PAGE: usize = 256;

/// QPs whose QPNs have the same upper bits. It exists while it has one: the numbers of QPs that come and go are all over the table.
#[derive(Debug)]
struct Page<Q> {
    used: usize,
    entries: [Option<Q>; PAGE],
}

/// QPs by the low 16 bits of their QPNs, which are random: a lookup per packet reads two pointers, and hashes nothing.
#[derive(Debug)]
struct Directory<Q>(Box<[Option<Box<Page<Q>>>; PAGE]>);

impl<Q: Handle> Directory<Q> {
    fn new() -> Self {
        Self(Box::new([const { None }; PAGE]))
    }

    #[inline]
    const fn place(number: Qpn) -> (usize, usize) {
        (number.0 as usize >> 8 & 0xff, number.0 as usize & 0xff)
    }

    #[inline]
    fn get(&self, number: Qpn) -> Option<&Q> {
        let (page, entry) = Self::place(number);
        let found = self.0[page].as_ref()?.entries[entry].as_ref();
        found.filter(|found| found.number() == number)
    }

    fn insert(&mut self, handle: Q) {
        let (page, entry) = Self::place(handle.number());
        let empty = || Box::new(Page { used: 0, entries: [const { None }; PAGE] });
        let page = self.0[page].get_or_insert_with(empty);
        debug_assert!(page.entries[entry].is_none(), "{:?} is taken", handle.number());
        page.used += usize::from(page.entries[entry].replace(handle).is_none());
    }

    fn remove(&mut self, number: Qpn) -> Option<Q> {
        self.get(number)?;
        let (at, entry) = Self::place(number);
        let page = self.0[at].as_mut()?;
        let removed = page.entries[entry].take();
        page.used -= usize::from(removed.is_some());
        if page.used == 0 {
            self.0[at] = None;
        }
        removed
    }

    fn iter(&self) -> impl Iterator<Item = &Q> {
        self.0.iter().flatten().flat_map(|page| page.entries.iter().flatten())
    }
}

impl<Q: Handle, R: Clone> Tables<Q, R> {
    /// Creates tables of a process with this slot.
    pub fn new(slot: u8, objects: Arc<Objects<R>>) -> Self {
        Self {
            slot,
            queue_pairs: Mutex::new(Directory::new()),
            version: AtomicU32::new(0),
            numbers: Mutex::new(Numbers::default()),
            objects,
            posted: PostedQueue::default(),
        }
    }

    /// The objects that all shards share.
    pub fn objects(&self) -> &Arc<Objects<R>> {
        &self.objects
    }

    /// A PD that no other has.
    pub fn new_pd(&self) -> PdId {
        PdId(1 + self.objects.pds.fetch_add(1, Ordering::Relaxed))
    }

    /// The slot in the top bits of this process's QPNs.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Whether a QPN belongs to another process.
    #[inline]
    pub fn is_foreign(&self, number: Qpn) -> bool {
        number != Qpn::MULTICAST && number.0 >= 3 && number.0 >> 16 != u32::from(self.slot)
    }

    /// A number that no QP and no SRQ of this process has, or `None` if all are taken.
    pub fn new_number(&self, random: impl FnMut() -> u64) -> Option<Qpn> {
        let queue_pairs = self.queue_pairs.lock();
        let receive_queues = self.objects.receive_queues.lock();
        let number = |low: u32| Qpn(u32::from(self.slot) << 16 | low);
        let is_taken = |low| {
            queue_pairs.get(number(low)).is_some() || receive_queues.contains_key(&number(low).0)
        };
        self.numbers.lock().next(random, is_taken).map(number)
    }

    /// Adds a QP, whose number is one of this process.
    pub fn add_queue_pair(&self, handle: &Q) {
        debug_assert!(!self.is_foreign(handle.number()), "{:?} is foreign", handle.number());
        self.queue_pairs.lock().insert(handle.clone());
    }

    /// Releases the QPN of a destroyed QP.
    pub fn remove_queue_pair(&self, number: Qpn) {
        let removed = self.queue_pairs.lock().remove(number);
        // Dropped without the lock: its last owner may destroy more.
        drop(removed);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// As long as this is the same, every QP that was found before still has its number.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// The QP with this number.
    #[inline]
    pub fn queue_pair(&self, number: Qpn) -> Option<Q> {
        self.queue_pairs.lock().get(number).cloned()
    }

    /// All QPs, by number.
    pub fn queue_pairs(&self) -> Vec<Q> {
        self.queue_pairs.lock().iter().cloned().collect()
    }

    /// Adds an SRQ.
    pub fn add_receive_queue(&self, number: Qpn, receives: R) {
        self.objects.receive_queues.lock().insert(number.0, receives);
    }

    /// Releases the number of an SRQ.
    pub fn remove_receive_queue(&self, number: Qpn) {
        let removed = self.objects.receive_queues.lock().remove(&number.0);
        drop(removed);
    }

    /// The SRQ with this number.
    pub fn receive_queue(&self, number: Qpn) -> Option<R> {
        self.objects.receive_queues.lock().get(&number.0).cloned()
    }

    /// Panics if a QP is not where it is looked up.
    pub fn check_invariants(&self) {
        let queue_pairs = self.queue_pairs.lock();
        for handle in queue_pairs.iter() {
            let number = handle.number();
            assert!(
                !self.is_foreign(number),
                "QP {number:?} is in the table of slot {}",
                self.slot
            );
            let found = queue_pairs.get(number).map(|found| found.number());
            assert_eq!(found, Some(number), "the QP that is found by its number");
        }
        for page in queue_pairs.0.iter().flatten() {
            assert_eq!(page.used, page.entries.iter().flatten().count(), "QPs of a page");
            assert!(page.used > 0, "an empty page");
        }
    }
}
