use std::collections::BTreeSet;
use std::vec::Vec;

use super::*;

/// splitmix64.
fn generator(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[test]
fn qpns_are_random_and_not_reused_soon() {
    let (mut numbers, mut random) = (Numbers::default(), generator(1));
    let drawn: Vec<u32> =
        (0..REST).map(|_| numbers.next(&mut random, |_| false).unwrap()).collect();
    assert!(drawn.iter().all(|low| (FIRST..COUNT).contains(low)));
    assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), REST);
    // No QPN can be derived from the previous one.
    let steps: BTreeSet<u32> = drawn.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.len() > 3000, "{} different steps", steps.len());
}

#[test]
fn all_numbers_can_be_had() {
    let (mut numbers, mut taken) = (Numbers::default(), BTreeSet::new());
    // The worst case: a generator that always returns the same value.
    while let Some(low) = numbers.next(|| 5, |low| taken.contains(&low)) {
        assert!(taken.insert(low));
        if taken.len() == 10_000 {
            break;
        }
    }
    let last = numbers.next(|| 5, |low| low != 77);
    assert_eq!(last, Some(77));
    assert_eq!(
        numbers.next(|| 5, |low| low != 77),
        Some(77),
        "a resting number is better than none"
    );
    assert_eq!(numbers.next(|| 5, |_| true), None);
}
