//! The table of slots. It only grows, so that finding a slot needs no lock; each slot has a lock for its contents.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::keys::{FreeSlots, SLOT_BITS, Source, next_key, slot_of};
use crate::region::Region;
use crate::window::Window;

/// Slots that are allocated at a time, in bits. Few, because slots are selected at random.
const CHUNK_BITS: u32 = 6;
const CHUNKS: usize = 1 << (SLOT_BITS - CHUNK_BITS);

/// What a key refers to.
#[derive(Debug, Default)]
pub(crate) enum Object {
    #[default]
    None,
    Region(Arc<Region>),
    Window(Box<Window>),
}

#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// The key of the object; 0 for a free slot.
    pub(crate) key: u32,
    /// The last key of the slot.
    last_key: Option<u32>,
    pub(crate) object: Object,
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

    /// The slot of a key, if it was ever used.
    #[inline]
    fn slot(&self, key: u32) -> Option<&RwLock<Entry>> {
        let number = slot_of(key) as usize;
        self.chunks[number >> CHUNK_BITS].get()?.get(number & ((1 << CHUNK_BITS) - 1))
    }

    // Each change of a slot is one assignment, so a panic cannot leave it inconsistent, and poisoned locks are ignored.

    /// Locks the entry of a key for reading. `None` if the key is invalid.
    #[inline]
    pub(crate) fn read(&self, key: u32) -> Option<RwLockReadGuard<'_, Entry>> {
        let entry = self.slot(key)?.read().unwrap_or_else(PoisonError::into_inner);
        (entry.key == key && key != 0).then_some(entry)
    }

    /// Locks the entry of a key for writing, which waits for readers. `None` if the key is invalid.
    pub(crate) fn write(&self, key: u32) -> Option<RwLockWriteGuard<'_, Entry>> {
        let entry = self.slot(key)?.write().unwrap_or_else(PoisonError::into_inner);
        (entry.key == key && key != 0).then_some(entry)
    }

    /// Puts an object into a free slot, and returns its key; `None` if all slots are in use.
    pub(crate) fn insert(&self, object: Object) -> Option<u32> {
        let (number, random) = self.free.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let chunk = self.chunks[number as usize >> CHUNK_BITS]
            .get_or_init(|| (0..1 << CHUNK_BITS).map(|_| RwLock::default()).collect());
        let slot = &chunk[number as usize & ((1 << CHUNK_BITS) - 1)];
        let mut entry = slot.write().unwrap_or_else(PoisonError::into_inner);
        entry.key = next_key(number, entry.last_key, random);
        entry.last_key = Some(entry.key);
        entry.object = object;
        Some(entry.key)
    }

    /// Removes the object of a slot and invalidates its key.
    pub(crate) fn remove(&self, mut entry: RwLockWriteGuard<'_, Entry>) -> Object {
        let number = slot_of(entry.key);
        entry.key = 0;
        let object = std::mem::take(&mut entry.object);
        drop(entry);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).put(number);
        object
    }

    /// Calls `change` for each window, with one slot locked at a time.
    pub(crate) fn each_window(&self, mut change: impl FnMut(&mut Window)) {
        for slot in self.chunks.iter().filter_map(OnceLock::get).flatten() {
            let mut entry = slot.write().unwrap_or_else(PoisonError::into_inner);
            if let Object::Window(window) = &mut entry.object {
                change(window);
            }
        }
    }
}
