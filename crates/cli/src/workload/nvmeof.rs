//! `nvmeof`: block storage as NVMe over Fabrics does it (NVMe/RDMA).
//!
//! Rank 0 is the target, with a namespace in memory. Every other rank is a host with a queue of `--depth` commands. A host
//! SENDs a command capsule. For a write, the target READs the data from the host's buffer; for a read, it WRITEs the data
//! there. Then it SENDs the status. The host's processor never touches the data transfer, and the target decides when it
//! happens. Each host writes patterns to its own blocks, reads them back in another order and compares every byte.

use std::collections::HashMap;

use ferroce::clock;

use super::fault::{Fault, check};
use super::job::{Job, Traits};
use super::node::{Node, Ticket};
use super::random::{Random, fill, mismatch, mixed};
use super::tally::Tally;

pub(super) const TRAITS: Traits = Traits {
    count: ("command", " per host", 2000),
    size: Some(("blocks", 4 << 10, 1 << 20)),
    depth: Some(("queue depth", 16, 32)),
    operations: "commands/s",
    latency: "a command, from its capsule to its status; half of them write, half read",
    verified: ("commands and blocks", "the status, and every byte that was read"),
    delay: false,
    ranks: 3,
};

/// Blocks of each host.
const BLOCKS: u64 = 32;

/// Bytes of a capsule: opcode, command ID, block.
pub(super) const CAPSULE: usize = 24;

const WRITE: u64 = 1;
const READ: u64 = 2;
/// The host has no more commands.
const DISCONNECT: u64 = 3;
const SUCCESS: u64 = 0;

fn stride(job: &Job) -> usize {
    job.size.next_multiple_of(8)
}

/// A block in the namespace, on the target.
fn block(job: &Job, host: usize, number: u64) -> usize {
    (host * BLOCKS as usize + number as usize) * stride(job)
}

/// The buffer of a command, on the host.
fn buffer(job: &Job, command: u64) -> usize {
    command as usize * stride(job)
}

/// Where capsules are sent from; the target has one for each command of each host.
fn capsule(job: &Job, host: usize, command: u64) -> usize {
    let data = block(job, job.ranks, 0).max(buffer(job, job.depth as u64));
    data + (host * job.depth + command as usize) * CAPSULE
}

pub(super) fn memory(job: &Job) -> usize {
    capsule(job, job.ranks, 0)
}

fn emit(node: &Node, at: usize, words: [u64; 3]) -> Result<(), Fault> {
    let place = |(index, word): (usize, u64)| node.set_word(at + index * 8, word);
    words.into_iter().enumerate().try_for_each(place)
}

fn parse(bytes: &[u8]) -> Result<[u64; 3], Fault> {
    check(bytes.len() == CAPSULE, || format!("a capsule has {} bytes", bytes.len()))?;
    let mut words = [0; 3];
    for (word, part) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut number = [0; 8];
        number.copy_from_slice(part);
        *word = u64::from_ne_bytes(number);
    }
    Ok(words)
}

pub(super) fn run(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    match node.rank {
        0 => target(node, job),
        _ => host(node, job),
    }
}

/// Rank 0.
fn target(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    let mut hosts = node.peers();
    // Commands whose data is on the way.
    let mut transfers: HashMap<Ticket, (usize, u64)> = HashMap::new();
    let (mut served, mut most) = (0_u64, 0);
    while !hosts.is_empty() {
        let done: Vec<_> = transfers.keys().copied().filter(|one| node.is_done(*one)).collect();
        for ticket in done {
            let Some((host, command)) = transfers.remove(&ticket) else { continue };
            let at = capsule(job, host, command);
            emit(node, at, [SUCCESS, command, 0])?;
            node.send(host, at, CAPSULE)?;
            served += 1;
        }
        let Some((host, bytes)) = node.try_message() else {
            node.progress(&hosts, "command")?;
            continue;
        };
        let [opcode, command, number] = parse(&bytes)?;
        check(command < job.depth as u64 && number < BLOCKS, || {
            format!("rank {host} sent a command outside its queue or its blocks")
        })?;
        let (data, at) = (buffer(job, command), block(job, host, number));
        let ticket = match opcode {
            WRITE => node.read(host, at, data, job.size)?,
            READ => node.write(host, at, data, job.size)?,
            DISCONNECT => {
                hosts.retain(|rank| *rank != host);
                continue;
            }
            other => return Err(Fault::Wrong(format!("rank {host} sent opcode {other}"))),
        };
        transfers.insert(ticket, (host, command));
        most = most.max(transfers.len());
    }
    node.finish_all()?;
    let mut tally = Tally::default();
    tally.detail("commands_served", served);
    tally.detail("most_transfers_in_flight", most as u64);
    Ok(tally)
}

/// A command in flight.
#[derive(Clone, Copy)]
struct Command {
    start: u64,
    opcode: u64,
    block: u64,
}

/// Another rank.
fn host(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    let mut tally = Tally::default();
    let mut random = Random::new(job.seed ^ node.rank as u64);
    // The seed of what each block holds.
    let mut contents: Vec<Option<u64>> = vec![None; BLOCKS as usize];
    let mut queue: Vec<Option<Command>> = vec![None; job.depth];
    let mut data = vec![0; job.size];
    let (mut sent, mut done) = (0, 0);
    while done < job.count {
        let free = queue.iter().position(Option::is_none).filter(|_| sent < job.count);
        if let Some(command) = free {
            let start = random.below(BLOCKS);
            let busy = |block: &u64| queue.iter().flatten().any(|other| other.block == *block);
            // A block has one command at a time: otherwise their order would be undefined.
            let found = (0..BLOCKS).map(|more| (start + more) % BLOCKS).find(|one| !busy(one));
            if let Some(block) = found {
                let opcode = match contents[block as usize] {
                    Some(_) if random.below(2) == 0 => READ,
                    _ => WRITE,
                };
                let at = buffer(job, command as u64);
                if opcode == WRITE {
                    let seed = mixed(job.seed ^ (node.rank as u64) << 48 ^ sent);
                    fill(seed, &mut data);
                    contents[block as usize] = Some(seed);
                } else {
                    // So that bytes of an earlier command count as wrong.
                    data.fill(0);
                }
                node.memory.write(at, &data)?;
                let from = capsule(job, node.rank, command as u64);
                emit(node, from, [opcode, command as u64, block])?;
                queue[command] = Some(Command { start: clock::now(), opcode, block });
                node.send(0, from, CAPSULE)?;
                sent += 1;
                continue;
            }
        }
        let (_, bytes) = node.message(&[0], "status")?;
        let [status, id, _] = parse(&bytes)?;
        let command = queue.get_mut(id as usize).and_then(Option::take);
        let Some(command) = command.filter(|_| status == SUCCESS) else {
            return Err(Fault::Wrong(format!("command {id} has status {status}, or was not sent")));
        };
        tally.latencies.record(clock::now() - command.start);
        if command.opcode == READ {
            let found = node.load(buffer(job, id), job.size)?;
            let wrong = contents[command.block as usize].map(|seed| mismatch(seed, &found));
            check(wrong == Some(None), || {
                format!("block {} holds something else than what was written", command.block)
            })?;
            tally.verified += 1;
        }
        tally.bytes += job.size as u64;
        tally.verified += 1;
        done += 1;
        node.tick();
    }
    let from = capsule(job, node.rank, 0);
    emit(node, from, [DISCONNECT, 0, 0])?;
    node.send(0, from, CAPSULE)?;
    node.finish_all()?;
    tally.operations = done;
    Ok(tally)
}
