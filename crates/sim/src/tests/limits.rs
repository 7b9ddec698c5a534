//! Runs that would not end are ended, and say what they were doing.

use std::time::Duration;

use ferroce_proto::time::Instant;

use super::toys::{NOT_ECT, RECEIVER, SENDER, StopAndWait, at, exchange, pair, v4};
use crate::{
    Activity, Destination, Fabric, Host, HostId, Limit, Limits, LinkConfig, Outcome, Probability,
    Settings, What,
};

/// Hosts that never come to an end.
enum Restless {
    /// Has always one more frame.
    Babbler,
    /// Its deadline has always passed.
    Spinner,
    /// Sends every frame back.
    Returner(bool),
}

impl Host for Restless {
    fn handle_frame(&mut self, _now: Instant, _frame: &[u8]) {
        if let Self::Returner(has_it) = self {
            *has_it = true;
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_transmit(&mut self, _now: Instant, frame: &mut Vec<u8>) -> Option<Destination> {
        match self {
            Self::Babbler => {}
            Self::Returner(has_it @ true) => *has_it = false,
            _ => return None,
        }
        frame.push(7);
        // To the other of two.
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

const LIMITS: Limits = Limits { events: 10_000, events_at_once: 1_000, time: at(1_000_000) };

fn give_up(host: Restless) -> Activity {
    let mut fabric = Fabric::new(1, limited(LIMITS));
    fabric.add_host(host, &[]).unwrap();
    match fabric.run() {
        Outcome::LimitReached(activity) => {
            assert!(fabric.totals().are_conserved());
            assert_eq!(fabric.run(), Outcome::LimitReached(activity.clone()), "it stays so");
            *activity
        }
        outcome => panic!("{outcome}"),
    }
}

#[test]
fn a_host_that_never_stops_sending() {
    let activity = give_up(Restless::Babbler);
    assert_eq!((activity.limit, activity.now), (Limit::EventsAtOnce, at(0)));
    assert_eq!(activity.busiest, [(HostId(0), 999)]);
    assert!(activity.recent.iter().all(|happening| happening.what == What::Sent));
    let text = activity.to_string();
    assert!(
        text.starts_with(
            "limit reached at 0.000000000: too many events at one moment, 1000 events\n"
        )
    );
    assert!(text.contains("busy: host0, 999 frames and timeouts"));
    assert!(text.contains("0.000000000 host0: sent"));
}

#[test]
fn a_deadline_that_is_always_over() {
    let activity = give_up(Restless::Spinner);
    assert_eq!((activity.limit, activity.now), (Limit::EventsAtOnce, at(0)));
    assert_eq!(activity.recent.len(), 16);
    assert!(activity.recent.iter().all(|happening| happening.what == What::TimedOut));
}

#[test]
fn a_frame_that_is_passed_on_for_ever() {
    let activity = give_up(Restless::Returner(true));
    assert_eq!(activity.limit, Limit::Events);
    assert_eq!(activity.events, 10_000);
    // Sent, forwarded, delivered: it is on its way or in the host's hands.
    assert!(activity.totals.in_flight <= 1 && activity.totals.sent > 3_000);
}

#[test]
fn waiting_for_what_never_comes() {
    // All is lost: the sender tries again until the end of time.
    let link = LinkConfig { loss: Probability::ALWAYS, ..LinkConfig::default() };
    let limits = Limits { time: at(5_000_000), ..Limits::default() };
    let mut fabric: Fabric<StopAndWait> =
        Fabric::new(1, Settings { uplink: link, limits, ..Settings::default() });
    exchange(&mut fabric, 1, 1, v4);
    let Outcome::LimitReached(activity) = fabric.run() else { panic!("it ended") };
    assert_eq!(activity.limit, Limit::Time);
    assert!(activity.now <= limits.time);
    assert!(activity.recent.iter().any(|happening| happening.what == What::TimedOut));
    // With more time it goes on.
    fabric.set_limits(Limits::default());
    assert_eq!(fabric.run_to(at(9_000_000)), Outcome::TimeReached);
}

#[test]
fn limits_can_be_raised() {
    let mut fabric = pair(1, limited(Limits { events_at_once: 10, ..LIMITS }), NOT_ECT, 100);
    assert!(matches!(fabric.run(), Outcome::LimitReached(_)));
    assert!(fabric.totals().sent < 100);
    fabric.set_limits(LIMITS);
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.host(RECEIVER).unwrap().got.len(), 100);
    assert_eq!(fabric.host_statistics(SENDER).unwrap().sent, 100);
}
