//! Requests with an old PSN: answered if they match an executed request, dropped otherwise.

use std::vec;
use std::vec::Vec;

use ferroce_wire::number::{Psn, RKey, VirtualAddress, Word};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::{AtomicEth, Bth, Reth};
use proptest::prelude::*;

use super::helpers::{REMOTE_OFFSET, clean, deliver, read, remote, request, statuses, write};
use super::pair::{BASE, Faults, KEY, Pair, REGION};
use crate::memory::{AccessFlags, RemoteRange};
use crate::rc::Config;
use crate::transmit::Payload;
use crate::work::{Operation, Status};

const MTU: u16 = 256;

/// A response: opcode, PSN relative to the requester's first, and the memory range it carries.
type ResponseSummary = (Opcode, i32, Option<RemoteRange>);

fn responses(pair: &mut Pair) -> Vec<ResponseSummary> {
    let first = pair.hosts[1].qp.config().receive_psn;
    let mut all = Vec::new();
    while let Some(transmit) = pair.hosts[1].poll(pair.now) {
        let range = match transmit.payload {
            Payload::Remote(range) | Payload::RemoteDuplicate(range) => Some(range),
            _ => None,
        };
        all.push((transmit.bth.opcode, transmit.bth.psn.distance(first), range));
    }
    all
}

/// Delivers a forged READ request, `psn` after the connection's first.
fn send_read(pair: &mut Pair, psn: i32, key: u32, offset: u64, length: u32) {
    let first = pair.hosts[1].qp.config().receive_psn;
    let bth = Bth {
        opcode: Opcode::RC_RDMA_READ_REQUEST,
        psn: first.add(psn as u32),
        ack_request: true,
        ..Bth::default()
    };
    let reth = Reth { address: VirtualAddress(BASE + offset), key: RKey(key), length };
    let extensions = ExtensionHeaders { reth: Some(reth), ..Default::default() };
    deliver(pair, 1, bth, extensions, &[]);
}

/// A connection on which READs of 8 packets were executed and answered.
fn after_reads(count: u64, depth: u8) -> Pair {
    let edit = |config: &mut Config| {
        config.max_rd_atomic = depth;
        config.max_dest_rd_atomic = depth;
    };
    let mut pair = Pair::with(1, Faults::default(), MTU, edit);
    for id in 0..count {
        pair.hosts[0].qp.post_send(read(id, 2000)).unwrap();
    }
    pair.run();
    assert_eq!(statuses(&pair).len() as u64, count);
    pair
}

#[test]
fn without_access_rights_no_memory_is_read() {
    let none = |config: &mut Config| config.access = AccessFlags::default();
    let mut pair = Pair::with(1, Faults::default(), MTU, none);
    for psn in [-1, -5, -0x1000, -0x70_0000, 0x90_0000] {
        send_read(&mut pair, psn, KEY, REMOTE_OFFSET, 64);
    }
    assert_eq!(responses(&mut pair), []);
    assert_eq!(pair.hosts[1].qp.fault(), None);
}

#[test]
fn duplicates_do_not_reveal_valid_rkeys() {
    let mut pair = after_reads(1, 4);
    for key in 0..0x1_0000 {
        if key != KEY {
            send_read(&mut pair, 0, key, REMOTE_OFFSET, 2000);
        }
        // A PSN without a READ, with every key.
        send_read(&mut pair, -1, key, REMOTE_OFFSET, 256);
    }
    assert_eq!(responses(&mut pair), []);
}

#[test]
fn duplicates_do_not_amplify() {
    let mut pair = after_reads(2, 4);
    for _ in 0..100 {
        // Longer than the READ, from before it, and from its middle beyond its end.
        send_read(&mut pair, 0, KEY, REMOTE_OFFSET, 4000);
        send_read(&mut pair, -4000, KEY, REMOTE_OFFSET, 0x10_0000);
        send_read(&mut pair, 4, KEY, REMOTE_OFFSET + 1024, 2000);
    }
    assert_eq!(responses(&mut pair), []);
    // The real one, repeatedly: one response until it is sent.
    for _ in 0..100 {
        send_read(&mut pair, 0, KEY, REMOTE_OFFSET, 2000);
        send_read(&mut pair, 8, KEY, REMOTE_OFFSET, 2000);
    }
    let psns: Vec<_> = responses(&mut pair).iter().map(|one| one.1).collect();
    assert_eq!(psns, (0..16).collect::<Vec<_>>());
}

#[test]
fn ignores_empty_reads_that_were_not_executed() {
    let mut pair = clean(MTU);
    send_read(&mut pair, 0, KEY, REMOTE_OFFSET, 2000);
    send_read(&mut pair, 8, KEY, REMOTE_OFFSET, 2000);
    for psn in -3..16 {
        send_read(&mut pair, psn, 0, 0, 0);
        send_read(&mut pair, psn, KEY, REMOTE_OFFSET, 0);
    }
    let psns: Vec<_> = responses(&mut pair).iter().map(|one| one.1).collect();
    assert_eq!(psns, (0..16).collect::<Vec<_>>(), "both READs, in order, and nothing else");
    assert_eq!(pair.hosts[1].qp.fault(), None);
}

