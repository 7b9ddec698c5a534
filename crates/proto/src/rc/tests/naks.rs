//! Fatal NAKs, receive completions and events.

use ferroce_wire::number::{Immediate, RKey, VirtualAddress};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::syndrome::{NakCode, SyndromeKind};
use ferroce_wire::transport::{Bth, FlushPlacement, FlushSelectivity, Reth};

use super::helpers::{
    REMOTE_OFFSET, clean, deliver, read, remote, request, statuses, syndromes, write,
};
use super::pair::{BASE, Faults, KEY, Pair, REGION};
use crate::memory::AccessFlags;
use crate::work::{MAX_MESSAGE, Operation, RemoteAddress, Status};

const ALL: AccessFlags = AccessFlags::from_bits_retain(0x30f);

/// A FLUSH to a responder whose QP and MR allow both placements.
fn flush(key: u32, offset: u64, length: u32, selectivity: u8, placement: u8) -> Status {
    let mut pair = Pair::with(1, Faults::default(), 256, |config| config.access = ALL);
    pair.hosts[1].memory.access = ALL;
    let operation = Operation::Flush {
        remote: RemoteAddress { address: VirtualAddress(BASE + offset), key: RKey(key) },
        length,
        selectivity: FlushSelectivity(selectivity),
        placement: FlushPlacement(placement),
    };
    pair.hosts[0].qp.post_send(request(1, operation, 0)).unwrap();
    pair.run();
    statuses(&pair)[0].1
}

#[test]
fn a_flush_of_a_range_checks_key_and_bounds() {
    assert_eq!(flush(KEY, REMOTE_OFFSET, 64, 0, 1), Status::Success);
    assert_eq!(flush(KEY, REMOTE_OFFSET, 0, 0, 1), Status::Success);
    assert_eq!(flush(KEY + 1, REMOTE_OFFSET, 64, 0, 1), Status::RemoteAccess);
    assert_eq!(
        flush(KEY + 1, REMOTE_OFFSET, 0, 0, 1),
        Status::RemoteAccess,
        "a key is needed for nothing, too"
    );
    assert_eq!(flush(KEY, REGION - 8, 64, 0, 1), Status::RemoteAccess);
}

#[test]
fn a_flush_of_a_region_ignores_bounds() {
    assert_eq!(flush(KEY, REGION - 8, 64, 1, 1), Status::Success);
    assert_eq!(flush(KEY, 0, u32::MAX, 1, 1), Status::Success);
    assert_eq!(flush(KEY + 1, REMOTE_OFFSET, 64, 1, 1), Status::RemoteAccess);
}

#[test]
fn reserved_values_in_a_flush_are_an_invalid_request() {
    for placement in 0..16 {
        let expected = match placement {
            1..=3 => Status::Success,
            _ => Status::RemoteInvalidRequest,
        };
        assert_eq!(flush(KEY, REMOTE_OFFSET, 64, 0, placement), expected, "{placement}");
    }
    for selectivity in [2, 3] {
        assert_eq!(flush(KEY, REMOTE_OFFSET, 64, selectivity, 1), Status::RemoteInvalidRequest);
    }
}

/// The response to a forged request.
fn response_to(opcode: Opcode, reth: Reth, payload: &[u8]) -> SyndromeKind {
    let mut pair = clean(256);
    let psn = pair.hosts[1].qp.config().receive_psn;
    let extensions = ExtensionHeaders { reth: Some(reth), ..Default::default() };
    deliver(&mut pair, 1, Bth { opcode, psn, ..Bth::default() }, extensions, payload);
    pair.drain();
    syndromes(&pair)[0]
}

#[test]
fn an_atomic_write_of_another_length_or_alignment_is_an_invalid_request() {
    let reth = Reth { address: VirtualAddress(BASE + REMOTE_OFFSET), key: RKey(KEY), length: 8 };
    let invalid = SyndromeKind::Nak(NakCode::InvalidRequest);
    let write = |reth, payload: &[u8]| response_to(Opcode::RC_ATOMIC_WRITE, reth, payload);
    assert!(matches!(write(reth, &[0; 8]), SyndromeKind::Ack(_)));
    assert_eq!(write(reth, &[0; 4]), invalid);
    assert_eq!(write(Reth { length: 16, ..reth }, &[0; 8]), invalid);
    let unaligned = Reth { address: VirtualAddress(BASE + REMOTE_OFFSET + 4), ..reth };
    assert_eq!(write(unaligned, &[0; 8]), invalid);
}

#[test]
fn no_message_is_longer_than_2_gib() {
    let reth = Reth { address: VirtualAddress(0), key: RKey(KEY + 1), length: MAX_MESSAGE + 1 };
    for (opcode, payload) in
        [(Opcode::RC_RDMA_READ_REQUEST, &[][..]), (Opcode::RC_RDMA_WRITE_FIRST, &[0; 256])]
    {
        let length = SyndromeKind::Nak(NakCode::InvalidRequest);
        assert_eq!(response_to(opcode, reth, payload), length, "{opcode}");
        // With 2^31 bytes only the key is wrong.
        let reth = Reth { length: MAX_MESSAGE, ..reth };
        let key = SyndromeKind::Nak(NakCode::RemoteAccessError);
        assert_eq!(response_to(opcode, reth, payload), key, "{opcode}");
    }
}

/// Status of the receive of a refused message; no event is raised then.
fn received(pair: &Pair) -> Status {
    assert_eq!(pair.hosts[1].qp.refusal(), None, "the completion reports it");
    pair.hosts[1].received[0].status
}

