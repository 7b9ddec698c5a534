//! Runs that would not end reach a limit, and report their last events.

use std::time::Duration;

use ferroce_proto::time::Instant;

use super::toys::{NOT_ECT, RECEIVER, SENDER, StopAndWait, at, exchange, pair, v4};
use crate::{
    Activity, Destination, EventKind, Fabric, Host, HostId, Limit, Limits, LinkConfig, Outcome,
    Probability, Settings,
};

/// Hosts that never become idle.
enum Restless {
    /// Always has another frame.
    Babbler,
    /// Its deadline is always in the past.
    Spinner,
    /// Sends every frame back.
    Returner(bool),
}

impl Host for Restless {
    fn handle_frame(&mut self, _now: Instant, _frame: &[u8]) {
        if let Self::Returner(has_frame) = self {
            *has_frame = true;
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_transmit(&mut self, _now: Instant, frame: &mut Vec<u8>) -> Option<Destination> {
        match self {
            Self::Babbler => {}
            Self::Returner(has_frame @ true) => *has_frame = false,
            _ => return None,
        }
        frame.push(7);
        // To the other host.
        Some(Destination::Host(RECEIVER))
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        matches!(self, Self::Spinner).then_some(Instant::ZERO)
    }
}

fn limited(limits: Limits) -> Settings {
    let link = LinkConfig { latency: Duration::from_nanos(10), ..LinkConfig::default() };
    Settings { uplink: link, limits, ..Settings::default() }
}

const LIMITS: Limits = Limits { events: 10_000, events_per_instant: 1_000, time: at(1_000_000) };

fn run_to_limit(host: Restless) -> Activity {
    let mut fabric = Fabric::new(1, limited(LIMITS));
    fabric.add_host(host, &[]).unwrap();
    match fabric.run() {
        Outcome::LimitReached(activity) => {
            assert!(fabric.totals().are_conserved());
            assert_eq!(
                fabric.run(),
                Outcome::LimitReached(activity.clone()),
                "the limit stays reached"
            );
            *activity
        }
        outcome => panic!("{outcome}"),
    }
}

#[test]
fn a_host_that_never_stops_sending_reaches_a_limit() {
    let activity = run_to_limit(Restless::Babbler);
    assert_eq!((activity.limit, activity.now), (Limit::EventsPerInstant, at(0)));
    assert_eq!(activity.busiest, [(HostId(0), 999)]);
    assert!(activity.recent.iter().all(|event| event.kind == EventKind::Sent));
    let text = activity.to_string();
    assert!(text.starts_with(
        "limit reached at 0.000000000: too many events at the same time, 1000 events\n"
    ));
    assert!(text.contains("busy: host0, 999 frames and timeouts"));
    assert!(text.contains("0.000000000 host0: sent"));
}

#[test]
fn a_deadline_that_is_always_past_reaches_a_limit() {
    let activity = run_to_limit(Restless::Spinner);
    assert_eq!((activity.limit, activity.now), (Limit::EventsPerInstant, at(0)));
    assert_eq!(activity.recent.len(), 16);
    assert!(activity.recent.iter().all(|event| event.kind == EventKind::TimedOut));
}

#[test]
fn a_frame_that_is_forwarded_forever_reaches_a_limit() {
    let activity = run_to_limit(Restless::Returner(true));
    assert_eq!(activity.limit, Limit::Events);
    assert_eq!(activity.events, 10_000);
    // Sent, forwarded, delivered: it is in flight or held by the host.
    assert!(activity.totals.in_flight <= 1 && activity.totals.sent > 3_000);
}

#[test]
fn endless_retransmission_reaches_the_time_limit() {
    // All frames are lost: the sender retransmits until the time limit.
    let link = LinkConfig { loss: Probability::ALWAYS, ..LinkConfig::default() };
    let limits = Limits { time: at(5_000_000), ..Limits::default() };
    let mut fabric: Fabric<StopAndWait> =
        Fabric::new(1, Settings { uplink: link, limits, ..Settings::default() });
    exchange(&mut fabric, 1, 1, v4);
    let Outcome::LimitReached(activity) = fabric.run() else { panic!("it ended") };
    assert_eq!(activity.limit, Limit::Time);
    assert!(activity.now <= limits.time);
    assert!(activity.recent.iter().any(|event| event.kind == EventKind::TimedOut));
    // With a later limit the run continues.
    fabric.set_limits(Limits::default());
    assert_eq!(fabric.run_to(at(9_000_000)), Outcome::TimeReached);
}

#[test]
fn a_run_continues_after_its_limits_are_raised() {
    let mut fabric = pair(1, limited(Limits { events_per_instant: 10, ..LIMITS }), NOT_ECT, 100);
    assert!(matches!(fabric.run(), Outcome::LimitReached(_)));
    assert!(fabric.totals().sent < 100);
    fabric.set_limits(LIMITS);
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.host(RECEIVER).unwrap().received.len(), 100);
    assert_eq!(fabric.host_statistics(SENDER).unwrap().sent, 100);
}
