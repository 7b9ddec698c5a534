//! `mr-cache`: what registering memory costs, and what a cache of registrations saves.
//!
//! A client transfers buffers by WRITE, some of them often and others rarely. First it registers the buffer before each
//! transfer and deregisters it afterwards; then it keeps up to `--depth` registrations and drops the one that was not used
//! for longest, as MPI libraries and UCX do. TCP needs no registration and does the same transfers twice.

use std::collections::VecDeque;
use std::sync::Arc;

use ferroce::{AccessFlags, MemoryRegion, VirtualAddress, clock};

use super::fault::{Fault, check};
use super::job::{Job, Traits};
use super::node::Node;
use super::random::{Random, fill, mixed};
use super::tally::Tally;
use crate::latencies::Latencies;

pub(super) const TRAITS: Traits = Traits {
    count: ("transfer", " per client and phase", 2000),
    size: Some(("buffers", 64 << 10, 4 << 20)),
    depth: Some(("cache entries", 16, BUFFERS as usize)),
    operations: "transfers/s",
    latency: "a transfer of either phase: registration, WRITE, deregistration",
    verified: ("buffers", "every byte in the memory of rank 0"),
    delay: false,
    ranks: 2,
};

/// Buffers of a client.
const BUFFERS: u64 = 64;

/// Registering each time, and with a cache.
const PHASES: u64 = 2;

fn stride(job: &Job) -> usize {
    job.size.next_multiple_of(8)
}

/// The buffer of a client, and its place in the memory of rank 0.
fn buffer(job: &Job, client: usize, index: u64) -> usize {
    (client * BUFFERS as usize + index as usize) * stride(job)
}

pub(super) fn memory(job: &Job) -> usize {
    buffer(job, job.ranks, 0)
}

/// The buffers that a client transfers, in this order: those with low numbers are chosen more often.
fn sequence(job: &Job, client: usize) -> impl Iterator<Item = (u64, u64)> {
    let mut random = Random::new(job.seed ^ client as u64);
    let (seed, count) = (job.seed, job.count * PHASES);
    (0..count).map(move |transfer| {
        let limit = random.below(BUFFERS) + 1;
        (random.below(limit), mixed(seed ^ (client as u64) << 48 ^ transfer))
    })
}

pub(super) fn run(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    match node.rank {
        0 => receive(node, job),
        _ => transfer(node, job),
    }
}

/// Rank 0: checks what is in its memory when a client has finished.
fn receive(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    let mut clients = node.peers();
    let mut tally = Tally::default();
    while !clients.is_empty() {
        let (client, _) = node.immediate(&clients, "last transfer")?;
        clients.retain(|rank| *rank != client);
        node.pause();
        let mut last = vec![None; BUFFERS as usize];
        sequence(job, client).for_each(|(index, seed)| last[index as usize] = Some(seed));
        for (index, seed) in last.into_iter().enumerate() {
            let Some(seed) = seed else { continue };
            let found = node.load(buffer(job, client, index as u64), job.size)?;
            let mut wanted = vec![0; job.size.max(8)];
            fill(index as u64, &mut wanted);
            wanted[..8].copy_from_slice(&seed.to_ne_bytes());
            let wrong = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
            check(wrong.is_none(), || {
                let byte = wrong.unwrap_or(0);
                format!("buffer {index} of rank {client}: byte {byte} of {} is wrong", job.size)
            })?;
            tally.verified += 1;
        }
        node.resume();
    }
    Ok(tally)
}

/// Registrations, the most recently used last.
struct Cache {
    capacity: usize,
    entries: VecDeque<(usize, MemoryRegion)>,
    hits: u64,
    registrations: Latencies,
}

impl Cache {
    /// The registration of a buffer; `None` over TCP.
    fn get(
        &mut self,
        node: &Node,
        at: usize,
        length: usize,
    ) -> Result<Option<&MemoryRegion>, Fault> {
        let Some(pd) = node.pd() else { return Ok(None) };
        let known = self.entries.iter().position(|(place, _)| *place == at);
        let entry = match known.and_then(|index| self.entries.remove(index)) {
            Some(entry) => {
                self.hits += 1;
                entry
            }
            None => {
                let start = clock::now();
                let buffer = Arc::clone(&node.memory);
                let address = VirtualAddress((buffer.address() + at) as u64);
                let access = AccessFlags::LOCAL_WRITE;
                let region = pd.register_part(&buffer, at, length, address, access)?;
                self.registrations.record(clock::now() - start);
                if self.entries.len() >= self.capacity.max(1) {
                    self.entries.pop_front();
                }
                (at, region)
            }
        };
        self.entries.push_back(entry);
        Ok(self.entries.back().map(|(_, region)| region))
    }
}

/// A client.
fn transfer(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    let mut tally = Tally::default();
    node.pause();
    let mut data = vec![0; job.size];
    for index in 0..BUFFERS {
        fill(index, &mut data);
        node.memory.write(buffer(job, node.rank, index), &data)?;
    }
    node.resume();
    let mut sequence = sequence(job, node.rank);
    let names = ["without_cache", "with_cache"];
    for (phase, capacity) in [0, job.depth].into_iter().enumerate() {
        let (entries, registrations) = (VecDeque::new(), Latencies::default());
        let mut cache = Cache { capacity, entries, hits: 0, registrations };
        let mut latencies = Latencies::default();
        for (index, seed) in sequence.by_ref().take(job.count as usize) {
            let at = buffer(job, node.rank, index);
            // The rest of the buffer stays as it is: filling all of it would take longer than the transfer.
            node.set_word(at, seed)?;
            let start = clock::now();
            let lkey = cache.get(node, at, job.size)?.map(MemoryRegion::lkey);
            let write = node.write_from(0, (at, lkey), at, job.size)?;
            node.finish(write)?;
            if capacity == 0 {
                cache.entries.clear();
            }
            let time = clock::now() - start;
            latencies.record(time);
            tally.latencies.record(time);
            tally.bytes += job.size as u64;
            tally.operations += 1;
            node.tick();
        }
        tally.median(&format!("p50_{}_us", names[phase]), &latencies);
        let registrations = cache.registrations.summary();
        tally.detail(&format!("registrations_{}", names[phase]), registrations.samples);
        if phase == 0 && registrations.samples > 0 {
            tally.median("p50_registration_us", &cache.registrations);
        }
        if phase > 0 {
            tally.detail("cache_hits", cache.hits);
        }
    }
    let last = node.write_imm(0, (0, 0, 0), 0)?;
    node.finish(last)?;
    Ok(tally)
}
