use proptest::prelude::*;

use super::*;

const START: u64 = 1_000_000_000;

/// The longest time between two checks of a dozing thread.
const LONGEST_DOZE: u64 = MAX_STRETCH * MAX_INTERVAL;

/// A pass that the thread made and that found nothing, long after the program's last call.
const EMPTY: Pass = Pass { made: true, received: false, packet: false, unpolled: NEVER };
const NO_PROGRAM: Programs = Programs { polled: false, waits: 0, led_until: 0 };
const POLLS: Programs = Programs { polled: true, ..NO_PROGRAM };
const LEADS: Programs = Programs { led_until: 2 * START, ..NO_PROGRAM };
const NOTHING: Due = Due { timer: NEVER, forwarding: false, owes_acks: false };

/// What happens in one round of the thread, and how long it sleeps.
#[derive(Clone, Copy, Debug)]
struct Round {
    pass: Pass,
    polled: bool,
    /// A thread waits for packets itself, until this many nanoseconds later.
    led_for: u64,
    /// It stops before the device thread has looked again.
    stops_leading: bool,
    due: Due,
    late: u64,
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let pass = (prop::bool::weighted(0.9), any::<bool>(), any::<bool>(), 0..200_000_u64)
        .prop_map(|(made, received, packet, unpolled)| Pass { made, received, packet, unpolled });
    let due = (
        prop_oneof![Just(NEVER - START), 0..10_000_000_u64],
        prop::bool::weighted(0.1),
        any::<bool>(),
    )
        .prop_map(|(after, forwarding, owes_acks)| Due {
            timer: START + after,
            forwarding,
            owes_acks,
        });
    let led_for = prop_oneof![Just(0), 1..1_000_000_000_u64];
    let stops = prop::bool::weighted(0.2);
    let round = (pass, any::<bool>(), led_for, stops, due, prop_oneof![Just(0), 0..9_000_000_u64])
        .prop_map(|(pass, polled, led_for, stops_leading, due, late)| Round {
            pass,
            polled,
            led_for,
            stops_leading,
            due,
            late,
        });
    prop::collection::vec(round, 1..100)
}

#[test]
fn an_idle_device_is_watched_until_something_happens() {
    let mut policy = DeviceThread::new();
    policy.next_mode(EMPTY, NO_PROGRAM, START);
    let sleep = policy.sleep(true, 0, NOTHING, START);
    let expected = Sleep { mode: Mode::Watching, deadline: NEVER, runs_timers: true, spins: true };
    assert_eq!(sleep, expected);
}

#[test]
fn a_thread_that_stops_waiting_meanwhile_leaves_the_sockets_to_this_one() {
    let mut policy = DeviceThread::new();
    let led_until = LEADS.led_until;
    let mut modes = std::iter::repeat_with(|| policy.next_mode(EMPTY, LEADS, START)).take(1000);
    assert!(modes.any(|mode| mode == Mode::Detached));
    let sleeps = policy.sleep(true, led_until, NOTHING, START);
    assert_eq!((sleeps.mode, sleeps.deadline), (Mode::Detached, led_until));
    let stopped = policy.sleep(true, 0, NOTHING, START);
    assert_eq!((stopped.mode, stopped.deadline), (Mode::Watching, NEVER));
}

#[test]
fn a_wait_that_began_meanwhile_counts_as_polling() {
    let mut policy = DeviceThread::new();
    let waited = Programs { waits: 1, ..NO_PROGRAM };
    assert_eq!(policy.next_mode(EMPTY, waited, START), Mode::Dozing);
    assert_eq!(policy.next_mode(EMPTY, waited, START), Mode::Watching, "the same wait");
}

#[test]
fn leaves_the_sockets_to_a_program_that_polls() {
    let mut policy = DeviceThread::new();
    assert_eq!(policy.next_mode(EMPTY, NO_PROGRAM, START), Mode::Watching);
    let times: Vec<_> = (0..7)
        .map(|_| {
            assert_eq!(policy.next_mode(EMPTY, POLLS, START), Mode::Dozing);
            policy.next_check(0)
        })
        .collect();
    assert_eq!(times, [20_000, 40_000, 80_000, 160_000, 320_000, MAX_INTERVAL, MAX_INTERVAL]);
    let mode = policy.next_mode(EMPTY, NO_PROGRAM, START);
    assert_eq!(mode, Mode::Watching, "the program has stopped polling");
    assert_eq!(policy.next_mode(EMPTY, POLLS, START), Mode::Dozing);
    assert_eq!(policy.next_check(0), MIN_INTERVAL);
}

#[test]
fn watches_for_a_program_that_polls_too_rarely() {
    let mut policy = DeviceThread::new();
    let mut next = |pass| (policy.next_mode(pass, POLLS, START), policy.next_check(0));
    assert_eq!(next(EMPTY).0, Mode::Dozing);
    let found = Pass { received: true, ..EMPTY };
    let (mode, check) = next(found);
    assert_eq!(mode, Mode::Dozing, "one may be coincidence");
    assert_eq!(check, MIN_INTERVAL, "but the next check is soon");
    assert_eq!(next(EMPTY).0, Mode::Dozing, "this check found nothing");
    assert_eq!(next(found).0, Mode::Dozing);
    assert_eq!(next(found).0, Mode::Watching);
    let woken = Pass { packet: true, ..found };
    for _ in 1..MAX_WAKEUPS {
        assert_eq!(next(woken).0, Mode::Watching);
    }
    assert_eq!(next(woken).0, Mode::Dozing, "checks whether it is still necessary");
    assert_eq!(next(found).0, Mode::Watching);
    let vain = Pass { packet: true, ..EMPTY };
    for _ in 1..MAX_WAKEUPS / VAIN {
        assert_eq!(next(vain).0, Mode::Watching);
    }
    assert_eq!(next(vain).0, Mode::Dozing, "the program takes all packets");
}

