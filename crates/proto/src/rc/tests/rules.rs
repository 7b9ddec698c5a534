//! One rule at a time.

use std::vec::Vec;

use ferroce_wire::number::{Msn, Psn, RKey, VirtualAddress};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::syndrome::{NakCode, Syndrome, SyndromeKind};
use ferroce_wire::transport::{Aeth, Bth};

use super::helpers::{
    REMOTE_OFFSET, clean, deliver, opcodes, read, remote, request, statuses, syndromes, write,
};
use super::pair::{BASE, Faults, KEY, Pair, sge};
use crate::congestion::{Congestion, cost};
use crate::memory::AccessFlags;
use crate::rc::{Config, Fault, PostError};
use crate::work::{
    Data, MAX_MESSAGE, Operation, RemoteAddress, SendRequest, SgList, Status, WorkId,
};

#[test]
fn segments_a_message_by_the_path_mtu() {
    for (length, expected) in [
        (0, &[Opcode::RC_RDMA_WRITE_ONLY][..]),
        (256, &[Opcode::RC_RDMA_WRITE_ONLY]),
        (257, &[Opcode::RC_RDMA_WRITE_FIRST, Opcode::RC_RDMA_WRITE_LAST]),
        (
            768,
            &[
                Opcode::RC_RDMA_WRITE_FIRST,
                Opcode::RC_RDMA_WRITE_MIDDLE,
                Opcode::RC_RDMA_WRITE_LAST,
            ],
        ),
    ] {
        let mut pair = clean(256);
        pair.hosts[0].qp.post_send(write(1, length)).unwrap();
        pair.run();
        assert_eq!(opcodes(&pair, 0), expected, "{length}");
        assert_eq!(opcodes(&pair, 1), [Opcode::RC_ACKNOWLEDGE]);
        assert_eq!(statuses(&pair), [(1, Status::Success)]);
    }
}

#[test]
fn retransmits_from_a_lost_packet() {
    let mut pair = clean(256);
    pair.hosts[0].qp.post_send(write(1, 1280)).unwrap();
    pair.lost = [2].into();
    pair.run();
    let requests: Vec<_> =
        pair.sent_packets().into_iter().filter(|one| one.0 == 0).map(|one| one.2).collect();
    assert_eq!(requests, [0, 1, 2, 3, 4, 2, 3, 4], "from the missing one, and no timer was needed");
    assert_eq!(syndromes(&pair)[0], SyndromeKind::Nak(NakCode::PsnSequenceError));
    assert!(pair.now.as_nanos() < 100_000);
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
}

#[test]
fn a_read_restarts_at_the_missing_byte() {
    let mut pair = clean(256);
    pair.hosts[0].qp.post_send(read(1, 1000)).unwrap();
    pair.lost = [3].into(); // The request, then the third of four responses.
    pair.run();
    let requests: Vec<_> = (pair.log.iter().filter(|one| one.0 == 0))
        .map(|(_, bytes)| Packet::parse(bytes).unwrap())
        .map(|packet| packet.extensions.reth.unwrap())
        .collect();
    assert_eq!(requests.len(), 2);
    assert_eq!((requests[1].address.0, requests[1].length), (BASE + REMOTE_OFFSET + 512, 488));
    let answers: Vec<_> = pair.sent_packets().into_iter().filter(|one| one.0 == 1).collect();
    assert_eq!(answers.last(), Some(&(1, Opcode::RC_RDMA_READ_RESPONSE_LAST, 3)));
    assert!(pair.now.as_nanos() < 100_000, "an implied NAK, not a timer");
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(
        pair.hosts[0].memory.bytes[..1000],
        pair.hosts[1].memory.bytes[REMOTE_OFFSET as usize..][..1000]
    );
}

#[test]
fn limits_outstanding_reads_to_max_rd_atomic() {
    let mut pair = Pair::with(1, Faults::default(), 256, |config| config.max_rd_atomic = 2);
    for id in 0..5 {
        pair.hosts[0].qp.post_send(read(id, 8)).unwrap();
    }
    pair.drain();
    assert_eq!(opcodes(&pair, 0).len(), 2);
    pair.run();
    assert_eq!(statuses(&pair).len(), 5);
}

