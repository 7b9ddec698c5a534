//! Retransmissions and giving up.

use std::vec::Vec;

use super::super::{ConnectParameters, Disconnection, DreqData, Event, Failure, State};
use super::handshake::{Pair, accepted, established, requested};
use super::{at, connect_parameters, events, manager, transmits};
use crate::cm::ConnectionManager;
use crate::time::Instant;
use ferroce_wire::cm::{AckTimeout, CmMessage, RejectReason, ResponseTimeout};

/// Runs timers until `wanted` happens; returns the messages with their times, and the events.
fn exhaust(
    manager: &mut ConnectionManager,
    start: Instant,
    state: impl Fn(&ConnectionManager) -> bool,
) -> Vec<(Instant, CmMessage)> {
    let mut sent: Vec<_> =
        transmits(manager).into_iter().map(|transmit| (start, transmit.message)).collect();
    while state(manager) {
        let now = manager.poll_timeout().unwrap();
        manager.handle_timeout(now);
        sent.extend(transmits(manager).into_iter().map(|transmit| (now, transmit.message)));
    }
    sent
}

fn assert_schedule(sent: &[(Instant, CmMessage)], start: Instant, each: u64, retries: u8) {
    let count = usize::from(retries) + 1;
    for (index, (time, message)) in sent[..count].iter().enumerate() {
        assert_eq!(time.as_nanos(), start.as_nanos() + each * index as u64);
        assert_eq!(*message, sent[0].1);
    }
}

#[test]
fn a_req_is_sent_max_cm_retries_plus_one_times() {
    for retries in 0..=15 {
        let mut a = manager(12);
        let parameters = ConnectParameters {
            max_cm_retries: retries,
            remote_response_timeout: ResponseTimeout(18),
            ..connect_parameters()
        };
        let id = a.connect(at(0), &parameters).unwrap();
        let sent = exhaust(&mut a, at(0), |a| a.state(id) != State::Idle);
        // The peer's response timeout plus the round trip.
        let each = (4096 << 18) + (4096 << 19);
        assert_schedule(&sent, at(0), each, retries);
        let [.., (end, CmMessage::Rej(rej))] = sent[..] else { panic!("no REJ") };
        assert_eq!(sent.len(), usize::from(retries) + 2);
        assert_eq!(end.as_nanos(), each * (u64::from(retries) + 1));
        assert_eq!(rej.reason, RejectReason::TIMEOUT);
        assert_eq!(events(&mut a), [Event::Failed(id, Failure::Unreachable)]);
        assert_eq!((a.connections(), a.poll_timeout()), (0, None));
    }
}

#[test]
fn a_rep_is_sent_up_to_four_times_with_doubling_intervals() {
    for retries in [0, 1, 2, 3, 4, 15] {
        let parameters = ConnectParameters {
            max_cm_retries: retries,
            local_response_timeout: ResponseTimeout(17),
            ..connect_parameters()
        };
        let Pair { mut b, at_b, .. } = accepted(&parameters);
        let sent = exhaust(&mut b, at(2), |b| b.state(at_b) == State::RepSent);
        let [.., (end, CmMessage::Rej(rej))] = sent[..] else { panic!("no REJ") };
        let repeats = u32::from(retries.min(3));
        assert_eq!(sent.len(), repeats as usize + 2);
        // In total as long as the REQ specifies, up to the limit.
        let requested = ((4096 << 17) + (4096 << 19)) * (u64::from(retries) + 1);
        let total = requested.min(super::config(11).half_open_time.as_nanos() as u64);
        let first = total / ((2 << repeats) - 1);
        for (index, (time, message)) in sent[..=repeats as usize].iter().enumerate() {
            assert_eq!(time.as_nanos(), at(2).as_nanos() + first * ((1 << index) - 1));
            assert_eq!(*message, sent[0].1);
        }
        assert!(end.as_nanos() - at(2).as_nanos() <= total);
        assert!(end.as_nanos() - at(2).as_nanos() > total - 20);
        assert_eq!(rej.reason, RejectReason::TIMEOUT);
        assert_eq!(events(&mut b), [Event::Failed(at_b, Failure::NeverReady)]);
        // Its QP could receive, so it goes through TimeWait.
        assert_eq!((b.state(at_b), b.half_open()), (State::TimeWait, 0));
        exhaust(&mut b, at(0), |b| b.connections() > 0);
        assert_eq!(events(&mut b), [Event::TimeWaitEnded(at_b)]);
    }
}

