mod fairness;
mod loss;
mod model;

use core::time::Duration;
use std::format;
use std::vec::Vec;

use ferroce_wire::ip::Ecn;
use proptest::prelude::*;

use super::*;

fn at(microseconds: u64) -> Instant {
    Instant::from_nanos(microseconds * 1000)
}

/// Without a burst, and with a window that is never full.
fn paced() -> DcqcnParameters {
    DcqcnParameters { burst: 0, window: usize::MAX, ..DcqcnParameters::default() }
}

#[test]
fn cnps_respect_the_interval() {
    let mut pacer = NotificationPacer::default();
    let marks = [0, 1, 49, 50, 51, 99, 100, 149, 1000, 1049, 1050];
    let notified: Vec<u64> = marks
        .into_iter()
        .filter(|&time| pacer.handle_packet(at(time), Ecn::CONGESTION_EXPERIENCED))
        .collect();
    assert_eq!(notified, [0, 50, 100, 1000, 1050]);
    assert_eq!((pacer.marked(), pacer.notified()), (11, 5));
    for ecn in 0..3 {
        assert!(!pacer.handle_packet(at(9999), Ecn(ecn)));
    }
    let mut every = NotificationPacer::new(Duration::ZERO);
    let mark = Ecn::CONGESTION_EXPERIENCED;
    assert!(every.handle_packet(at(1), mark) && every.handle_packet(at(1), mark));
    assert!(size_of::<NotificationPacer>() <= 40);
}

#[test]
fn a_window_fills_and_reopens() {
    let mut window = Window::new(10_000);
    let packet = cost(4096, 1);
    assert_eq!(packet, 4864);
    for _ in 0..2 {
        window.may_send(at(0), packet).unwrap();
        window.on_sent(at(0), packet);
    }
    assert_eq!(window.may_send(at(0), packet), Err(Blocked::Window));
    assert_eq!(window.may_send(at(0), 272), Ok(()));
    window.on_ack(at(1), packet);
    assert_eq!(window.may_send(at(1), packet), Ok(()));
    window.on_loss(at(2), Loss::Gap);
    assert_eq!((window.in_flight(), window.window()), (0, 10_000));
    // The window is never too small for one packet, and an oversized packet is sent alone.
    assert_eq!(Window::new(0).window(), cost(4096, 1));
    assert_eq!(window.may_send(at(2), 1 << 20), Ok(()));
    assert_eq!(Window::default().rate(at(0)), None);
}

#[test]
fn cnps_halve_a_window_once_for_what_is_in_flight() {
    let mut window = Window::new(100_000);
    window.on_sent(at(0), 60_000);
    for time in [1, 2, 49, 51, 500] {
        window.on_cnp(at(time));
        assert_eq!(window.window(), 50_000, "{time} µs");
    }
    assert_eq!(window.may_send(at(500), 1), Err(Blocked::Window));
    window.on_ack(at(600), 60_000);
    // One window of acknowledged bytes: one step up.
    assert_eq!(window.window(), 50_000 + 3_125);
    window.on_cnp(at(601));
    assert_eq!(window.window(), 26_562);
    // With nothing in flight, there is still one cut per interval.
    window.on_cnp(at(650));
    assert_eq!(window.window(), 26_562);
    window.on_cnp(at(651));
    assert_eq!(window.window(), 13_281);
    // The window is never too small for one packet, and recovers to its full size.
    for n in 0..20 {
        window.on_cnp(at(1000 + 50 * n));
    }
    assert_eq!(window.window(), Window::MIN_SIZE);
    for _ in 0..32 {
        let size = window.window();
        window.on_sent(at(9000), size);
        window.on_ack(at(9000), size);
    }
    assert_eq!(window.window(), 100_000);
}

#[test]
fn a_loss_allows_the_next_cut() {
    let mut window = Window::new(100_000);
    window.on_sent(at(0), 60_000);
    window.on_cnp(at(1));
    window.on_loss(at(100), Loss::Gap);
    window.on_cnp(at(101));
    assert_eq!(window.window(), 25_000);
}

