//! Payload that memory takes time to read.

use core::time::Duration;

use super::pair::{Pair, remote, request};
use crate::memory::PayloadRead;
use crate::testing::{Ended, Random};
use crate::uc::Fault;
use crate::work::{Data, Operation, SendRequest, Status};

fn slow(mtu: u16) -> Pair {
    let mut pair = Pair::new(1, mtu);
    pair.from.memory.pend(1, 1000, Duration::ZERO);
    pair.from.memory.pending.reads = true;
    pair
}

fn finish(pair: &mut Pair, index: usize) {
    let Ended::Read(PayloadRead { token, payload, .. }) = pair.from.memory.finish(index) else {
        panic!("it is a write")
    };
    assert!(pair.from.qp.handle_read(token, payload));
}

/// A long message is read in parts of 128 KiB, of which five are read at once; a part that is read is sent.
#[test]
fn long_messages_are_read_in_parts() {
    let mut pair = slow(1024);
    let write = Operation::Write { remote: remote(0), immediate: None };
    pair.post(request(1, write, 0, 900_000));
    assert_eq!((pair.packets().len(), pair.from.qp.unfinished()), (0, 5));
    finish(&mut pair, 0);
    let mut packets = pair.packets();
    assert_eq!((packets.len(), pair.from.qp.unfinished()), (128, 5));
    packets.extend(pair.packets_in_time(&mut Random(1)));
    assert_eq!((packets.len(), pair.sent()), (879, [(1, Status::Success)].into()));
    pair.deliver(&packets);
    assert!(pair.to.memory.part(0, 900_000) == pair.from.memory.part(0, 900_000));
}

/// Nothing is read for inline data and empty messages, which wait for the messages before them.
#[test]
fn messages_without_memory_keep_the_order() {
    let mut pair = slow(256);
    let empty = request(2, Operation::SEND, 0, 0);
    let inline = SendRequest {
        data: Data::Inline([7; 300][..].into()),
        ..request(3, Operation::SEND, 0, 0)
    };
    pair.post(inline.clone());
    pair.post(request(1, Operation::SEND, 0, 300));
    for one in [empty, inline, request(4, Operation::SEND, 0, 300)] {
        pair.post(one);
    }
    assert_eq!((pair.packets().len(), pair.from.qp.unfinished()), (2, 2));
    finish(&mut pair, 1);
    assert_eq!(pair.packets().len(), 0);
    finish(&mut pair, 0);
    assert_eq!(pair.packets().len(), 7);
    assert_eq!(pair.sent(), [3, 1, 2, 3, 4].map(|id| (id, Status::Success)));
}

/// Requests behind a local operation are read after it.
#[test]
fn local_operations_are_executed_before_later_reads() {
    let mut pair = slow(256);
    let invalidate = Operation::LocalInvalidate { key: ferroce_wire::number::RKey(9) };
    for one in [
        request(1, Operation::SEND, 0, 300),
        SendRequest { data: Data::NONE, ..request(2, invalidate, 0, 0) },
        request(3, Operation::SEND, 0, 300),
    ] {
        pair.post(one);
    }
    assert_eq!((pair.packets().len(), pair.from.qp.unfinished()), (0, 1));
    finish(&mut pair, 0);
    assert_eq!((pair.packets().len(), pair.from.qp.unfinished()), (2, 0));
    let expected = [(1, Status::Success), (2, Status::LocalOperation), (3, Status::Flushed)];
    assert_eq!((pair.sent(), pair.from.qp.fault()), (expected.into(), Some(Fault::Requester)));
}

/// A part of a message that cannot be read fails the message, although earlier packets of it were sent. The peer drops them
/// when the next message starts.
#[test]
fn a_failed_part_fails_its_message() {
    let mut pair = slow(1024);
    pair.post_receive(7, 0x8_0000, 200_000);
    pair.post(request(1, Operation::SEND, 0, 200_000));
    assert_eq!((pair.packets().len(), pair.from.qp.unfinished()), (0, 2));
    finish(&mut pair, 0);
    let mut packets = pair.packets();
    assert_eq!((packets.len(), pair.sent()), (128, [].into()));
    pair.from.memory.pending.failing = 1000;
    finish(&mut pair, 0);
    pair.from.memory.pending.failing = 0;
    assert_eq!(pair.packets().len(), 0);
    assert_eq!(pair.sent(), [(1, Status::LocalProtection)]);
    assert!(pair.from.qp.resume_send());
    pair.post(request(2, Operation::SEND, 0, 100));
    packets.extend(pair.packets_in_time(&mut Random(1)));
    pair.deliver(&packets);
    assert_eq!(pair.received(), [(7, Status::Success, 100)]);
}
