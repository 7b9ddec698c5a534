//! The table of slots. It only grows, so that finding a slot takes no lock; what is in a slot is behind the slot's own.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::keys::{Codec, FreeSlots, SLOT_BITS};
use crate::region::Region;
use crate::window::Window;

/// Slots that are allocated at a time, in bits.
const CHUNK_BITS: u32 = 10;
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
    /// The tenant's key; of a slot without one, nothing that counts.
    pub(crate) key: u32,
    generation: u16,
    pub(crate) tenant: Tenant,
}

#[derive(Debug)]
pub(crate) struct Table {
    codec: Codec,
    chunks: [OnceLock<Box<[RwLock<Entry>]>>; CHUNKS],
    free: Mutex<FreeSlots>,
}

impl Table {
    pub(crate) fn new(entropy: u64) -> Self {
        let chunks = [const { OnceLock::new() }; CHUNKS];
        Self { codec: Codec::new(entropy), chunks, free: Mutex::default() }
    }

    /// The slot that this key names, if there ever was one.
    #[inline]
    fn slot(&self, key: u32) -> Option<&RwLock<Entry>> {
        let number = self.codec.slot(key) as usize;
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
        let number = self.free.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let chunk = self.chunks[number as usize >> CHUNK_BITS]
            .get_or_init(|| (0..1 << CHUNK_BITS).map(|_| RwLock::default()).collect());
        let slot = &chunk[number as usize & ((1 << CHUNK_BITS) - 1)];
        let mut entry = slot.write().unwrap_or_else(PoisonError::into_inner);
        entry.key = loop {
            entry.generation = entry.generation.wrapping_add(1);
            // Of the generations next to each other, at most one has no key.
            if let Some(key) = self.codec.encode(number, entry.generation) {
                break key;
            }
        };
        entry.tenant = tenant;
        Some(entry.key)
    }

    /// Takes the tenant out: from here on, its key names nothing.
    pub(crate) fn remove(&self, mut entry: RwLockWriteGuard<'_, Entry>) -> Tenant {
        let number = self.codec.slot(entry.key);
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