#[test]
fn checks_rarely_while_there_are_more_threads_than_cores() {
    let mut policy = DeviceThread::new();
    let times: Vec<_> = (0..12)
        .map(|_| {
            policy.woke_at(START, START + 2 * LATE);
            assert_eq!(policy.next_mode(EMPTY, POLLS, START), Mode::Resting);
            policy.next_check(0)
        })
        .collect();
    assert_eq!(times[11], MAX_STRETCH * MAX_INTERVAL);
    for _ in 0..MAX_STRETCH.ilog2() - 1 {
        assert_eq!(policy.next_mode(EMPTY, POLLS, START), Mode::Resting);
    }
    assert_eq!(policy.next_mode(EMPTY, POLLS, START), Mode::Dozing);
    assert_eq!(policy.next_check(0), MAX_INTERVAL);
}

#[test]
fn sleeps_while_a_thread_waits_for_long() {
    let mut policy = DeviceThread::new();
    for _ in 0..IDLE_CHECKS {
        assert_eq!(policy.next_mode(EMPTY, LEADS, START), Mode::Dozing);
    }
    assert_eq!(policy.next_mode(EMPTY, LEADS, START), Mode::Detached);
    let polls = Programs { polled: true, ..LEADS };
    assert_eq!(policy.next_mode(EMPTY, polls, START), Mode::Dozing, "the thread waits again");
}

#[test]
fn a_late_thread_checks_less_often() {
    let mut policy = DeviceThread::new();
    policy.woke_at(START, START + 2 * LATE);
    assert_eq!(policy.next_mode(EMPTY, POLLS, START), Mode::Resting);
    assert_eq!(policy.next_mode(EMPTY, POLLS, START), Mode::Dozing, "it was late once");
}

#[test]
fn it_spins_only_up_to_the_deadline() {
    let policy = DeviceThread::new();
    for _ in 0..100 {
        policy.spins(NEVER, START);
        policy.received(START + 1000, 0);
    }
    assert!(policy.spins(NEVER, START));
    assert!(!policy.spins(START + 1000, START), "a timer expires before it has spun");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Whatever happened before, a decision leaves nothing to chance.
    #[test]
    fn nothing_that_is_due_is_slept_through(rounds in rounds()) {
        let (mut policy, mut now, mut waits) = (DeviceThread::new(), START, 0);
        for round in rounds {
            let Round { pass, mut due, .. } = round;
            due.timer = now.saturating_add(due.timer - START);
            waits += u32::from(round.led_for > 0);
            let led_until = if round.led_for > 0 { now + round.led_for } else { 0 };
            let programs = Programs { polled: round.polled, waits, led_until };
            policy.next_mode(pass, programs, now);
            let led_until = if round.stops_leading { 0 } else { led_until };
            let sleep = policy.sleep(pass.made, led_until, due, now);
            let dozes = matches!(sleep.mode, Mode::Dozing | Mode::Resting);

            prop_assert!(sleep.deadline <= due.timer);
            prop_assert!(sleep.deadline >= now);
            if dozes || !pass.made || due.forwarding {
                prop_assert!(sleep.deadline <= now + LONGEST_DOZE, "it looks again soon");
            } else if due.owes_acks {
                prop_assert_eq!(sleep.deadline, now, "nobody else sends them");
            }
            if sleep.mode == Mode::Detached {
                prop_assert!(led_until > now, "somebody watches the sockets");
                prop_assert!(sleep.deadline <= led_until);
            }
            if !programs.polled && pass.made && pass.unpolled > GAP && programs.led_until == 0 {
                prop_assert_eq!(sleep.mode, Mode::Watching, "no program is there");
            }
            prop_assert!(sleep.runs_timers || dozes || !pass.made, "somebody runs the timers");
            if sleep.spins {
                prop_assert!(!programs.polled && pass.made && sleep.mode == Mode::Watching);
            }
            now = sleep.deadline.min(now + 1_000_000);
            policy.woke_at(now, now + round.late);
        }
    }

    /// After a program has stopped to poll and wait, the first decision watches the sockets.
    #[test]
    fn a_program_that_stops_is_replaced_at_once(rounds in rounds()) {
        let (mut policy, mut waits) = (DeviceThread::new(), 0);
        for round in rounds {
            waits += u32::from(round.led_for > 0);
            let programs = Programs { polled: round.polled, waits, led_until: START + round.led_for };
            policy.next_mode(round.pass, programs, START);
        }
        let stopped = Programs { polled: false, waits, led_until: START };
        prop_assert_eq!(policy.next_mode(EMPTY, stopped, START), Mode::Watching);
    }
}