#[test]
fn cnps_in_quick_succession_cut_the_rate_once_per_interval() {
    // A device may send one every 4 µs.
    let after = |period: usize, cut_interval| {
        let parameters = DcqcnParameters { cut_interval, ..paced() };
        let mut flow = Dcqcn::new(parameters, at(0));
        (0..150).step_by(period).for_each(|time| flow.on_cnp(at(time)));
        flow.rate(at(150)).unwrap()
    };
    let interval = DcqcnParameters::default().cut_interval;
    assert_eq!(after(2, interval), after(50, interval));
    assert!(after(2, Duration::ZERO) < after(50, interval) / 100);
}

#[test]
fn read_responses_are_paced_after_a_cnp_whatever_bounds_requests() {
    let parameters = DcqcnParameters { burst: 0, ..DcqcnParameters::default() };
    for congestion in [Congestion::Window(100_000), Congestion::Dcqcn(parameters)] {
        let mut controller = congestion.start(at(0));
        controller.on_response_sent(at(0), 1 << 20);
        assert_eq!(controller.next_response(at(0)), None, "{congestion:?}");
        controller.on_cnp(at(0));
        controller.on_response_sent(at(0), 1 << 20);
        // 1 MiB at 20 Gbit/s, minus the burst.
        let next = controller.next_response(at(0)).unwrap();
        assert!((at(400)..at(420)).contains(&next), "{congestion:?}: {next}");
        assert_eq!(controller.in_flight(), 0, "responses take no room in the window");
        assert!(congestion.reacts());
    }
    let mut unlimited = Congestion::Unlimited.start(at(0));
    unlimited.on_cnp(at(0));
    unlimited.on_response_sent(at(0), 1 << 20);
    assert_eq!(unlimited.next_response(at(0)), None);
    assert!(!Congestion::Unlimited.reacts());
}

#[test]
fn unlimited_never_blocks() {
    let mut unlimited = Unlimited::default();
    unlimited.on_sent(at(0), usize::MAX);
    unlimited.on_sent(at(0), usize::MAX);
    unlimited.on_cnp(at(0));
    assert_eq!(unlimited.may_send(at(0), usize::MAX), Ok(()));
    assert_eq!((unlimited.window(), unlimited.rate(at(0))), (usize::MAX, None));
    unlimited.on_ack(at(1), usize::MAX);
    unlimited.on_loss(at(1), Loss::Timeout);
    assert_eq!(unlimited.in_flight(), 0);
}

#[test]
fn the_first_cnp_halves_the_rate_and_fast_recovery_restores_it() {
    let mut flow = Dcqcn::new(paced(), at(0));
    assert_eq!(flow.rate(at(0)), Some(40_000_000_000));
    flow.on_cnp(at(10));
    assert_eq!(flow.rate(at(10)), Some(20_000_000_000));
    assert_eq!(flow.target_rate(at(10)), 40_000_000_000);
    // Four timer expiries, each halving the remaining distance; the fifth is an additive increase, already at line
    // rate.
    let rates: Vec<u64> =
        (1..=5).map(|n| flow.rate(at(10 + 55 * n)).unwrap() / 1_000_000).collect();
    assert_eq!(rates, [30_000, 35_000, 37_500, 38_750, 39_375]);
}

#[test]
fn recovers_to_line_rate_without_cnps() {
    for idle in [false, true] {
        let mut flow = Dcqcn::new(paced(), at(0));
        for n in 0..1000 {
            flow.on_cnp(at(50 * n));
        }
        let start = 50_000;
        let cut = flow.rate(at(start)).unwrap();
        assert!(cut < 100_000_000, "{cut}");
        let mut last = cut;
        // 1000 additive increases by the timer alone, and the increases that halve the remaining distance.
        for n in 0..if idle { 0 } else { 1100 } {
            let rate = flow.rate(at(start + 55 * n)).unwrap();
            assert!(rate >= last);
            last = rate;
        }
        let end = at(start + 55 * 1100);
        assert_eq!(flow.rate(end), Some(40_000_000_000), "idle: {idle}");
        // Reading the rate after a day is cheap.
        let day = end + Duration::from_secs(86_400);
        assert_eq!((flow.rate(day), flow.alpha(day)), (Some(40_000_000_000), 0));
    }
}

