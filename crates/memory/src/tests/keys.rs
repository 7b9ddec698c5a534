//! Keys are found again, differ, and do not come back.

use std::collections::HashSet;

use ferroce_proto::memory::{Denied, Memory};

use crate::keys::{Codec, SLOT_BITS};

use super::*;

#[test]
fn codec_is_a_bijection() {
    for entropy in [0, 1, 0xdead_beef_0123_4567, u64::MAX] {
        let codec = Codec::new(entropy);
        let mut seen = HashSet::new();
        let mut missing = 0;
        for slot in (0..1 << SLOT_BITS).step_by(if cfg!(miri) { 65_537 } else { 97 }) {
            // Around the places where a part of the generation wraps.
            for generation in [0, 1, 62, 63, 64, 127, 8191, 16_383] {
                let Some(key) = codec.encode(slot, generation) else {
                    missing += 1;
                    continue;
                };
                assert_ne!(key >> 8, 0);
                assert_eq!(codec.slot(key), slot);
                assert!(seen.insert(key));
            }
        }
        assert!(missing <= 8);
    }
    let keys = |entropy| (0..16).map(move |slot| Codec::new(entropy).encode(slot, 1));
    assert!(keys(1).zip(keys(2)).all(|(one, other)| one != other));
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
        assert!(registry.deregister(keys.lkey).unwrap().is_done());
        for stale in [keys, *first.get_or_insert(keys)] {
            let span = remote(stale.rkey, BASE, 8);
            assert_eq!(memory.check_remote(BY, span, READ), Err(Denied::Key));
        }
    }
    assert!(!seen.contains(&other.rkey.0) && !seen.contains(&0));
    assert_eq!(registry.regions(), 1);
}

/// Any 32 bits may come from a peer.
#[test]
fn foreign_keys() {
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
fn all_slots_taken() {
    let registry = Registry::new(5);
    let keys: Vec<_> = (0..1 << SLOT_BITS).map(|_| registry.register_null(DOMAIN)).collect();
    assert!(keys.iter().all(Result::is_ok));
    assert_eq!(registry.register_null(DOMAIN), Err(crate::RegisterError::Full));
    registry.deregister(keys[77].unwrap().lkey).unwrap().wait();
    let again = registry.register_null(DOMAIN).unwrap();
    assert_ne!(again, keys[77].unwrap());
    assert_eq!(registry.query(keys[77].unwrap().lkey), None);
}
