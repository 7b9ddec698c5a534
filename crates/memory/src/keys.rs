//! Keys: which slot of the table one names, and which of the slot's successive tenants.
//!
//! ```text
//!  31                            8 7        0
//! +-------------------------------+----------+
//! | index: (generation, slot),    | tag      |
//! | scrambled                     |          |
//! +-------------------------------+----------+
//! ```
//! The index has 18 bits of slot and the low 6 of the slot's generation. The tag of a region is the generation's next
//! 8 bits; that of a window is its owner's to choose (IBA 10.6.7.2.1), so a window has only the index to tell it from
//! those before it. A slot is not used again before [`REST`] others were, which makes 2^30 registrations, or 2^22 windows,
//! until a key comes back.
//!
//! Scrambling is no protection: a key is 32 bits, and a peer that may try can find it. It keeps the keys of two runs,
//! or of two regions, from being guessed by accident: a program that uses last run's key fails at once.

use std::collections::VecDeque;

/// Slots that a table can have, in bits.
pub(crate) const SLOT_BITS: u32 = 18;

const INDEX_BITS: u32 = 24;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
/// Generations that the index tells apart, in bits.
const LOW_BITS: u32 = INDEX_BITS - SLOT_BITS;

/// Free slots that are kept before the oldest is used again, as long as there are new ones.
pub(crate) const REST: usize = 1 << 16;

/// The index of a key: all but the tag.
pub(crate) const fn index_of(key: u32) -> u32 {
    key >> 8
}

/// How this table's slots and generations become keys, and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codec {
    multiplier: u32,
    inverse: u32,
    offset: u32,
    tags: u32,
}

impl Codec {
    pub(crate) fn new(entropy: u64) -> Self {
        let first = mix(entropy);
        let second = mix(first);
        // Odd, so that it has an inverse modulo 2^24.
        let multiplier = first as u32 | 1;
        // Newton: each step doubles the bits that are right, and an odd number is its own inverse in the lowest 3.
        let inverse = (0..4).fold(multiplier, |inverse, _| {
            inverse.wrapping_mul(2u32.wrapping_sub(multiplier.wrapping_mul(inverse)))
        });
        Self { multiplier, inverse, offset: (first >> 32) as u32, tags: second as u32 }
    }

    /// The key of a slot's tenant; `None` for the few that would be 0 but for the tag, which is never a key.
    pub(crate) fn encode(&self, slot: u32, generation: u16) -> Option<u32> {
        let generation = u32::from(generation);
        let number = (generation << SLOT_BITS | slot & SLOT_MASK) & INDEX_MASK;
        let index = number.wrapping_mul(self.multiplier).wrapping_add(self.offset) & INDEX_MASK;
        let start = mix(u64::from(self.tags) << 32 | u64::from(slot)) as u32;
        let tag = start.wrapping_add(generation >> LOW_BITS) & 0xff;
        (index != 0).then_some(index << 8 | tag)
    }

    /// The slot that a key names. Whether the key is that slot's, the slot knows.
    #[inline]
    pub(crate) fn slot(&self, key: u32) -> u32 {
        index_of(key).wrapping_sub(self.offset).wrapping_mul(self.inverse) & SLOT_MASK
    }
}

/// One step of splitmix64.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Slots that nobody has.
#[derive(Debug, Default)]
pub(crate) struct FreeSlots {
    /// The first that never had a tenant.
    fresh: u32,
    /// Those that had, the longest free first.
    resting: VecDeque<u32>,
}

impl FreeSlots {
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.resting.len() < REST && self.fresh <= SLOT_MASK {
            self.fresh += 1;
            return Some(self.fresh - 1);
        }
        self.resting.pop_front()
    }

    pub(crate) fn put(&mut self, slot: u32) {
        self.resting.push_back(slot);
    }
}
