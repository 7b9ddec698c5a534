//! Memory that takes time: messages are executed in order, and nothing is lost for it but what exceeds the limit.

use core::time::Duration;

use super::pair::{Pair, remote, request};
use crate::work::{Operation, SendRequest, Status};

const RECEIVED: u64 = 0x8000;

fn slow() -> Pair {
    let mut pair = Pair::new(1, 256);
    pair.to.memory.pend(1, 1000, Duration::ZERO);
    pair
}

fn send(id: u64, length: u32) -> SendRequest {
    request(id, Operation::SEND, 0, length)
}

#[test]
fn the_next_message_waits_for_the_one_before() {
    let mut pair = slow();
    pair.post_receive(7, RECEIVED, 1000);
    pair.post(request(1, Operation::Write { remote: remote(0x4000), immediate: None }, 0, 600));
    pair.post(send(2, 100));
    let packets = pair.packets();
    pair.deliver(&packets);
    assert_eq!((pair.open(), pair.to.receives.len()), (3, 1));
    (0..3).for_each(|_| pair.finish(0));
    assert_eq!((pair.open(), pair.received()), (1, [].into()));
    pair.finish(0);
    assert_eq!(pair.received(), [(7, Status::Success, 100)]);
    assert_eq!(pair.to.memory.part(0x4000, 600), pair.from.memory.part(0, 600));
}

/// The receive request of a dropped message is for the next one, but not while its buffer is written to.
#[test]
fn a_dropped_message_keeps_its_receive_until_memory_has_finished() {
    for lost in [1, 2] {
        let mut pair = slow();
        pair.post_receive(7, RECEIVED, 1000);
        pair.post(send(1, 700));
        pair.post(send(2, 100));
        let mut packets = pair.packets();
        packets.remove(lost);
        pair.deliver(&packets);
        let open = pair.open();
        assert!(open > 0 && pair.to.receives.is_empty());
        (0..open).for_each(|_| pair.finish(0));
        assert_eq!((pair.open(), pair.received()), (1, [].into()));
        pair.finish(0);
        assert_eq!(pair.received(), [(7, Status::Success, 100)], "{lost}");
    }
}

/// Its message was dropped, so nothing will complete the request until a packet arrives, and others of an SRQ may need it.
#[test]
fn a_dropped_message_returns_its_receive_when_memory_has_finished() {
    for last in [1, 2] {
        let mut pair = slow();
        pair.post_receive(7, RECEIVED, 1000);
        pair.post(send(1, 700));
        let packets = pair.packets();
        // The second packet is lost, and the last one perhaps.
        pair.deliver(&packets[..1]);
        pair.deliver(&packets[last + 1..]);
        if last == 2 {
            pair.post(request(2, Operation::Write { remote: remote(0), immediate: None }, 0, 8));
            let packets = pair.packets();
            pair.deliver(&packets);
        }
        assert!(pair.to.receives.is_empty(), "{last}");
        while pair.open() > 0 {
            pair.finish(0);
        }
        assert_eq!((pair.to.receives.len(), pair.received()), (1, [].into()), "{last}");
    }
}

/// Late packets are dropped, also while messages wait: a repeated start does not end the message in progress.
#[test]
fn repeated_packets_change_nothing() {
    let mut pair = slow();
    pair.post_receive(7, RECEIVED, 1000);
    pair.post(send(1, 700));
    let packets = pair.packets();
    pair.deliver(&[&packets[..2], &packets[..1], &packets[2..]].concat());
    (0..3).for_each(|_| pair.finish(0));
    assert_eq!(pair.received(), [(7, Status::Success, 700)]);
    assert_eq!(pair.to.qp.drops().late, 1);
}

#[test]
fn packets_beyond_the_limit_are_lost() {
    let mut pair = Pair::with(1, 4096, |config| config.send_capacity = 250);
    pair.to.memory.pend(1, 1000, Duration::ZERO);
    (0..250).for_each(|id| pair.post_receive(id, RECEIVED, 4096));
    (0..250).for_each(|id| pair.post(send(id, 4096)));
    let packets = pair.packets();
    pair.deliver(&packets);
    pair.to.memory.pending.chance = 0;
    pair.finish(0);
    let received = pair.received().len();
    assert!((230..250).contains(&received), "{received}");
    pair.post(send(250, 8));
    let packets = pair.packets();
    pair.deliver(&packets);
    assert_eq!(pair.received().len(), 1, "the next one arrives");
}

#[test]
fn a_failed_copy_is_an_error_of_the_receiver() {
    let mut pair = slow();
    pair.post_receive(7, RECEIVED, 1000);
    pair.post(send(1, 600));
    let packets = pair.packets();
    pair.deliver(&packets[..2]);
    pair.to.memory.pending.failing = 1000;
    pair.finish(0);
    assert!(pair.to.qp.fault().is_some());
    assert_eq!(pair.received(), [], "the second packet is still written");
    pair.finish(0);
    assert_eq!(pair.received(), [(7, Status::LocalProtection, 0)]);
}
