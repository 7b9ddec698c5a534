//! Local requests, memory windows, and requests around a failed one.

use std::vec::Vec;

use ferroce_wire::number::{LKey, Qpn, RKey, VirtualAddress};

use super::helpers::{REMOTE_OFFSET, clean, read, request, statuses, write};
use super::pair::{BASE, Faults, KEY, Pair};
use crate::memory::{AccessFlags, Accessor, Bind, Memory};
use crate::rc::Fault;
use crate::work::{
    CompletionKind, Data, Operation, RemoteAddress, SendRequest, SgList, Status, WorkId,
};

const WINDOW_KEY: u32 = 0x77_00;

fn bind(key: u32, length: u64) -> Bind {
    Bind {
        window: RKey(WINDOW_KEY),
        key: RKey(key),
        region: LKey(KEY),
        address: VirtualAddress(BASE + REMOTE_OFFSET),
        length,
        access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
    }
}

fn local(id: u64, operation: Operation) -> SendRequest {
    SendRequest::new(WorkId(id), operation, Data::NONE)
}

fn through_window(id: u64, key: u32, offset: u64, length: u32) -> SendRequest {
    let remote =
        RemoteAddress { address: VirtualAddress(BASE + REMOTE_OFFSET + offset), key: RKey(key) };
    request(id, Operation::Write { remote, immediate: None }, length)
}

/// Side 1 has a window of type 1 or 2, binds it to 100 bytes and notifies side 0, which then posts `then`.
fn bound(second: bool, then: Vec<SendRequest>) -> Pair {
    let mut pair = clean(256);
    pair.hosts[1].memory.add_window(WINDOW_KEY, second);
    pair.hosts[1].qp.post_send(local(50, Operation::Bind(bind(WINDOW_KEY + 1, 100)))).unwrap();
    pair.run();
    assert_eq!(pair.hosts[1].sent.last().map(|one| one.kind), Some(CompletionKind::Bind));
    for request in then {
        pair.hosts[0].qp.post_send(request).unwrap();
    }
    pair.run();
    pair
}

#[test]
fn a_window_exposes_its_bound_range() {
    for second in [false, true] {
        let pair = bound(second, [through_window(1, WINDOW_KEY + 1, 0, 100)].into());
        assert_eq!(statuses(&pair), [(1, Status::Success)]);
        assert_eq!(
            pair.hosts[1].memory.part(REMOTE_OFFSET, 100),
            pair.hosts[0].memory.part(0, 100)
        );
        for (key, offset) in [(WINDOW_KEY + 1, 1), (WINDOW_KEY, 0), (WINDOW_KEY + 2, 0)] {
            let pair = bound(second, [through_window(1, key, offset, 100)].into());
            assert_eq!(statuses(&pair), [(1, Status::RemoteAccess)], "key {key:x} at {offset}");
        }
    }
}

#[test]
fn a_type_2_window_belongs_to_one_qp() {
    let mut pair = bound(true, Vec::new());
    let sge = crate::memory::RemoteRange {
        key: RKey(WINDOW_KEY + 1),
        address: VirtualAddress(BASE + REMOTE_OFFSET),
        length: 8,
    };
    let by = |number| Accessor { pd: super::pair::DOMAIN, queue_pair: Qpn(number) };
    let memory = &mut pair.hosts[1].memory;
    assert!(memory.check_remote(by(0x11), sge, AccessFlags::REMOTE_WRITE).is_ok());
    assert!(memory.check_remote(by(0x12), sge, AccessFlags::REMOTE_WRITE).is_err());
    assert!(memory.invalidate(by(0x12), sge.key).is_err());
}

#[test]
fn a_peer_invalidates_a_window() {
    let key = RKey(WINDOW_KEY + 1);
    let invalidate = Operation::Send { immediate: None, invalidate: Some(key) };
    let mut pair = clean(256);
    pair.hosts[1].memory.add_window(WINDOW_KEY, true);
    pair.hosts[1].qp.post_send(local(50, Operation::Bind(bind(WINDOW_KEY + 1, 100)))).unwrap();
    pair.run();
    pair.post_receive(1, 9, REMOTE_OFFSET + 0x1000, 64);
    let requests = [
        through_window(1, WINDOW_KEY + 1, 0, 10),
        request(2, invalidate, 10),
        through_window(3, WINDOW_KEY + 1, 0, 10),
    ];
    requests.into_iter().for_each(|one| pair.hosts[0].qp.post_send(one).unwrap());
    pair.run();
    let expected = [(1, Status::Success), (2, Status::Success), (3, Status::RemoteAccess)];
    assert_eq!(statuses(&pair), expected);
    assert_eq!(pair.hosts[1].received[0].invalidated, Some(key));
}

