//! Keys: a key contains its slot in the table, and distinguishes the successive objects of the slot.
//!
//! ```text
//!  31        26 25                 8 7      0
//! +------------+--------------------+--------+
//! | generation | slot               | tag    |
//! +------------+--------------------+--------+
//! ```
//! All 32 bits are random: the slot is selected from the free ones at random, the tag of a region and the first generation
//! of a slot are random, and each further generation is one or two above the last. So the keys that a peer has seen reveal
//! nothing about others. They have only 32 bits, and do not protect against a peer that can try all of them.
//!
//! The owner of a window chooses its tag (IBA 10.6.7.2.1), so only the rest, the index, distinguishes a window from earlier
//! objects. A slot is not reused before [`REUSE_THRESHOLD`]/2 others were, and an index not before 32 objects of its slot:
//! at least 2^20 registrations lie between two uses of a key.

use std::collections::{HashMap, VecDeque};

/// The number of slots of a table, in bits.
pub(crate) const SLOT_BITS: u32 = 18;

/// The number of slots of a table, unless it is a small one.
pub(crate) const SLOTS: u32 = 1 << SLOT_BITS;
const TAG_BITS: u32 = 8;
/// The number of generations of an index.
const GENERATIONS: u32 = 1 << (32 - TAG_BITS - SLOT_BITS);

/// The number of released slots from which on one of the older half is reused; before that, unused slots are taken while
/// there are any.
pub(crate) const REUSE_THRESHOLD: usize = 1 << 16;

/// The index of a key: all but the tag.
pub(crate) const fn index_of(key: u32) -> u32 {
    key >> TAG_BITS
}

/// The slot of a key. The slot contains its valid key.
#[inline]
pub(crate) const fn slot_of(key: u32) -> u32 {
    index_of(key) % SLOTS
}

/// Makes the key for the next object of a slot from the last key of the slot.
pub(crate) fn next_key(slot: u32, last: Option<u32>, random: u64) -> u32 {
    let generation = |key: u32| key >> (TAG_BITS + SLOT_BITS);
    let mut next = match last {
        Some(key) => generation(key) + 1 + (random >> 8 & 1) as u32,
        None => (random >> 8) as u32,
    } % GENERATIONS;
    // Slot 0 of generation 0 could have the key 0, which is invalid.
    if slot == 0 && next == 0 {
        next = 1;
    }
    (next << SLOT_BITS | slot) << TAG_BITS | (random & 0xff) as u32
}

/// A source of random numbers.
pub(crate) type Source = Box<dyn FnMut() -> u64 + Send>;

/// A source that is derived from a seed: splitmix64.
pub(crate) fn seeded(seed: u64) -> Source {
    let mut state = seed;
    Box::new(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// The free slots.
pub(crate) struct FreeSlots {
    source: Source,
    /// The number of slots.
    slots: u32,
    /// The number of slots that were ever used. A Fisher-Yates shuffle selects the next one.
    used: u32,
    /// The positions of the shuffle that hold another slot than their index.
    moved: HashMap<u32, u32>,
    /// The slots that were used and released, the oldest first except for swaps.
    released: VecDeque<u32>,
}

impl FreeSlots {
    pub(crate) fn new(source: Source, slots: u32) -> Self {
        Self { source, slots, used: 0, moved: HashMap::new(), released: VecDeque::new() }
    }

    /// Takes a slot, and random bits for the key.
    pub(crate) fn take(&mut self) -> Option<(u32, u64)> {
        let bits = (self.source)();
        if self.released.len() < REUSE_THRESHOLD && self.used < self.slots {
            // One step of the Fisher-Yates shuffle.
            let position = self.used + self.below(self.slots - self.used);
            let slot = self.moved.get(&position).copied().unwrap_or(position);
            let first = self.moved.remove(&self.used).unwrap_or(self.used);
            if position != self.used {
                self.moved.insert(position, first);
            }
            self.used += 1;
            return Some((slot, bits));
        }
        let older = self.released.len().div_ceil(2) as u32;
        if older > 0 {
            let position = self.below(older) as usize;
            self.released.swap(0, position);
        }
        Some((self.released.pop_front()?, bits))
    }

    pub(crate) fn put(&mut self, slot: u32) {
        self.released.push_back(slot);
    }

    /// A random number below `end`. The bias of at most 2^18 out of 2^64 is negligible.
    fn below(&mut self, end: u32) -> u32 {
        ((self.source)() % u64::from(end)) as u32
    }
}

impl std::fmt::Debug for FreeSlots {
    /// Omits the source, from which the keys follow.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { used, released, .. } = self;
        f.debug_struct("FreeSlots").field("used", used).field("released", &released.len()).finish()
    }
}
