//! `inference-batching`: clients send requests to a server, which answers them in batches.
//!
//! A client WRITEs the payload of a request into one of its slots in the memory of the server, then signals it by
//! WRITE_WITH_IMM with the number of the request. A slot is a credit: a client that has used all of them waits, so the
//! queue of the server cannot overflow and no request is lost or refused. The server takes what has arrived, up to
//! [`BATCH`] requests, and returns each result by WRITE_WITH_IMM, which frees the slot.

use std::collections::VecDeque;

use ferroce::clock;

use super::fault::{Fault, check};
use super::job::{Job, Traits};
use super::node::Node;
use super::random::{fill, mismatch, mixed};
use super::tally::Tally;

pub(super) const TRAITS: Traits = Traits {
    count: ("request", " per client", 2000),
    size: Some(("request", 16 << 10, 16 << 20)),
    depth: Some(("credits", 8, 32)),
    operations: "requests/s",
    latency: "a request, from its WRITE to its result",
    verified: ("requests and results", "every byte, each once and in order"),
    delay: false,
    ranks: 4,
};

/// The most requests that are answered together.
const BATCH: usize = 16;

/// A slot of a client: on the server for the payload, on the client for the payload that is being sent.
fn slot(job: &Job, client: usize, index: u64) -> usize {
    (client * job.depth + index as usize % job.depth) * job.size.next_multiple_of(8)
}

/// The results of a client, in its own memory, and on the server where they are sent from.
fn result(job: &Job, client: usize, index: u64) -> usize {
    slot(job, job.ranks, 0) + (client * job.depth + index as usize % job.depth) * 8
}

pub(super) fn memory(job: &Job) -> usize {
    result(job, job.ranks, 0)
}

fn seed(job: &Job, client: usize, index: u64) -> u64 {
    mixed(job.seed ^ (client as u64) << 48 ^ index)
}

/// What the server computes from a request: a number that depends on every byte.
fn infer(payload: &[u8]) -> u64 {
    payload.iter().fold(0, |state: u64, byte| state.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

pub(super) fn run(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    match node.rank {
        0 => serve(node, job),
        _ => request(node, job),
    }
}

/// Rank 0.
fn serve(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    let mut tally = Tally::default();
    let mut queue: VecDeque<(usize, u64)> = VecDeque::new();
    let mut arrived = vec![0_u64; node.ranks];
    let total = job.count * node.peers().len() as u64;
    let (mut done, mut batches, mut longest) = (0, 0_u64, 0);
    while done < total {
        let unfinished: Vec<_> =
            node.peers().into_iter().filter(|peer| arrived[*peer] < job.count).collect();
        let mut next = match queue.is_empty() {
            true => Some(node.immediate(&unfinished, "request")?),
            false => node.try_immediate()?,
        };
        while let Some((client, number)) = next {
            let wanted = arrived[client];
            check(u64::from(number) == wanted, || {
                format!("request {number} of rank {client} arrived instead of {wanted}")
            })?;
            arrived[client] += 1;
            queue.push_back((client, wanted));
            next = node.try_immediate()?;
        }
        longest = longest.max(queue.len());
        batches += 1;
        for _ in 0..queue.len().min(BATCH) {
            let Some((client, index)) = queue.pop_front() else { break };
            let payload = node.load(slot(job, client, index), job.size)?;
            let wrong = mismatch(seed(job, client, index), &payload);
            check(wrong.is_none(), || {
                let byte = wrong.unwrap_or(0);
                format!("request {index} of rank {client}: byte {byte} of {} is wrong", job.size)
            })?;
            let at = result(job, client, index);
            node.set_word(at, infer(&payload))?;
            node.write_imm(client, (at, at, 8), index as u32)?;
            tally.verified += 1;
            done += 1;
        }
    }
    node.finish_all()?;
    tally.detail("batches", batches);
    tally.detail("mean_batch", done as f64 / batches.max(1) as f64);
    tally.detail("longest_queue", longest as u64);
    tally.detail("queue_capacity", (job.depth * node.peers().len()) as u64);
    Ok(tally)
}

/// A client.
fn request(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    let mut tally = Tally::default();
    let mut payload = vec![0; job.size];
    let mut sent = VecDeque::new();
    let (mut answered, mut blocked) = (0, 0_u64);
    for index in 0..job.count {
        if index - answered == job.depth as u64 {
            blocked += 1;
            receive(node, job, &mut answered, &mut sent, &mut tally)?;
        }
        let at = slot(job, node.rank, index);
        fill(seed(job, node.rank, index), &mut payload);
        node.memory.write(at, &payload)?;
        sent.push_back((clock::now(), infer(&payload)));
        node.write(0, at, at, job.size)?;
        // RC delivers in order: the payload is in place when the number arrives.
        node.write_imm(0, (0, 0, 0), index as u32)?;
        tally.bytes += job.size as u64;
    }
    while answered < job.count {
        receive(node, job, &mut answered, &mut sent, &mut tally)?;
    }
    node.finish_all()?;
    tally.operations = answered;
    tally.detail("waits_for_a_credit", blocked);
    Ok(tally)
}

/// Waits for the next result, which returns a credit.
fn receive(
    node: &mut Node,
    job: &Job,
    answered: &mut u64,
    sent: &mut VecDeque<(u64, u64)>,
    tally: &mut Tally,
) -> Result<(), Fault> {
    let number = u64::from(node.immediate_from(0, "result")?);
    check(number == *answered, || format!("result {number} arrived instead of {answered}"))?;
    let found = node.word(result(job, node.rank, number))?;
    if let Some((start, wanted)) = sent.pop_front() {
        tally.latencies.record(clock::now() - start);
        check(found == wanted, || format!("result {number} is {found}, not {wanted}"))?;
    }
    *answered += 1;
    tally.verified += 1;
    node.tick();
    Ok(())
}
