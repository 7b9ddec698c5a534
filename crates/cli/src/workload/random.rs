//! Numbers that a seed determines.

/// Every bit of the result depends on every bit of the number (the finalizer of SplitMix64).
pub(super) fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(mixed(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mixed(self.0)
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// A number from -1 to 1.
    pub(super) fn signed_unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

/// Fills bytes with a pattern.
pub(super) fn fill(seed: u64, out: &mut [u8]) {
    for (index, part) in out.chunks_mut(8).enumerate() {
        let word = mixed(seed.wrapping_add(index as u64)).to_le_bytes();
        part.copy_from_slice(&word[..part.len()]);
    }
}

/// The first byte that differs from the pattern.
pub(super) fn mismatch(seed: u64, found: &[u8]) -> Option<usize> {
    let mut wanted = vec![0; found.len()];
    fill(seed, &mut wanted);
    found.iter().zip(&wanted).position(|(found, wanted)| found != wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_checked() {
        let mut bytes = vec![0; 1003];
        fill(7, &mut bytes);
        assert_eq!(mismatch(7, &bytes), None);
        bytes[1002] ^= 1;
        assert_eq!(mismatch(7, &bytes), Some(1002));
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.below(3) < 3 && random.signed_unit().abs() <= 1.0));
    }
}
