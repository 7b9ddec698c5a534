//! Random numbers that nobody can predict, from the system's generator.

/// Fills a buffer with random bytes: getrandom(2).
pub fn fill(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: the buffer is as long as said.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(count) => filled += count,
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {
            }
            Err(_) => return fill_by_hashing(rest),
        }
    }
}

/// 64 random bits.
pub fn number() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// For a sandbox without the system call: the standard library's hash keys are random too, and it knows other ways to
/// get them.
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