#[test]
fn refuses_reads_beyond_max_dest_rd_atomic() {
    let edit = |config: &mut Config| {
        config.max_rd_atomic = 4;
        config.max_dest_rd_atomic = 0;
    };
    let mut pair = Pair::with(1, Faults::default(), 256, edit);
    pair.hosts[0].qp.post_send(read(1, 8)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RemoteInvalidRequest)]);
}

#[test]
fn a_fence_waits_for_earlier_reads() {
    let mut pair = clean(256);
    pair.hosts[0].qp.post_send(read(1, 8)).unwrap();
    pair.hosts[0].qp.post_send(SendRequest { fence: true, ..write(2, 8) }).unwrap();
    pair.drain();
    assert_eq!(opcodes(&pair, 0), [Opcode::RC_RDMA_READ_REQUEST]);
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn fails_after_the_retry_count() {
    for retry_count in 0..8 {
        let edit = |config: &mut Config| config.retry_count = retry_count;
        let mut pair = Pair::with(1, Faults { loss: 1000, ..Faults::default() }, 256, edit);
        pair.hosts[0].qp.post_send(write(1, 8)).unwrap();
        pair.hosts[0].qp.post_send(SendRequest { signaled: false, ..write(2, 8) }).unwrap();
        pair.run();
        assert_eq!(statuses(&pair), [(1, Status::RetryExceeded), (2, Status::Flushed)]);
        assert_eq!(opcodes(&pair, 0).len(), 2 * (usize::from(retry_count) + 1));
        assert_eq!(pair.hosts[0].qp.fault(), Some(Fault::Requester));
        assert_eq!(pair.hosts[0].qp.poll_timeout(), None);
        // Accepted, and immediately completed in error.
        pair.hosts[0].qp.post_send(write(3, 8)).unwrap();
        pair.drain();
        assert_eq!(statuses(&pair)[2], (3, Status::Flushed));
    }
}

#[test]
fn naks_every_protocol_violation() {
    let bad_key = RemoteAddress { key: RKey(1), ..remote(REMOTE_OFFSET) };
    let outside = remote(super::pair::REGION - 4);
    let unaligned = remote(REMOTE_OFFSET + 4);
    let none = AccessFlags::default();
    let cas = |remote| Operation::CompareSwap { remote, compare: 0, swap: 1 };
    let all = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
    for (operation, length, access, code, status) in [
        (
            Operation::Write { remote: bad_key, immediate: None },
            600,
            all,
            NakCode::RemoteAccessError,
            Status::RemoteAccess,
        ),
        (
            Operation::Write { remote: outside, immediate: None },
            8,
            all,
            NakCode::RemoteAccessError,
            Status::RemoteAccess,
        ),
        (
            Operation::Read { remote: bad_key },
            8,
            all,
            NakCode::RemoteAccessError,
            Status::RemoteAccess,
        ),
        (cas(bad_key), 8, all, NakCode::RemoteAccessError, Status::RemoteAccess),
        (cas(unaligned), 8, all, NakCode::InvalidRequest, Status::RemoteInvalidRequest),
        (
            Operation::Write { remote: remote(REMOTE_OFFSET), immediate: None },
            8,
            none,
            NakCode::InvalidRequest,
            Status::RemoteInvalidRequest,
        ),
        (
            Operation::Read { remote: remote(REMOTE_OFFSET) },
            8,
            none,
            NakCode::InvalidRequest,
            Status::RemoteInvalidRequest,
        ),
        (
            cas(remote(REMOTE_OFFSET)),
            8,
            none,
            NakCode::InvalidRequest,
            Status::RemoteInvalidRequest,
        ),
    ] {
        let mut pair = Pair::with(1, Faults::default(), 256, |config| config.access = access);
        let before = pair.hosts[1].memory.bytes.clone();
        pair.hosts[0].qp.post_send(request(1, operation, length)).unwrap();
        pair.hosts[0].qp.post_send(write(2, 8)).unwrap();
        pair.run();
        assert_eq!(statuses(&pair), [(1, status), (2, Status::Flushed)], "{operation:?}");
        assert_eq!(syndromes(&pair), [SyndromeKind::Nak(code)], "{operation:?}");
        assert!(pair.hosts[1].memory.bytes == before, "{operation:?} was executed");
        assert_eq!(pair.hosts[1].qp.fault(), Some(Fault::Responder));
    }
}

#[test]
fn refuses_a_message_longer_than_its_receive() {
    let mut pair = clean(256);
    pair.post_receive(1, 9, REMOTE_OFFSET, 599);
    pair.hosts[0].qp.post_send(request(1, Operation::SEND, 600)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RemoteInvalidRequest)]);
    assert_eq!(pair.hosts[1].received[0].status, Status::LocalLength);
}

