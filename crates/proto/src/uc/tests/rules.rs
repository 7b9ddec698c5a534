//! One rule at a time.

use std::vec::Vec;

use ferroce_wire::number::{Immediate, Psn, RKey};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;

use super::pair::{Pair, remote, request};
use crate::memory::AccessFlags;
use crate::testing::REGION;
use crate::uc::{Drops, PostError};
use crate::work::{
    CompletionKind, MAX_MESSAGE, Operation, RemoteAddress, SendRequest, Status, WorkId,
};

const REMOTE_OFFSET: u64 = 0x2_0000;
const OK: Status = Status::Success;

pub(super) fn send(id: u64, length: u32) -> SendRequest {
    request(id, Operation::SEND, id * 0x1000, length)
}

fn write(id: u64, length: u32, immediate: Option<Immediate>) -> SendRequest {
    request(id, Operation::Write { remote: remote(REMOTE_OFFSET), immediate }, 0, length)
}

fn opcodes(packets: &[Vec<u8>]) -> Vec<Opcode> {
    packets.iter().map(|bytes| Packet::parse(bytes).unwrap().bth.opcode).collect()
}

#[test]
fn packets_set_the_migration_bit() {
    let mut pair = Pair::with(1, 256, |_| ());
    pair.post(write(1, 600, None));
    pair.post(send(2, 8));
    let packets = pair.packets();
    assert_eq!(packets.len(), 4);
    assert!(packets.iter().all(|bytes| Packet::parse(bytes).unwrap().bth.migrated));
}

#[test]
fn segments_a_message_by_the_path_mtu() {
    let imm = Some(Immediate(7));
    let with = Operation::Send { immediate: imm, invalidate: None };
    for (request, expected) in [
        (send(1, 0), &[Opcode::UC_SEND_ONLY][..]),
        (send(1, 256), &[Opcode::UC_SEND_ONLY]),
        (request(1, with, 0, 3), &[Opcode::UC_SEND_ONLY_WITH_IMMEDIATE]),
        (send(1, 257), &[Opcode::UC_SEND_FIRST, Opcode::UC_SEND_LAST]),
        (
            request(1, with, 0, 600),
            &[Opcode::UC_SEND_FIRST, Opcode::UC_SEND_MIDDLE, Opcode::UC_SEND_LAST_WITH_IMMEDIATE],
        ),
        (write(1, 5, None), &[Opcode::UC_RDMA_WRITE_ONLY]),
        (write(1, 5, imm), &[Opcode::UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE]),
        (
            write(1, 768, None),
            &[
                Opcode::UC_RDMA_WRITE_FIRST,
                Opcode::UC_RDMA_WRITE_MIDDLE,
                Opcode::UC_RDMA_WRITE_LAST,
            ],
        ),
        (
            write(1, 257, imm),
            &[Opcode::UC_RDMA_WRITE_FIRST, Opcode::UC_RDMA_WRITE_LAST_WITH_IMMEDIATE],
        ),
    ] {
        let mut pair = Pair::with(1, 256, |config| config.send_psn = Psn(0xff_ffff));
        pair.post(request);
        let packets = pair.packets();
        assert_eq!(opcodes(&packets), expected);
        for (index, bytes) in packets.iter().enumerate() {
            let bth = Packet::parse(bytes).unwrap().bth;
            assert_eq!(bth.psn, Psn(0xff_ffff).add(index as u32), "wraps at 2^24");
            assert!(!bth.ack_request);
        }
    }
}

#[test]
fn a_request_completes_when_its_last_packet_is_handed_out() {
    let mut pair = Pair::new(1, 256);
    pair.post(send(1, 300));
    pair.post(SendRequest { signaled: false, ..send(2, 1) });
    pair.post(send(3, 1));
    assert!(pair.from.qp.poll_transmit(&mut pair.from.memory).is_some());
    assert_eq!((pair.sent(), pair.from.qp.send_queue_len()), ([].into(), 3));
    assert!(pair.from.qp.poll_transmit(&mut pair.from.memory).is_some());
    assert_eq!(pair.from.qp.send_queue_len(), 2);
    assert_eq!(pair.sent(), [(1, OK)]);
    assert_eq!(pair.packets().len(), 2);
    assert_eq!(pair.sent(), [(3, OK)]);
}

