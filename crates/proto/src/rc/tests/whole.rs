//! Whole messages take a way of their own, which must not differ in anything that the peer or the owner sees.

use core::time::Duration;
use std::vec::Vec;

use ferroce_wire::number::Immediate;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;

use super::helpers::{REMOTE_OFFSET, remote};
use super::pair::{Faults, Host, Pair, Random, run_length, sge};
use crate::memory::Sge;
use crate::work::{Data, Operation, SendRequest, SgList, Status, WorkId};

const MTU: u16 = 256;
const RECEIVED: u64 = 0x8_0000;

fn random_request(id: u64, random: &mut Random) -> SendRequest {
    let longest = if random.chance(800) { 70 } else { 3 * u64::from(MTU) };
    let length = random.below(longest) as u32;
    let mut local: Sge = sge(random.below(0x1_0000), length);
    if random.chance(5) {
        local.key.0 ^= 1;
    }
    let two = [Sge { length: length / 2, ..local }, sge(0x2_0000, length - length / 2)];
    let data = match random.below(4) {
        0 => Data::Inline((0..length).map(|byte| byte as u8).collect::<Vec<_>>().into()),
        1 => Data::SgList(two.as_slice().into()),
        _ => Data::SgList(SgList::from(local)),
    };
    let mut to = remote(REMOTE_OFFSET + random.below(0x1_0000));
    if random.chance(3) {
        to.key.0 ^= 1;
    }
    let immediate = random.chance(100).then_some(Immediate(7));
    let operation = match random.below(10) {
        0 => Operation::Read { remote: to },
        1..=5 => Operation::Write { remote: to, immediate },
        _ => Operation::Send { immediate, invalidate: None },
    };
    let is_read = matches!(operation, Operation::Read { .. });
    SendRequest {
        id: WorkId(id),
        operation,
        data: if is_read { Data::SgList(SgList::from(sge(0x3_0000, length))) } else { data },
        signaled: random.chance(700),
        solicited: random.chance(300),
        fence: random.chance(100),
        receive_queue: None,
    }
}

/// Both sides post at random times, with too few receive requests for a while, over a link with faults.
fn run(seed: u64, faults: Faults, takes_whole: bool) -> Pair {
    let mut random = Random(seed ^ 0x51e);
    let mut pair = Pair::new(seed, faults, MTU);
    pair.takes_whole = takes_whole;
    for host in &mut pair.hosts {
        host.qp.set_lossless(true);
        host.qp.checks_each_step = !takes_whole;
    }
    for id in 0..60 {
        for side in 0..2 {
            if random.chance(600) {
                let length = if random.chance(20) { 30 } else { 3 * u32::from(MTU) };
                pair.post_receive(side, id, RECEIVED, length);
            }
            if random.chance(700) {
                pair.hosts[side].qp.post_send(random_request(id, &mut random)).unwrap();
            }
        }
        if random.chance(500) {
            pair.run_for(Duration::from_nanos(random.below(30_000)));
        }
    }
    for id in 0..200 {
        pair.post_receive((id % 2) as usize, id, RECEIVED, 3 * u32::from(MTU));
    }
    pair.run();
    pair
}

#[test]
fn the_packets_and_completions_are_the_same() {
    let mut faults_seen = [0; 2];
    let lossy = Faults { loss: 30, duplication: 20, reordering: 30 };
    for seed in 0..300 {
        let faults = if seed % 2 == 0 { Faults::default() } else { lossy };
        let [long, short] = [false, true].map(|takes_whole| run(seed, faults, takes_whole));
        assert_eq!(long.log, short.log, "seed {seed}");
        assert_eq!(long.now, short.now, "seed {seed}");
        for (long, short) in long.hosts.iter().zip(&short.hosts) {
            assert_eq!(long.sent, short.sent, "seed {seed}");
            assert_eq!(long.received, short.received, "seed {seed}");
            assert_eq!(long.memory.bytes, short.memory.bytes, "seed {seed}");
            assert_eq!(long.qp.fault(), short.qp.fault(), "seed {seed}");
            faults_seen[usize::from(short.qp.fault().is_some())] += 1;
        }
    }
    assert!(faults_seen.iter().all(|&seen| seen > 50), "both ends: {faults_seen:?}");
}