#[test]
fn a_receive_with_a_bad_lkey_is_an_operational_error() {
    let mut pair = clean(256);
    let mut bad = sge(REMOTE_OFFSET, 100);
    bad.key.0 = 1;
    let sg_list = SgList::from(bad);
    pair.hosts[1].receives.post(crate::work::ReceiveRequest { id: WorkId(9), sg_list }).unwrap();
    pair.hosts[0].qp.post_send(request(1, Operation::SEND, 100)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RemoteOperation)]);
    assert_eq!(pair.hosts[1].received[0].status, Status::LocalProtection);
}

#[test]
fn checks_local_memory() {
    let mut pair = clean(256);
    let mut bad = sge(0, 100);
    bad.key.0 = 1;
    let data = Data::SgList(SgList::from(bad));
    pair.hosts[0].qp.post_send(SendRequest { data: data.clone(), ..write(1, 0) }).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::LocalProtection)]);
    let mut pair = clean(256);
    pair.hosts[0].qp.post_send(SendRequest { data, ..read(1, 0) }).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::LocalProtection)]);
}

#[test]
fn zero_length_requests_skip_the_key_check() {
    let bad = RemoteAddress { address: VirtualAddress(0), key: RKey(0) };
    for operation in
        [Operation::Write { remote: bad, immediate: None }, Operation::Read { remote: bad }]
    {
        let mut pair = clean(256);
        pair.hosts[0].qp.post_send(request(1, operation, 0)).unwrap();
        pair.run();
        assert_eq!(statuses(&pair), [(1, Status::Success)]);
    }
}

#[test]
fn send_with_invalidate_invalidates_the_key() {
    let mut pair = clean(256);
    pair.post_receive(1, 9, REMOTE_OFFSET, 8);
    let send = Operation::Send { immediate: None, invalidate: Some(RKey(KEY)) };
    pair.hosts[0].qp.post_send(request(1, send, 8)).unwrap();
    pair.hosts[0].qp.post_send(write(2, 8)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::RemoteAccess)]);
    assert_eq!(pair.hosts[1].received[0].invalidated, Some(RKey(KEY)));
}

#[test]
fn duplicate_atomics_are_not_executed_again() {
    let edit = |config: &mut Config| {
        config.max_rd_atomic = 16;
        config.max_dest_rd_atomic = 16;
    };
    let mut pair = Pair::with(1, Faults::default(), 256, edit);
    pair.hosts[1].memory.bytes[REMOTE_OFFSET as usize..][..8].fill(0);
    for id in 0..16 {
        let add = Operation::FetchAdd { remote: remote(REMOTE_OFFSET), add: 1 };
        let data = Data::SgList(SgList::from(sge(8 * id, 8)));
        pair.hosts[0].qp.post_send(SendRequest { data, ..request(id, add, 8) }).unwrap();
    }
    // All sixteen responses are lost once.
    pair.lost = (16..32).collect();
    pair.run();
    assert_eq!(pair.hosts[1].memory.atomics, 16);
    for id in 0..16u64 {
        assert_eq!(pair.hosts[0].memory.bytes[8 * id as usize..][..8], id.to_ne_bytes());
    }
    assert_eq!(opcodes(&pair, 0).len(), 32);
}

