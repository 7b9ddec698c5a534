//! `allreduce`: every rank has a vector, and all of them get the sum.
//!
//! Ring: the vector is cut into one part per rank. In N-1 steps each part travels around the ring and is added to on the
//! way; in N-1 further steps the sums travel around. Each rank sends 2(N-1)/N of the vector, however many ranks there are:
//! best for long vectors. Tree: children WRITE their vector to their parent, which adds it; the sum goes back the same way,
//! in 2 log N steps: best for short vectors. Every WRITE carries an immediate, which tells the receiver that it is there.
//!
//! The elements are 64-bit integers, so the sum does not depend on the order and is compared exactly.

use std::ops::Range;

use ferroce::clock;

use super::fault::{Fault, check};
use super::job::{Job, Traits};
use super::node::Node;
use super::random::mixed;
use super::tally::Tally;
use crate::latencies::Latencies;

pub(super) const TRAITS: Traits = Traits {
    count: ("round", "", 20),
    size: Some(("vectors", 1 << 20, 64 << 20)),
    depth: None,
    operations: "allreduces/s",
    latency: "an allreduce on a rank, of any of the sizes; filling and checking the vectors is not timed",
    verified: ("elements", "equal to the sequential sum"),
    delay: false,
    ranks: 4,
};

/// The ways to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Ring,
    Tree,
}

/// The vector is at the start of the memory; behind it, scratch space for a vector per level of the tree, or for the parts
/// of all steps of the ring.
fn stride(job: &Job) -> usize {
    job.size.next_multiple_of(8)
}

/// Levels of the tree.
fn levels(ranks: usize) -> usize {
    ranks.next_power_of_two().trailing_zeros() as usize
}

pub(super) fn memory(job: &Job) -> usize {
    // The parts of the ring are rounded up by at most one element each.
    stride(job) * (1 + levels(job.ranks).max(1)) + job.ranks * 16
}

/// The sizes in bytes, from small to `--size`.
fn sizes(job: &Job) -> Vec<usize> {
    let mut sizes: Vec<_> = [256, 16, 1].map(|part| (job.size / part).max(8) / 8 * 8).into();
    sizes.dedup();
    sizes
}

/// An element of the vector of a rank.
fn element(job: &Job, rank: usize, round: u64, index: usize) -> u64 {
    mixed(job.seed ^ (rank as u64) << 56 ^ round << 32 ^ index as u64)
}

pub(super) fn run(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    let mut tally = Tally::default();
    let mut checksums = [0; 2];
    for bytes in sizes(job) {
        for (algorithm, checksum) in
            [Algorithm::Ring, Algorithm::Tree].into_iter().zip(&mut checksums)
        {
            let mut latencies = Latencies::default();
            for round in 0..job.count {
                let of = (algorithm, round, bytes);
                let sums = reduce_once(node, job, of, &mut tally, &mut latencies)?;
                *checksum = sums.into_iter().fold(*checksum, |sum, value| mixed(sum ^ value));
            }
            if node.rank == 0 {
                let name = match algorithm {
                    Algorithm::Ring => "ring",
                    Algorithm::Tree => "tree",
                };
                tally.median(&format!("p50_{name}_{bytes}_bytes_us"), &latencies);
            }
        }
    }
    node.finish_all()?;
    if node.rank == 0 {
        // Of all sums: another implementation can compare its own.
        tally.detail("checksum", format!("{:016x}", checksums[0]));
    }
    Ok(tally)
}