#[test]
fn bytes_and_time_increase_the_rate() {
    // The timer never expires: five byte-driven fast recovery steps, then additive increases.
    let slow = DcqcnParameters {
        increase_timer: Duration::from_secs(1000),
        alpha_timer: Duration::from_secs(1000),
        cut_interval: Duration::ZERO,
        byte_counter: 1000,
        ..paced()
    };
    let mut flow = Dcqcn::new(slow, at(0));
    for _ in 0..8 {
        flow.on_cnp(at(0));
    }
    let target = flow.target_rate(at(0));
    for _ in 0..4 {
        flow.on_sent(at(0), 1000);
    }
    assert_eq!(flow.target_rate(at(0)), target);
    flow.on_sent(at(0), 1000);
    assert_eq!(flow.target_rate(at(0)), target + 40_000_000);
    flow.on_sent(at(0), 2000);
    assert_eq!(flow.target_rate(at(0)), target + 120_000_000);

    let quick = DcqcnParameters { byte_counter: 1000, cut_interval: Duration::ZERO, ..paced() };
    let mut flow = Dcqcn::new(quick, at(0));
    for _ in 0..20 {
        flow.on_cnp(at(0));
    }
    flow.on_sent(at(0), 6000);
    let target = flow.target_rate(at(5 * 55));
    // The sixth timer expiry meets six of the byte counter.
    assert_eq!(flow.target_rate(at(6 * 55)), target + 400_000_000);
}

#[test]
fn packets_are_paced_at_the_rate() {
    let parameters = DcqcnParameters {
        line_rate: 10_000_000_000,
        increase_timer: Duration::from_secs(1000),
        ..paced()
    };
    let mut flow = Dcqcn::new(parameters, at(0));
    // Before the first CNP there is no limit.
    for _ in 0..100 {
        flow.may_send(at(0), 1250).unwrap();
        flow.on_sent(at(0), 1250);
    }
    flow.on_cnp(at(0));
    // 5 Gbit/s: 2 µs for 1250 bytes.
    let mut now = at(0);
    for n in 1..1000 {
        assert_eq!(flow.may_send(now, 1250), Ok(()));
        flow.on_sent(now, 1250);
        flow.on_ack(now, 1250);
        let Err(Blocked::Until(next)) = flow.may_send(now, 1250) else { panic!("not paced") };
        assert_eq!(next, at(2 * n));
        now = next;
    }
    // Unused time is not accumulated.
    let later = at(1_000_000);
    flow.on_sent(later, 1250);
    assert_eq!(flow.may_send(later, 1250), Err(Blocked::Until(at(1_000_002))));
}

#[test]
fn a_burst_is_sent_immediately() {
    let parameters = DcqcnParameters {
        line_rate: 10_000_000_000,
        increase_timer: Duration::from_secs(1000),
        burst: 5000,
        ..paced()
    };
    let mut flow = Dcqcn::new(parameters, at(0));
    flow.on_cnp(at(0));
    let mut sent = 0;
    while flow.may_send(at(0), 1250).is_ok() {
        flow.on_sent(at(0), 1250);
        sent += 1;
    }
    // The burst, and the packet that is due.
    assert_eq!(sent, 5);
    assert_eq!(flow.may_send(at(0), 1250), Err(Blocked::Until(at(2))));
}

#[test]
fn invalid_parameters_are_clamped() {
    let zero = DcqcnParameters {
        line_rate: 0,
        min_rate: u64::MAX,
        g_shift: 99,
        alpha_timer: Duration::ZERO,
        cut_interval: Duration::MAX,
        increase_timer: Duration::ZERO,
        byte_counter: 0,
        fast_recovery: 0,
        additive: 0,
        hyper: 0,
        burst: usize::MAX,
        window: 0,
    };
    let mut flow = Dcqcn::new(zero, at(0));
    flow.on_cnp(at(1));
    flow.on_sent(at(2), 100_000);
    let _ = flow.may_send(at(3), usize::MAX);
    assert_eq!(flow.rate(Instant::from_nanos(u64::MAX)), Some(1000));
}

