use super::*;

const START: u64 = 1_000_000_000;

#[test]
fn yields_after_a_while() {
    let yielding = Yielding::default();
    assert!(!yielding.polled(START, 0));
    assert!(!yielding.polled(START, PATIENCE));
    assert!(yielding.polled(START, PATIENCE + 1));
    // Alone on the core: it goes on as before.
    yielding.resumed(START, START + 300);
    assert!(!yielding.polled(START + 1000, 1));
    assert!(yielding.polled(START + 1000, PATIENCE + 1));
}

#[test]
fn yields_at_once_to_a_peer_on_the_same_core() {
    let yielding = Yielding::default();
    yielding.resumed(START, START + 50_000);
    assert!(!yielding.polled(START, 0), "there were packets");
    assert!(yielding.polled(START, 1));
    yielding.resumed(START, START + 50_000);
    assert!(!yielding.polled(START, 1), "the other thread had nothing for this one");
}

#[test]
fn notices_that_the_peer_has_moved() {
    let yielding = Yielding::default();
    yielding.resumed(START, START + 50_000);
    assert!(!yielding.polled(START, 0));
    assert!(yielding.polled(START, 1));
    yielding.resumed(START, START + 300);
    assert!(!yielding.polled(START, 1));
}

#[test]
fn keeps_the_core_beside_threads_that_do_not_yield() {
    for (idle, length) in [(PAUSE, LONG + 1), (0, CROWDED + 1)] {
        let yielding = Yielding::default();
        yielding.resumed(START, START + length);
        assert!(!yielding.polled(START, idle));
        assert!(!yielding.polled(START + PAUSE - 1, 2 * PAUSE));
        assert!(yielding.polled(START + PAUSE, 2 * PAUSE));
    }
}

#[test]
fn a_slow_peer_gets_the_core() {
    let yielding = Yielding::default();
    yielding.resumed(START, START + LONG + 1);
    assert!(!yielding.polled(START, 0));
    assert!(yielding.polled(START + 1, 1));
}
