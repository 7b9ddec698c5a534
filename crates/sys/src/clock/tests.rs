use super::*;

/// Reads both clocks alternately: each reading lies between its neighbours, whatever interrupts the thread.
#[test]
fn the_fast_clock_follows_the_clock_of_the_kernel() {
    const ROUNDS: u64 = if cfg!(miri) { 10 } else { 400_000 };
    // The tolerated error: that of a reading, 4 us with a TSC of 1 GHz, and that of the frequency while the reading is valid.
    const ERROR: u64 = 4_000 + VALID / 500;
    let mut clock = FastClock::new();
    let mut before = now();
    let (mut fast, started) = (0, before);
    while fast < ROUNDS || before - started < 4 * MEASURED {
        let time = clock.now();
        let after = now();
        assert!(time + ERROR >= before && time <= after + ERROR, "{before} {time} {after}");
        before = after;
        fast += 1;
    }
    assert_eq!(clock.scale > 0, clock.has_counter);
}

#[test]
fn a_stepped_clock_counts_its_readings() {
    let mut clock = FastClock::stepped(40);
    let first = clock.now();
    assert_eq!([clock.now(), clock.now()], [first + 40, first + 80]);
}

/// Of a simulated machine: suspended, which stops one of the clocks, moved to another, or with a counter that was reset, at any
/// moment. A reading is right again a millisecond after the jump.
#[test]
fn readings_are_right_after_either_clock_has_jumped() {
    const SECOND: i64 = 1_000_000_000;
    let jumps = [0, 1, SECOND, 3600 * SECOND, -SECOND, -3600 * SECOND];
    for (time_jump, tick_jump) in jumps.map(|time| jumps.map(|ticks| (time, 2 * ticks))).concat() {
        // Before, during and after the first measurements of the frequency.
        for at in [0, 5, 105, 160, 1000] {
            let mut clock = FastClock { has_counter: true, ..FastClock::new() };
            let (mut time, mut ticks) = (36_000 * SECOND as u64, 0u64);
            for step in 0..2000 {
                if step == at {
                    time = time.wrapping_add_signed(time_jump);
                    ticks = ticks.wrapping_add_signed(tick_jump);
                }
                let read = clock.estimate(ticks).unwrap_or_else(|| {
                    clock.valid = 0;
                    clock.take(Reading { time, ticks });
                    time
                });
                let is_settled = step < at || step > at + 10;
                let error = read.abs_diff(time);
                assert!(
                    !is_settled || error <= VALID >> 6,
                    "{step} {at} {time_jump} {tick_jump} {error}"
                );
                // The counter has 2 GHz.
                (time, ticks) = (time + 100_000, ticks.wrapping_add(200_000));
            }
            assert!(clock.scale.abs_diff(1 << 31) < 100, "{}", clock.scale);
        }
    }
}

#[test]
fn a_counter_that_ran_while_the_clock_stood_still_is_measured_again() {
    let mut clock = FastClock::new();
    if !clock.has_counter {
        return;
    }
    while clock.scale == 0 {
        clock.now();
    }
    let right = clock.scale;
    // As after a second in which the machine was suspended.
    let second = (1_000_000_000 << 32) / right;
    for reading in [Some(&mut clock.base), clock.first.as_mut()].into_iter().flatten() {
        reading.ticks = reading.ticks.wrapping_sub(second);
    }
    // The measurement that contains the jump is not used, and two others agree.
    for is_measured in [false, true] {
        while (clock.scale > 0) != is_measured {
            clock.now();
        }
    }
    assert!(clock.scale.abs_diff(right) <= right >> 6);
}

#[test]
fn a_counter_that_jumps_is_measured_again() {
    let mut clock = FastClock::new();
    if !clock.has_counter {
        return;
    }
    while clock.scale == 0 {
        clock.now();
    }
    // As after a migration to a machine that was booted later.
    clock.base.ticks = clock.base.ticks.wrapping_add(1 << 40);
    clock.first = Some(clock.base);
    let before = now();
    assert!(clock.now() >= before && clock.scale == 0);
}
