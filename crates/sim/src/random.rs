//! Seeded random numbers: xoshiro256** by Blackman and Vigna, seeded by splitmix64 as its authors advise.
//!
//! Implemented here rather than taken from a crate, because a seed must give the same run for as long as it is written
//! down somewhere: no release of a dependency may change what is drawn.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::probability::Probability;

/// A stream of random numbers. Not cryptographic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    /// The seed of this stream. Named streams derive from it and not from the state, so that they do not depend on how
    /// much was drawn before.
    key: u64,
    state: [u64; 4],
}

/// One step of splitmix64: advances the state and returns a mixed number.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// Returns the stream of this seed. Every seed is valid, including 0.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        // Four successive outputs are never all zero, the one state that xoshiro cannot leave.
        Self { key: seed, state: [(); 4].map(|()| splitmix64(&mut state)) }
    }

    /// Returns a generator in this state, to compare with published values.
    #[cfg(test)]
    pub(crate) fn from_state(state: [u64; 4]) -> Self {
        Self { key: 0, state }
    }

    /// Derives the stream of this name, independently of what was drawn here before: a new consumer with its own name
    /// does not shift what the others draw.
    pub fn stream(&self, name: &str) -> Self {
        // FNV-1a of the name; the order of mixing separates names from numbers.
        let name = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut key = self.key;
        let mut mixed = splitmix64(&mut key) ^ name;
        Self::new(splitmix64(&mut mixed))
    }

    /// Derives the stream of this number: for many consumers of one kind, such as hosts.
    pub fn substream(&self, index: u64) -> Self {
        let mut key = self.key.rotate_left(32);
        let mut mixed =
            splitmix64(&mut key).wrapping_add(index.wrapping_mul(0xd134_2543_de82_ef95));
        Self::new(splitmix64(&mut mixed))
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= shifted;
        *s3 = s3.rotate_left(45);
        result
    }

    /// Returns a uniformly distributed number below `bound`; 0 when `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        // Lemire, "Fast random integer generation in an interval": the low half decides whether the draw is rejected.
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            let low = product as u64;
            if low >= bound || low >= bound.wrapping_neg() % bound.max(1) {
                return (product >> 64) as u64;
            }
        }
    }

    /// Returns a number of this range; its start when the range is empty.
    pub fn between(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (start, end) = range.into_inner();
        match end.saturating_sub(start).checked_add(1) {
            Some(count) => start + self.below(count),
            None => self.next_u64(),
        }
    }

    /// Returns a duration of this range, in whole nanoseconds.
    pub fn duration(&mut self, range: RangeInclusive<Duration>) -> Duration {
        let nanoseconds = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.between(nanoseconds(range.start())..=nanoseconds(range.end())))
    }

    /// Returns true with this probability. Draws nothing when the result is certain.
    #[inline]
    pub fn chance(&mut self, probability: Probability) -> bool {
        match probability {
            Probability::NEVER => false,
            Probability::ALWAYS => true,
            _ => {
                let scaled = u128::from(self.next_u64())
                    * u128::from(Probability::ALWAYS.parts_per_billion());
                ((scaled >> 64) as u64) < u64::from(probability.parts_per_billion())
            }
        }
    }

    /// Returns a random item, or `None` if there is none.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    /// Shuffles the items (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}
