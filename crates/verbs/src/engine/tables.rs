//! The QPs and SRQs of a device, and the numbers they get.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ferroce_proto::memory::PdId;
use ferroce_sys::random;
use ferroce_wire::number::Qpn;

use super::numbers::Numbers;
use super::queue_pair::{Core, RecvQueue};
use crate::error::CreateError;
use crate::sync::lock;

/// Hashes a QPN for a lookup per packet. This process chooses the numbers in the table, so a peer cannot provoke
/// collisions.
#[derive(Debug, Default)]
struct QpnHasher(u64);

impl Hasher for QpnHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        // Fibonacci hashing: the multiplication spreads neighbouring numbers over all bits.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Table<T> = RwLock<HashMap<u32, Arc<T>, BuildHasherDefault<QpnHasher>>>;

/// The objects of a device that packets address by number.
#[derive(Debug)]
pub(crate) struct Tables {
    /// The slot in the top bits of this process's QPNs.
    slot: u8,
    queue_pairs: Table<Core>,
    /// Changes when a QPN is released.
    version: AtomicU32,
    numbers: Mutex<Numbers>,
    objects: Arc<Objects>,
}

/// The objects that all shards of a device share.
#[derive(Debug, Default)]
pub(super) struct Objects {
    receive_queues: Table<RecvQueue>,
    /// The number of PDs created.
    pds: AtomicU32,
}

impl Tables {
    pub(super) fn new(slot: u8, objects: Arc<Objects>) -> Self {
        Self {
            slot,
            queue_pairs: Table::default(),
            version: AtomicU32::new(0),
            numbers: Mutex::default(),
            objects,
        }
    }

    pub(super) fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    pub(crate) fn new_pd(&self) -> PdId {
        PdId(1 + self.objects.pds.fetch_add(1, Ordering::Relaxed))
    }

    /// The slot in the top bits of this process's QPNs.
    pub(crate) fn slot(&self) -> u8 {
        self.slot
    }

    /// Whether a QPN belongs to another process.
    pub(super) fn is_foreign(&self, number: Qpn) -> bool {
        number != Qpn::MULTICAST && number.0 >= 3 && number.0 >> 16 != u32::from(self.slot)
    }

    /// A number that no QP and no SRQ of this process has.
    pub(crate) fn new_number(&self) -> Result<Qpn, CreateError> {
        let queue_pairs = self.queue_pairs.read().unwrap_or_else(PoisonError::into_inner);
        let receive_queues =
            self.objects.receive_queues.read().unwrap_or_else(PoisonError::into_inner);
        let number = |low: u32| u32::from(self.slot) << 16 | low;
        let is_taken = |low| {
            queue_pairs.contains_key(&number(low)) || receive_queues.contains_key(&number(low))
        };
        let low = lock(&self.numbers).next(random::number, is_taken);
        low.map(|low| Qpn(number(low))).ok_or(CreateError::NoQueueNumbers)
    }

    pub(crate) fn add_queue_pair(&self, core: &Arc<Core>) {
        insert(&self.queue_pairs, core.number, core);
    }

    /// Releases the QPN of a destroyed QP.
    pub(crate) fn remove_queue_pair(&self, number: Qpn) {
        remove(&self.queue_pairs, number);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// As long as this is the same, every QP that was found before still has its number.
    pub(super) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn queue_pair(&self, number: Qpn) -> Option<Arc<Core>> {
        find(&self.queue_pairs, number)
    }

    pub(super) fn queue_pairs(&self) -> Vec<Arc<Core>> {
        let table = self.queue_pairs.read().unwrap_or_else(PoisonError::into_inner);
        table.values().map(Arc::clone).collect()
    }

    pub(crate) fn add_receive_queue(&self, number: Qpn, receives: &Arc<RecvQueue>) {
        insert(&self.objects.receive_queues, number, receives);
    }

    pub(super) fn remove_receive_queue(&self, number: Qpn) {
        remove(&self.objects.receive_queues, number);
    }

    pub(crate) fn receive_queue(&self, number: Qpn) -> Option<Arc<RecvQueue>> {
        find(&self.objects.receive_queues, number)
    }
}

fn insert<T>(table: &Table<T>, number: Qpn, object: &Arc<T>) {
    let mut table = table.write().unwrap_or_else(PoisonError::into_inner);
    table.insert(number.0, Arc::clone(object));
}

fn remove<T>(table: &Table<T>, number: Qpn) {
    table.write().unwrap_or_else(PoisonError::into_inner).remove(&number.0);
}

fn find<T>(table: &Table<T>, number: Qpn) -> Option<Arc<T>> {
    table.read().unwrap_or_else(PoisonError::into_inner).get(&number.0).cloned()
}
