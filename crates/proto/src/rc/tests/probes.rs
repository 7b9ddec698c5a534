//! Probes: what the ACK timer would detect late.

use core::time::Duration;

use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;

use super::helpers::{REMOTE_OFFSET, opcodes, read, remote, request, statuses, write};
use super::pair::{Faults, Pair};
use crate::budget::{Budget, InFlight, Pending};
use crate::congestion::{Congestion, LossLimit, cost};
use crate::rc::Config;
use crate::work::{Operation, SendRequest, Status};

const TIMEOUT: Duration = Duration::from_millis(67);

/// A connection whose round-trip time is known, with an empty log.
fn trusted(edit: impl Fn(&mut Config)) -> Pair {
    let mut pair = Pair::with(1, Faults::default(), 1024, |config| {
        config.timeout = Some(TIMEOUT);
        edit(config);
    });
    for id in 100..120 {
        pair.hosts[0].qp.post_send(write(id, 8)).unwrap();
        pair.run();
    }
    pair.log.clear();
    pair.hosts[0].sent.clear();
    pair
}

/// Runs requests of side 0, losing the packets at these positions of the log. Returns the microseconds they take.
fn micros(requests: &[SendRequest], lost: &[usize]) -> (Pair, u64) {
    let mut pair = trusted(|config| config.retry_count = 0);
    pair.lost = lost.to_vec();
    let start = pair.now;
    for request in requests {
        pair.hosts[0].qp.post_send(request.clone()).unwrap();
    }
    pair.run();
    assert_eq!(statuses(&pair).len(), requests.len());
    assert!(statuses(&pair).iter().all(|one| one.1 == Status::Success), "no retry was needed");
    let counters = pair.hosts[0].qp.take_counters();
    assert_eq!(counters.local_ack_timeout_err, 0);
    assert_eq!(pair.hosts[0].qp.in_flight(), InFlight::NONE);
    let micros = pair.now.since(start).as_micros() as u64;
    (pair, micros)
}

#[test]
fn a_probe_finds_a_lost_last_packet() {
    let (pair, micros) = micros(&[write(1, 4 * 1024)], &[3]);
    assert!((200..400).contains(&micros), "{micros} µs");
    // Four packets, the oldest and the newest again, then the newest after the answer to the oldest at the latest.
    let sent = pair.sent_packets().iter().filter(|one| one.0 == 0).count();
    assert!((6..=7).contains(&sent), "{sent} packets");
}

/// The peer has executed both requests. The memory of the second is gone when a probe sends it again: the peer's answer still
/// completes them, and the connection goes on.
#[test]
fn a_probe_that_cannot_be_read_spares_earlier_requests() {
    let mut pair = trusted(|config| config.retry_count = 2);
    pair.lost = [2, 3].into();
    (1..=2).for_each(|id| pair.hosts[0].qp.post_send(write(id, 1024)).unwrap());
    pair.drain();
    assert!(pair.step() && pair.step());
    pair.drain();
    pair.lost.clear();
    let host = &mut pair.hosts[0];
    let now = host.qp.poll_timeout().unwrap();
    host.qp.handle_timeout(now);
    let psns = [(); 2].map(|()| host.poll(now).unwrap().bth.psn);
    assert_eq!(psns[0].add(1), psns[1], "the oldest and the newest");
    host.qp.handle_denied(psns[1], true, crate::testing::DENIED);
    pair.run();
    pair.hosts[0].qp.post_send(write(3, 1024)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [1, 2, 3].map(|id| (id, Status::Success)));
}

#[test]
fn a_probe_replaces_a_lost_ack() {
    let (pair, micros) = micros(&[write(1, 4 * 1024)], &[4]);
    assert!((200..300).contains(&micros), "{micros} µs");
    assert_eq!(pair.hosts[1].qp.config().mtu, 1024);
}

#[test]
fn a_probe_resolves_a_lost_nak() {
    // The second of four packets and the NAK. The first probe learns that the first packet arrived, the second one
    // fills the gap.
    let (_, micros) = micros(&[write(1, 4 * 1024)], &[1, 4]);
    assert!((200..500).contains(&micros), "{micros} µs");
}

#[test]
fn a_probe_resolves_a_lost_retransmission() {
    // The second of four packets, and the same again, the first after the NAK.
    let (_, micros) = micros(&[write(1, 4 * 1024)], &[1, 5]);
    assert!((200..500).contains(&micros), "{micros} µs");
}

#[test]
fn the_next_probe_waits_twice_as_long() {
    // A single packet, and two probes.
    let (pair, micros) = micros(&[write(1, 8)], &[0, 1, 2]);
    assert!((1400..1500).contains(&micros), "200, 400 and 800 µs: {micros}");
    assert_eq!(opcodes(&pair, 0).len(), 4);
}

#[test]
fn a_probe_of_a_read_requests_the_missing_part() {
    // The request is lost.
    let (pair, time) = micros(&[read(1, 4 * 1024)], &[0]);
    assert!((200..300).contains(&time), "{time} µs");
    assert_eq!(opcodes(&pair, 0), [Opcode::RC_RDMA_READ_REQUEST; 2]);
    // The last two responses are lost.
    let (pair, time) = micros(&[read(1, 4 * 1024)], &[3, 4]);
    assert!((200..300).contains(&time), "{time} µs");
    let (_, bytes) = pair.log.iter().filter(|(side, _)| *side == 0).nth(1).unwrap();
    let reth = Packet::parse(bytes).unwrap().extensions.reth.unwrap();
    assert_eq!(reth.address.0, remote(REMOTE_OFFSET + 2 * 1024).address.0);
    assert_eq!(reth.length, 2 * 1024);
    assert_eq!(
        pair.hosts[0].memory.part(0, 4 * 1024),
        pair.hosts[1].memory.part(REMOTE_OFFSET, 4 * 1024)
    );
}