#[test]
fn only_short_messages_are_taken_and_only_where_nothing_is_lost() {
    let write = |length| super::helpers::write(1, length);
    let takes = |lossless: bool, request: SendRequest| {
        let mut pair = Pair::new(1, Faults::default(), MTU);
        let Host { qp, memory, .. } = &mut pair.hosts[0];
        qp.set_lossless(lossless);
        qp.set_max_run(3);
        qp.post_send(request).unwrap();
        qp.take_whole(pair.now, memory).map(|message| message.packets)
    };
    assert_eq!(
        [0, 256, 257, 768, 769].map(|length| takes(true, write(length))),
        [Some(1), Some(1), Some(2), Some(3), None]
    );
    assert_eq!(takes(false, write(1)), None);
    assert_eq!(takes(true, super::helpers::read(1, 8)), None);
}

/// A message whose first packets were sent before may have been executed in part.
#[test]
fn a_message_that_was_sent_before_is_sent_in_packets() {
    let mut pair = Pair::new(1, Faults::default(), MTU);
    pair.takes_whole = true;
    pair.max_run = 8;
    pair.hosts.iter_mut().for_each(|host| host.qp.set_lossless(true));
    pair.hosts[0].qp.post_send(super::helpers::write(1, 700)).unwrap();
    pair.lost = [0].into();
    while pair.sent_packets().len() < 2 {
        pair.run_for(Duration::from_micros(100));
        pair.max_run = 1;
    }
    pair.hosts[0].qp.set_max_run(1);
    pair.run();
    let requests: Vec<_> = pair.sent_packets().into_iter().filter(|packet| packet.0 == 0).collect();
    let expected = [
        (0, Opcode::RC_RDMA_WRITE_ONLY, 0),
        (0, Opcode::RC_RDMA_WRITE_FIRST, 0),
        (0, Opcode::RC_RDMA_WRITE_MIDDLE, 1),
        (0, Opcode::RC_RDMA_WRITE_LAST, 2),
    ];
    assert_eq!(requests, expected);
    assert_eq!(super::helpers::statuses(&pair), [(1, Status::Success)]);
    // It arrives late, between the packets that took its place, or when all is done: there is nothing to do.
    for executed in 1..=3 {
        let mut late = Pair::new(1, Faults::default(), MTU);
        for (_, bytes) in &pair.log[1..=executed] {
            arrive(&mut late, bytes);
        }
        let memory = late.hosts[1].memory.bytes.clone();
        let mut garbled = pair.log[0].1.clone();
        garbled[40..100].fill(0xee);
        arrive(&mut late, &garbled);
        assert!(late.hosts[1].qp.fault().is_none());
        assert_eq!(late.hosts[1].memory.bytes, memory, "{executed}");
    }
}

fn arrive(pair: &mut Pair, bytes: &[u8]) {
    let packet = Packet::parse(bytes).unwrap();
    let Host { qp, receives, memory, .. } = &mut pair.hosts[1];
    let packets = run_length(&packet, MTU);
    qp.handle_run(pair.now, &packet, packets, false, Some(receives), memory);
}

/// The receiver of a run counts its packets by its own path MTU.
#[test]
fn a_smaller_path_mtu_of_the_peer_is_named() {
    let mut pair = Pair::new(1, Faults::default(), MTU);
    (pair.takes_whole, pair.max_run) = (true, 8);
    pair.hosts.iter_mut().for_each(|host| host.qp.set_lossless(true));
    pair.hosts[1].qp.reconfigure(|config| config.mtu = MTU / 4);
    pair.hosts[0].qp.post_send(super::helpers::write(1, MTU.into())).unwrap();
    pair.run();
    let failed = &pair.hosts[0].sent[0];
    assert_eq!((failed.status, failed.vendor_error), (Status::RetryExceeded, 68));
}