#[test]
fn executes_flush_and_atomic_write() {
    let mut pair = Pair::with(1, Faults::default(), 256, |config| {
        config.access |= AccessFlags::FLUSH_GLOBAL;
    });
    pair.hosts[1].memory.access |= AccessFlags::FLUSH_GLOBAL;
    let atomic_write = Operation::AtomicWrite { remote: remote(REMOTE_OFFSET) };
    let flush = Operation::Flush {
        remote: remote(REMOTE_OFFSET),
        length: 8,
        selectivity: Default::default(),
        placement: ferroce_wire::transport::FlushPlacement(1),
    };
    pair.hosts[0].qp.post_send(request(1, atomic_write, 8)).unwrap();
    pair.hosts[0].qp.post_send(request(2, flush, 0)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(
        pair.hosts[1].memory.bytes[REMOTE_OFFSET as usize..][..8],
        pair.hosts[0].memory.bytes[..8]
    );
    assert_eq!(opcodes(&pair, 1), [Opcode::RC_RDMA_READ_RESPONSE_ONLY; 2]);
}

#[test]
fn a_flush_needs_access_rights() {
    let flush = Operation::Flush {
        remote: remote(REMOTE_OFFSET),
        length: 8,
        selectivity: Default::default(),
        placement: ferroce_wire::transport::FlushPlacement(2),
    };
    let mut pair = clean(256);
    pair.hosts[0].qp.post_send(request(1, flush, 0)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RemoteInvalidRequest)]);
}

#[test]
fn psns_wrap_within_a_message() {
    for start in 0xff_fff0..=0xff_ffff {
        let edit = |config: &mut Config| {
            config.send_psn = Psn::new(start);
            config.receive_psn = Psn::new(start);
        };
        let mut pair = Pair::with(1, Faults { loss: 100, ..Faults::default() }, 256, edit);
        for id in 0..4 {
            pair.hosts[0].qp.post_send(write(2 * id, 2000)).unwrap();
            pair.hosts[0].qp.post_send(read(2 * id + 1, 2000)).unwrap();
        }
        pair.run();
        assert!(statuses(&pair).iter().all(|one| one.1 == Status::Success), "{start:#x}");
    }
}

#[test]
fn refuses_invalid_send_requests() {
    let mut pair = Pair::with(1, Faults::default(), 256, |config| config.send_capacity = 1);
    let qp = &mut pair.hosts[0].qp;
    let half = sge(0, MAX_MESSAGE / 2 + 1);
    let long = Data::SgList(SgList::from(&[half, half][..]));
    assert_eq!(qp.post_send(SendRequest { data: long, ..write(1, 0) }), Err(PostError::Length));
    let add = Operation::FetchAdd { remote: remote(REMOTE_OFFSET), add: 1 };
    assert_eq!(qp.post_send(request(1, add, 4)), Err(PostError::Length));
    let both = Operation::Send { immediate: Some(Default::default()), invalidate: Some(RKey(1)) };
    assert_eq!(qp.post_send(request(1, both, 4)), Err(PostError::Operation));
    qp.post_send(write(1, 4)).unwrap();
    assert_eq!(qp.post_send(write(2, 4)), Err(PostError::Full));
}

#[test]
fn refuses_an_invalid_opcode_sequence() {
    for opcode in [
        Opcode::RC_SEND_MIDDLE,
        Opcode::RC_SEND_LAST,
        Opcode::RC_RDMA_WRITE_MIDDLE,
        Opcode::RC_RDMA_WRITE_LAST,
    ] {
        let mut pair = clean(256);
        let psn = pair.hosts[1].qp.config().receive_psn;
        deliver(&mut pair, 1, Bth { opcode, psn, ..Bth::default() }, Default::default(), &[1; 256]);
        pair.drain();
        assert_eq!(syndromes(&pair), [SyndromeKind::Nak(NakCode::InvalidRequest)], "{opcode}");
        assert_eq!(pair.hosts[1].qp.fault(), Some(Fault::Responder));
    }
}

#[test]
fn ignores_ghost_responses() {
    for (distance, syndrome) in (-3..4).flat_map(|distance| {
        [0x1f, 0x20, 0x60, 0x61, 0x62, 0x63, 0x7f].map(|syndrome| (distance, syndrome))
    }) {
        let mut pair = clean(256);
        let psn = pair.hosts[0].qp.config().send_psn;
        let psn = psn.add(distance as u32);
        let aeth = Some(Aeth { syndrome: Syndrome(syndrome), msn: Msn(0) });
        for opcode in [Opcode::RC_ACKNOWLEDGE, Opcode::RC_RDMA_READ_RESPONSE_ONLY] {
            let extensions = ExtensionHeaders { aeth, ..Default::default() };
            deliver(&mut pair, 0, Bth { opcode, psn, ..Bth::default() }, extensions, &[]);
        }
        pair.run();
        assert_eq!(pair.hosts[0].qp.fault(), None);
        pair.hosts[0].qp.post_send(write(1, 700)).unwrap();
        pair.run();
        assert_eq!(statuses(&pair), [(1, Status::Success)]);
    }
}