#[test]
fn an_unanswered_dreq_ends_the_connection_after_all_retries() {
    let Pair { mut a, at_a, .. } = established();
    a.disconnect(at(50), at_a, DreqData::default()).unwrap();
    let sent = exhaust(&mut a, at(50), |a| a.state(at_a) == State::DreqSent);
    assert_schedule(&sent, at(50), (4096 << 20) + (4096 << 19), 15);
    assert_eq!(sent.len(), 16);
    let over = Disconnection::Unconfirmed;
    assert_eq!(events(&mut a), [Event::Disconnected(at_a, over)]);
    assert_eq!(a.state(at_a), State::TimeWait);
}

#[test]
fn the_manager_confirms_a_dreq_for_a_silent_consumer() {
    let Pair { mut a, mut b, at_a, at_b } = established();
    a.disconnect(at(50), at_a, DreqData::default()).unwrap();
    super::carry(at(51), (12, &mut a), &mut b);
    events(&mut b);
    let sent = exhaust(&mut b, at(51), |b| b.state(at_b) == State::DreqReceived);
    assert!(matches!(sent[..], [(_, CmMessage::Drep(_))]));
    assert_eq!(events(&mut b), [Event::Disconnected(at_b, Disconnection::ByPeer)]);
}

#[test]
fn the_manager_rejects_for_a_silent_consumer() {
    let Pair { mut b, at_b, .. } = requested(&connect_parameters());
    // The peer would wait for 16 times its timeout, 103 s; it does not decide how long its request is kept here.
    let end = b.poll_timeout().unwrap();
    assert_eq!(end, at(1) + super::config(11).half_open_time);
    b.handle_timeout(end);
    assert_eq!(events(&mut b), [Event::Failed(at_b, Failure::ConsumerTooSlow)]);
    assert_eq!((b.connections(), b.half_open()), (0, 0));
}

#[test]
fn limits_timeouts_chosen_by_the_peer() {
    let forever = ResponseTimeout(31);
    let mut parameters = connect_parameters();
    parameters.local_response_timeout = forever;
    parameters.path.ack_timeout = AckTimeout(31);
    let Pair { mut b, at_b, .. } = accepted(&parameters);
    // The REQ requests 16 times 138 s.
    let longest = super::config(11).half_open_time;
    let sent = exhaust(&mut b, at(2), |b| b.state(at_b) != State::TimeWait);
    let [reps @ .., (end, CmMessage::Rej(_))] = &sent[..] else { panic!("no REJ") };
    assert_eq!(reps.len(), 4);
    assert!(*end <= at(2) + longest && *end > at(1) + longest);
    exhaust(&mut b, at(0), |b| b.connections() > 0);
}

#[test]
fn an_mra_does_not_change_the_retry_count() {
    let parameters = ConnectParameters { max_cm_retries: 2, ..connect_parameters() };
    let Pair { mut a, mut b, at_a, at_b } = requested(&parameters);
    let mut sends = 1;
    while a.connections() > 0 {
        let data = super::super::MraData::default();
        b.prolong(at(2), at_b, ResponseTimeout(20), data).unwrap();
        super::carry(at(2), (11, &mut b), &mut a);
        assert_eq!(a.state(at_a), State::MraReqReceived);
        let end = a.poll_timeout().unwrap();
        a.handle_timeout(end);
        let requests = transmits(&mut a);
        sends += requests.iter().filter(|t| matches!(t.message, CmMessage::Req(_))).count();
    }
    assert_eq!(sends, 3);
}
