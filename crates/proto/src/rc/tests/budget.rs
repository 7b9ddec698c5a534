//! Budget, bytes in flight and pending packets.

use core::time::Duration;
use std::vec::Vec;

use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::Bth;

use super::helpers::{REMOTE_OFFSET, clean, deliver, read, remote, request, statuses, write};
use super::pair::{Faults, Host, Pair};
use crate::budget::{Budget, InFlight, Pending};
use crate::congestion::{Congestion, DcqcnParameters, cost};
use crate::time::Instant;
use crate::transmit::Transmit;
use crate::work::{Operation, SendRequest, Status};

const PACKET: usize = cost(1024, 1);

fn packets(count: usize) -> Budget {
    Budget { peer: count * PACKET, own: count * PACKET }
}

/// AckReq of the packets that a budget allows, without sending them.
fn spend(host: &mut Host, budget: &mut Budget) -> Vec<bool> {
    let mut sent = Vec::new();
    while let Some(Transmit { bth, .. }) =
        host.qp.poll_transmit(Instant::ZERO, budget, &mut host.memory)
    {
        sent.push(bth.ack_request);
    }
    sent
}

#[test]
fn requests_spend_the_budget() {
    let mut pair = clean(1024);
    pair.hosts[0].qp.post_send(write(1, 10 * 1024)).unwrap();
    let mut budget = packets(3);
    budget.peer += 5;
    let host = &mut pair.hosts[0];
    assert_eq!(spend(host, &mut budget), [false, false, true], "the last one requests an ACK");
    assert_eq!((budget.peer, budget.own), (5, packets(3).own));
    assert_eq!(host.qp.over_budget(), Some(InFlight { peer: PACKET, own: 0 }));
    assert_eq!(host.qp.in_flight(), InFlight { peer: 3 * PACKET, own: 0 });
    assert_eq!(host.qp.pending(), Pending::Nothing);
    assert!(spend(host, &mut packets(0)).is_empty());
    assert!(host.qp.over_budget().is_some());
    assert_eq!(spend(host, &mut packets(7)).len(), 7);
    assert_eq!(host.qp.over_budget(), None);
}

#[test]
fn a_short_last_packet_fits_a_small_budget() {
    let mut pair = clean(1024);
    pair.hosts[0].qp.post_send(write(1, 1024 + 8)).unwrap();
    let mut budget = packets(1);
    budget.peer += cost(8, 1);
    assert_eq!(spend(&mut pair.hosts[0], &mut budget), [true, true]);
    assert_eq!(budget.peer, 0);
}

#[test]
fn reads_spend_the_budget_of_the_local_buffer() {
    let mut pair = clean(1024);
    pair.hosts[0].qp.post_send(read(1, 4 * 1024)).unwrap();
    let mut budget = Budget { own: 4 * PACKET - 1, ..Budget::UNLIMITED };
    let host = &mut pair.hosts[0];
    assert!(spend(host, &mut budget).is_empty());
    assert_eq!(host.qp.over_budget(), Some(InFlight { peer: 0, own: 4 * PACKET }));
    let mut budget = Budget { peer: 0, own: 4 * PACKET };
    assert_eq!(spend(host, &mut budget), [true]);
    assert_eq!((budget.own, host.qp.over_budget()), (0, None));
    assert_eq!(host.qp.in_flight(), InFlight { peer: 0, own: 4 * PACKET });
}

#[test]
fn read_responses_reduce_the_bytes_in_flight_one_by_one() {
    let mut pair = clean(1024);
    pair.hosts[0].qp.post_send(read(1, 4 * 1024)).unwrap();
    pair.drain();
    assert!(pair.step(), "the request arrives");
    pair.drain();
    for left in (0..4).rev() {
        assert!(pair.step());
        assert_eq!(pair.hosts[0].qp.in_flight(), InFlight { peer: 0, own: left * PACKET });
    }
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
}

#[test]
fn responses_need_no_budget() {
    let mut pair = clean(1024);
    pair.hosts[0].qp.post_send(write(1, 8)).unwrap();
    pair.hosts[0].qp.post_send(read(2, 3 * 1024)).unwrap();
    pair.drain();
    assert!(pair.step() && pair.step());
    let sent = spend(&mut pair.hosts[1], &mut packets(0));
    assert_eq!(sent.len(), 4, "an ACK and three READ responses");
}

