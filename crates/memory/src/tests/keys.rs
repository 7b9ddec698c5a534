//! Keys: uniqueness, randomness, and reuse.

use std::collections::HashSet;

use ferroce_proto::memory::{Denied, Memory};

use crate::keys::{SLOT_BITS, next_key, slot_of};

use super::*;

#[test]
fn keys_contain_their_slot() {
    let all_ones = u64::MAX;
    for slot in [0, 1, 77, (1 << SLOT_BITS) - 1] {
        for random in [0, 0x1ff, all_ones] {
            let mut before = None;
            let mut seen = HashSet::new();
            // Even with the smallest steps 32 objects have different indices.
            for _ in 0..32 {
                let key = next_key(slot, before, random);
                assert_eq!(slot_of(key), slot);
                assert!(key >> 8 != 0 && seen.insert(key >> 8), "{slot} {random:x}");
                before = Some(key);
            }
        }
    }
}

/// The keys of `count` registrations.
fn some_keys(registry: &Registry, count: usize) -> Vec<u32> {
    (0..count).map(|_| registry.register_null(PD).unwrap().rkey.0).collect()
}

/// Known keys do not determine the next: there is no fixed step, and each bit is set as often as not, whatever it was
/// before.
#[test]
fn keys_do_not_predict_the_next() {
    let keys = some_keys(&Registry::new(7), 4096);
    let steps: HashSet<u32> =
        keys.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) >> 8).collect();
    assert!(steps.len() > 4000, "{} different steps", steps.len());
    for bit in 0..32 {
        let set = keys.iter().filter(|&key| key >> bit & 1 == 1).count();
        let same = keys.windows(2).filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 == 0).count();
        // Six standard deviations of a fair coin.
        for count in [set, same] {
            assert!(count.abs_diff(2048) < 6 * 32, "bit {bit}: {count} of 4096");
        }
    }
}

#[test]
fn keys_of_two_registries_are_unrelated() {
    let [one, other] = [1, 2].map(|seed| some_keys(&Registry::new(seed), 256));
    assert!(one.iter().all(|key| !other.contains(key)));
    let differences: HashSet<u32> =
        one.iter().zip(&other).map(|(one, other)| one ^ other).collect();
    assert_eq!(differences.len(), 256);
}

/// Each key takes new bits from the source, so that a known key reveals nothing about later ones.
#[test]
fn every_registration_draws_from_the_source() {
    let drawn = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&drawn);
    let mut numbers = crate::keys::seeded(3);
    let registry = Registry::with_source(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        numbers()
    });
    for registrations in 1..=10 {
        some_keys(&registry, 1);
        assert_eq!(drawn.load(std::sync::atomic::Ordering::Relaxed), 2 * registrations);
    }
}

#[test]
fn stale_keys_do_not_match() {
    let rounds = if cfg!(miri) { 50 } else { 1_000_000 };
    let (registry, buffer) = (Registry::new(9), buffer(64));
    let other = add(&registry, &buffer, ALL);
    let mut seen = HashSet::with_capacity(rounds);
    let mut first = None;
    for round in 0..rounds {
        let keys = add(&registry, &buffer, ALL);
        assert!(seen.insert(keys.rkey.0), "the key of round {round} is not new");
        let memory = &registry;
        assert_eq!(memory.check_remote(BY, remote(keys.rkey, BASE, 8), READ), Ok(()));
        assert_eq!(registry.deregister(keys.lkey), Ok(()));
        for stale in [keys, *first.get_or_insert(keys)] {
            let sge = remote(stale.rkey, BASE, 8);
            assert_eq!(memory.check_remote(BY, sge, READ), Err(Denied::Key));
        }
    }
    assert!(!seen.contains(&other.rkey.0) && !seen.contains(&0));
    assert_eq!(registry.regions(), 1);
}

/// A peer may send any 32 bits.
#[test]
fn unknown_keys_are_denied() {
    let (registry, _buffer, keys) = setup(64, ALL);
    let step = if cfg!(miri) { 1 << 26 } else { 65_521 };
    for key in (0..u32::MAX).step_by(step).chain([0, 1, 0xff, 0x100, u32::MAX]) {
        let verdict = (&registry).check_remote(BY, remote(RKey(key), BASE, 8), READ);
        assert_eq!(verdict.is_ok(), key == keys.rkey.0);
    }
    for tag in 1..=255 {
        let key = RKey(keys.rkey.0 ^ tag);
        assert_eq!((&registry).check_remote(BY, remote(key, BASE, 8), READ), Err(Denied::Key));
    }
}

#[test]
#[cfg(not(miri))]
fn registering_fails_when_all_slots_are_in_use() {
    let registry = Registry::new(5);
    let keys: Vec<_> = (0..1 << SLOT_BITS).map(|_| registry.register_null(PD)).collect();
    assert!(keys.iter().all(Result::is_ok));
    assert_eq!(registry.register_null(PD), Err(crate::RegisterError::Full));
    registry.deregister(keys[77].unwrap().lkey).unwrap();
    let again = registry.register_null(PD).unwrap();
    assert_ne!(again, keys[77].unwrap());
    assert_eq!(registry.query(keys[77].unwrap().lkey), None);
}
