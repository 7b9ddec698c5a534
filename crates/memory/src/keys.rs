//! Keys: which slot of the table one names, and which of the slot's successive tenants.
//!
//! ```text
//!  31        26 25                 8 7      0
//! +------------+--------------------+--------+
//! | generation | slot               | tag    |
//! +------------+--------------------+--------+
//! ```
//! All 32 bits are random: the slot is drawn from the free ones, the tag of a region and a slot's first generation are
//! random, and each further generation is one or two above the one before. So keys that a peer has seen say nothing about
//! others. They are still only 32 bits, and no protection against somebody who may try all of them.
//!
//! The tag of a window is its owner's to choose (IBA 10.6.7.2.1), so a window has only the rest, its index, to tell it from
//! those before it. A slot is not used again before [`REST`]/2 others were, and an index not before 32 tenants of its slot:
//! 2^20 registrations, at least, lie between two uses of a key.

use std::collections::{HashMap, VecDeque};

/// Slots that a table can have, in bits.
pub(crate) const SLOT_BITS: u32 = 18;

const SLOTS: u32 = 1 << SLOT_BITS;
const TAG_BITS: u32 = 8;
/// Generations that the index tells apart.
const GENERATIONS: u32 = 1 << (32 - TAG_BITS - SLOT_BITS);

/// Free slots that are kept before one of the older half is used again, as long as there are new ones.
pub(crate) const REST: usize = 1 << 16;

/// The index of a key: all but the tag.
pub(crate) const fn index_of(key: u32) -> u32 {
    key >> TAG_BITS
}

/// The slot that a key names. Whether the key is that slot's, the slot knows.
#[inline]
pub(crate) const fn slot_of(key: u32) -> u32 {
    index_of(key) % SLOTS
}

/// The key of a slot's next tenant, from the key of the one before.
pub(crate) fn next_key(slot: u32, before: Option<u32>, random: u64) -> u32 {
    let generation = |key: u32| key >> (TAG_BITS + SLOT_BITS);
    let mut next = match before {
        Some(key) => generation(key) + 1 + (random >> 8 & 1) as u32,
        None => (random >> 8) as u32,
    } % GENERATIONS;
    // A key of tag alone could be 0, which is never a key.
    if slot == 0 && next == 0 {
        next = 1;
    }
    (next << SLOT_BITS | slot) << TAG_BITS | (random & 0xff) as u32
}

/// Where random numbers come from.
pub(crate) type Source = Box<dyn FnMut() -> u64 + Send>;

/// Numbers that follow from a seed: splitmix64.
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

/// Slots that nobody has.
pub(crate) struct FreeSlots {
    source: Source,
    /// How many slots have had a tenant. They and the others are a random permutation in the making.
    used: u32,
    /// Places of the permutation that hold another slot than their own.
    moved: HashMap<u32, u32>,
    /// Those that had a tenant, the longest free first but for exchanges.
    resting: VecDeque<u32>,
}

impl FreeSlots {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, used: 0, moved: HashMap::new(), resting: VecDeque::new() }
    }

    /// A slot, and random bits for its tenant's key.
    pub(crate) fn take(&mut self) -> Option<(u32, u64)> {
        let bits = (self.source)();
        if self.resting.len() < REST && self.used < SLOTS {
            // One step of Fisher and Yates' shuffle.
            let place = self.used + self.below(SLOTS - self.used);
            let slot = self.moved.get(&place).copied().unwrap_or(place);
            let first = self.moved.remove(&self.used).unwrap_or(self.used);
            if place != self.used {
                self.moved.insert(place, first);
            }
            self.used += 1;
            return Some((slot, bits));
        }
        let older = self.resting.len().div_ceil(2) as u32;
        if older > 0 {
            let place = self.below(older) as usize;
            self.resting.swap(0, place);
        }
        Some((self.resting.pop_front()?, bits))
    }

    pub(crate) fn put(&mut self, slot: u32) {
        self.resting.push_back(slot);
    }

    /// A random number below another. Fewer than 2^18 out of 64 bits: the bias cannot be measured.
    fn below(&mut self, end: u32) -> u32 {
        ((self.source)() % u64::from(end)) as u32
    }
}

impl std::fmt::Debug for FreeSlots {
    /// What it draws from is nobody's business.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { used, resting, .. } = self;
        f.debug_struct("FreeSlots").field("used", used).field("resting", &resting.len()).finish()
    }
}
