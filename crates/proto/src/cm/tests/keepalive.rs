//! Keepalive: probes of established connections without a cause.

use std::time::Duration;
use std::vec;
use std::vec::Vec;

use super::super::{ConnectionManager, Event, Ignored, Keepalive, State};
use super::forged::run;
use super::handshake::Pair;
use super::{SERVICE, at, carry, config, connect_parameters, events, gid, only, transmits};
use crate::cm::{AcceptParameters, RtuData};
use ferroce_wire::cm::CmMessage;
use ferroce_wire::number::{Psn, Qpn};

fn with_keepalive(host: u8) -> ConnectionManager {
    ConnectionManager::new(super::Config { keepalive: Some(Keepalive::DEFAULT), ..config(host) })
}

/// An established connection with keepalive on both sides.
fn established_with_keepalive() -> Pair {
    let (mut a, mut b) = (with_keepalive(12), with_keepalive(11));
    b.listen(SERVICE, 8).unwrap();
    let at_a = a.connect(at(0), &connect_parameters()).unwrap();
    carry(at(1), (12, &mut a), &mut b);
    let Some(Event::Request(at_b, _)) = b.poll_event() else { panic!("no request") };
    b.accept(at(2), at_b, &AcceptParameters::new(Qpn(0x2b), Psn(1))).unwrap();
    carry(at(3), (11, &mut b), &mut a);
    a.ready(at_a, RtuData::default()).unwrap();
    carry(at(4), (12, &mut a), &mut b);
    events(&mut a);
    events(&mut b);
    Pair { a, b, at_a, at_b }
}

#[test]
fn keepalive_keeps_connections_of_live_peers() {
    let Pair { mut a, mut b, at_a, at_b } = established_with_keepalive();
    run(&mut a, &mut b, at(5), at(3_600_000));
    assert_eq!((a.state(at_a), b.state(at_b)), (State::Established, State::Established));
    assert_eq!((events(&mut a), events(&mut b)), (vec![], vec![]));
}

#[test]
fn keepalive_detects_a_lost_peer_on_either_side() {
    let Pair { mut a, mut b, at_a, at_b } = established_with_keepalive();
    run(&mut a, &mut b, at(5), at(40_000));
    for (manager, id) in [(&mut a, at_a), (&mut b, at_b)] {
        let mut sent = 0;
        while !matches!(manager.poll_event(), Some(Event::Unanswered(it, _)) if it == id) {
            let time = manager.poll_timeout().unwrap();
            assert!(time <= at(40_000) + Duration::from_secs(60), "{time:?}");
            manager.handle_timeout(time);
            sent += transmits(manager).len();
        }
        assert_eq!(sent, 5);
        // A consumer with other evidence does nothing, and the next keepalive probes again.
        assert_eq!(manager.state(id), State::Established);
        assert!(manager.poll_timeout().is_some());
    }
}

#[test]
fn stops_probing_a_peer_that_ignores_laps() {
    let Pair { mut a, at_a, .. } = established_with_keepalive();
    let mut sent = Vec::new();
    for _ in 0..100 {
        a.handle_timeout(a.poll_timeout().unwrap());
        sent.extend(transmits(&mut a));
    }
    // Three of the first probe and one of each of three keepalives.
    assert_eq!(sent.len(), 6, "{sent:?}");
    assert!(sent.iter().all(|one| matches!(one.message, CmMessage::Lap(_))), "{sent:?}");
    assert_eq!((a.state(at_a), events(&mut a)), (State::Established, vec![]));
}

#[test]
fn keepalive_stops_with_the_last_connection() {
    let Pair { mut a, at_a, .. } = established_with_keepalive();
    a.close(at(10), at_a).unwrap();
    while let Some(time) = a.poll_timeout() {
        a.handle_timeout(time);
        transmits(&mut a);
    }
    assert_eq!(a.connections(), 0);
}

/// The first probe, right after set-up, shows that the peer responds to LAPs. Without it, the end of a peer before the first
/// keepalive was not noticed.
#[test]
fn a_peer_that_is_lost_soon_after_set_up_is_noticed() {
    let Pair { mut a, mut b, at_a, .. } = established_with_keepalive();
    run(&mut a, &mut b, at(5), at(2_000));
    drop(b);
    let mut now = at(2_000);
    while let Some(time) = a.poll_timeout().filter(|&time| time <= at(60_000)) {
        now = time;
        a.handle_timeout(now);
        transmits(&mut a);
        if let Some(event) = a.poll_event() {
            let Event::Unanswered(id, begun) = event else { panic!("{event:?}") };
            assert_eq!((id, now.since(begun)), (at_a, Duration::from_secs(25)));
            return;
        }
    }
    panic!("not noticed until {now:?}");
}

/// No process has the peer's port open any more. Only ICMP messages that quote the probe's transaction count.
#[test]
fn a_closed_port_answers_a_probe() {
    let Pair { mut a, at_a, .. } = established_with_keepalive();
    let first = a.poll_timeout().unwrap();
    assert_eq!(first, at(3) + Keepalive::DEFAULT.first.interval);
    a.handle_timeout(first);
    let lap = only(&mut a).to_mad();
    for forged in [&lap[..15], &[0; 64]] {
        assert!(matches!(a.handle_unreachable(first, gid(11), forged), Err(Ignored::Unknown(_))));
    }
    assert!(a.handle_unreachable(first, gid(13), &lap[..32]).is_err());
    assert_eq!(events(&mut a), vec![]);
    a.handle_unreachable(first, gid(11), &lap[..32]).unwrap();
    assert_eq!(events(&mut a), [Event::Unanswered(at_a, at(3))]);
    // Without a probe it proves nothing.
    assert!(a.handle_unreachable(first, gid(11), &lap[..32]).is_err());
    assert_eq!((a.state(at_a), events(&mut a)), (State::Established, vec![]));
}

/// Forward as after the process was stopped or its machine was moved, also while a probe waits; and back, which CLOCK_MONOTONIC
/// does not do.
#[test]
fn a_clock_that_jumps_ends_no_connection() {
    const DAY: u64 = 24 * 3_600_000;
    let Pair { mut a, mut b, at_a, at_b } = established_with_keepalive();
    let mut now = DAY;
    for jump in [DAY as i64, 1_000, -(DAY as i64), -30_000, DAY as i64, -1] {
        run(&mut a, &mut b, at(now), at(now + 40_000));
        // A probe waits at the jump: its first message is lost.
        now += 40_000;
        while transmits(&mut a).is_empty() {
            now = now.max(a.poll_timeout().unwrap().as_nanos() / 1_000_000 + 1);
            a.handle_timeout(at(now));
        }
        now = now.checked_add_signed(jump).unwrap();
        run(&mut a, &mut b, at(now), at(now + 40_000));
        assert_eq!((a.state(at_a), b.state(at_b)), (State::Established, State::Established));
        assert_eq!((events(&mut a), events(&mut b)), (vec![], vec![]), "{jump}");
        now += 40_000;
    }
}