#[test]
fn local_requests_complete_in_order_without_a_packet() {
    let mut pair = clean(256);
    pair.hosts[0].memory.add_window(WINDOW_KEY, true);
    let requests = [
        write(1, 300),
        local(2, Operation::Bind(bind(WINDOW_KEY + 1, 100))),
        write(3, 300),
        local(4, Operation::LocalInvalidate { key: RKey(WINDOW_KEY + 1) }),
        local(5, Operation::Bind(bind(WINDOW_KEY + 2, 50))),
    ];
    requests.into_iter().for_each(|one| pair.hosts[0].qp.post_send(one).unwrap());
    pair.drain();
    // Executed, and waiting for earlier requests.
    assert_eq!(pair.hosts[0].memory.windows[0].key, WINDOW_KEY + 2);
    assert_eq!(statuses(&pair), []);
    pair.run();
    assert_eq!(statuses(&pair), [1, 2, 3, 4, 5].map(|id| (id, Status::Success)));
    assert_eq!(pair.sent_packets().iter().filter(|one| one.0 == 0).count(), 4);
}

#[test]
fn a_fence_delays_a_local_request() {
    let mut pair = clean(256);
    pair.hosts[0].memory.add_window(WINDOW_KEY, true);
    pair.hosts[0].qp.post_send(read(1, 600)).unwrap();
    let fenced =
        SendRequest { fence: true, ..local(2, Operation::Bind(bind(WINDOW_KEY + 1, 100))) };
    pair.hosts[0].qp.post_send(fenced).unwrap();
    pair.drain();
    assert!(pair.hosts[0].memory.windows[0].bound.is_none());
    pair.run();
    assert!(pair.hosts[0].memory.windows[0].bound.is_some());
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn a_failed_request_flushes_only_later_ones() {
    let beyond = Data::SgList(SgList::from(super::pair::sge(super::pair::REGION, 600)));
    let denied = SendRequest { data: beyond, ..write(2, 0) };
    let unbindable = local(2, Operation::Bind(bind(WINDOW_KEY + 1, u64::MAX / 2)));
    let not_bound = local(2, Operation::LocalInvalidate { key: RKey(WINDOW_KEY) });
    for (bad, status) in [
        (denied, Status::LocalProtection),
        (unbindable, Status::Binding),
        (not_bound, Status::LocalOperation),
    ] {
        for before in [write(1, 2000), read(1, 2000)] {
            for seed in 0..20 {
                let mut pair = Pair::new(seed, Faults::of(seed), 256);
                pair.hosts[0].memory.add_window(WINDOW_KEY, true);
                for one in [before.clone(), bad.clone(), write(3, 8)] {
                    pair.hosts[0].qp.post_send(one).unwrap();
                }
                pair.run();
                let expected = [(1, Status::Success), (2, status), (3, Status::Flushed)];
                assert_eq!(statuses(&pair), expected, "seed {seed}");
                assert_eq!(pair.hosts[0].qp.fault(), Some(Fault::Requester));
            }
        }
    }
}

#[test]
fn retransmission_does_not_repeat_local_requests() {
    for seed in 0..200 {
        let mut pair = Pair::new(seed, Faults::of(seed), 256);
        pair.hosts[0].memory.add_window(WINDOW_KEY, true);
        for round in 0..6 {
            let key = WINDOW_KEY + 1 + round as u32;
            let requests = [
                write(round * 4, 900),
                // Binding a type 2 window twice would fail.
                local(round * 4 + 1, Operation::Bind(bind(key, 100))),
                read(round * 4 + 2, 900),
                local(round * 4 + 3, Operation::LocalInvalidate { key: RKey(key) }),
            ];
            requests.into_iter().for_each(|one| pair.hosts[0].qp.post_send(one).unwrap());
        }
        pair.run();
        let ended = statuses(&pair);
        let bad = ended.iter().position(|one| one.1 != Status::Success);
        assert!(
            bad.is_none_or(|at| ended[at].1 == Status::RetryExceeded),
            "seed {seed}: {ended:?}"
        );
        assert_eq!(ended.len(), 24);
    }
}
