//! Memory that takes time to read: payload is read ahead of its packets, and nothing else waits for it.

use core::time::Duration;
use std::vec::Vec;

use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::syndrome::{NakCode, SyndromeKind};
use ferroce_wire::transport::Bth;

use super::helpers::{clean, deliver, opcodes, read, statuses, syndromes, write};
use super::pair::{Faults, Pair};
use crate::rc::Fault;
use crate::reason::KeyFault;
use crate::work::Status;

/// A pair of which the memory of `side` takes time to read, until [`finish`].
fn slow(side: usize, mtu: u16) -> Pair {
    let mut pair = clean(mtu);
    slow_down(&mut pair, side);
    pair
}

fn slow_down(pair: &mut Pair, side: usize) {
    let hour = Duration::from_secs(3600);
    pair.hosts[side].memory.pend(1, 1000, hour);
    let pending = &mut pair.hosts[side].memory.pending;
    (pending.shortest, pending.reads) = (hour, true);
}

/// Runs for less than the ACK timeout.
fn settle(pair: &mut Pair) {
    pair.run_for(Duration::from_micros(400));
}

fn finish(pair: &mut Pair, side: usize, index: usize) {
    let ended = pair.hosts[side].memory.finish(index);
    pair.finish(side, ended);
    settle(pair);
}

fn fail(pair: &mut Pair, side: usize, index: usize) {
    pair.hosts[side].memory.pending.failing = 1000;
    finish(pair, side, index);
    pair.hosts[side].memory.pending.failing = 0;
}

fn open(pair: &Pair, side: usize) -> usize {
    let open = pair.hosts[side].memory.pending.open.len();
    assert_eq!(pair.hosts[side].qp.unfinished(), open);
    open
}

fn done(ids: impl IntoIterator<Item = u64>) -> Vec<(u64, Status)> {
    ids.into_iter().map(|id| (id, Status::Success)).collect()
}

/// Requests leave in order, whatever the order in which their payload is read; five parts are read at once.
#[test]
fn requests_wait_for_their_payload() {
    let mut pair = slow(0, 256);
    (0..8).for_each(|id| pair.hosts[0].qp.post_send(write(id, 600)).unwrap());
    settle(&mut pair);
    assert_eq!((open(&pair, 0), opcodes(&pair, 0)), (5, [].into()));
    finish(&mut pair, 0, 1);
    assert_eq!(opcodes(&pair, 0), []);
    finish(&mut pair, 0, 0);
    assert_eq!(statuses(&pair), done(0..2));
    while open(&pair, 0) > 0 {
        finish(&mut pair, 0, 0);
    }
    assert_eq!(statuses(&pair), done(0..8));
    let [host, peer] = &pair.hosts;
    assert_eq!(host.memory.part(0, 600), peer.memory.part(super::helpers::REMOTE_OFFSET, 600));
}

/// A packet that is sent again is not read again.
#[test]
fn retransmissions_use_what_was_read() {
    let mut pair = slow(0, 256);
    pair.lost = [0, 2].into();
    pair.hosts[0].qp.post_send(write(0, 1000)).unwrap();
    settle(&mut pair);
    finish(&mut pair, 0, 0);
    pair.run_for(Duration::from_millis(5));
    assert_eq!((statuses(&pair), pair.hosts[0].memory.pending.begun), (done([0]), 1));
}

/// The payload of a fenced request may be the result of the READ before it (IBA 10.8.3.3).
#[test]
fn fenced_requests_are_read_after_earlier_reads() {
    let mut pair = slow(0, 256);
    let mut fenced = write(1, 8);
    fenced.fence = true;
    for request in [read(0, 8), fenced] {
        pair.hosts[0].qp.post_send(request).unwrap();
    }
    settle(&mut pair);
    assert_eq!(open(&pair, 0), 1, "the response is written, and nothing is read");
    finish(&mut pair, 0, 0);
    assert_eq!((open(&pair, 0), statuses(&pair)), (1, done([0])));
    finish(&mut pair, 0, 0);
    assert_eq!(statuses(&pair), done([0, 1]));
}

