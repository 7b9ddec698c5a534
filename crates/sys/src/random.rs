//! Unpredictable random numbers: getrandom(2).

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills a buffer with random bytes.
pub fn fill(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(_) => return fill_by_hashing(&mut bytes[filled..]),
        }
    }
}

/// Returns 64 random bits.
pub fn number() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// For a sandbox that forbids the system call: the keys of the standard library's hash maps are random too, and it has
/// other sources for them.
fn fill_by_hashing(bytes: &mut [u8]) {
    use std::hash::{BuildHasher, RandomState};
    for piece in bytes.chunks_mut(8) {
        let random = RandomState::new().hash_one(piece.len()).to_ne_bytes();
        piece.copy_from_slice(&random[..piece.len()]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn numbers_do_not_repeat() {
        let numbers: HashSet<u64> = (0..10_000).map(|_| super::number()).collect();
        assert_eq!(numbers.len(), 10_000);
        for fill in [super::fill, super::fill_by_hashing] {
            let (mut one, mut other) = ([0; 37], [0; 37]);
            fill(&mut one);
            fill(&mut other);
            assert_ne!(one, other);
        }
    }
}