#[test]
fn a_receive_completes_with_the_cause() {
    let immediate = Some(Immediate(5));
    let bad = RemoteAddress { key: RKey(KEY + 1), ..remote(REMOTE_OFFSET) };

    let mut pair = clean(256);
    pair.post_receive(1, 9, REMOTE_OFFSET, 100);
    let bad_write = Operation::Write { remote: bad, immediate };
    pair.hosts[0].qp.post_send(request(1, bad_write, 8)).unwrap();
    pair.run();
    assert_eq!(received(&pair), Status::LocalAccess);
    assert_eq!(statuses(&pair), [(1, Status::RemoteAccess)]);

    let mut pair = clean(256);
    pair.post_receive(1, 9, REMOTE_OFFSET, 100);
    pair.hosts[0].qp.post_send(request(1, Operation::SEND, 101)).unwrap();
    pair.run();
    assert_eq!(received(&pair), Status::LocalLength);

    // A WRITE in the middle of a SEND.
    let mut pair = clean(256);
    pair.post_receive(1, 9, REMOTE_OFFSET, 1000);
    pair.hosts[0].qp.post_send(request(1, Operation::SEND, 1000)).unwrap();
    pair.drain();
    pair.step();
    let psn = pair.hosts[1].qp.config().receive_psn.add(1);
    let bth = Bth { opcode: Opcode::RC_RDMA_WRITE_MIDDLE, psn, ..Bth::default() };
    deliver(&mut pair, 1, bth, ExtensionHeaders::default(), &[0; 256]);
    pair.drain();
    assert_eq!(received(&pair), Status::LocalOperation, "not a length");
}

#[test]
fn reports_a_fatal_nak_without_a_receive() {
    let bad = RemoteAddress { key: RKey(KEY + 1), ..remote(REMOTE_OFFSET) };
    let mut pair = clean(256);
    pair.hosts[0].qp.post_send(request(1, Operation::Read { remote: bad }, 8)).unwrap();
    pair.run();
    assert_eq!(pair.hosts[1].qp.refusal(), Some(NakCode::RemoteAccessError));
}

#[test]
fn packets_set_the_migration_bit() {
    let mut pair = clean(256);
    pair.post_receive(1, 9, REMOTE_OFFSET, 8);
    pair.hosts[0].qp.post_send(write(1, 600)).unwrap();
    pair.hosts[0].qp.post_send(read(2, 600)).unwrap();
    pair.hosts[0].qp.post_send(request(3, Operation::SEND, 8)).unwrap();
    let add = Operation::FetchAdd { remote: remote(REMOTE_OFFSET), add: 1 };
    pair.hosts[0].qp.post_send(request(4, add, 8)).unwrap();
    pair.marking = true;
    pair.run();
    assert_eq!(statuses(&pair).len(), 4);
    let mut notifications = 0;
    for (_, bytes) in &pair.log {
        let bth = Packet::parse(bytes).unwrap().bth;
        notifications += usize::from(bth.opcode == Opcode::CNP);
        assert_eq!(bth.migrated, bth.opcode != Opcode::CNP, "{}", bth.opcode);
    }
    assert!(notifications > 0);
}

#[test]
fn counts_requests_outside_the_psn_window() {
    let mut pair = clean(256);
    pair.hosts[0].qp.post_send(write(1, 1024)).unwrap();
    pair.hosts[0].qp.post_send(read(2, 1024)).unwrap();
    pair.run();
    let first = pair.hosts[1].qp.config().receive_psn;
    let mut counted = 0;
    let mut send = |pair: &mut Pair, psn: i32, key: u32| {
        let opcode = Opcode::RC_RDMA_READ_REQUEST;
        let reth =
            Reth { address: VirtualAddress(BASE + REMOTE_OFFSET), key: RKey(key), length: 1024 };
        let extensions = ExtensionHeaders { reth: Some(reth), ..Default::default() };
        let bth = Bth { opcode, psn: first.add(psn as u32), ..Bth::default() };
        deliver(pair, 1, bth, extensions, &[]);
        counted += pair.hosts[1].qp.take_counters().out_of_window_request;
        counted
    };
    assert_eq!(send(&mut pair, 4, KEY), 0, "a duplicate");
    assert_eq!(send(&mut pair, 9, KEY), 0, "a gap");
    assert_eq!(send(&mut pair, 4, KEY + 1), 1, "another key");
    assert_eq!(send(&mut pair, 2, KEY), 2, "a READ under the PSN of a WRITE");
    assert_eq!(send(&mut pair, -1, KEY), 3, "before the connection");
    assert_eq!(send(&mut pair, 1 << 16, KEY), 3, "far ahead");
    assert_eq!(send(&mut pair, (1 << 16) + 9, KEY), 4, "too far ahead");
}

#[test]
fn guessed_psns_cause_no_retransmission() {
    for (ahead, answers) in [(9, 1), ((1 << 16) + 9, 0), (1 << 20, 0)] {
        let mut pair = clean(256);
        pair.hosts[0].qp.post_send(write(1, 1024)).unwrap();
        pair.run();
        let bth = Bth {
            opcode: Opcode::RC_RDMA_WRITE_MIDDLE,
            psn: pair.hosts[1].qp.config().receive_psn.add(ahead),
            ..Bth::default()
        };
        let before = pair.log.len();
        deliver(&mut pair, 1, bth, ExtensionHeaders::default(), &[0; 256]);
        pair.run();
        assert_eq!(pair.log.len() - before, answers, "{ahead} ahead");
    }
}
