//! Random work requests over random links: every byte arrives as posted, or the request ends in error.

use core::time::Duration;
use std::vec::Vec;

use ferroce_wire::number::{Immediate, RKey, VirtualAddress};

use super::pair::{BASE, Faults, Host, KEY, Pair, Random, sge};
use crate::rc::Fault;
use crate::work::{Data, Operation, RemoteAddress, SendRequest, SgList, Status, WorkId};

fn remote(offset: u64) -> RemoteAddress {
    RemoteAddress { address: VirtualAddress(BASE + offset), key: RKey(KEY) }
}

/// Each kind of traffic has its own part of the region, so that all contents can be checked at the end.
const SOURCE: u64 = 0;
const WRITTEN: u64 = 0x4_0000;
const READ_INTO: u64 = 0x8_0000;
const RECEIVED: u64 = 0xc_0000;
const COUNTER: u64 = 0xf_f000;
const ORIGINALS: u64 = 0xf_f100;

enum Expect {
    Written { from: u64, to: u64, length: u32 },
    Read { from: u64, to: u64, length: u32 },
    Received { from: u64, length: u32, immediate: Option<Immediate> },
    Added(u64),
}

/// Runs random requests on side 0; returns whether they ended without a fault.
fn program(seed: u64, faults: Faults) -> bool {
    program_in_runs(seed, faults, 1, false)
}

/// As [`program`], with MIDDLE packets in runs of up to `max_run`; with `whole`, all packets of a message as well.
fn program_in_runs(seed: u64, faults: Faults, max_run: u32, whole: bool) -> bool {
    program_with_memory(seed, faults, max_run, whole, 0).is_some()
}

/// As [`program_in_runs`], with memory of which so many of 1,000 accesses take time. Returns the hosts, unless there was a
/// fault.
pub(super) fn program_with_memory(
    seed: u64,
    faults: Faults,
    max_run: u32,
    whole: bool,
    pending: u64,
) -> Option<[Host; 2]> {
    let mut random = Random(seed ^ 0x5eed);
    let mtu = [256, 512, 1024, 2048, 4096][random.below(5) as usize];
    let mut pair = Pair::new(seed, faults, mtu);
    pair.max_run = max_run;
    pair.takes_whole = whole;
    for (side, host) in pair.hosts.iter_mut().enumerate() {
        host.qp.set_lossless(whole);
        let longest = [1, 20, 300, 2_000][seed as usize % 4];
        host.memory.pend(seed ^ side as u64, pending, Duration::from_micros(longest));
        host.memory.pending.reads = seed % 3 > 0;
    }
    let source = pair.hosts[0].memory.bytes.clone();
    let target = pair.hosts[1].memory.bytes.clone();
    let count = 1 + random.below(24);
    let (mut written, mut read, mut received, mut atomics) = (WRITTEN, READ_INTO, RECEIVED, 0);
    let mut expected = Vec::new();
    let mut signaled = Vec::new();
    pair.hosts[1].memory.bytes[COUNTER as usize..][..8].fill(0);
    for id in 0..count {
        let length = match random.below(4) {
            0 => random.below(4),
            1 => u64::from(mtu) * random.below(3) + random.below(3),
            _ => random.below(9000),
        } as u32;
        let from = SOURCE + random.below(0x2_0000);
        let immediate = random.chance(300).then(|| Immediate(random.next() as u32));
        let mut data = Data::SgList(split(&mut random, from, length));
        let operation = match random.below(5) {
            0 | 1 => {
                let to = written;
                written += u64::from(length);
                pair.watch_send(id, 1, to, length);
                if immediate.is_some() {
                    pair.post_receive(1, id, RECEIVED, 0);
                    expected.push(Expect::Received { from, length: 0, immediate });
                }
                expected.push(Expect::Written { from, to, length });
                Operation::Write { remote: remote(to), immediate }
            }
            2 => {
                let to = read;
                read += u64::from(length);
                pair.watch_send(id, 0, to, length);
                data = Data::SgList(split(&mut random, to, length));
                expected.push(Expect::Read { from, to, length });
                Operation::Read { remote: remote(from) }
            }
            3 => {
                pair.post_receive(1, id, received, length + random.below(3) as u32);
                received += u64::from(length) + 4;
                expected.push(Expect::Received { from, length, immediate });
                if random.chance(200) {
                    let bytes = &source[from as usize..][..length as usize];
                    data = Data::Inline(bytes.into());
                }
                Operation::Send { immediate, invalidate: None }
            }
            _ => {
                let add = random.next();
                data = Data::SgList(SgList::from(sge(ORIGINALS + 8 * atomics, 8)));
                pair.watch_send(id, 0, ORIGINALS + 8 * atomics, 8);
                atomics += 1;
                expected.push(Expect::Added(add));
                Operation::FetchAdd { remote: remote(COUNTER), add }
            }
        };
        let request = SendRequest {
            id: WorkId(id),
            operation,
            data,
            signaled: random.chance(700),
            solicited: random.chance(500),
            fence: random.chance(200),
            receive_queue: None,
        };
        if request.signaled {
            signaled.push(id);
        }
        pair.hosts[0].qp.post_send(request).unwrap();
    }
    pair.run();

    let [host, peer] = &pair.hosts;
    let ids: Vec<_> = host.sent.iter().map(|completion| completion.id.0).collect();
    if host.qp.fault().is_some() || peer.qp.fault().is_some() {
        // Completions are in order, the first error has the cause, the others are flushed.
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: {ids:?}");
        let bad = host.sent.iter().position(|one| one.status != Status::Success).unwrap();
        assert_eq!(host.sent[bad].status, Status::RetryExceeded, "seed {seed}");
        assert!(host.sent[bad + 1..].iter().all(|one| one.status == Status::Flushed));
        assert_eq!(host.sent.last().unwrap().id.0, count - 1);
        assert_eq!(host.qp.fault(), Some(Fault::Requester));
        return None;
    }
    assert_eq!(ids, signaled, "seed {seed}: one completion for each that is signaled, in order");
    assert!(host.sent.iter().all(|one| one.status == Status::Success));

    // Only the expected memory may have changed, on either side.
    let (mut ours, mut theirs) = (source.clone(), target.clone());
    let (mut sum, mut place, mut added) = (0u64, RECEIVED as usize, 0);
    let mut messages = peer.received.iter();
    for one in &expected {
        match *one {
            Expect::Written { from, to, length } => {
                theirs[to as usize..][..length as usize]
                    .copy_from_slice(&source[from as usize..][..length as usize]);
            }
            Expect::Read { from, to, length } => {
                ours[to as usize..][..length as usize]
                    .copy_from_slice(&target[from as usize..][..length as usize]);
            }
            Expect::Received { from, length, immediate } => {
                let message = messages.next().expect("a completion for each message");
                assert_eq!(message.status, Status::Success);
                assert_eq!(message.immediate, immediate, "seed {seed}");
                if message.kind == crate::work::CompletionKind::Receive {
                    assert_eq!(message.length, length, "seed {seed}");
                    theirs[place..][..length as usize]
                        .copy_from_slice(&source[from as usize..][..length as usize]);
                    place += length as usize + 4;
                }
            }
            Expect::Added(add) => {
                ours[(ORIGINALS + 8 * added) as usize..][..8].copy_from_slice(&sum.to_ne_bytes());
                sum = sum.wrapping_add(add);
                added += 1;
            }
        }
    }
    theirs[COUNTER as usize..][..8].copy_from_slice(&sum.to_ne_bytes());
    assert!(messages.next().is_none(), "seed {seed}: one completion too many");
    assert_eq!(peer.memory.atomics, added, "seed {seed}: atomics are executed exactly once");
    assert!(ours == host.memory.bytes, "seed {seed}: our memory");
    assert!(theirs == peer.memory.bytes, "seed {seed}: the peer's memory");
    let unfinished =
        [host, peer].map(|host| (host.qp.unfinished(), host.memory.pending.open.len()));
    assert_eq!(unfinished, [(0, 0); 2], "seed {seed}");
    Some(pair.hosts)
}