#[test]
fn refuses_operations_that_uc_lacks() {
    let mut pair = Pair::with(1, 256, |config| config.send_capacity = 1);
    let mut post = |operation, length| pair.from.qp.post_send(request(1, operation, 0, length));
    let remote = remote(0);
    assert_eq!(post(Operation::Read { remote }, 8), Err(PostError::Operation));
    assert_eq!(post(Operation::FetchAdd { remote, add: 1 }, 8), Err(PostError::Operation));
    assert_eq!(post(Operation::AtomicWrite { remote }, 8), Err(PostError::Operation));
    let invalidate = Operation::Send { immediate: None, invalidate: Some(RKey(1)) };
    assert_eq!(post(invalidate, 8), Err(PostError::Operation));
    assert_eq!(post(Operation::SEND, MAX_MESSAGE + 1), Err(PostError::Length));
    assert_eq!(post(Operation::SEND, MAX_MESSAGE), Ok(()));
    assert_eq!(post(Operation::SEND, 1), Err(PostError::Full));
}

/// Two messages of four packets, some of which are lost: the completions and drops.
fn with_lost(lost: &[usize]) -> (Vec<(u64, Status, u32)>, Drops) {
    let mut pair = Pair::new(1, 256);
    pair.post_receive(10, REMOTE_OFFSET, 2000);
    pair.post_receive(11, REMOTE_OFFSET + 2000, 2000);
    pair.post(send(1, 1000));
    pair.post(send(2, 1001));
    let packets = pair.packets();
    let left = packets.into_iter().enumerate().filter(|(place, _)| !lost.contains(place));
    pair.deliver(&left.map(|(_, bytes)| bytes).collect::<Vec<_>>());
    let received = pair.received();
    if let [(10, OK, 1001)] = received[..] {
        assert_eq!(pair.to.memory.part(REMOTE_OFFSET, 1001), pair.from.memory.part(0x2000, 1001));
    }
    (received, *pair.to.qp.drops())
}

#[test]
fn a_dropped_message_returns_its_receive() {
    let both = [(10, OK, 1000), (11, OK, 1001)];
    assert_eq!(with_lost(&[]), (both.into(), Drops::default()));
    let second = [(10, OK, 1001)];
    assert_eq!(
        with_lost(&[0]),
        (second.into(), Drops { gaps: 1, remainder: 3, ..Drops::default() })
    );
    assert_eq!(
        with_lost(&[1]),
        (second.into(), Drops { gaps: 1, remainder: 2, ..Drops::default() })
    );
    assert_eq!(
        with_lost(&[2]),
        (second.into(), Drops { gaps: 1, remainder: 1, ..Drops::default() })
    );
    assert_eq!(with_lost(&[3]), (second.into(), Drops { gaps: 1, ..Drops::default() }));
    assert_eq!(with_lost(&[0, 1, 2, 3]).0, second);
    // The end of one message and the start of the other are never merged, though all lengths would fit.
    assert_eq!(with_lost(&[3, 4]).0, []);
    assert_eq!(with_lost(&[2, 3, 4, 5]).0, []);
}

/// A WRITE needs no receive request: from an SRQ, another QP may take it.
#[test]
fn a_message_that_a_write_ends_returns_its_receive() {
    let mut pair = Pair::new(1, 256);
    pair.post_receive(10, REMOTE_OFFSET, 2000);
    pair.post(send(1, 1000));
    pair.post(write(2, 1000, None));
    let packets = pair.packets();
    pair.deliver(&packets[..1]);
    assert_eq!(pair.to.receives.len(), 0, "the SEND holds it");
    pair.deliver(&packets[4..5]);
    assert_eq!(pair.to.receives.len(), 1, "the WRITE does not");
}

