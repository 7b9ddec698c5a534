use super::*;

const NOTHING: Check =
    Check { received: false, found: false, packet: false, late: 0, polled: false, led: false };
const POLLED: Check = Check { polled: true, ..NOTHING };
const LED: Check = Check { led: true, ..NOTHING };

#[test]
fn leaves_the_sockets_to_a_program_that_polls() {
    let mut doze = Doze::new();
    assert_eq!(doze.next(NOTHING), Mode::Watching);
    let times: Vec<_> = (0..7)
        .map(|_| {
            assert_eq!(doze.next(POLLED), Mode::Dozing);
            doze.deadline(0)
        })
        .collect();
    assert_eq!(times, [20_000, 40_000, 80_000, 160_000, 320_000, MAX_INTERVAL, MAX_INTERVAL]);
    assert_eq!(doze.next(NOTHING), Mode::Watching, "the program has stopped polling");
    assert_eq!(doze.next(POLLED), Mode::Dozing);
    assert_eq!(doze.deadline(0), MIN_INTERVAL);
}

#[test]
fn watches_for_a_program_that_polls_too_rarely() {
    let mut doze = Doze::new();
    assert_eq!(doze.next(POLLED), Mode::Dozing);
    let found = Check { received: true, found: true, ..POLLED };
    assert_eq!(doze.next(found), Mode::Dozing, "one may be coincidence");
    assert_eq!(doze.deadline(0), MIN_INTERVAL, "but the next check is soon");
    assert_eq!(doze.next(POLLED), Mode::Dozing, "this check found nothing");
    assert_eq!(doze.next(found), Mode::Dozing);
    assert_eq!(doze.next(found), Mode::Watching);
    let woken = Check { received: true, packet: true, ..POLLED };
    for _ in 1..MAX_WAKEUPS {
        assert_eq!(doze.next(woken), Mode::Watching);
    }
    assert_eq!(doze.next(woken), Mode::Dozing, "checks whether it is still necessary");
    assert_eq!(doze.next(found), Mode::Watching);
    let vain = Check { packet: true, ..POLLED };
    for _ in 1..MAX_WAKEUPS / VAIN {
        assert_eq!(doze.next(vain), Mode::Watching);
    }
    assert_eq!(doze.next(vain), Mode::Dozing, "the program takes all packets");
}

#[test]
fn checks_rarely_while_there_are_more_threads_than_cores() {
    let mut doze = Doze::new();
    let late = Check { late: 2 * LATE, ..POLLED };
    let times: Vec<_> = (0..12)
        .map(|_| {
            assert_eq!(doze.next(late), Mode::Resting);
            doze.deadline(0)
        })
        .collect();
    assert_eq!(times[11], MAX_STRETCH * MAX_INTERVAL);
    for _ in 0..MAX_STRETCH.ilog2() - 1 {
        assert_eq!(doze.next(POLLED), Mode::Resting);
    }
    assert_eq!(doze.next(POLLED), Mode::Dozing);
    assert_eq!(doze.deadline(0), MAX_INTERVAL);
}

#[test]
fn sleeps_while_a_thread_waits_for_long() {
    let mut doze = Doze::new();
    for _ in 0..IDLE_CHECKS {
        assert_eq!(doze.next(LED), Mode::Dozing);
    }
    assert_eq!(doze.next(LED), Mode::Detached);
    assert_eq!(doze.next(Check { polled: true, ..LED }), Mode::Dozing, "the thread waits again");
}
