//! Faults that stop a QP or its send queue.

use super::pair::{Pair, request};
use super::rules::send;
use crate::testing::{REGION, sge};
use crate::uc::Fault;
use crate::work::{Data, Operation, SendRequest, SgList, Status};

const REMOTE_OFFSET: u64 = 0x2_0000;
const OK: Status = Status::Success;

#[test]
fn a_receive_with_a_bad_lkey_enters_err() {
    let mut pair = Pair::new(1, 256);
    pair.post_receive(10, REGION - 300, 600);
    pair.post_receive(11, REMOTE_OFFSET, 600);
    pair.post(send(1, 600));
    let packets = pair.packets();
    pair.deliver(&packets[..1]);
    assert!(pair.to.qp.fault().is_none() && pair.received().is_empty());
    pair.to.qp.post_send(send(5, 1)).unwrap();
    pair.deliver(&packets[1..]);
    assert_eq!(pair.to.qp.fault(), Some(Fault::Responder));
    assert_eq!(pair.to.qp.poll_send_completion().map(|one| one.status), Some(Status::Flushed));
    pair.to.qp.flush_receives(&mut pair.to.receives);
    assert_eq!(pair.received(), [(10, Status::LocalProtection, 0), (11, Status::Flushed, 0)]);
    assert!(!pair.to.qp.resume_send());
}

#[test]
fn a_send_with_a_bad_lkey_enters_sqe() {
    let mut pair = Pair::new(1, 256);
    let parts = [sge(0, 300), sge(REGION, 300)];
    pair.post(send(1, 10));
    pair.post(SendRequest { data: Data::SgList(SgList::from(&parts[..])), ..send(2, 0) });
    pair.post(SendRequest { signaled: false, ..send(3, 10) });
    let packets = pair.packets();
    assert_eq!(packets.len(), 2, "the second message's first packet was still good");
    assert_eq!(pair.from.qp.fault(), Some(Fault::Requester));
    pair.post(send(4, 10));
    let flushed = [3, 4].map(|id| (id, Status::Flushed));
    assert_eq!(pair.sent(), [[(1, OK), (2, Status::LocalProtection)], flushed].concat());
    // The other direction works, and so does this one after the owner resumes it.
    assert!(pair.from.qp.resume_send());
    pair.post(send(5, 20));
    let more = pair.packets();
    for id in [10, 11] {
        pair.post_receive(id, REMOTE_OFFSET, 600);
    }
    pair.deliver(&[packets, more].concat());
    assert_eq!(pair.received(), [(10, OK, 10), (11, OK, 20)]);
    assert_eq!(pair.to.qp.drops().gaps, 1, "the PSN of the packet that never went");
}

#[test]
fn receives_messages_in_sqe() {
    let mut pair = Pair::new(1, 256);
    pair.to.qp.post_send(request(1, Operation::SEND, REGION, 8)).unwrap();
    let psn = pair.to.qp.poll_transmit(&mut pair.to.memory).unwrap().bth.psn;
    pair.to.qp.handle_denied(psn, crate::testing::DENIED);
    assert_eq!(pair.to.qp.fault(), Some(Fault::Requester));
    pair.post_receive(10, REMOTE_OFFSET, 10);
    pair.post(send(1, 10));
    let packets = pair.packets();
    pair.deliver(&packets);
    assert_eq!(pair.received(), [(10, OK, 10)]);
}

#[test]
fn the_owner_can_enter_err() {
    let mut pair = Pair::new(1, 256);
    pair.post(send(1, 600));
    pair.post(send(2, 600));
    assert!(pair.from.qp.poll_transmit(&mut pair.from.memory).is_some());
    pair.from.qp.handle_error();
    assert_eq!(pair.from.qp.fault(), Some(Fault::Owner));
    assert_eq!(pair.sent(), [1, 2].map(|id| (id, Status::Flushed)));
    assert!(pair.packets().is_empty());
}

#[test]
fn entering_err_flushes_the_receive_in_progress() {
    let mut pair = Pair::new(1, 256);
    pair.post_receive(10, REMOTE_OFFSET, 600);
    pair.post_receive(11, REMOTE_OFFSET, 600);
    pair.post(send(1, 600));
    let packets = pair.packets();
    pair.deliver(&packets[..2]);
    pair.to.qp.handle_error();
    pair.deliver(&packets[2..]);
    pair.to.qp.flush_receives(&mut pair.to.receives);
    assert_eq!(pair.received(), [10, 11].map(|id| (id, Status::Flushed, 0)));
}

#[test]
fn an_unreadable_packet_of_a_completed_request_is_lost() {
    let mut pair = Pair::new(1, 256);
    pair.post(send(1, 10));
    pair.post(send(2, 600));
    let first = pair.from.qp.poll_transmit(&mut pair.from.memory).unwrap().bth.psn;
    assert_eq!(pair.sent(), [(1, OK)]);
    pair.from.qp.handle_denied(first, crate::testing::DENIED);
    assert!(pair.from.qp.poll_transmit(&mut pair.from.memory).is_some());
    for psn in [first, first.add(2), first.add(1 << 23)] {
        pair.from.qp.handle_denied(psn, crate::testing::DENIED);
        assert_eq!((pair.from.qp.fault(), pair.sent()), (None, [].into()));
    }
    pair.from.qp.handle_denied(first.add(1), crate::testing::DENIED);
    assert_eq!(pair.sent(), [(2, Status::LocalProtection)]);
}
