use proptest::prelude::*;

use super::*;

const START: u64 = 1_000_000_000;

#[test]
fn one_pass_serves_queues_that_are_polled_in_turn() {
    let polling = Polling::default();
    assert!(polling.makes_pass(1, || START));
    polling.passed(START, 1);
    assert!(!polling.makes_pass(2, || START + SAME_POLL - 1));
    assert!(polling.makes_pass(1, || START + SAME_POLL - 1), "the first one again");
    assert!(polling.makes_pass(2, || START + SAME_POLL));
}

#[test]
fn a_poll_that_found_something_is_followed_by_a_pass() {
    let polling = Polling::default();
    assert!(polling.makes_pass(1, || START));
    polling.passed(START, 0);
    assert!(polling.makes_pass(2, || START + 1));
}

#[test]
fn yields_after_a_while() {
    let polling = Polling::default();
    assert!(!polling.passed(START, 0));
    assert!(!polling.passed(START, PATIENCE));
    assert!(polling.passed(START, PATIENCE + 1));
    // Alone on the core: it goes on as before.
    polling.resumed(START, START + 300);
    assert!(!polling.passed(START + 1000, 1));
    assert!(polling.passed(START + 1000, PATIENCE + 1));
}

#[test]
fn yields_at_once_to_a_peer_on_the_same_core() {
    let polling = Polling::default();
    polling.resumed(START, START + 50_000);
    assert!(!polling.passed(START, 0), "there were packets");
    assert!(polling.passed(START, 1));
    polling.resumed(START, START + 50_000);
    assert!(!polling.passed(START, 1), "the other thread had nothing for this one");
}

#[test]
fn notices_that_the_peer_has_moved() {
    let polling = Polling::default();
    polling.resumed(START, START + 50_000);
    assert!(!polling.passed(START, 0));
    assert!(polling.passed(START, 1));
    polling.resumed(START, START + 300);
    assert!(!polling.passed(START, 1));
}

#[test]
fn keeps_the_core_beside_threads_that_do_not_yield() {
    for (idle, length) in [(PAUSE, LONG + 1), (0, CROWDED + 1)] {
        let polling = Polling::default();
        polling.resumed(START, START + length);
        assert!(!polling.passed(START, idle));
        assert!(!polling.passed(START + PAUSE - 1, 2 * PAUSE));
        assert!(polling.passed(START + PAUSE, 2 * PAUSE));
    }
}

#[test]
fn a_slow_peer_gets_the_core() {
    let polling = Polling::default();
    polling.resumed(START, START + LONG + 1);
    assert!(!polling.passed(START, 0));
    assert!(polling.passed(START + 1, 1));
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
                polling.passed(now, u64::from(!busy));
                (last_pass, last_queue) = (now, queue);
                prop_assert_eq!(polling.idle(now), 0);
            } else {
                prop_assert!(now - last_pass < SAME_POLL);
                prop_assert_ne!(queue, last_queue);
            }
        }
    }
}