#[test]
fn going_back_leaves_nothing_in_flight() {
    let mut pair = clean(1024);
    pair.hosts[0].qp.post_send(write(1, 3 * 1024)).unwrap();
    pair.hosts[0].qp.post_send(read(2, 3 * 1024)).unwrap();
    let host = &mut pair.hosts[0];
    spend(host, &mut packets(6));
    assert_eq!(host.qp.in_flight(), InFlight { peer: 3 * PACKET, own: 3 * PACKET });
    let timer = host.qp.poll_timeout().unwrap();
    host.qp.handle_timeout(timer);
    assert_eq!((host.qp.in_flight(), host.qp.has_unacknowledged()), (InFlight::NONE, true));
    spend(host, &mut packets(2));
    assert_eq!(host.qp.in_flight(), InFlight { peer: 2 * PACKET, own: 0 });
    host.qp.handle_error();
    assert_eq!((host.qp.in_flight(), host.qp.has_unacknowledged()), (InFlight::NONE, false));
    assert_eq!((host.qp.over_budget(), host.qp.pending()), (None, Pending::Nothing));
}

#[test]
fn a_denied_packet_is_not_in_flight() {
    let mut pair = clean(1024);
    pair.hosts[0].qp.post_send(write(1, 3 * 1024)).unwrap();
    let host = &mut pair.hosts[0];
    spend(host, &mut packets(1));
    let psn = host.qp.config().send_psn;
    host.qp.handle_denied(psn.add(1), true, crate::testing::DENIED);
    assert_eq!(host.qp.in_flight(), InFlight::NONE, "the request failed");

    let mut pair = clean(1024);
    (1..=2).for_each(|id| pair.hosts[0].qp.post_send(write(id, 2 * 1024)).unwrap());
    let host = &mut pair.hosts[0];
    spend(host, &mut packets(4));
    let psn = host.qp.config().send_psn;
    host.qp.handle_denied(psn.add(3), true, crate::testing::DENIED);
    assert_eq!(host.qp.in_flight(), InFlight { peer: 3 * PACKET, own: 0 });
}

/// The incremental count always equals the sum over the queue, and ends at zero.
#[test]
fn bytes_in_flight_are_exact() {
    let add = Operation::FetchAdd { remote: remote(REMOTE_OFFSET), add: 1 };
    for seed in 0..200 {
        let mut pair = Pair::new(seed, Faults::of(seed), 1024);
        for id in 0..6 {
            let length = pair.random.below(20_000) as u32;
            let work: SendRequest = match pair.random.below(4) {
                0 => read(id, length),
                1 => request(id, add, 8),
                2 => request(id, Operation::SEND, length),
                _ => write(id, length),
            };
            pair.post_receive(1, id, 0, 20_000);
            pair.hosts[0].qp.post_send(work).unwrap();
        }
        loop {
            pair.drain();
            let qp = &pair.hosts[0].qp;
            assert_eq!(qp.in_flight(), qp.count_in_flight(), "seed {seed}");
            if !pair.step() {
                break;
            }
            let qp = &pair.hosts[0].qp;
            assert_eq!(qp.in_flight(), qp.count_in_flight(), "seed {seed}");
        }
        let qp = &pair.hosts[0].qp;
        assert_eq!((qp.in_flight(), qp.has_unacknowledged()), (InFlight::NONE, false));
        assert_eq!(qp.pending(), Pending::Nothing);
    }
}

#[test]
fn pending_is_an_ack_until_there_is_more_to_send() {
    let mut pair = clean(1024);
    assert_eq!(pair.hosts[0].qp.pending(), Pending::Nothing);
    pair.hosts[0].qp.post_send(write(1, 8)).unwrap();
    assert_eq!(pair.hosts[0].qp.pending(), Pending::Urgent);
    pair.drain();
    assert_eq!(pair.hosts[0].qp.pending(), Pending::Nothing);
    assert!(pair.step());
    assert_eq!(pair.hosts[1].qp.pending(), Pending::Ack);
    pair.hosts[1].qp.post_send(write(1, 8)).unwrap();
    assert_eq!(pair.hosts[1].qp.pending(), Pending::Urgent);
    pair.run();
    pair.hosts[0].qp.post_send(read(2, 8)).unwrap();
    pair.drain();
    assert!(pair.step());
    assert_eq!(pair.hosts[1].qp.pending(), Pending::Urgent, "a READ response");
}

#[test]
fn an_ack_that_is_taken_is_the_one_that_would_be_sent() {
    let owes_ack = || {
        let mut pair = clean(1024);
        for id in 0..3 {
            pair.hosts[0].qp.post_send(write(id, 8)).unwrap();
        }
        pair.drain();
        while pair.step() && pair.hosts[1].qp.pending() != Pending::Ack {}
        pair
    };
    let (mut one, mut other) = (owes_ack(), owes_ack());
    let Host { qp, memory, .. } = &mut other.hosts[1];
    let mut budget = Budget::UNLIMITED;
    let sent = qp.poll_transmit(other.now, &mut budget, memory).unwrap();
    let (bth, aeth) = one.hosts[1].qp.take_ack().unwrap();
    assert_eq!((bth, Some(aeth)), (sent.bth, sent.extensions.aeth));
    assert_eq!(one.hosts[1].qp.pending(), Pending::Nothing);
    assert!(one.hosts[1].qp.take_ack().is_none());

    // A NAK is not.
    let mut pair = clean(1024);
    pair.lost = [0].into();
    pair.hosts[0].qp.post_send(write(1, 2 * 1024)).unwrap();
    pair.drain();
    assert!(pair.step());
    assert!(pair.hosts[1].qp.take_ack().is_none());
    assert_eq!(pair.hosts[1].qp.pending(), Pending::Urgent);
}

