//! The table of slots. It only grows, so that finding a slot needs no lock; each slot has a lock for its contents, which most
//! accesses to regions do without ([`hazard`]).

use std::mem::offset_of;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::hazard::{self, Hazard};
use crate::keys::{FreeSlots, SLOTS, Source, index_of, next_key, slot_of};
use crate::region::{Kind, Region};
use crate::sync::{AtomicPtr, AtomicU32, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::window::Window;

/// Slots that are allocated at a time, in bits. Few, because slots are selected at random.
const CHUNK_BITS: u32 = 6;

/// What a key refers to.
#[derive(Debug, Default)]
pub(crate) enum Object {
    #[default]
    None,
    Region(Arc<Region>),
    Window(Box<Window>),
}

impl Object {
    /// Waits for accesses without the lock to a region that is not in its slot any more.
    fn wait_for_accesses(&self) {
        if let Self::Region(region) = self {
            hazard::wait_for(&region.watch);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// The key of the object; 0 for a free slot.
    pub(crate) key: u32,
    /// The last key of the slot.
    last_key: Option<u32>,
    pub(crate) object: Object,
}

#[derive(Debug, Default)]
struct Slot {
    /// The key of a region that is accessed by pointer, and the region itself, for accesses without the lock; 0 and null for
    /// other objects. They change under the lock.
    key: AtomicU32,
    region: AtomicPtr<Region>,
    entry: RwLock<Entry>,
}

impl Slot {
    /// Lets accesses without the lock find a region, if they need neither locks nor memory ([`hazard`]).
    fn show(&self, key: u32, region: &Arc<Region>) {
        if region.kind != Kind::Ordinary {
            return self.hide();
        }
        self.region.store(Arc::as_ptr(region).cast_mut(), Ordering::Release);
        self.key.store(key, Ordering::Release);
    }

    /// Keeps accesses without the lock from finding a region.
    fn hide(&self) {
        self.key.store(0, Ordering::Release);
        self.region.store(null_mut(), Ordering::Release);
    }

    fn read(&self) -> RwLockReadGuard<'_, Entry> {
        hazard::assert_none();
        self.entry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entry> {
        hazard::assert_none();
        self.entry.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A region that is not deregistered as long as this exists.
#[derive(Debug)]
pub(crate) struct Protected<'a> {
    region: &'a Region,
    _hazard: Hazard,
}

impl Deref for Protected<'_> {
    type Target = Region;

    #[inline]
    fn deref(&self) -> &Region {
        self.region
    }
}

/// Slots that are allocated when the first of them is used.
type Chunk = OnceLock<Box<[Slot]>>;

#[derive(Debug)]
pub(crate) struct Table {
    chunks: Box<[Chunk]>,
    free: Mutex<FreeSlots>,
}

impl Table {
    /// Creates a table of this many slots, rounded up to whole chunks.
    pub(crate) fn new(source: Source, slots: u32) -> Self {
        let chunks = slots.clamp(1, SLOTS).div_ceil(1 << CHUNK_BITS);
        let free = FreeSlots::new(source, chunks << CHUNK_BITS);
        Self { chunks: (0..chunks).map(|_| OnceLock::new()).collect(), free: Mutex::new(free) }
    }

    /// The slot of a key, if it was ever used.
    #[inline]
    fn slot(&self, key: u32) -> Option<&Slot> {
        let number = slot_of(key) as usize;
        self.chunks.get(number >> CHUNK_BITS)?.get()?.get(number & ((1 << CHUNK_BITS) - 1))
    }

    // Each change of a slot is one assignment, so a panic cannot leave it inconsistent, and poisoned locks are ignored.

    /// The region of a key, protected without a lock. `None` if the key is not one of a region, if parts of the region are
    /// unmapped, or if the thread has to lock the entry.
    #[inline]
    pub(crate) fn protect(&self, key: u32) -> Option<Protected<'_>> {
        let slot = self.slot(key)?;
        let found = slot.region.load(Ordering::Acquire);
        if found.is_null() || key == 0 {
            return None;
        }
        // Only the address: the region may be gone.
        let watch = found.wrapping_byte_add(offset_of!(Region, watch)).cast();
        let hazard = Hazard::announce(watch)?;
        // If these are still the same, whoever removes the region sees the announcement.
        if slot.region.load(Ordering::Acquire) != found || slot.key.load(Ordering::Acquire) != key {
            return None;
        }
        // SAFETY: the slot has a reference to it, and waits for this access before it gives it up.
        let region = unsafe { &*found };
        (!region.watch.has_holes()).then_some(Protected { region, _hazard: hazard })
    }

    /// Locks the entry of a key for reading. `None` if the key is invalid.
    #[inline]
    pub(crate) fn read(&self, key: u32) -> Option<RwLockReadGuard<'_, Entry>> {
        let entry = self.slot(key)?.read();
        (entry.key == key && key != 0).then_some(entry)
    }

    /// Whether the key was the last one of its slot, and is not valid any more.
    pub(crate) fn was_last(&self, key: u32) -> bool {
        let entry = self.slot(key).map(Slot::read);
        entry.is_some_and(|entry| entry.key == 0 && entry.last_key == Some(key))
    }

    /// Locks the entry of a key for writing, which waits for readers. `None` if the key is invalid.
    pub(crate) fn write(&self, key: u32) -> Option<RwLockWriteGuard<'_, Entry>> {
        let entry = self.slot(key)?.write();
        (entry.key == key && key != 0).then_some(entry)
    }

    /// Locks the entry of a window's key for writing, whatever the tag, which a bind request may change at any time.
    pub(crate) fn write_any_tag(&self, key: u32) -> Option<RwLockWriteGuard<'_, Entry>> {
        let entry = self.slot(key)?.write();
        (index_of(entry.key) == index_of(key) && entry.key != 0).then_some(entry)
    }

    /// Puts an object into a free slot, and returns its key; `None` if all slots are in use.
    pub(crate) fn insert(&self, object: Object) -> Option<u32> {
        let (number, random) = self.free_slots().take()?;
        let chunk = self.chunks[number as usize >> CHUNK_BITS]
            .get_or_init(|| (0..1 << CHUNK_BITS).map(|_| Slot::default()).collect());
        let slot = &chunk[number as usize & ((1 << CHUNK_BITS) - 1)];
        let mut entry = slot.write();
        entry.key = next_key(number, entry.last_key, random);
        entry.last_key = Some(entry.key);
        entry.object = object;
        if let Object::Region(region) = &entry.object {
            slot.show(entry.key, region);
        }
        Some(entry.key)
    }

    /// Removes the object of a slot and invalidates its key, and waits for accesses to a region.
    pub(crate) fn remove(&self, mut entry: RwLockWriteGuard<'_, Entry>) -> Object {
        let number = slot_of(entry.key);
        if let Some(slot) = self.slot(entry.key) {
            slot.hide();
        }
        entry.key = 0;
        let object = std::mem::take(&mut entry.object);
        drop(entry);
        object.wait_for_accesses();
        self.free_slots().put(number);
        object
    }

    /// Replaces the region of a slot by another with the same key, waits for accesses to the old one, and returns it.
    pub(crate) fn replace(
        &self,
        mut entry: RwLockWriteGuard<'_, Entry>,
        region: Arc<Region>,
    ) -> Object {
        if let Some(slot) = self.slot(entry.key) {
            slot.show(entry.key, &region);
        }
        let object = std::mem::replace(&mut entry.object, Object::Region(region));
        drop(entry);
        object.wait_for_accesses();
        object
    }

    fn free_slots(&self) -> MutexGuard<'_, FreeSlots> {
        hazard::assert_none();
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `change` for each window, with one slot locked at a time.
    pub(crate) fn each_window(&self, mut change: impl FnMut(&mut Window)) {
        for slot in self.chunks.iter().filter_map(OnceLock::get).flatten() {
            let mut entry = slot.write();
            if let Object::Window(window) = &mut entry.object {
                change(window);
            }
        }
    }
}