#[test]
fn remembers_max_dest_rd_atomic_requests() {
    let mut pair = after_reads(5, 4);
    send_read(&mut pair, 0, KEY, REMOTE_OFFSET, 2000);
    assert_eq!(responses(&mut pair), [], "the requester has had five answers since");
    for index in 1..5 {
        send_read(&mut pair, 8 * index, KEY, REMOTE_OFFSET, 2000);
        assert_eq!(responses(&mut pair).len(), 8, "{index}");
    }
}

#[test]
fn responds_to_a_read_restarted_in_the_middle() {
    let mut pair = after_reads(1, 4);
    send_read(&mut pair, 5, KEY, REMOTE_OFFSET + 5 * 256, 2000 - 5 * 256);
    let answered = responses(&mut pair);
    assert_eq!(answered.iter().map(|one| one.1).collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(answered[0].0, Opcode::RC_RDMA_READ_RESPONSE_FIRST);
    assert_eq!(answered[2].0, Opcode::RC_RDMA_READ_RESPONSE_LAST);
    // Two packets of it, then an address that does not match the PSN.
    send_read(&mut pair, 2, KEY, REMOTE_OFFSET + 2 * 256, 512);
    assert_eq!(responses(&mut pair).iter().map(|one| one.1).collect::<Vec<_>>(), [2, 3]);
    send_read(&mut pair, 5, KEY, REMOTE_OFFSET + 4 * 256, 256);
    send_read(&mut pair, 5, KEY, REMOTE_OFFSET + 5 * 256 + 1, 256);
    assert_eq!(responses(&mut pair), []);
}

#[test]
fn a_restarted_read_precedes_later_responses() {
    let mut pair = clean(MTU);
    send_read(&mut pair, 0, KEY, REMOTE_OFFSET, 1024);
    send_read(&mut pair, 4, KEY, REMOTE_OFFSET, 512);
    let first = pair.hosts[1].qp.config().receive_psn;
    for index in 0..3 {
        let transmit = pair.hosts[1].poll(pair.now).unwrap();
        assert_eq!(transmit.bth.psn.distance(first), index);
    }
    // The second response was lost: the requester restarts there.
    send_read(&mut pair, 1, KEY, REMOTE_OFFSET + 256, 768);
    send_read(&mut pair, 4, KEY, REMOTE_OFFSET, 512);
    let psns: Vec<_> = responses(&mut pair).iter().map(|one| one.1).collect();
    assert_eq!(psns, [1, 2, 3, 4, 5]);
}

/// A requester may have sent its next READ when a reordered duplicate of the last one arrives before it.
#[test]
fn duplicates_do_not_use_read_resources() {
    for depth in [1, 4] {
        let mut pair = after_reads(u64::from(depth), depth);
        for index in 0..i32::from(depth) {
            send_read(&mut pair, 8 * index, KEY, REMOTE_OFFSET, 2000);
        }
        for index in 0..i32::from(depth) {
            send_read(&mut pair, 8 * (i32::from(depth) + index), KEY, REMOTE_OFFSET, 2000);
        }
        assert_eq!(pair.hosts[1].qp.fault(), None);
        let answered = responses(&mut pair);
        assert!(answered.iter().all(|one| one.0 != Opcode::RC_ACKNOWLEDGE), "{answered:?}");
        let new = answered.iter().filter(|one| one.1 >= 8 * i32::from(depth));
        assert_eq!(new.count(), 8 * usize::from(depth));
        // One more than allowed.
        for index in 0..=i32::from(depth) {
            send_read(&mut pair, 8 * (2 * i32::from(depth) + index), KEY, REMOTE_OFFSET, 2000);
        }
        assert_eq!(pair.hosts[1].qp.fault(), Some(crate::rc::Fault::Responder));
    }
}

/// The READ behind the WRITE may lack its response: an ACK beyond both would mean that the response was lost.
#[test]
fn acknowledges_a_duplicate_write_up_to_the_next_read() {
    let mut pair = clean(MTU);
    for post in [write(1, 512), read(2, 300), write(3, 512)] {
        pair.hosts[0].qp.post_send(post).unwrap();
    }
    pair.run();
    for (index, acknowledged) in [(0, 1), (1, 1), (4, 5), (5, 5)] {
        let first = pair.hosts[1].qp.config().receive_psn;
        let opcode = Opcode::RC_RDMA_WRITE_MIDDLE;
        let bth = Bth { opcode, psn: first.add(index), ..Bth::default() };
        deliver(&mut pair, 1, bth, Default::default(), &[0; 256]);
        assert_eq!(responses(&mut pair), [(Opcode::RC_ACKNOWLEDGE, acknowledged, None)], "{index}");
    }
}

#[test]
fn responds_to_a_duplicate_atomic_with_the_same_key_and_address_only() {
    let mut pair = clean(MTU);
    let add = Operation::FetchAdd { remote: remote(REMOTE_OFFSET), add: 1 };
    pair.hosts[0].qp.post_send(request(1, add, 8)).unwrap();
    pair.run();
    let first = pair.hosts[1].qp.config().receive_psn;
    for (opcode, key, offset, count) in [
        (Opcode::RC_FETCH_ADD, KEY, REMOTE_OFFSET, 1),
        (Opcode::RC_FETCH_ADD, KEY + 1, REMOTE_OFFSET, 0),
        (Opcode::RC_FETCH_ADD, KEY, REMOTE_OFFSET + 8, 0),
        (Opcode::RC_COMPARE_SWAP, KEY, REMOTE_OFFSET, 0),
    ] {
        let atomic = AtomicEth {
            address: VirtualAddress(BASE + offset),
            key: RKey(key),
            swap_or_add: Word(1),
            compare: Word(0),
        };
        let extensions = ExtensionHeaders { atomic: Some(atomic), ..Default::default() };
        deliver(&mut pair, 1, Bth { opcode, psn: first, ..Bth::default() }, extensions, &[]);
        assert_eq!(responses(&mut pair).len(), count, "{opcode} {key:#x} {offset:#x}");
    }
    assert_eq!(pair.hosts[1].memory.atomics, 1);
}

/// A READ request: PSN relative to the expected one; key, offset and length; whether responses are sent then.
type RequestCase = (i32, u32, u64, u32, bool);

fn request_case() -> impl Strategy<Value = RequestCase> {
    let psn = prop_oneof![4 => Just(0), 4 => -40..0, 1 => -(1 << 23)..(1 << 23)];
    let key = prop_oneof![6 => Just(KEY), 1 => any::<u32>()];
    let offset = prop_oneof![4 => (0u64..16).prop_map(|index| 256 * index), 1 => 0..REGION];
    let length = prop_oneof![4 => 0u32..2000, 1 => any::<u32>()];
    (psn, key, offset, length, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// For any PSN and key, no response carries memory that no executed READ named.
    #[test]
    fn no_response_carries_memory_outside_executed_requests(
        requests in prop::collection::vec(request_case(), 1..60),
        depth in 1u8..5,
        allowed in prop::bool::weighted(0.8),
    ) {
        let mut pair = Pair::with(1, Faults::default(), MTU, |config| {
            config.max_dest_rd_atomic = depth;
            if !allowed {
                config.access = AccessFlags::default();
            }
        });
        let mut expected = 0;
        let mut executed: Vec<(i32, RemoteRange)> = vec![];
        for (distance, key, offset, length, sends) in requests {
            let psn: Psn = Psn::new((expected + distance) as u32);
            send_read(&mut pair, expected + distance, key, offset, length);
            if pair.hosts[1].qp.fault().is_none() && distance == 0 {
                prop_assert!(allowed && length < 1 << 31, "executed at {psn}");
                let range = RemoteRange { key: RKey(key), address: VirtualAddress(BASE + offset), length };
                executed.push((expected, range));
                expected += length.div_ceil(u32::from(MTU)).max(1) as i32;
            }
            if !sends && pair.hosts[1].qp.fault().is_none() {
                continue;
            }
            let mut first_packets = 0;
            for (opcode, psn, range) in responses(&mut pair) {
                first_packets += usize::from(matches!(
                    opcode,
                    Opcode::RC_RDMA_READ_RESPONSE_FIRST | Opcode::RC_RDMA_READ_RESPONSE_ONLY
                ));
                let Some(range) = range else { continue };
                let named = executed.iter().any(|(start, whole)| {
                    let offset = u64::from(MTU) * (psn - start) as u64;
                    psn >= *start
                        && range.key == whole.key
                        && range.address.0 == whole.address.0 + offset
                        && offset + u64::from(range.length) <= u64::from(whole.length)
                });
                prop_assert!(named, "{range:?} at {psn} of {executed:?}");
            }
            prop_assert!(first_packets <= 2 * usize::from(depth), "{first_packets} answers queued");
            if pair.hosts[1].qp.fault().is_some() {
                break;
            }
        }
    }
}

#[test]
fn a_lost_response_does_not_hide_the_cause() {
    let mut pair = clean(MTU);
    pair.hosts[0].qp.post_send(read(1, 8)).unwrap();
    let bad = Operation::Write {
        remote: crate::work::RemoteAddress { key: RKey(1), ..remote(REMOTE_OFFSET) },
        immediate: None,
    };
    pair.hosts[0].qp.post_send(request(2, bad, 8)).unwrap();
    // The READ response is lost, the NAK of the WRITE is not.
    pair.lost = [2].into();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RemoteAccess), (2, Status::Flushed)]);
}
