//! The table of slots. It only grows, so that finding a slot takes no lock; what is in a slot is behind the slot's own.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::keys::{FreeSlots, SLOT_BITS, Source, next_key, slot_of};
use crate::region::Region;
use crate::window::Window;

/// Slots that are allocated at a time, in bits. Few, for slots are drawn at random.
const CHUNK_BITS: u32 = 6;
const CHUNKS: usize = 1 << (SLOT_BITS - CHUNK_BITS);

#[derive(Debug, Default)]
pub(crate) enum Tenant {
    #[default]
    Nobody,
    Region(Arc<Region>),
    Window(Box<Window>),
}

#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// The tenant's key; of a slot without one, 0.
    pub(crate) key: u32,
    /// The key of the last tenant.
    before: Option<u32>,
    pub(crate) tenant: Tenant,
}

/// Slots that are allocated when the first of them is used.
type Chunk = OnceLock<Box<[RwLock<Entry>]>>;

#[derive(Debug)]
pub(crate) struct Table {
    chunks: Box<[Chunk]>,
    free: Mutex<FreeSlots>,
}

impl Table {
    pub(crate) fn new(source: Source) -> Self {
        let chunks = (0..CHUNKS).map(|_| OnceLock::new()).collect();
        Self { chunks, free: Mutex::new(FreeSlots::new(source)) }
    }

    /// The slot that this key names, if there ever was one.
    #[inline]
    fn slot(&self, key: u32) -> Option<&RwLock<Entry>> {
        let number = slot_of(key) as usize;
        self.chunks[number >> CHUNK_BITS].get()?.get(number & ((1 << CHUNK_BITS) - 1))
    }

    // A panic while a slot is locked cannot leave it half changed: each change is one assignment. So the locks'
    // poison tells nothing.

    /// What this key names.
    #[inline]
    pub(crate) fn read(&self, key: u32) -> Option<RwLockReadGuard<'_, Entry>> {
        let entry = self.slot(key)?.read().unwrap_or_else(PoisonError::into_inner);
        (entry.key == key && key != 0).then_some(entry)
    }

    /// What this key names, to change it. Waits for those who read it.
    pub(crate) fn write(&self, key: u32) -> Option<RwLockWriteGuard<'_, Entry>> {
        let entry = self.slot(key)?.write().unwrap_or_else(PoisonError::into_inner);
        (entry.key == key && key != 0).then_some(entry)
    }

    /// Gives a slot to a tenant, and returns the key; `None` when all are taken.
    pub(crate) fn insert(&self, tenant: Tenant) -> Option<u32> {
        let (number, random) = self.free.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let chunk = self.chunks[number as usize >> CHUNK_BITS]
            .get_or_init(|| (0..1 << CHUNK_BITS).map(|_| RwLock::default()).collect());
        let slot = &chunk[number as usize & ((1 << CHUNK_BITS) - 1)];
        let mut entry = slot.write().unwrap_or_else(PoisonError::into_inner);
        entry.key = next_key(number, entry.before, random);
        entry.before = Some(entry.key);
        entry.tenant = tenant;
        Some(entry.key)
    }

    /// Takes the tenant out: from here on, its key names nothing.
    pub(crate) fn remove(&self, mut entry: RwLockWriteGuard<'_, Entry>) -> Tenant {
        let number = slot_of(entry.key);
        entry.key = 0;
        let tenant = std::mem::take(&mut entry.tenant);
        drop(entry);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).put(number);
        tenant
    }

    /// Does `change` with each window, one locked at a time.
    pub(crate) fn each_window(&self, mut change: impl FnMut(&mut Window)) {
        for slot in self.chunks.iter().filter_map(OnceLock::get).flatten() {
            let mut entry = slot.write().unwrap_or_else(PoisonError::into_inner);
            if let Tenant::Window(window) = &mut entry.tenant {
                change(window);
            }
        }
    }
}