#[test]
fn naks_and_cnps_are_urgent() {
    let mut pair = clean(1024);
    pair.lost = [0].into();
    pair.hosts[0].qp.post_send(write(1, 2 * 1024)).unwrap();
    pair.drain();
    assert!(pair.step());
    assert_eq!(pair.hosts[1].qp.pending(), Pending::Urgent, "a NAK");

    let mut pair = clean(1024);
    pair.marking = true;
    pair.hosts[0].qp.post_send(write(1, 1024)).unwrap();
    pair.drain();
    assert!(pair.step());
    assert_eq!(pair.hosts[1].qp.pending(), Pending::Urgent, "a CNP");
}

#[test]
fn blocked_requests_are_not_pending() {
    // A full window.
    let mut pair = clean(1024);
    pair.hosts[0].qp.post_send(write(1, 100 * 1024)).unwrap();
    pair.drain();
    assert_eq!(pair.hosts[0].qp.pending(), Pending::Nothing);
    pair.hosts[0].qp.post_send(write(2, 8)).unwrap();
    assert_eq!(pair.hosts[0].qp.pending(), Pending::Nothing);
    // The ACK of the first packets opens it.
    while pair.hosts[0].qp.in_flight().peer == 64 * PACKET {
        pair.drain();
        assert!(pair.step());
    }
    assert_eq!(pair.hosts[0].qp.pending(), Pending::Urgent);

    // An RNR wait.
    let mut pair = clean(1024);
    pair.hosts[0].qp.post_send(request(1, Operation::SEND, 8)).unwrap();
    pair.drain();
    assert!(pair.step());
    pair.drain();
    assert!(pair.step());
    assert_eq!(pair.hosts[0].qp.pending(), Pending::Nothing);
    let timer = pair.hosts[0].qp.poll_timeout().unwrap();
    pair.hosts[0].qp.handle_timeout(timer);
    assert_eq!(pair.hosts[0].qp.pending(), Pending::Urgent);

    // Pacing.
    let mut pair = Pair::with(1, Faults::default(), 1024, |config| {
        let line_rate = 1_000_000;
        config.timeout = Some(Duration::from_secs(1));
        config.congestion =
            Congestion::Dcqcn(DcqcnParameters { line_rate, ..DcqcnParameters::default() });
    });
    let bth = Bth { opcode: Opcode::CNP, becn: true, ..Bth::default() };
    deliver(&mut pair, 0, bth, ExtensionHeaders::default(), &[0; 16]);
    pair.hosts[0].qp.post_send(write(1, 50 * 1024)).unwrap();
    pair.drain();
    assert_eq!(pair.hosts[0].qp.pending(), Pending::Nothing);
    assert!(pair.hosts[0].qp.in_flight().peer < 50 * PACKET);
}

#[test]
fn acks_follow_a_single_request_that_is_ready() {
    let opcodes = |host: &mut Host| {
        let mut sent = Vec::new();
        let budget = &mut { Budget::UNLIMITED };
        while let Some(one) = host.qp.poll_transmit(Instant::ZERO, budget, &mut host.memory) {
            sent.push(one.bth.opcode);
        }
        sent
    };
    for (requests, bytes, before) in [(1, 8, 1), (1, 3, 0), (2, 8, 0), (1, 4096, 0)] {
        let mut pair = clean(1024);
        pair.hosts[0].qp.post_send(write(1, 8)).unwrap();
        pair.drain();
        assert!(pair.step());
        (0..requests).for_each(|id| pair.hosts[1].qp.post_send(write(id, bytes)).unwrap());
        let sent = opcodes(&mut pair.hosts[1]);
        let ack = sent.iter().position(|opcode| *opcode == Opcode::RC_ACKNOWLEDGE);
        assert_eq!(ack, Some(before), "of {requests} requests of {bytes} bytes");
    }
    // A READ response is not delayed.
    let mut pair = clean(1024);
    pair.hosts[0].qp.post_send(read(1, 8)).unwrap();
    pair.drain();
    assert!(pair.step());
    pair.hosts[1].qp.post_send(write(1, 8)).unwrap();
    let sent = opcodes(&mut pair.hosts[1]);
    assert_eq!(sent, [Opcode::RC_RDMA_READ_RESPONSE_ONLY, Opcode::RC_RDMA_WRITE_ONLY]);
}