/// While the payload of a READ response is read, earlier ACKs have left, and requests of this side are sent.
#[test]
fn only_later_responses_wait_for_the_payload_of_a_response() {
    let mut pair = slow(1, 256);
    pair.hosts[0].qp.reconfigure(|config| config.timeout = None);
    pair.hosts[1].memory.pending.chance = 0;
    pair.hosts[0].qp.post_send(write(0, 8)).unwrap();
    settle(&mut pair);
    pair.hosts[1].memory.pending.chance = 1000;
    pair.hosts[0].qp.post_send(read(1, 600)).unwrap();
    settle(&mut pair);
    assert_eq!((open(&pair, 1), statuses(&pair)), (1, done([0])));
    pair.hosts[1].memory.pending.chance = 0;
    pair.hosts[0].qp.post_send(write(2, 8)).unwrap();
    pair.hosts[1].qp.post_send(write(7, 8)).unwrap();
    settle(&mut pair);
    assert_eq!((statuses(&pair), pair.hosts[1].sent.len()), (done([0]), 1));
    assert_eq!(pair.hosts[1].qp.pending(), crate::budget::Pending::Nothing);
    finish(&mut pair, 1, 0);
    assert_eq!(statuses(&pair), done(0..3));
    assert_eq!(opcodes(&pair, 1)[2], Opcode::RC_RDMA_READ_RESPONSE_FIRST);
}

/// The peer's timer expires while its READ is read: it is not read again, and answered once.
#[test]
fn a_repeated_read_is_read_once() {
    let mut pair = slow(1, 256);
    pair.hosts[0].qp.post_send(read(1, 600)).unwrap();
    pair.run_for(Duration::from_millis(3));
    assert_eq!((open(&pair, 1), pair.hosts[1].memory.pending.begun), (1, 1));
    finish(&mut pair, 1, 0);
    assert_eq!((statuses(&pair), open(&pair, 1)), (done([1]), 0));
}

/// A long response is read in parts, at the same time.
#[test]
fn long_responses_are_read_in_parts() {
    let mut pair = Pair::with(1, Faults::default(), 1024, |config| {
        config.congestion = crate::congestion::Congestion::Unlimited;
        config.timeout = None;
    });
    slow_down(&mut pair, 1);
    pair.hosts[0].qp.post_send(read(1, 500_000)).unwrap();
    settle(&mut pair);
    let mut most = 0;
    for _ in 0..100 {
        most = most.max(open(&pair, 1));
        if open(&pair, 1) > 0 {
            finish(&mut pair, 1, 0);
        } else {
            settle(&mut pair);
        }
    }
    assert_eq!((statuses(&pair), most), (done([1]), 2));
    let [host, peer] = &pair.hosts;
    let from = super::helpers::REMOTE_OFFSET;
    assert_eq!(host.memory.part(0, 500_000), peer.memory.part(from, 500_000));
}

/// A response was paced, and its next part is being read: the timer is not armed for a time that has passed.
#[test]
fn a_paced_response_waits_for_its_payload() {
    let mut pair = Pair::with(1, Faults::default(), 1024, |config| {
        config.congestion = crate::congestion::Congestion::Window(usize::MAX / 2);
        config.timeout = None;
    });
    pair.hosts[1].memory.pend(1, 1000, Duration::from_secs(3600));
    pair.hosts[1].memory.pending.reads = true;
    pair.hosts[0].qp.post_send(read(1, 500_000)).unwrap();
    settle(&mut pair);
    let bth = Bth { opcode: Opcode::CNP, becn: true, ..Bth::default() };
    deliver(&mut pair, 1, bth, ExtensionHeaders::default(), &[0; 16]);
    pair.run();
    assert_eq!(statuses(&pair), done([1]));
}

#[test]
fn a_failed_read_of_a_request_fails_it_behind_earlier_ones() {
    let mut pair = slow(0, 256);
    (0..3).for_each(|id| pair.hosts[0].qp.post_send(write(id, 8)).unwrap());
    settle(&mut pair);
    fail(&mut pair, 0, 1);
    assert_eq!(statuses(&pair), []);
    finish(&mut pair, 0, 0);
    let expected = [(0, Status::Success), (1, Status::LocalProtection), (2, Status::Flushed)];
    assert_eq!(statuses(&pair), expected);
    assert_eq!(pair.hosts[0].sent[1].vendor_error, KeyFault::CopyFailed.number());
    assert_eq!(open(&pair, 0), 1, "the third is still read");
    finish(&mut pair, 0, 0);
    assert_eq!(open(&pair, 0), 0);
}

#[test]
fn a_failed_read_of_a_response_is_a_remote_operational_error() {
    let mut pair = slow(1, 256);
    pair.hosts[0].qp.post_send(read(1, 600)).unwrap();
    settle(&mut pair);
    fail(&mut pair, 1, 0);
    assert_eq!(statuses(&pair), [(1, Status::RemoteOperation)]);
    assert_eq!(pair.hosts[1].qp.fault(), Some(Fault::Responder));
    assert_eq!(syndromes(&pair), [SyndromeKind::Nak(NakCode::RemoteOperationalError)]);
}
