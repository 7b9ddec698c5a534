//! Random datagrams between three hosts over links that lose, duplicate and reorder: each delivered datagram equals a
//! sent one, to the right QP with the right Q_Key.

use core::time::Duration;
use std::vec;
use std::vec::Vec;

use ferroce_wire::number::{Immediate, QKey, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;

use super::peer::{KEY, Peer, group, number, send};
use crate::testing::{Ended, Faults, Random};
use crate::ud::{AddressHandle, Envelope, SendRequest};
use crate::work::{Completion, Data, Status};

const RECEIVED: u64 = 0x1_0000;
const BUFFER_LENGTH: u32 = 600;
/// The route of multicast datagrams.
const GROUP: u8 = 9;

/// Returns the number of delivered datagrams.
fn run(seed: u64, faults: Faults) -> usize {
    run_with_memory(seed, faults, 0)
}

/// As [`run`], with memory of which so many of 1,000 accesses take time.
fn run_with_memory(seed: u64, faults: Faults, pending: u64) -> usize {
    let mut random = Random(seed ^ 0xd474);
    let mut peers = [0, 1, 2].map(|host| Peer::new(host, 512));
    peers[2].qp.attach(group(1)).unwrap();
    peers.iter_mut().for_each(|peer| peer.memory.pend(seed, pending, Duration::ZERO));
    // By immediate value: sender, destination, whether it may arrive, and its bytes.
    let mut sent = Vec::new();
    let mut packets = Vec::new();
    for (host, peer) in peers.iter_mut().enumerate() {
        peer.memory.pending.reads = true;
        let mut same = Peer::new(host as u8, 512);
        for id in 0..1 + random.below(16) {
            let to = if random.chance(200) { GROUP } else { random.below(3) as u8 };
            let length = [random.below(4), random.below(513), 512][random.below(3) as usize] as u32;
            let from = random.below(0xf000);
            let bytes = peer.memory.part(from, length).to_vec();
            let (right_key, right_number) = (!random.chance(150), !random.chance(150));
            let destination = match to {
                _ if !right_number => Qpn(0x777),
                GROUP => Qpn::MULTICAST,
                to => number(to),
            };
            let queue_key = if right_key { KEY } else { QKey(random.next() as u32 & 0xffff) };
            let request = SendRequest {
                address: AddressHandle { route: to, destination, queue_key },
                immediate: Some(Immediate(sent.len() as u32)),
                ..send(id, to, from, length)
            };
            sent.push((host as u8, to, right_key && right_number, bytes.clone()));
            let data = Data::Inline(bytes.into());
            let inline = random.chance(300);
            let request = if inline { SendRequest { data, ..request } } else { request };
            same.qp.post_send(request.clone()).unwrap();
            peer.qp.post_send(request).unwrap();
        }
        let emitted = peer.packets_in_time(&mut Random(seed));
        assert!(emitted == same.packets(), "seed {seed}: other packets than with host memory");
        assert_eq!(peer.sent(), same.sent(), "seed {seed}");
        packets.extend(emitted);
    }
    for peer in &mut peers {
        let count = random.below(40);
        (0..count).for_each(|id| {
            peer.post_receive(id, RECEIVED + id * u64::from(BUFFER_LENGTH), BUFFER_LENGTH)
        });
    }
    let mut received = [const { Vec::new() }; 3];
    for (route, bytes) in faults.apply(packets, &mut random) {
        let hosts = if route == GROUP { 0..3 } else { usize::from(route)..usize::from(route) + 1 };
        let destination = if route == GROUP { group(1) } else { Default::default() };
        for host in hosts {
            peers[host].handle(&bytes, &Envelope { destination, header: None });
            received[host].extend(placed(&mut peers[host], &mut random, false));
        }
    }
    for (received, peer) in received.iter_mut().zip(&mut peers) {
        received.extend(placed(peer, &mut random, true));
    }
    let mut delivered = 0;
    for (host, peer) in peers.iter_mut().enumerate() {
        for (number_in_order, one) in received[host].iter().enumerate() {
            assert_eq!((one.status, one.id.0), (Status::Success, number_in_order as u64));
            let (from, to, may_arrive, bytes) = &sent[one.immediate.unwrap().0 as usize];
            assert!(may_arrive, "seed {seed}: wrong key or queue pair");
            assert!(*to == host as u8 || (*to == GROUP && host == 2), "seed {seed}");
            assert_eq!(one.source, Some(number(*from)), "seed {seed}");
            assert_eq!(one.length as usize, 40 + bytes.len(), "seed {seed}");
            let place = RECEIVED + one.id.0 * u64::from(BUFFER_LENGTH) + 40;
            assert_eq!(peer.memory.part(place, bytes.len() as u32), bytes, "seed {seed}");
            delivered += 1;
        }
        assert_eq!(peer.qp.fault(), None);
    }
    delivered
}

/// Finishes some accesses to memory, or all, and returns the completions. Nothing of these is still being written.
fn placed(peer: &mut Peer, random: &mut Random, all: bool) -> Vec<Completion> {
    while peer.qp.unfinished() > 0 && (all || random.chance(300)) {
        let open = peer.memory.pending.open.len() as u64;
        let ended = peer.memory.finish(random.below(open) as usize);
        let Ended::Access(finished) = ended else { panic!("{ended:?}") };
        assert!(peer.qp.handle_finished(finished.token, finished.outcome));
    }
    let received = peer.received();
    for one in &received {
        let place = RECEIVED + one.id.0 * u64::from(BUFFER_LENGTH);
        assert!(!peer.memory.is_open(place, BUFFER_LENGTH), "{one:?}");
    }
    received
}

#[test]
fn slow_memory_completes_datagrams_in_order() {
    let delivered: usize =
        (0..600).map(|seed| run_with_memory(seed, Faults::of(seed), 100 + seed % 900)).sum();
    let expected: usize = (0..600).map(|seed| run(seed, Faults::of(seed))).sum();
    assert_eq!(delivered, expected);
}

#[test]
fn delivered_datagrams_match_sent_ones() {
    let delivered: usize = (0..600).map(|seed| run(seed, Faults::of(seed))).sum();
    assert!(delivered > 3000, "{delivered}");
}

#[test]
fn delivers_datagrams_on_a_clean_link() {
    let delivered: usize = (600..800).map(|seed| run(seed, Faults::default())).sum();
    assert!(delivered > 1000, "{delivered}");
}

#[test]
fn hostile_packets_cause_no_fault() {
    for seed in 0..600 {
        let mut random = Random(seed);
        let mut peer = Peer::new(1, 256);
        (0..8).for_each(|id| peer.post_receive(id, RECEIVED + id * 400, (id * 50) as u32));
        let before = peer.memory.bytes.clone();
        let mut completed = 0;
        for _ in 0..100 {
            let mut bytes = vec![0; 12 + random.below(400) as usize + 4];
            bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
            if random.chance(900) {
                bytes[0] = Opcode::UD_SEND_ONLY.0 + random.below(2) as u8;
                bytes[1] &= 0xf0;
                let destination = [number(1), Qpn::MULTICAST][random.below(2) as usize];
                bytes[5..8].copy_from_slice(&destination.0.to_be_bytes()[1..]);
            }
            if bytes.len() > 20 && random.chance(500) {
                bytes[12..16].copy_from_slice(&KEY.0.to_be_bytes());
            }
            let Ok(packet) = Packet::parse(&bytes) else { continue };
            let envelope = Envelope { destination: group(1), header: Some([0; 40]) };
            peer.qp.handle_packet(&packet, &envelope, &mut peer.receives, &mut peer.memory);
            completed += peer.received().len();
        }
        assert!(completed <= 8 && peer.qp.fault().is_none(), "seed {seed}");
        let end = (RECEIVED + 8 * 400) as usize;
        assert!(peer.memory.bytes[..RECEIVED as usize] == before[..RECEIVED as usize]);
        assert!(peer.memory.bytes[end..] == before[end..], "seed {seed}");
    }
}