#[test]
fn a_probed_atomic_is_executed_once() {
    let add = Operation::FetchAdd { remote: remote(REMOTE_OFFSET + 64), add: 1 };
    let value = |pair: &Pair| {
        let bytes = pair.hosts[1].memory.part(REMOTE_OFFSET + 64, 8);
        u64::from_ne_bytes(bytes.try_into().unwrap())
    };
    let before = value(&trusted(|_| ()));
    for lost in [0, 1] {
        let (pair, micros) = micros(&[request(1, add, 8)], &[lost]);
        assert!((200..300).contains(&micros), "{micros} µs");
        assert_eq!(value(&pair), before.wrapping_add(1));
    }
}

#[test]
fn a_write_before_a_read_is_probed() {
    // All packets of the WRITE and the READ request.
    let (_, micros) = micros(&[write(1, 2 * 1024), read(2, 1024)], &[0, 1, 2]);
    assert!((200..1500).contains(&micros), "{micros} µs");
}

#[test]
fn probes_cost_no_retry_and_end() {
    let mut pair = trusted(|config| config.retry_count = 1);
    pair.faults.loss = 1000;
    let start = pair.now;
    pair.hosts[0].qp.post_send(write(1, 2 * 1024)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RetryExceeded)]);
    assert_eq!(pair.now.since(start), 2 * TIMEOUT, "the ACK timer decides");
    // Two transmissions of two packets, and six probes of two packets before each expiry.
    assert_eq!(opcodes(&pair, 0).len(), 2 * (2 + 6 * 2));
}

/// A receiver that is not scheduled collects a copy in its socket buffer at each timeout.
#[test]
fn a_timeout_sends_a_few_packets_until_the_peer_answers() {
    const PACKETS: usize = 60;
    let mut pair = trusted(|config| {
        config.retry_count = 3;
        config.congestion = Congestion::Window(PACKETS * cost(1024, 1));
    });
    pair.faults.loss = 1000;
    pair.hosts[0].qp.post_send(write(1, 100 * 1024)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RetryExceeded)]);
    let restart = LossLimit::RESTART / cost(1024, 1);
    assert_eq!(opcodes(&pair, 0).len(), PACKETS + 3 * restart + 4 * 6 * 2);
}

#[test]
fn there_are_no_probes_without_an_ack_timeout() {
    let mut pair = trusted(|config| config.timeout = None);
    pair.faults.loss = 1000;
    pair.hosts[0].qp.post_send(write(1, 8)).unwrap();
    pair.run();
    assert_eq!(opcodes(&pair, 0).len(), 1);
}

#[test]
fn there_are_no_probes_during_an_rnr_wait() {
    let mut pair = trusted(|config| {
        config.rnr_timer = ferroce_wire::syndrome::RnrTimer::at_least(Duration::from_millis(5));
    });
    pair.hosts[0].qp.post_send(request(1, Operation::SEND, 8)).unwrap();
    pair.drain();
    assert!(pair.step());
    pair.drain();
    assert!(pair.step(), "the RNR NAK arrives");
    pair.post_receive(1, 1, 0, 8);
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(opcodes(&pair, 0).len(), 2);
}

#[test]
fn before_the_round_trip_time_is_known_a_probe_waits_10_ms() {
    let mut pair = Pair::with(1, Faults::default(), 1024, |config| config.timeout = Some(TIMEOUT));
    pair.lost = [0].into();
    pair.hosts[0].qp.post_send(write(1, 8)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(pair.now.as_nanos(), 10_020_000);
}

#[test]
fn a_probe_is_pending_and_adds_nothing_in_flight() {
    let mut pair = trusted(|_| ());
    pair.faults.loss = 1000;
    pair.hosts[0].qp.post_send(write(1, 2 * 1024)).unwrap();
    pair.drain();
    let in_flight = pair.hosts[0].qp.in_flight();
    let due = pair.hosts[0].qp.poll_timeout().unwrap();
    pair.now = due;
    pair.hosts[0].qp.handle_timeout(due);
    assert_eq!(pair.hosts[0].qp.pending(), Pending::Urgent);
    let host = &mut pair.hosts[0];
    let mut budget = Budget { peer: 0, own: 0 };
    for _ in 0..2 {
        let transmit = host.qp.poll_transmit(due, &mut budget, &mut host.memory).unwrap();
        assert!(transmit.bth.ack_request);
    }
    assert!(host.qp.poll_transmit(due, &mut budget, &mut host.memory).is_none());
    assert_eq!((host.qp.in_flight(), host.qp.pending()), (in_flight, Pending::Nothing));
}

/// The caller reduces the budget before an ACK was requested: the newest packet is sent again to request it.
#[test]
fn a_reduced_budget_requests_an_ack() {
    let mut pair = trusted(|_| ());
    pair.hosts[0].qp.post_send(write(1, 8 * 1024)).unwrap();
    let now = pair.now;
    let host = &mut pair.hosts[0];
    let mut poll = |budget: &mut Budget| {
        let transmit = host.qp.poll_transmit(now, budget, &mut host.memory)?;
        Some((transmit.bth.psn, transmit.bth.ack_request))
    };
    let (psn, requested) = poll(&mut { Budget::UNLIMITED }).unwrap();
    assert!(!requested);
    let mut none = Budget { peer: 0, own: 0 };
    assert_eq!(poll(&mut none), Some((psn, true)));
    assert_eq!(poll(&mut none), None);
    assert!(host.qp.over_budget().is_some());
}
