//! Random requests over links that lose, duplicate and reorder: messages are delivered completely or not at all, in
//! order, never merged.

use core::time::Duration;
use std::vec;
use std::vec::Vec;

use ferroce_wire::number::Immediate;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;

use super::pair::{Host, Pair, remote, request};
use crate::testing::{BASE, Faults, KEY, Random, sge};
use crate::work::{Completion, CompletionKind, Data, Operation, SendRequest, SgList, Status};

const WRITTEN: u64 = 0x1_0000;
const RECEIVED: u64 = 0x2_8000;
const BUFFER_LENGTH: u32 = 2600;

struct Sent {
    bytes: Vec<u8>,
    /// Destination of a WRITE.
    to: Option<u64>,
    immediate: Option<Immediate>,
    solicited: bool,
}

impl Sent {
    fn completes(&self) -> bool {
        self.to.is_none() || self.immediate.is_some()
    }

    fn is(&self, completion: &Completion, buffer: &[u8]) -> bool {
        let kind = match self.to {
            None => CompletionKind::Receive,
            Some(_) => CompletionKind::ReceiveWriteImmediate,
        };
        self.completes()
            && completion.kind == kind
            && completion.length as usize == self.bytes.len()
            && completion.immediate == self.immediate
            && completion.solicited == self.solicited
            && (self.to.is_some() || buffer == self.bytes)
    }
}

/// Posts random messages and returns them.
fn program(pair: &mut Pair, random: &mut Random, mtu: u16) -> Vec<Sent> {
    let mut written = WRITTEN;
    let mut sent = Vec::new();
    for id in 0..1 + random.below(24) {
        let length = match random.below(4) {
            0 => random.below(4),
            1 => (u64::from(mtu) * random.below(3) + random.below(3)).min(2500),
            _ => random.below(2500),
        } as u32;
        let from = random.below(0xf000);
        let bytes = pair.from.memory.part(from, length).to_vec();
        let immediate = random.chance(600).then_some(Immediate(id as u32));
        let to = random.chance(400).then_some(written);
        let operation = match to {
            Some(to) => Operation::Write { remote: remote(to), immediate },
            None => Operation::Send { immediate, invalidate: None },
        };
        written += u64::from(length) * u64::from(to.is_some());
        let cut = random.below(u64::from(length) + 1) as u32;
        let parts = [sge(from, cut), sge(from + u64::from(cut), length - cut)];
        let data = match random.below(3) {
            0 => Data::Inline(bytes.clone().into()),
            _ => Data::SgList(SgList::from(&parts[..])),
        };
        let solicited = random.chance(300);
        pair.post(SendRequest { data, solicited, ..request(id, operation, 0, 0) });
        sent.push(Sent { bytes, to, immediate, solicited });
    }
    sent
}

/// Runs one seed; returns the number of messages with a completion, expected and actual.
fn run(seed: u64, faults: Faults, few_receives: bool) -> (usize, usize) {
    run_with_memory(seed, faults, few_receives, 0)
}

/// As [`run`], with memory of which so many of 1,000 accesses take time.
fn run_with_memory(seed: u64, faults: Faults, few_receives: bool, pending: u64) -> (usize, usize) {
    let mut random = Random(seed ^ 0x5eed);
    let mtu = [256, 512, 1024, 2048, 4096][random.below(5) as usize];
    let mut pair = Pair::new(seed, mtu);
    pair.to.memory.pend(seed, pending, Duration::ZERO);
    pair.from.memory.pend(!seed, pending, Duration::ZERO);
    pair.from.memory.pending.reads = true;
    let mut same = Pair::new(seed, mtu);
    program(&mut same, &mut Random(random.0), mtu);
    let sent = program(&mut pair, &mut random, mtu);
    let before = pair.to.memory.bytes.clone();
    let packets = pair.packets_in_time(&mut Random(seed));
    assert!(packets == same.packets(), "seed {seed}: other packets than with host memory");
    let packets = faults.apply(packets, &mut random);
    let done = pair.sent();
    assert_eq!(done, same.sent(), "seed {seed}: other completions than with host memory");
    assert_eq!(done.len(), sent.len(), "seed {seed}: all complete, whatever the link does");

    let mut posted = 0u64;
    let (mut arrived, mut rest) = (Vec::new(), &packets[..]);
    loop {
        while posted < 32 && (!few_receives || random.chance(300)) {
            let room = if few_receives {
                random.below(u64::from(BUFFER_LENGTH)) as u32
            } else {
                BUFFER_LENGTH
            };
            pair.post_receive(posted, RECEIVED + posted * u64::from(BUFFER_LENGTH), room);
            posted += 1;
        }
        while pair.open() > 0 && (rest.is_empty() || random.chance(400)) {
            let index = random.below(pair.open() as u64) as usize;
            pair.finish(index);
            arrived.extend(placed_completions(&mut pair));
        }
        let Some((next, others)) = rest.split_first() else { break };
        pair.deliver(core::slice::from_ref(next));
        rest = others;
        arrived.extend(placed_completions(&mut pair));
    }
    assert_eq!(pair.to.qp.fault(), None, "seed {seed}");

    let mut messages = sent.iter();
    for (number, completion) in arrived.iter().enumerate() {
        assert_eq!(completion.status, Status::Success, "seed {seed}");
        assert_eq!(completion.id.0, number as u64, "seed {seed}: receives are used in order");
        let place = RECEIVED + completion.id.0 * u64::from(BUFFER_LENGTH);
        let by_send = completion.kind == CompletionKind::Receive;
        let length = if by_send { completion.length } else { 0 };
        let buffer = pair.to.memory.part(place, length);
        let message = messages.find(|message| message.is(completion, buffer));
        let message = message.unwrap_or_else(|| panic!("seed {seed}: {completion:?} was not sent"));
        if let Some(to) = message.to {
            assert_eq!(pair.to.memory.part(to, completion.length), message.bytes, "seed {seed}");
        }
    }
    // Memory outside of WRITEs changed only in receive buffers, and only by sent messages.
    let mut expected = before[..RECEIVED as usize].to_vec();
    for message in &sent {
        let Some(to) = message.to.map(|to| to as usize) else { continue };
        for (index, &byte) in message.bytes.iter().enumerate() {
            let now = pair.to.memory.bytes[to + index];
            assert!(now == byte || now == expected[to + index], "seed {seed}");
            expected[to + index] = now;
        }
    }
    assert!(expected == pair.to.memory.bytes[..RECEIVED as usize], "seed {seed}: stray bytes");
    (sent.iter().filter(|one| one.completes()).count(), arrived.len())
}