/// An SG list of one to four SGEs.
fn split(random: &mut Random, start: u64, length: u32) -> SgList {
    let (mut at, mut left) = (start, length);
    let mut sg_list = Vec::new();
    while left > 0 && sg_list.len() < 3 && random.chance(400) {
        let part = 1 + random.below(u64::from(left)) as u32;
        sg_list.push(sge(at, part));
        at += u64::from(part);
        left -= part;
    }
    sg_list.push(sge(at, left));
    SgList::from(&sg_list[..])
}

#[test]
fn random_programs_on_a_clean_link() {
    for seed in 0..300 {
        assert!(program(seed, Faults::default()), "seed {seed}: a fault without a cause");
    }
}

#[test]
fn random_programs_on_lossy_links() {
    let ended = (0..600)
        .filter(|&seed| program(seed, Faults { loss: 10 + seed % 100, ..Faults::default() }));
    assert!(ended.count() > 550);
}

#[test]
fn random_programs_on_duplicating_and_reordering_links() {
    for seed in 1000..1300 {
        let faults = Faults { loss: 0, duplication: seed % 200, reordering: seed % 70 };
        program(seed, faults);
    }
}

#[test]
fn random_programs_on_faulty_links() {
    let ended = (2000..2800).filter(|&seed| {
        let faults =
            Faults { loss: seed % 60, duplication: (seed / 7) % 100, reordering: (seed / 3) % 60 };
        program(seed, faults)
    });
    assert!(ended.count() > 600);
}

#[test]
fn random_programs_in_runs() {
    for seed in 3000..3300 {
        let max_run = 2 + (seed % 40) as u32;
        assert!(program_in_runs(seed, Faults::default(), max_run, seed % 2 == 0), "seed {seed}");
    }
}

/// A run is lost, repeated or delayed as one, and sent again in other runs.
#[test]
fn random_programs_in_runs_on_faulty_links() {
    let ended = (4000..4800).filter(|&seed| {
        let faults =
            Faults { loss: seed % 60, duplication: (seed / 7) % 100, reordering: (seed / 3) % 60 };
        program_in_runs(seed, faults, 2 + (seed % 40) as u32, seed % 2 == 0)
    });
    assert!(ended.count() > 600);
}
