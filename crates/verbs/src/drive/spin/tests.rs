use super::*;

/// Waits this long, and returns whether the thread spins at the beginning.
fn wait(spin: &Spin, length: u64, bytes: u64) -> bool {
    let spins = spin.wait(1000).is_some();
    spin.end(1000 + length, spin.bytes.load(Ordering::Relaxed) + bytes);
    spins
}

#[test]
fn spins_after_short_waits() {
    let spin = Spin::default();
    for _ in 0..ENOUGH {
        assert!(!wait(&spin, 10_000, 100));
    }
    assert_eq!(spin.wait(1000), Some(1000 + LONGEST));
    assert_eq!(spin.wait(1000 + LONGEST - 1), Some(1000 + LONGEST), "it still waits");
    assert_eq!(spin.wait(1000 + LONGEST), None, "it has waited long enough");
}

#[test]
fn sleeps_again_after_long_waits() {
    let spin = Spin::default();
    (0..100).for_each(|_| _ = wait(&spin, 10_000, 100));
    let spun = (0..100).filter(|_| wait(&spin, 2 * LONGEST, 100)).count();
    assert!(spun <= 3, "{spun}");
    assert!(!wait(&spin, 10_000, 100));
}

#[test]
fn sleeps_for_long_after_another_thread_ran() {
    let spun = || {
        let spin = Spin::default();
        (0..100).for_each(|_| _ = wait(&spin, 10_000, 100));
        assert!(spin.wait(1000).is_some());
        spin
    };
    let late = 1000 + LONGEST + PREEMPTED + 1;
    let [with_packets, without] = [spun(), spun()];
    with_packets.end(late, 100);
    assert_eq!(without.wait(late), None);
    without.end(late, 100);
    for spin in [with_packets, without] {
        let slept = (0..).take_while(|_| !wait(&spin, 10_000, 100)).count();
        assert_eq!(slept as i32, ENOUGH - CROWDED);
    }
    // It slept, so nothing is known about other threads.
    let spin = spun();
    assert_eq!(spin.wait(1000 + LONGEST), None);
    assert_eq!(spin.wait(late), None);
    assert!(spin.credit.load(Ordering::Relaxed) > 0);
}

#[test]
fn bulk_transfers_do_not_count() {
    let spin = Spin::default();
    assert!((0..100).all(|_| !wait(&spin, 10_000, 65_536)));
}

#[test]
fn what_arrives_without_a_wait_does_not_count() {
    let spin = Spin::default();
    (0..100).for_each(|_| spin.end(1000, 100));
    assert_eq!(spin.wait(1000), None);
}
