//! Each counter, by the event that it counts.

use super::helpers::{read, request, statuses, write};
use super::pair::{Faults, Pair};
use crate::congestion::Congestion;
use crate::counters::Counters;
use crate::work::{Operation, Status};

fn take_counters(pair: &mut Pair) -> [Counters; 2] {
    [0, 1].map(|side| pair.hosts[side].qp.take_counters())
}

/// Runs one request of side 0, losing the packets at these positions of the log.
fn with_lost(operation: crate::work::SendRequest, lost: &[usize]) -> [Counters; 2] {
    let mut pair = Pair::new(1, Faults::default(), 1024);
    pair.lost = lost.to_vec();
    pair.hosts[0].qp.post_send(operation).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    let counters = take_counters(&mut pair);
    assert_eq!(take_counters(&mut pair), [Counters::default(); 2], "they were taken");
    counters
}

#[test]
fn counts_nothing_without_faults() {
    assert_eq!(with_lost(write(1, 10_000), &[]), [Counters::default(); 2]);
    assert_eq!(with_lost(read(1, 10_000), &[]), [Counters::default(); 2]);
}

#[test]
fn counts_a_lost_ack() {
    let [requester, responder] = with_lost(write(1, 100), &[1]);
    assert_eq!(
        requester,
        Counters { local_ack_timeout_err: 1, retrans_pkts: 1, ..Counters::default() }
    );
    assert_eq!(responder, Counters { duplicate_request: 1, ..Counters::default() });
}

#[test]
fn counts_a_lost_request() {
    // The second of packets 0 to 3: two arrive behind the gap, and the last three are sent again.
    let [requester, responder] = with_lost(write(1, 4096), &[1]);
    assert_eq!(requester, Counters { packet_seq_err: 1, retrans_pkts: 3, ..Counters::default() });
    assert_eq!(responder, Counters { out_of_sequence: 2, ..Counters::default() });
}

#[test]
fn counts_a_lost_read_response() {
    // The request, then the second of responses 1 to 4: the missing ones are requested again.
    let [requester, responder] = with_lost(read(1, 4096), &[2]);
    assert_eq!(
        requester,
        Counters { implied_nak_seq_err: 1, retrans_pkts: 1, ..Counters::default() }
    );
    assert_eq!(responder, Counters { duplicate_request: 1, ..Counters::default() });
}

#[test]
fn counts_rnr_naks() {
    let mut pair = Pair::new(1, Faults::default(), 1024);
    let send = Operation::Send { immediate: None, invalidate: None };
    pair.hosts[0].qp.post_send(request(1, send, 100)).unwrap();
    for _ in 0..2 {
        pair.drain();
        assert!(pair.step());
    }
    pair.post_receive(1, 1, 0, 100);
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    let [requester, responder] = take_counters(&mut pair);
    assert_eq!(
        requester,
        Counters { rnr_nak_retry_err: 1, retrans_pkts: 1, ..Counters::default() }
    );
    assert_eq!(responder, Counters::default());
}

#[test]
fn does_not_count_the_error_that_ends_the_connection() {
    let mut pair = Pair::with(1, Faults::default(), 1024, |config| config.rnr_retry = 0);
    let send = Operation::Send { immediate: None, invalidate: None };
    pair.hosts[0].qp.post_send(request(1, send, 100)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RnrRetryExceeded)]);
    assert_eq!(take_counters(&mut pair), [Counters::default(); 2]);
}

#[test]
fn counts_marks_and_cnps() {
    for (congestion, handled) in [(Congestion::default(), 1), (Congestion::Unlimited, 0)] {
        let mut pair = Pair::with(1, Faults::default(), 1024, |config| {
            config.congestion = congestion;
        });
        pair.marking = true;
        pair.hosts[0].qp.post_send(write(1, 100)).unwrap();
        pair.run();
        // The request and its ACK are marked: one CNP for each.
        let expected = Counters {
            np_ecn_marked_roce_packets: 1,
            np_cnp_sent: 1,
            rp_cnp_handled: handled,
            ..Counters::default()
        };
        assert_eq!(take_counters(&mut pair), [expected; 2], "{congestion:?}");
    }
}
