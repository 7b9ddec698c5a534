//! Requests that are held back leave without another post: what is in flight has an ACK that was requested, or a timer.

use super::helpers::{read, remote, request, write};
use super::pair::{Faults, Pair};
use crate::budget::Budget;
use crate::congestion::{Congestion, DcqcnParameters, cost};
use crate::doorbell::{Doorbell, Ring};
use crate::rc::Config;
use crate::transmit::Transmit;
use crate::work::{Operation, SendRequest, Status};

const REQUESTS: usize = 24;

fn draw(pair: &mut Pair, id: u64) -> SendRequest {
    let longest = [64, 2_000, 40_000][pair.random.below(3) as usize];
    let length = pair.random.below(longest) as u32;
    match pair.random.below(4) {
        0 => read(id, length),
        1 => request(id, Operation::FetchAdd { remote: remote(0), add: 1 }, 8),
        2 => request(id, Operation::SEND, length),
        _ => write(id, length),
    }
}

/// Whether an ACK is due or a timer is armed, so that the QP is polled again without a call of the program.
fn is_bounded(pair: &Pair) -> bool {
    let qp = &pair.hosts[0].qp;
    qp.awaits_ack() || qp.poll_timeout().is_some()
}

/// Posts one request after each of some events, and polls the QP only when the doorbell rings or a packet or timeout
/// was handled. Returns how many requests were held back.
fn run(seed: u64, faults: Faults, edit: impl Fn(&mut Config)) -> usize {
    let mut pair = Pair::with(seed, faults, 1024, edit);
    let (mut doorbell, mut posted, mut held) = (Doorbell::default(), 0, 0);
    loop {
        doorbell.release();
        pair.drain();
        let qp = &pair.hosts[0].qp;
        assert!(!qp.has_unacknowledged() || is_bounded(&pair), "seed {seed}: no ACK is due");
        for _ in 0..pair.random.below(3).min((REQUESTS - posted) as u64) {
            let work = draw(&mut pair, posted as u64);
            pair.post_receive(1, posted as u64, 0, 40_000);
            posted += 1;
            let bytes = work.data.len();
            let qp = &mut pair.hosts[0].qp;
            qp.post_send(work).unwrap();
            match doorbell.post(1, bytes, qp.has_unacknowledged()) {
                Ring::Later => held += 1,
                Ring::Now => {
                    doorbell.release();
                    pair.drain();
                }
            }
        }
        let left = doorbell.requests();
        assert!(left == 0 || is_bounded(&pair), "seed {seed}: {left} requests stay behind");
        if !pair.step() && posted == REQUESTS {
            break;
        }
    }
    let done = &pair.hosts[0].sent;
    assert_eq!(done.len(), REQUESTS, "seed {seed}");
    assert!(done.iter().all(|one| one.status == Status::Success), "seed {seed}: {done:?}");
    held
}

#[test]
fn held_requests_leave_on_a_faulty_network() {
    let held: usize = (0..300).map(|seed| run(seed, Faults::of(seed), |_| ())).sum();
    assert!(held > 1_000, "{held}");
}

/// Without an ACK timeout, only the ACK that was requested sends them. Nothing is lost, and nothing arrives out of
/// order: a packet that overtakes others is dropped, and only the timer would notice if its retransmission is as well.
#[test]
fn held_requests_leave_without_a_timeout() {
    let mut held = 0;
    for seed in 0..300 {
        let faults = Faults { duplication: seed % 200, ..Faults::default() };
        held += run(seed, faults, |config| config.timeout = None);
        held += run(seed, faults, |config| {
            config.timeout = None;
            config.congestion = Congestion::Window(3 * cost(1024, 1));
        });
        held += run(seed, faults, |config| {
            config.timeout = None;
            config.congestion = Congestion::Dcqcn(DcqcnParameters::default());
        });
    }
    assert!(held > 3_000, "{held}");
}

/// A budget that runs out in the middle of a message leaves packets in flight whose ACK was requested.
#[test]
fn a_small_budget_requests_an_ack() {
    for allowed in 1..40 {
        let mut pair = Pair::with(1, Faults::default(), 1024, |config| config.timeout = None);
        pair.hosts[0].qp.post_send(write(1, 40 * 1024)).unwrap();
        let host = &mut pair.hosts[0];
        let mut bytes = allowed * cost(1024, 1);
        // The budget becomes smaller between two packets, so that no packet is known to be the last.
        let mut poll = |budget: usize| {
            let mut budget = Budget { peer: budget, own: budget };
            let polled = host.qp.poll_transmit(pair.now, &mut budget, &mut host.memory);
            polled.map(|Transmit { bth, .. }| bth.ack_request)
        };
        while bytes > 0 {
            assert!(poll(usize::MAX).is_some());
            bytes -= cost(1024, 1);
        }
        while poll(0).is_some() {}
        assert!(host.qp.has_unacknowledged() && host.qp.awaits_ack(), "{allowed} packets");
    }
}

#[test]
fn nothing_is_due_after_going_back_or_in_the_error_state() {
    let mut pair = Pair::new(1, Faults::default(), 1024);
    assert!(!pair.hosts[0].qp.awaits_ack());
    pair.hosts[0].qp.post_send(write(1, 3 * 1024)).unwrap();
    let now = pair.now;
    let host = &mut pair.hosts[0];
    assert!(host.poll(now).is_some_and(|transmit| !transmit.bth.ack_request));
    assert!(!host.qp.awaits_ack() && host.qp.has_unacknowledged(), "the message goes on");
    while host.poll(now).is_some() {}
    assert!(host.qp.awaits_ack());
    while let Some(time) = host.qp.poll_timeout().filter(|_| host.qp.awaits_ack()) {
        while host.poll(time).is_some() {}
        host.qp.handle_timeout(time);
    }
    assert!(!host.qp.awaits_ack() && host.qp.has_unacknowledged(), "it goes back");
    host.qp.handle_error();
    assert!(!host.qp.awaits_ack() && !host.qp.has_unacknowledged());
}
