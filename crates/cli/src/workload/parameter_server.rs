//! `parameter-server`: data-parallel training of a model (`model`).
//!
//! Rank 0 holds the weights. In each step every worker READs them, computes the gradient of its share of the samples,
//! WRITEs it into its slot in the memory of rank 0, and signals by WRITE_WITH_IMM. Rank 0 adds the gradients in the order
//! of the ranks, updates the weights, and signals the workers. At the end it trains the same model in one process: the
//! weights and losses must be equal up to [`BOUND`].

use ferroce::clock;

use super::fault::{Fault, check};
use super::job::{Job, Traits};
use super::model::{self, WEIGHTS};
use super::node::Node;
use super::tally::Tally;

pub(super) const TRAITS: Traits = Traits {
    count: ("step", "", 200),
    size: None,
    depth: None,
    operations: "steps/s",
    latency: "a step of a worker: READ the weights, compute, WRITE the gradient",
    verified: ("weights and losses", "equal to those of training in one process"),
    delay: false,
    ranks: 4,
};

/// The largest difference to training in one process. The sums have the same order, so on hosts with the same processor
/// and C library it is 0; between others, exp and ln may round differently.
pub(super) const BOUND: f64 = 1e-9;

/// Samples, which the workers share.
const SAMPLES: usize = 2000;

/// The step that the weights belong to, and the weights.
const BLOCK: usize = 8 + WEIGHTS * 8;

/// The gradient of a worker, and its loss.
const SLOT: usize = (WEIGHTS + 1) * 8;

/// The slot of a worker in the memory of rank 0; workers have theirs at the same place, to WRITE from.
fn slot(rank: usize) -> usize {
    BLOCK + rank * SLOT
}

pub(super) fn memory(job: &Job) -> usize {
    slot(job.ranks)
}

fn store(node: &Node, offset: usize, numbers: &[f64]) -> Result<(), Fault> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    Ok(node.memory.write(offset, &bytes)?)
}

fn fetch(node: &Node, offset: usize, count: usize) -> Result<Vec<f64>, Fault> {
    let bytes = node.load(offset, count * 8)?;
    let number = |bytes: &[u8]| {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        f64::from_le_bytes(word)
    };
    Ok(bytes.chunks_exact(8).map(number).collect())
}

pub(super) fn run(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    match node.rank {
        0 => serve(node, job),
        _ => train(node, job),
    }
}

/// Rank 0.
fn serve(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    let samples = model::samples(job.seed, SAMPLES);
    let workers = node.peers();
    let (mut weights, mut losses) = (vec![0.0; WEIGHTS], Vec::new());
    for step in 0..job.count {
        // The weights of the step are in place before the signal.
        node.set_word(0, step)?;
        store(node, 8, &weights)?;
        for worker in &workers {
            node.write_imm(*worker, (0, 0, 0), step as u32)?;
        }
        let mut missing = workers.clone();
        while !missing.is_empty() {
            let (worker, signal) = node.immediate(&missing, "gradient")?;
            check(u64::from(signal) == step && missing.contains(&worker), || {
                format!("rank {worker} sent its gradient of step {signal} in step {step}")
            })?;
            missing.retain(|rank| *rank != worker);
        }
        let slots = workers.iter().map(|worker| fetch(node, slot(*worker), WEIGHTS + 1));
        let mut slots: Vec<Vec<f64>> = slots.collect::<Result<_, _>>()?;
        let loss: f64 = slots.iter().map(|slot| slot[WEIGHTS]).sum();
        losses.push(loss / samples.len() as f64);
        slots.iter_mut().for_each(|slot| slot.truncate(WEIGHTS));
        model::step(&mut weights, &slots, samples.len());
        node.tick();
    }
    node.finish_all()?;
    node.pause();
    let (alone, alone_losses) = model::train(&samples, workers.len(), job.count);
    let pairs = || weights.iter().zip(&alone).chain(losses.iter().zip(&alone_losses));
    let difference = pairs().map(|(here, there)| (here - there).abs()).fold(0.0, f64::max);
    check(difference <= BOUND, || {
        format!(
            "the weights differ by {difference:e} from those of one process, more than {BOUND:e}"
        )
    })?;
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    check(job.count < 2 || last < first, || {
        format!("the loss did not fall: it was {first} and is {last}")
    })?;
    let mut tally = Tally { operations: job.count, ..Tally::default() };
    tally.verified = pairs().count() as u64;
    tally.detail("first_loss", first);
    tally.detail("last_loss", last);
    tally.detail("difference_to_one_process", difference);
    Ok(tally)
}

/// A worker.
fn train(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    let samples = model::samples(job.seed, SAMPLES);
    let own = model::shard(&samples, node.rank - 1, node.ranks - 1);
    let mut tally = Tally::default();
    let at = slot(node.rank);
    for step in 0..job.count {
        let signal = node.immediate_from(0, "weights")?;
        check(u64::from(signal) == step, || format!("step {signal} was signalled, not {step}"))?;
        let start = clock::now();
        let read = node.read(0, 0, 0, BLOCK)?;
        node.finish(read)?;
        let found = node.word(0)?;
        check(found == step, || format!("the weights are those of step {found}, not {step}"))?;
        let weights = fetch(node, 8, WEIGHTS)?;
        let (mut gradient, loss) = model::gradient(&weights, own);
        gradient.push(loss);
        store(node, at, &gradient)?;
        // RC delivers in order: the gradient is in place when the signal arrives.
        node.write(0, at, at, SLOT)?;
        let signal = node.write_imm(0, (0, 0, 0), step as u32)?;
        node.finish(signal)?;
        tally.latencies.record(clock::now() - start);
        tally.bytes += (BLOCK + SLOT) as u64;
        node.tick();
    }
    node.finish_all()?;
    Ok(tally)
}