proptest! {
    #[test]
    fn the_rate_stays_within_bounds_and_the_window_holds(
        steps in proptest::collection::vec((0u8..6, 0u64..200_000, 1usize..=Window::MIN_SIZE), 1..400),
        line_rate in 1_000_000u64..400_000_000_000,
        min_rate in 1_000u64..20_000_000,
        window in 0usize..200_000,
    ) {
        let parameters = DcqcnParameters { line_rate, min_rate, window, ..paced() };
        let mut flow = Dcqcn::new(parameters, at(0));
        let min_rate = flow.parameters().min_rate;
        let (mut now, mut nanoseconds, mut under_way) = (at(0), 0, 0usize);
        for (kind, pause, bytes) in steps {
            nanoseconds += pause;
            now = now.max(Instant::from_nanos(nanoseconds));
            match kind {
                0 => flow.on_cnp(now),
                1 => {
                    let bytes = bytes.min(under_way);
                    under_way -= bytes;
                    flow.on_ack(now, bytes);
                }
                2 if pause % 16 == 0 => {
                    under_way = 0;
                    flow.on_loss(now, Loss::Gap);
                }
                _ => match flow.may_send(now, bytes) {
                    Ok(()) => {
                        under_way += bytes;
                        flow.on_sent(now, bytes);
                    }
                    Err(Blocked::Until(then)) => {
                        prop_assert!(then > now);
                        // At the returned time, the rate no longer blocks.
                        prop_assert!(flow.clone().may_send(then, bytes).is_ok());
                    }
                    Err(Blocked::Window) => prop_assert!(under_way + bytes > flow.window()),
                },
            }
            prop_assert!(under_way <= flow.window());
            prop_assert_eq!(flow.in_flight(), under_way);
            let rate = flow.rate(now).unwrap();
            prop_assert!((min_rate..=line_rate).contains(&rate), "{}", rate);
            let target = flow.target_rate(now);
            prop_assert!((rate..=line_rate).contains(&target));
            prop_assert!(flow.alpha(now) <= 1 << 32);
        }
    }

    #[test]
    fn pacer_gaps_are_never_shorter_than_the_interval(
        pauses in proptest::collection::vec(0u64..100_000, 1..300),
        interval in 0u64..200_000,
    ) {
        let interval = Duration::from_nanos(interval);
        let mut pacer = NotificationPacer::new(interval);
        let (mut time, mut last): (u64, Option<Instant>) = (0, None);
        for pause in pauses {
            time += pause;
            let now = Instant::from_nanos(time);
            let quiet = last.is_none_or(|last| now.since(last) >= interval);
            prop_assert_eq!(pacer.handle_packet(now, Ecn::CONGESTION_EXPERIENCED), quiet);
            if quiet {
                last = Some(now);
            }
        }
    }
}

const DOCUMENT: &str = include_str!("../../../../docs/congestion.md");

#[test]
fn the_document_contains_the_parameters() {
    let parameters = DcqcnParameters::default();
    let rows = [
        ("line_rate", format!("{} Gbit/s", parameters.line_rate / 1_000_000_000)),
        ("min_rate", format!("{} Mbit/s", parameters.min_rate / 1_000_000)),
        ("g_shift", format!("{}, for 1/{}", parameters.g_shift, 1 << parameters.g_shift)),
        ("alpha_timer", format!("{} µs", parameters.alpha_timer.as_micros())),
        ("cut_interval", format!("{} µs", parameters.cut_interval.as_micros())),
        ("increase_timer", format!("{} µs", parameters.increase_timer.as_micros())),
        ("byte_counter", format!("{} MB", parameters.byte_counter / 1_000_000)),
        ("fast_recovery", format!("{}", parameters.fast_recovery)),
        ("additive", format!("{} Mbit/s", parameters.additive / 1_000_000)),
        ("hyper", format!("{} Mbit/s", parameters.hyper / 1_000_000)),
        ("burst", format!("{} bytes", parameters.burst)),
        ("window", format!("{} bytes", parameters.window)),
    ];
    for (name, value) in rows {
        let row = DOCUMENT.lines().find(|line| line.starts_with(&format!("| {name} |")));
        let cells: Vec<&str> = row.expect(name).split('|').map(str::trim).collect();
        assert_eq!(cells[3], value, "{name}");
    }
    for text in [
        format!("N = {} µs", NotificationPacer::INTERVAL.as_micros()),
        format!("{} bytes in flight", Window::DEFAULT_SIZE),
        format!("{PACKET_OVERHEAD} bytes for each packet"),
    ] {
        assert!(DOCUMENT.contains(&text), "{text}");
    }
}
