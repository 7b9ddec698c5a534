//! `mpi`: the rhythm of a simulation code: compute, exchange, synchronise.
//!
//! Every rank has a block of cells of a ring-shaped automaton. In each iteration it computes its cells, WRITEs the whole
//! block to every other rank (an all-to-all exchange, as for a global transposition), and then takes part in a barrier that
//! is made of atomics: FETCH_ADD on a counter of rank 0, and READs of it until all ranks have added. At the end every
//! rank compares all blocks with a sequential computation.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ferroce::clock;

use super::fault::{Fault, check};
use super::job::{Job, Traits};
use super::link::Request;
use super::node::Node;
use super::random::mixed;
use super::tally::Tally;

pub(super) const TRAITS: Traits = Traits {
    count: ("iteration", "", 100),
    size: Some(("blocks", 64 << 10, 16 << 20)),
    depth: None,
    operations: "iterations/s",
    latency: "exchange and synchronisation of an iteration, without the computation",
    verified: ("cells", "equal to those of a sequential run"),
    delay: false,
    ranks: 4,
};

/// The counter of the barrier, and where its value is READ to.
const COUNTER: usize = 0;
const ORIGINAL: usize = 8;

/// How often rank 0 looks at its counter.
const LOOK: Duration = Duration::from_micros(100);

/// Cells of a block: 8 bytes each.
fn cells(job: &Job) -> usize {
    (job.size / 8).max(1)
}

/// The block of a rank. There are two of each: a fast rank may write the next while a slow one still reads this one.
fn block(job: &Job, rank: usize, iteration: u64) -> usize {
    64 + ((iteration as usize % 2) * job.ranks + rank) * cells(job) * 8
}

pub(super) fn memory(job: &Job) -> usize {
    block(job, 0, 0) + 2 * job.ranks * cells(job) * 8
}

fn initial(job: &Job) -> Vec<u64> {
    (0..job.ranks * cells(job)).map(|cell| mixed(job.seed ^ cell as u64)).collect()
}

/// The next state of the cells from `first` on: each depends on itself, its neighbours, and the cell opposite.
fn compute(all: &[u64], first: usize, count: usize) -> Vec<u64> {
    let length = all.len();
    let next = |cell: usize| {
        let (left, right) = (all[(cell + length - 1) % length], all[(cell + 1) % length]);
        let opposite = all[(cell + length / 2) % length];
        (left ^ right.rotate_left(13)).wrapping_add(all[cell]).wrapping_mul(3) ^ opposite
    };
    (first..first + count).map(next).collect()
}

pub(super) fn run(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    let mut tally = Tally::default();
    let count = cells(job);
    let mut all = initial(job);
    let (mut compute_ns, mut looks) = (0, 0_u64);
    for iteration in 0..job.count {
        let start = clock::now();
        let own = compute(&all, node.rank * count, count);
        let at = block(job, node.rank, iteration);
        let bytes: Vec<u8> = own.iter().flat_map(|cell| cell.to_le_bytes()).collect();
        node.memory.write(at, &bytes)?;
        let exchange = clock::now();
        compute_ns += exchange - start;
        for peer in node.peers() {
            node.write(peer, at, at, bytes.len())?;
        }
        // The blocks are in place everywhere before this rank adds to the counter.
        node.finish_all()?;
        looks += synchronise(node, (iteration + 1) * node.ranks as u64)?;
        tally.latencies.record(clock::now() - exchange);
        tally.bytes += (bytes.len() * node.peers().len()) as u64;
        for rank in 0..node.ranks {
            let bytes = node.load(block(job, rank, iteration), count * 8)?;
            for (cell, bytes) in all[rank * count..].iter_mut().zip(bytes.chunks_exact(8)) {
                let mut word = [0; 8];
                word.copy_from_slice(bytes);
                *cell = u64::from_le_bytes(word);
            }
        }
        node.tick();
    }
    node.pause();
    let mut wanted = initial(job);
    for _ in 0..job.count {
        wanted = compute(&wanted, 0, wanted.len());
    }
    let wrong = all.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
    check(wrong.is_none(), || {
        let cell = wrong.unwrap_or(0);
        format!("cell {cell}, of rank {}, differs from the sequential run", cell / count)
    })?;
    tally.verified = wanted.len() as u64;
    if node.rank == 0 {
        tally.operations = job.count;
    }
    tally.detail("looks_at_the_counter", looks);
    if node.rank == 0 {
        tally.detail("computation_of_rank_0_us", compute_ns as f64 / 1e3);
    }
    Ok(tally)
}

/// A barrier: returns when the counter of rank 0 is at `goal`, and how often this rank looked at it.
fn synchronise(node: &mut Node, goal: u64) -> Result<u64, Fault> {
    let end = Instant::now() + node.timeout;
    let add = Request::FetchAdd { local: ORIGINAL, remote: COUNTER, add: 1 };
    let mut value = match node.rank {
        // A rank has no connection to itself.
        0 => node.memory.words()[COUNTER / 8].fetch_add(1, Ordering::AcqRel) + 1,
        _ => node.atomic(0, add)? + 1,
    };
    let mut looks = 0;
    while value < goal {
        if Instant::now() > end {
            let (ranks, what) = (node.peers(), "addition to the counter");
            return Err(Fault::Late { ranks, what, timeout: node.timeout });
        }
        value = match node.rank {
            0 => {
                // Nothing tells a rank that a peer has changed its memory.
                node.poll(Instant::now() + LOOK)?;
                node.memory.words()[COUNTER / 8].load(Ordering::Acquire)
            }
            _ => {
                let read = node.read(0, ORIGINAL, COUNTER, 8)?;
                node.finish(read)?;
                node.word(ORIGINAL)?
            }
        };
        looks += 1;
    }
    check(value <= goal + node.ranks as u64, || format!("the counter is {value}, beyond {goal}"))?;
    Ok(looks)
}
