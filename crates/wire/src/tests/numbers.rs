use std::format;

use proptest::prelude::*;

use crate::number::{LIMIT_24, Psn, QKey, Qpn, RKey};

fn psn() -> impl Strategy<Value = Psn> {
    // Half of the cases are near the wrap-around.
    prop_oneof![0..LIMIT_24, 0..16u32, LIMIT_24 - 16..LIMIT_24].prop_map(Psn)
}

/// A valid distance of two PSNs: half the number space in either direction.
fn step() -> impl Strategy<Value = i32> {
    const HALF: i32 = LIMIT_24 as i32 / 2;
    prop_oneof![-HALF..HALF, -4..4i32, Just(-HALF), Just(HALF - 1)]
}

fn moved(psn: Psn, step: i32) -> Psn {
    if step < 0 { psn.sub(step.unsigned_abs()) } else { psn.add(step.unsigned_abs()) }
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn distance_undoes_a_step(psn in psn(), step in step()) {
        prop_assert_eq!(moved(psn, step).distance(psn), step);
        prop_assert_eq!(moved(psn, step).is_before(psn), step < 0);
    }

    #[test]
    fn distance_is_antisymmetric_except_at_half_the_space(a in psn(), b in psn()) {
        let half = -(LIMIT_24 as i32 / 2);
        if a.distance(b) == half {
            prop_assert_eq!(b.distance(a), half);
        } else {
            prop_assert_eq!(a.distance(b), -b.distance(a));
        }
    }

    #[test]
    fn add_and_sub_are_inverse_and_stay_in_24_bits(psn in psn(), count in any::<u32>()) {
        prop_assert!(psn.add(count).0 < LIMIT_24 && psn.sub(count).0 < LIMIT_24);
        prop_assert_eq!(psn.add(count).sub(count), psn);
        prop_assert_eq!(psn.sub(count).add(count), psn);
    }

    #[test]
    fn new_keeps_24_bits(value in any::<u32>()) {
        prop_assert_eq!(Psn::new(value).0, value % LIMIT_24);
    }
}

#[test]
fn wrapping_is_one_step() {
    let last = Psn(0xff_ffff);
    assert_eq!(last.add(1), Psn(0));
    assert_eq!(Psn(0).sub(1), last);
    assert_eq!(Psn(0).distance(last), 1);
    assert!(last.is_before(Psn(0)) && !Psn(0).is_before(last));
    assert!(!last.is_before(last));
    // IBA 9.7.2: the valid region is half of the numbers, so a distance of half the space counts as behind.
    assert_eq!(Psn(0x80_0000).distance(Psn(0)), -0x80_0000);
    assert_eq!(Psn(0x7f_ffff).distance(Psn(0)), 0x7f_ffff);
}

#[test]
fn numbers_are_shown_with_all_digits() {
    assert_eq!(format!("{} {:?}", Psn(0x1000), Qpn(1)), "0x001000 Qpn(0x000001)");
    assert_eq!(format!("{} {}", QKey::GENERAL_SERVICES, RKey(0x2a)), "0x80010000 0x0000002a");
}