#[test]
fn ignores_late_and_duplicate_packets() {
    let mut pair = Pair::new(1, 256);
    pair.post_receive(10, REMOTE_OFFSET, 600);
    pair.post_receive(11, REMOTE_OFFSET, 600);
    pair.post(send(1, 600));
    let packets = pair.packets();
    let [a, b, c] = [0, 1, 2].map(|place| packets[place].clone());
    pair.deliver(&[a.clone(), b.clone(), a.clone(), b, c.clone(), a, c]);
    assert_eq!(pair.received(), [(10, OK, 600)]);
    assert_eq!(*pair.to.qp.drops(), Drops { late: 4, ..Drops::default() });
}

#[test]
fn accepts_a_first_packet_at_any_psn_ahead() {
    for ahead in [1, 1000, 1 << 23, (1 << 24) - (1 << 16) - 1] {
        let mut pair = Pair::with(1, 256, |config| config.receive_psn = Psn(0));
        pair.from = Pair::with(1, 256, |config| config.send_psn = Psn(ahead)).from;
        pair.post_receive(10, REMOTE_OFFSET, 600);
        pair.post(send(1, 600));
        let packets = pair.packets();
        pair.deliver(&packets);
        assert_eq!(pair.received(), [(10, OK, 600)], "{ahead}");
        assert_eq!(pair.to.qp.drops().gaps, 1);
    }
}

#[test]
fn without_a_receive_the_whole_message_is_dropped() {
    let mut pair = Pair::new(1, 256);
    pair.post(send(1, 600));
    pair.post(send(2, 600));
    let packets = pair.packets();
    pair.deliver(&packets[..1]);
    pair.post_receive(10, REMOTE_OFFSET, 600); // Too late for the first message.
    pair.deliver(&packets[1..]);
    assert_eq!(pair.received(), [(10, OK, 600)]);
    assert_eq!(*pair.to.qp.drops(), Drops { no_receive: 1, remainder: 2, ..Drops::default() });
    assert_eq!(pair.to.memory.part(REMOTE_OFFSET, 600), pair.from.memory.part(0x2000, 600));
}

#[test]
fn drops_an_invalid_opcode_sequence() {
    let mut pair = Pair::new(1, 256);
    pair.post_receive(10, REMOTE_OFFSET, 2000);
    pair.post(send(1, 600));
    let mut packets = pair.packets();
    let opcode = |packets: &mut Vec<Vec<u8>>, place: usize, opcode: Opcode| {
        packets[place][0] = opcode.0;
    };
    // A MIDDLE without a message in progress, then a FIRST within a message.
    opcode(&mut packets, 0, Opcode::UC_SEND_MIDDLE);
    opcode(&mut packets, 1, Opcode::UC_SEND_FIRST);
    opcode(&mut packets, 2, Opcode::UC_SEND_ONLY);
    pair.deliver(&packets);
    assert_eq!(pair.received(), [(10, OK, 88)]);
    assert_eq!(*pair.to.qp.drops(), Drops { opcode: 2, ..Drops::default() });
    // A WRITE cannot continue a SEND.
    pair.post_receive(11, REMOTE_OFFSET, 2000);
    pair.post(send(1, 600));
    let mut packets = pair.packets();
    opcode(&mut packets, 1, Opcode::UC_RDMA_WRITE_MIDDLE);
    pair.deliver(&packets);
    assert_eq!(pair.received(), []);
    assert_eq!(*pair.to.qp.drops(), Drops { opcode: 3, remainder: 1, ..Drops::default() });
    // A packet of another service is ignored.
    let mut packets = [packets[0].clone()];
    packets[0][0] = Opcode::RC_SEND_ONLY.0;
    pair.deliver(&packets);
    assert_eq!(pair.to.qp.drops().foreign, 1);
    assert_eq!(pair.to.qp.fault(), None);
}

