use proptest::prelude::*;

use super::*;

const START: u64 = 1_000_000_000;

#[test]
fn one_pass_serves_queues_that_are_polled_in_turn() {
    let polling = Polling::default();
    assert!(polling.makes_pass(1, || START));
    polling.passed(START, false, 1);
    assert!(!polling.makes_pass(2, || START + SAME_POLL - 1));
    assert!(polling.makes_pass(1, || START + SAME_POLL - 1), "the first one again");
    assert!(polling.makes_pass(2, || START + SAME_POLL));
}

#[test]
fn a_poll_that_found_something_is_followed_by_a_pass() {
    let polling = Polling::default();
    assert!(polling.makes_pass(1, || START));
    polling.passed(START, true, 0);
    assert!(polling.makes_pass(2, || START + 1));
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]

    /// However a program polls its CQs, passes are missing for no longer than [`SAME_POLL`], and one CQ is always served.
    #[test]
    fn passes_are_skipped_for_a_moment_only(
        polls in prop::collection::vec((1..4_u64, 1..3000_u64, any::<bool>()), 1..200),
    ) {
        let polling = Polling::default();
        let (mut now, mut last_pass, mut last_queue) = (START, START, 0);
        for (queue, after, busy) in polls {
            now += after;
            if polling.makes_pass(queue, || now) {
                polling.passed(now, busy, u64::from(!busy));
                (last_pass, last_queue) = (now, queue);
                prop_assert_eq!(polling.idle(now), 0);
            } else {
                prop_assert!(now - last_pass < SAME_POLL);
                prop_assert_ne!(queue, last_queue);
            }
        }
    }
}