#[test]
fn the_window_limits_bytes_in_flight() {
    let mut pair = Pair::with(1, Faults::default(), 256, |config| {
        config.congestion = Congestion::Window(8 * cost(256, 1));
    });
    pair.hosts[0].qp.post_send(write(1, 256 * 100)).unwrap();
    pair.drain();
    assert_eq!(opcodes(&pair, 0).len(), 8);
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(opcodes(&pair, 0).len(), 100);
}

#[test]
fn a_duplicate_write_is_not_executed() {
    let mut pair = clean(256);
    pair.hosts[0].qp.post_send(write(1, 8)).unwrap();
    pair.run();
    let (_, bytes) = pair.log[0].clone();
    pair.hosts[1].memory.bytes[REMOTE_OFFSET as usize..][..8].fill(7);
    let packet = Packet::parse(&bytes).unwrap();
    deliver(&mut pair, 1, packet.bth, packet.extensions, packet.payload);
    pair.run();
    assert_eq!(pair.hosts[1].memory.bytes[REMOTE_OFFSET as usize..][..8], [7; 8]);
    assert_eq!(opcodes(&pair, 1), [Opcode::RC_ACKNOWLEDGE; 2]);
}

/// An atomic followed the WRITE: an ACK with its PSN means that it was executed, without its result. Some requesters
/// take that for the response (rdma_rxe of Linux 6.1 does) and complete with the old memory contents.
#[test]
fn a_duplicate_write_is_not_acknowledged_with_an_atomics_psn() {
    for behind in
        [request(2, Operation::FetchAdd { remote: remote(REMOTE_OFFSET), add: 1 }, 8), read(2, 300)]
    {
        let mut pair = clean(256);
        let first = pair.hosts[0].qp.config().send_psn;
        pair.hosts[0].qp.post_send(write(1, 300)).unwrap();
        pair.hosts[0].qp.post_send(behind).unwrap();
        pair.run();
        let (_, bytes) = pair.log[0].clone();
        let packet = Packet::parse(&bytes).unwrap();
        deliver(&mut pair, 1, packet.bth, packet.extensions, packet.payload);
        pair.run();
        let (_, bytes) = pair.log.iter().rev().find(|(side, _)| *side == 1).unwrap();
        let answer = Packet::parse(bytes).unwrap();
        assert_eq!(answer.bth.opcode, Opcode::RC_ACKNOWLEDGE);
        assert_eq!(answer.bth.psn, Psn::new(first.0 + 1), "the last packet of the WRITE");
    }
}

#[test]
fn an_idle_queue_pair_is_small() {
    assert!(size_of::<crate::rc::QueuePair>() <= 2048);
}

#[test]
fn a_closed_port_counts_as_a_timeout() {
    let mut pair = clean(256);
    let retries = pair.hosts[0].qp.config().retry_count;
    pair.hosts[0].qp.post_send(write(1, 512)).unwrap();
    let first = pair.hosts[0].qp.config().send_psn;
    let now = pair.now;
    pair.hosts[0].qp.handle_unreachable(now, first);
    assert_eq!(opcodes(&pair, 0).len(), 0, "nothing is in flight yet");
    for round in 0..=retries {
        pair.drain();
        assert_eq!(statuses(&pair), [], "round {round}");
        assert_eq!(opcodes(&pair, 0).len(), 2 * (usize::from(round) + 1));
        // For a packet that was never sent, or is acknowledged.
        for other in [2, 0xff_ffff] {
            pair.hosts[0].qp.handle_unreachable(now, first.add(other));
        }
        pair.hosts[0].qp.handle_unreachable(now, first.add(1));
    }
    pair.drain();
    assert_eq!(statuses(&pair), [(1, Status::RetryExceeded)]);
    assert_eq!(pair.now, now);
}
