//! Requests with a PSN of the past: answered inside what was executed, dropped otherwise.

use std::vec;
use std::vec::Vec;

use ferroce_wire::number::{Psn, RKey, VirtualAddress, Word};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::{AtomicEth, Bth, Reth};
use proptest::prelude::*;

use super::pair::{BASE, Faults, KEY, Pair, REGION};
use super::telling::{FAR, clean, deliver, read, remote, request, statuses, write};
use crate::memory::{AccessFlags, RemoteRange};
use crate::rc::Config;
use crate::transmit::Payload;
use crate::work::{Operation, Status};

const MTU: u16 = 256;

/// An answer of the responder: opcode, PSN relative to the requester's first, and the memory it carries.
type Answered = (Opcode, i32, Option<RemoteRange>);

fn answers(pair: &mut Pair) -> Vec<Answered> {
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

/// A READ request made by hand, `psn` behind the connection's first.
fn ask(pair: &mut Pair, psn: i32, key: u32, offset: u64, length: u32) {
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
fn a_queue_pair_that_allows_nothing_gives_nothing_away() {
    let none = |config: &mut Config| config.access = AccessFlags::default();
    let mut pair = Pair::with(1, Faults::default(), MTU, none);
    for psn in [-1, -5, -0x1000, -0x70_0000, 0x90_0000] {
        ask(&mut pair, psn, KEY, FAR, 64);
    }
    assert_eq!(answers(&mut pair), []);
    assert_eq!(pair.hosts[1].qp.fault(), None);
}

#[test]
fn keys_cannot_be_tried() {
    let mut pair = after_reads(1, 4);
    for key in 0..0x1_0000 {
        if key != KEY {
            ask(&mut pair, 0, key, FAR, 2000);
        }
        // A PSN at which nothing was read, with every key.
        ask(&mut pair, -1, key, FAR, 256);
    }
    assert_eq!(answers(&mut pair), []);
}

#[test]
fn a_duplicate_is_no_amplifier() {
    let mut pair = after_reads(2, 4);
    for _ in 0..100 {
        // Longer than what was read, from before it, and from its middle beyond its end.
        ask(&mut pair, 0, KEY, FAR, 4000);
        ask(&mut pair, -4000, KEY, FAR, 0x10_0000);
        ask(&mut pair, 4, KEY, FAR + 1024, 2000);
    }
    assert_eq!(answers(&mut pair), []);
    // The real one, as often as the attacker likes: answered once until it is sent.
    for _ in 0..100 {
        ask(&mut pair, 0, KEY, FAR, 2000);
        ask(&mut pair, 8, KEY, FAR, 2000);
    }
    let psns: Vec<_> = answers(&mut pair).iter().map(|one| one.1).collect();
    assert_eq!(psns, (0..16).collect::<Vec<_>>());
}

#[test]
fn empty_reads_that_were_not_executed_disturb_nothing() {
    let mut pair = clean(MTU);
    ask(&mut pair, 0, KEY, FAR, 2000);
    ask(&mut pair, 8, KEY, FAR, 2000);
    for psn in -3..16 {
        ask(&mut pair, psn, 0, 0, 0);
        ask(&mut pair, psn, KEY, FAR, 0);
    }
    let psns: Vec<_> = answers(&mut pair).iter().map(|one| one.1).collect();
    assert_eq!(psns, (0..16).collect::<Vec<_>>(), "both READs, in order, and nothing else");
    assert_eq!(pair.hosts[1].qp.fault(), None);
}

#[test]
fn only_as_many_are_remembered_as_may_be_in_flight() {
    let mut pair = after_reads(5, 4);
    ask(&mut pair, 0, KEY, FAR, 2000);
    assert_eq!(answers(&mut pair), [], "the requester has had five answers since");
    for index in 1..5 {
        ask(&mut pair, 8 * index, KEY, FAR, 2000);
        assert_eq!(answers(&mut pair).len(), 8, "{index}");
    }
}

#[test]
fn a_read_restarts_in_the_middle() {
    let mut pair = after_reads(1, 4);
    ask(&mut pair, 5, KEY, FAR + 5 * 256, 2000 - 5 * 256);
    let answered = answers(&mut pair);
    assert_eq!(answered.iter().map(|one| one.1).collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(answered[0].0, Opcode::RC_RDMA_READ_RESPONSE_FIRST);
    assert_eq!(answered[2].0, Opcode::RC_RDMA_READ_RESPONSE_LAST);
    // Two packets of it, and then another address than that PSN had.
    ask(&mut pair, 2, KEY, FAR + 2 * 256, 512);
    assert_eq!(answers(&mut pair).iter().map(|one| one.1).collect::<Vec<_>>(), [2, 3]);
    ask(&mut pair, 5, KEY, FAR + 4 * 256, 256);
    ask(&mut pair, 5, KEY, FAR + 5 * 256 + 1, 256);
    assert_eq!(answers(&mut pair), []);
}

#[test]
fn a_restarted_read_goes_out_before_what_follows_it() {
    let mut pair = clean(MTU);
    ask(&mut pair, 0, KEY, FAR, 1024);
    ask(&mut pair, 4, KEY, FAR, 512);
    let first = pair.hosts[1].qp.config().receive_psn;
    for index in 0..3 {
        let transmit = pair.hosts[1].poll(pair.now).unwrap();
        assert_eq!(transmit.bth.psn.distance(first), index);
    }
    // The second response was lost: the requester asks from there on.
    ask(&mut pair, 1, KEY, FAR + 256, 768);
    ask(&mut pair, 4, KEY, FAR, 512);
    let psns: Vec<_> = answers(&mut pair).iter().map(|one| one.1).collect();
    assert_eq!(psns, [1, 2, 3, 4, 5]);
}

/// A requester may have sent its next READ when a duplicate of the last, overtaken on its way, arrives before it.
#[test]
fn answers_to_duplicates_take_no_room_of_other_reads() {
    for depth in [1, 4] {
        let mut pair = after_reads(u64::from(depth), depth);
        for index in 0..i32::from(depth) {
            ask(&mut pair, 8 * index, KEY, FAR, 2000);
        }
        for index in 0..i32::from(depth) {
            ask(&mut pair, 8 * (i32::from(depth) + index), KEY, FAR, 2000);
        }
        assert_eq!(pair.hosts[1].qp.fault(), None);
        let answered = answers(&mut pair);
        assert!(answered.iter().all(|one| one.0 != Opcode::RC_ACKNOWLEDGE), "{answered:?}");
        let new = answered.iter().filter(|one| one.1 >= 8 * i32::from(depth));
        assert_eq!(new.count(), 8 * usize::from(depth));
        // One more than it may have.
        for index in 0..=i32::from(depth) {
            ask(&mut pair, 8 * (2 * i32::from(depth) + index), KEY, FAR, 2000);
        }
        assert_eq!(pair.hosts[1].qp.fault(), Some(crate::rc::Fault::Responder));
    }
}

/// The READ behind the WRITE may be unanswered: an acknowledgement of what is behind both would say that its response was lost.
#[test]
fn a_duplicate_write_is_acknowledged_up_to_the_next_read() {
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
        assert_eq!(answers(&mut pair), [(Opcode::RC_ACKNOWLEDGE, acknowledged, None)], "{index}");
    }
}

#[test]
fn an_atomic_is_answered_again_for_its_own_key_and_place_only() {
    let mut pair = clean(MTU);
    let add = Operation::FetchAdd { remote: remote(FAR), add: 1 };
    pair.hosts[0].qp.post_send(request(1, add, 8)).unwrap();
    pair.run();
    let first = pair.hosts[1].qp.config().receive_psn;
    for (opcode, key, offset, count) in [
        (Opcode::RC_FETCH_ADD, KEY, FAR, 1),
        (Opcode::RC_FETCH_ADD, KEY + 1, FAR, 0),
        (Opcode::RC_FETCH_ADD, KEY, FAR + 8, 0),
        (Opcode::RC_COMPARE_SWAP, KEY, FAR, 0),
    ] {
        let atomic = AtomicEth {
            address: VirtualAddress(BASE + offset),
            key: RKey(key),
            swap_or_add: Word(1),
            compare: Word(0),
        };
        let extensions = ExtensionHeaders { atomic: Some(atomic), ..Default::default() };
        deliver(&mut pair, 1, Bth { opcode, psn: first, ..Bth::default() }, extensions, &[]);
        assert_eq!(answers(&mut pair).len(), count, "{opcode} {key:#x} {offset:#x}");
    }
    assert_eq!(pair.hosts[1].memory.atomics, 1);
}

/// A READ request: where its PSN is, from the expected one on; its key, offset and length; whether answers go out then.
type Asked = (i32, u32, u64, u32, bool);

fn asked() -> impl Strategy<Value = Asked> {
    let psn = prop_oneof![4 => Just(0), 4 => -40..0, 1 => -(1 << 23)..(1 << 23)];
    let key = prop_oneof![6 => Just(KEY), 1 => any::<u32>()];
    let offset = prop_oneof![4 => (0u64..16).prop_map(|index| 256 * index), 1 => 0..REGION];
    let length = prop_oneof![4 => 0u32..2000, 1 => any::<u32>()];
    (psn, key, offset, length, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the peer asks for under whichever PSN and key: no answer carries memory that no executed READ named.
    #[test]
    fn no_answer_carries_memory_that_no_executed_request_named(
        requests in prop::collection::vec(asked(), 1..60),
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
            ask(&mut pair, expected + distance, key, offset, length);
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
            for (opcode, psn, range) in answers(&mut pair) {
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
fn a_lost_answer_does_not_hide_the_cause() {
    let mut pair = clean(MTU);
    pair.hosts[0].qp.post_send(read(1, 8)).unwrap();
    let bad = Operation::Write {
        remote: crate::work::RemoteAddress { key: RKey(1), ..remote(FAR) },
        immediate: None,
    };
    pair.hosts[0].qp.post_send(request(2, bad, 8)).unwrap();
    // The response of the READ is lost, the NAK of the WRITE is not.
    pair.lost = [2].into();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RemoteAccess), (2, Status::Flushed)]);
}