#[test]
fn drops_a_message_longer_than_its_buffer_or_announcement() {
    let mut pair = Pair::new(1, 256);
    pair.post_receive(10, REMOTE_OFFSET, 599);
    pair.post(send(1, 600));
    pair.post(send(2, 599));
    let elsewhere = Operation::Write { remote: remote(REMOTE_OFFSET + 0x1000), immediate: None };
    pair.post(request(3, elsewhere, 0, 600));
    let mut packets = pair.packets();
    packets[6][26] = 1; // The RETH announces 344 bytes in place of 600.
    let before = pair.to.memory.part(REMOTE_OFFSET + 0x1000 + 256, 344).to_vec();
    pair.deliver(&packets);
    assert_eq!(pair.received(), [(10, OK, 599)]);
    assert_eq!(pair.to.qp.drops().length, 2);
    assert_eq!(pair.to.memory.part(REMOTE_OFFSET + 0x1000 + 256, 344), before);
}

#[test]
fn a_write_needs_access_rights_and_a_key() {
    for access in [AccessFlags::REMOTE_WRITE, AccessFlags::default()] {
        let mut pair = Pair::with(1, 256, |config| config.access = access);
        let allowed = access == AccessFlags::REMOTE_WRITE;
        let wrong_key = RemoteAddress { key: RKey(0x999), ..remote(REMOTE_OFFSET) };
        let beyond = remote(REGION - 599);
        for remote in [wrong_key, beyond, remote(REMOTE_OFFSET)] {
            pair.post(request(1, Operation::Write { remote, immediate: None }, 0, 600));
        }
        let before = pair.to.memory.bytes.clone();
        let packets = pair.packets();
        pair.deliver(&packets[..6]);
        assert!(pair.to.memory.bytes == before);
        pair.deliver(&packets[6..]);
        let written = pair.to.memory.part(REMOTE_OFFSET, 600) == pair.from.memory.part(0, 600);
        assert_eq!(written, allowed);
        let drops = *pair.to.qp.drops();
        let expected = if allowed {
            Drops { key: 2, remainder: 4, ..Drops::default() }
        } else {
            Drops { permission: 3, remainder: 6, ..Drops::default() }
        };
        assert_eq!(drops, expected);
        assert_eq!((pair.received(), pair.to.qp.fault()), ([].into(), None));
    }
}

#[test]
fn a_zero_length_write_needs_no_key() {
    let mut pair = Pair::new(1, 256);
    let nowhere = RemoteAddress::default();
    let operation = Operation::Write { remote: nowhere, immediate: Some(Immediate(9)) };
    pair.post(request(1, operation, 0, 0));
    pair.post_receive(10, REMOTE_OFFSET, 0);
    let packets = pair.packets();
    pair.deliver(&packets);
    assert_eq!(pair.received(), [(10, OK, 0)]);
}

#[test]
fn deregistering_a_region_drops_the_message() {
    let mut pair = Pair::new(1, 256);
    pair.post(write(1, 600, None));
    let packets = pair.packets();
    pair.deliver(&packets[..1]);
    pair.to.memory.access = AccessFlags::LOCAL_WRITE;
    pair.deliver(&packets[1..]);
    assert_eq!(*pair.to.qp.drops(), Drops { key: 1, remainder: 1, ..Drops::default() });
    assert_eq!(pair.to.qp.fault(), None);
}

#[test]
fn a_write_with_immediate_consumes_a_receive() {
    let mut pair = Pair::new(1, 256);
    let value = Immediate(0x0102_0304);
    for _ in 0..2 {
        pair.post(SendRequest { solicited: true, ..write(1, 600, Some(value)) });
    }
    let packets = pair.packets();
    pair.deliver(&packets[..3]);
    assert_eq!(pair.to.qp.drops().no_receive, 1);
    pair.post_receive(10, 0, 0);
    pair.deliver(&packets[3..]);
    let [completion] = pair.completions()[..] else { panic!("one completion") };
    assert_eq!(completion.kind, CompletionKind::ReceiveWriteImmediate);
    assert_eq!((completion.id, completion.length), (WorkId(10), 600));
    assert_eq!((completion.immediate, completion.solicited), (Some(value), true));
    assert_eq!(pair.to.memory.part(REMOTE_OFFSET, 600), pair.from.memory.part(0, 600));
}
