//! `rendezvous`: all ranks meet at a barrier, epoch after epoch.
//!
//! A rank signals that it is ready by WRITE_WITH_IMM: the immediate is the epoch, and the 8 bytes of the WRITE go to the
//! rank's slot in the memory of the receiver. The epoch is complete when the signals of all other ranks have arrived. The
//! rank whose signal arrives last is the one that the others waited for.

use std::thread;
use std::time::Duration;

use ferroce::clock;

use super::fault::{Fault, check};
use super::job::{Job, Traits};
use super::node::Node;
use super::random::mixed;
use super::tally::Tally;

pub(super) const TRAITS: Traits = Traits {
    count: ("epoch", "", 2000),
    size: None,
    depth: None,
    operations: "epochs/s",
    latency: "an epoch on a rank, from its own signal to the last one of the others",
    verified: ("signals", "epoch, order and content"),
    delay: true,
    ranks: 4,
};

/// Slots of a rank: a fast rank may signal the next epoch before a slow one has looked at the signal of this one. It
/// cannot be two epochs ahead.
const PARITY: usize = 2;

/// The slot of a rank in the memory of every other; the one after the last is where signals are sent from.
fn slot(rank: usize, epoch: u64) -> usize {
    (rank * PARITY + (epoch as usize % PARITY)) * 8
}

pub(super) fn memory(job: &Job) -> usize {
    slot(job.ranks + 1, 0)
}

/// What a rank writes in an epoch.
fn content(seed: u64, rank: usize, epoch: u64) -> u64 {
    mixed(seed ^ mixed(rank as u64) ^ epoch)
}

pub(super) fn run(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    let mut tally = Tally::default();
    let mut early = Vec::new();
    let mut last_count = vec![0_u64; node.ranks];
    for epoch in 0..job.count {
        if let Some((_, time)) = job.delay.filter(|(rank, _)| *rank == node.rank) {
            thread::sleep(Duration::from_nanos(time));
        }
        let start = clock::now();
        let from = slot(node.ranks, epoch);
        node.set_word(from, content(job.seed, node.rank, epoch))?;
        let to = slot(node.rank, epoch);
        for peer in node.peers() {
            node.write_imm(peer, (from, to, 8), epoch as u32)?;
        }
        let mut missing = node.peers();
        missing.retain(|rank| !early.contains(rank));
        early.clear();
        if missing.is_empty() {
            // All others were here first.
            last_count[node.rank] += 1;
        }
        while !missing.is_empty() {
            let (peer, signal) = node.immediate(&missing, "signal")?;
            if u64::from(signal) == epoch && missing.contains(&peer) {
                missing.retain(|rank| *rank != peer);
                if missing.is_empty() {
                    last_count[peer] += 1;
                }
            } else {
                // Of the next epoch, for which this rank is not ready yet.
                check(u64::from(signal) == epoch + 1 && !early.contains(&peer), || {
                    format!("rank {peer} signalled epoch {signal} during epoch {epoch}")
                })?;
                early.push(peer);
            }
        }
        tally.latencies.record(clock::now() - start);
        for peer in node.peers() {
            let (found, wanted) = (node.word(slot(peer, epoch))?, content(job.seed, peer, epoch));
            check(found == wanted, || {
                format!("epoch {epoch}: rank {peer} wrote {found:#x} instead of {wanted:#x}")
            })?;
            tally.verified += 1;
        }
        tally.bytes += 8 * node.peers().len() as u64;
        node.tick();
    }
    node.finish_all()?;
    if node.rank == 0 {
        tally.operations = job.count;
    }
    for (rank, count) in last_count.into_iter().enumerate() {
        tally.detail(&format!("last_rank_{rank}"), count);
    }
    Ok(tally)
}