/// Fills the vector, reduces it, checks every element, and returns the sums. Only the reduction is timed.
fn reduce_once(
    node: &mut Node,
    job: &Job,
    (algorithm, round, bytes): (Algorithm, u64, usize),
    tally: &mut Tally,
    latencies: &mut Latencies,
) -> Result<Vec<u64>, Fault> {
    node.pause();
    let count = bytes / 8;
    let own: Vec<u64> = (0..count).map(|index| element(job, node.rank, round, index)).collect();
    store(node, 0, &own)?;
    // Without it, the time would include waiting for ranks that are still checking.
    node.barrier()?;
    node.resume();
    let start = clock::now();
    match algorithm {
        Algorithm::Ring => ring(node, job, count)?,
        Algorithm::Tree => tree(node, job, count)?,
    }
    let time = clock::now() - start;
    tally.latencies.record(time);
    latencies.record(time);
    node.pause();
    let sums = fetch(node, 0..count)?;
    for (index, found) in sums.iter().copied().enumerate() {
        let all = (0..node.ranks).map(|rank| element(job, rank, round, index));
        let wanted = all.fold(0_u64, u64::wrapping_add);
        check(found == wanted, || {
            format!(
                "{algorithm:?}, {bytes} bytes, round {round}: element {index} is {found}, not {wanted}"
            )
        })?;
    }
    tally.verified += count as u64;
    tally.bytes += bytes as u64;
    if node.rank == 0 {
        tally.operations += 1;
    }
    node.resume();
    node.tick();
    Ok(sums)
}

fn ring(node: &mut Node, job: &Job, count: usize) -> Result<(), Fault> {
    let (rank, ranks) = (node.rank, node.ranks);
    let (right, left) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let part = |index: usize| count * index / ranks..count * (index + 1) / ranks;
    let longest = count.div_ceil(ranks);
    for step in 0..ranks - 1 {
        // Each step has its own scratch space: a fast neighbour may be a step ahead.
        let scratch = stride(job) + step * longest * 8;
        let send = part((rank + ranks - step) % ranks);
        node.write_imm(right, (send.start * 8, scratch, send.len() * 8), step as u32)?;
        expect(node, left, step)?;
        let own = part((rank + ranks - step - 1) % ranks);
        add(node, own, scratch)?;
    }
    for step in 0..ranks - 1 {
        // The sums go to their place at once.
        let send = part((rank + 1 + ranks - step) % ranks);
        let at = send.start * 8;
        node.write_imm(right, (at, at, send.len() * 8), (ranks + step) as u32)?;
        expect(node, left, ranks + step)?;
    }
    node.finish_all()
}

fn tree(node: &mut Node, job: &Job, count: usize) -> Result<(), Fault> {
    let (rank, ranks) = (node.rank, node.ranks);
    let mut parent = None;
    let mut children = Vec::new();
    for level in 0..levels(ranks) {
        let distance = 1 << level;
        let scratch = stride(job) * (1 + level);
        if rank & distance != 0 {
            parent = Some(rank - distance);
            node.write_imm(rank - distance, (0, scratch, count * 8), level as u32)?;
            break;
        }
        if rank + distance < ranks {
            expect(node, rank + distance, level)?;
            add(node, 0..count, scratch)?;
            children.push(rank + distance);
        }
    }
    if let Some(parent) = parent {
        expect(node, parent, ranks)?;
    }
    for child in children.into_iter().rev() {
        node.write_imm(child, (0, 0, count * 8), ranks as u32)?;
    }
    node.finish_all()
}

/// Waits for the signal of a step.
fn expect(node: &mut Node, from: usize, step: usize) -> Result<(), Fault> {
    let found = node.immediate_from(from, "part of the vector")?;
    check(found as usize == step, || format!("rank {from} signalled step {found}, not {step}"))
}

/// Adds scratch space to a part of the vector.
fn add(node: &Node, part: Range<usize>, scratch: usize) -> Result<(), Fault> {
    let from = scratch / 8;
    let other = fetch(node, from..from + part.len())?;
    let mut own = fetch(node, part.clone())?;
    own.iter_mut().zip(other).for_each(|(own, other)| *own = own.wrapping_add(other));
    store(node, part.start * 8, &own)
}

fn store(node: &Node, offset: usize, numbers: &[u64]) -> Result<(), Fault> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    Ok(node.memory.write(offset, &bytes)?)
}

fn fetch(node: &Node, elements: Range<usize>) -> Result<Vec<u64>, Fault> {
    let bytes = node.load(elements.start * 8, elements.len() * 8)?;
    let number = |bytes: &[u8]| {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    Ok(bytes.chunks_exact(8).map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_enough_levels() {
        assert_eq!([2, 3, 4, 5, 8, 9].map(levels), [1, 2, 2, 3, 3, 4]);
    }
}