/// The completions of the receiver, of which nothing is still being written.
fn placed_completions(pair: &mut Pair) -> Vec<Completion> {
    let all = pair.completions();
    for one in all.iter().filter(|one| one.kind == CompletionKind::Receive) {
        let place = RECEIVED + one.id.0 * u64::from(BUFFER_LENGTH);
        assert!(!pair.to.memory.is_open(place, BUFFER_LENGTH), "{one:?}");
    }
    all
}

/// All messages arrive that would with memory that takes no time: their packets are held, not dropped.
#[test]
fn delivers_every_message_to_slow_memory() {
    for seed in 4000..4300 {
        let (sent, arrived) = run_with_memory(seed, Faults::default(), false, 100 + seed % 900);
        assert_eq!(sent, arrived, "seed {seed}");
    }
}

#[test]
fn slow_memory_gets_messages_completely_or_not_at_all() {
    let (mut with, mut without) = (0, 0);
    for seed in 5000..5800 {
        let few = seed % 3 == 0;
        with += run_with_memory(seed, Faults::of(seed), few, 100 + seed % 900).1;
        without += run(seed, Faults::of(seed), few).1;
    }
    assert!(with > without * 9 / 10, "{with} of {without}");
}

#[test]
fn delivers_every_message_on_a_clean_link() {
    for seed in 0..300 {
        let (sent, arrived) = run(seed, Faults::default(), false);
        assert_eq!(sent, arrived, "seed {seed}");
    }
}

#[test]
fn faulty_links_deliver_messages_completely_or_not_at_all() {
    let (mut sent, mut arrived) = (0, 0);
    for seed in 1000..1800 {
        let counts = run(seed, Faults::of(seed), false);
        (sent, arrived) = (sent + counts.0, arrived + counts.1);
    }
    assert!(arrived < sent && arrived > sent / 2, "{arrived} of {sent}");
}

#[test]
fn scarce_receives_deliver_messages_completely_or_not_at_all() {
    let arrived: usize = (3000..3600).map(|seed| run(seed, Faults::of(seed), true).1).sum();
    assert!(arrived > 1000, "{arrived}");
}

#[test]
fn hostile_packets_cause_no_fault() {
    for seed in 0..600 {
        let mut random = Random(seed);
        let mut pair = Pair::new(seed, 256);
        for id in 0..8 {
            let room = random.below(1200) as u32;
            pair.post_receive(id, RECEIVED + id * 1200, room);
        }
        let before = pair.to.memory.bytes.clone();
        let (mut psn, mut completed) = (pair.to.qp.config().receive_psn, 0);
        for _ in 0..200 {
            let body = [0, 4, 16, 256, 272, 300][random.below(6) as usize];
            let mut bytes = vec![0; 12 + body + 4];
            bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
            bytes[0] = match random.below(8) {
                0 => random.next() as u8,
                _ => Opcode::UC_SEND_FIRST.0 + random.below(13) as u8,
            };
            bytes[1] &= 0xf0;
            if body >= 16 && random.chance(500) {
                // A RETH that the MR allows, with a possibly correct length.
                bytes[12..20].copy_from_slice(&(BASE + random.below(512)).to_be_bytes());
                bytes[20..24].copy_from_slice(&KEY.to_be_bytes());
                bytes[24..28].copy_from_slice(&(random.below(600) as u32).to_be_bytes());
            }
            if random.chance(900) {
                bytes[9..12].copy_from_slice(&psn.0.to_be_bytes()[1..]);
                psn = psn.add(1);
            }
            let Ok(packet) = Packet::parse(&bytes) else { continue };
            let Host { qp, receives, memory } = &mut pair.to;
            qp.handle_packet(&packet, receives, memory);
            completed += pair.completions().len();
        }
        assert!(completed <= 8 && pair.to.qp.fault().is_none(), "seed {seed}");
        let untouched = 2048..RECEIVED as usize;
        assert!(pair.to.memory.bytes[untouched.clone()] == before[untouched], "seed {seed}");
    }
}
