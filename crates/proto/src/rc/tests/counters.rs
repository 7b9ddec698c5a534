//! Each counter, by the one thing that it counts.

use super::pair::{Faults, Pair};
use super::telling::{read, request, statuses, write};
use crate::congestion::Congestion;
use crate::counters::Counters;
use crate::work::{Operation, Status};

fn counted(pair: &mut Pair) -> [Counters; 2] {
    [0, 1].map(|side| pair.hosts[side].qp.take_counters())
}

/// Runs one request of requester 0 while the packets at these places of the log are lost.
fn with_lost(operation: crate::work::SendRequest, lost: &[usize]) -> [Counters; 2] {
    let mut pair = Pair::new(1, Faults::default(), 1024);
    pair.lost = lost.to_vec();
    pair.hosts[0].qp.post_send(operation).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    let counters = counted(&mut pair);
    assert_eq!(counted(&mut pair), [Counters::default(); 2], "they were taken");
    counters
}

#[test]
fn nothing_is_counted_without_faults() {
    assert_eq!(with_lost(write(1, 10_000), &[]), [Counters::default(); 2]);
    assert_eq!(with_lost(read(1, 10_000), &[]), [Counters::default(); 2]);
}

#[test]
fn a_lost_acknowledgement() {
    let [requester, responder] = with_lost(write(1, 100), &[1]);
    assert_eq!(requester, Counters { local_ack_timeout_err: 1, ..Counters::default() });
    assert_eq!(responder, Counters { duplicate_request: 1, ..Counters::default() });
}

#[test]
fn a_lost_request() {
    // Of packets 0 to 3, the second: two come behind the gap.
    let [requester, responder] = with_lost(write(1, 4096), &[1]);
    assert_eq!(requester, Counters { packet_seq_err: 1, ..Counters::default() });
    assert_eq!(responder, Counters { out_of_sequence: 2, ..Counters::default() });
}

#[test]
fn a_lost_read_response() {
    // The request, and of responses 1 to 4 the second: the missing ones are asked for again.
    let [requester, responder] = with_lost(read(1, 4096), &[2]);
    assert_eq!(requester, Counters { implied_nak_seq_err: 1, ..Counters::default() });
    assert_eq!(responder, Counters { duplicate_request: 1, ..Counters::default() });
}

#[test]
fn a_receiver_that_is_not_ready() {
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
    let [requester, responder] = counted(&mut pair);
    assert_eq!(requester, Counters { rnr_nak_retry_err: 1, ..Counters::default() });
    assert_eq!(responder, Counters::default());
}

#[test]
fn what_ends_the_connection_is_told_by_its_completion_and_not_counted() {
    let mut pair = Pair::with(1, Faults::default(), 1024, |config| config.rnr_retry = 0);
    let send = Operation::Send { immediate: None, invalidate: None };
    pair.hosts[0].qp.post_send(request(1, send, 100)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RnrRetryExceeded)]);
    assert_eq!(counted(&mut pair), [Counters::default(); 2]);
}

#[test]
fn marks_and_notifications() {
    for (congestion, handled) in [(Congestion::default(), 1), (Congestion::Unlimited, 0)] {
        let mut pair = Pair::with(1, Faults::default(), 1024, |config| {
            config.congestion = congestion;
        });
        pair.marking = true;
        pair.hosts[0].qp.post_send(write(1, 100)).unwrap();
        pair.run();
        // The request is marked, and so is its acknowledgement: each is answered by one CNP.
        let expected = Counters {
            np_ecn_marked_roce_packets: 1,
            np_cnp_sent: 1,
            rp_cnp_handled: handled,
            ..Counters::default()
        };
        assert_eq!(counted(&mut pair), [expected; 2], "{congestion:?}");
    }
}
