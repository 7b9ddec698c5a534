//! The workloads, and what one of them is to do.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::allreduce;
use super::fault::Fault;
use super::inference_batching;
use super::kv;
use super::link::RECEIVES;
use super::mpi;
use super::mr_cache;
use super::node::Node;
use super::nvmeof;
use super::parameter_server;
use super::rendezvous;
use super::tally::Tally;

/// The most ranks: each has a connection to every other.
pub(super) const MAX_RANKS: usize = 64;

/// The most memory of a rank, on hosts that serve others too.
const MAX_MEMORY: usize = 1 << 30;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Barriers: every rank signals every other by WRITE_WITH_IMM
    Rendezvous,
    /// Training: workers WRITE gradients and READ the weights of a server
    ParameterServer,
    /// Requests by WRITE and WRITE_WITH_IMM, answered in batches, with credits
    InferenceBatching,
    /// The sum of a vector of every rank, by ring and by tree
    Allreduce,
    /// A key-value store: GET by READ, PUT by SEND, a lock by compare-and-swap
    Kv,
    /// Block storage: commands and status by SEND, data by READ and WRITE
    Nvmeof,
    /// Compute, exchange blocks by WRITE, synchronise by fetch-and-add
    Mpi,
    /// Registering memory for every transfer, against a cache of registrations
    MrCache,
}

/// A workload with its parameters, the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) workload: Workload,
    pub(super) ranks: usize,
    /// Operations: see [`Traits::count`].
    pub(super) count: u64,
    /// Bytes: see [`Traits::size`].
    pub(super) size: usize,
    /// See [`Traits::depth`].
    pub(super) depth: usize,
    pub(super) seed: u64,
    /// How long a rank waits for another.
    pub(super) timeout_ns: u64,
    /// A rank that is late for every operation, and by how much.
    pub(super) delay: Option<(usize, u64)>,
}

/// What the parameters of a workload mean, and their defaults. `None` where it has no such parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    /// What `--count` counts, in the singular, of whom, and its default.
    pub(super) count: (&'static str, &'static str, u64),
    /// What has `--size` bytes, the default, and the limit.
    pub(super) size: Option<(&'static str, usize, usize)>,
    /// What `--depth` limits, the default, and the maximum.
    pub(super) depth: Option<(&'static str, usize, usize)>,
    /// The column of throughput: what is counted per second.
    pub(super) operations: &'static str,
    /// What a latency is the time of.
    pub(super) latency: &'static str,
    /// What was verified, and how.
    pub(super) verified: (&'static str, &'static str),
    /// Whether `--delay` applies.
    pub(super) delay: bool,
    /// The ranks by default.
    pub(super) ranks: usize,
}

impl Workload {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(super) fn traits(self) -> Traits {
        match self {
            Self::Rendezvous => rendezvous::TRAITS,
            Self::ParameterServer => parameter_server::TRAITS,
            Self::InferenceBatching => inference_batching::TRAITS,
            Self::Allreduce => allreduce::TRAITS,
            Self::MrCache => mr_cache::TRAITS,
            Self::Mpi => mpi::TRAITS,
            Self::Nvmeof => nvmeof::TRAITS,
            Self::Kv => kv::TRAITS,
        }
    }
}

impl Job {
    /// The memory of a rank.
    pub(super) fn memory(&self) -> usize {
        let bytes = match self.workload {
            Workload::Rendezvous => rendezvous::memory(self),
            Workload::ParameterServer => parameter_server::memory(self),
            Workload::InferenceBatching => inference_batching::memory(self),
            Workload::Allreduce => allreduce::memory(self),
            Workload::MrCache => mr_cache::memory(self),
            Workload::Mpi => mpi::memory(self),
            Workload::Nvmeof => nvmeof::memory(self),
            Workload::Kv => kv::memory(self),
        };
        bytes.next_multiple_of(4096)
    }

    /// The longest SEND; 0 if there is none.
    pub(super) fn message(&self) -> usize {
        match self.workload {
            Workload::Kv => kv::message(self),
            Workload::Nvmeof => nvmeof::CAPSULE,
            _ => 0,
        }
    }

    /// Runs it on a rank.
    pub(super) fn run(&self, node: &mut Node) -> Result<Tally, Fault> {
        match self.workload {
            Workload::Rendezvous => rendezvous::run(node, self),
            Workload::ParameterServer => parameter_server::run(node, self),
            Workload::InferenceBatching => inference_batching::run(node, self),
            Workload::Allreduce => allreduce::run(node, self),
            Workload::MrCache => mr_cache::run(node, self),
            Workload::Mpi => mpi::run(node, self),
            Workload::Nvmeof => nvmeof::run(node, self),
            Workload::Kv => kv::run(node, self),
        }
    }

    /// Why it is impossible, if it is.
    pub(super) fn check(&self) -> Result<(), String> {
        let (traits, name) = (self.workload.traits(), self.workload.name());
        if !(2..=MAX_RANKS).contains(&self.ranks) {
            return Err(format!("--ranks {}: a workload has 2 to {MAX_RANKS} ranks", self.ranks));
        }
        if self.count == 0 || self.count >= 1 << 31 {
            return Err("--count must be from 1 to 2147483647".into());
        }
        let range = |option: &str, value: usize, limit: Option<(&str, usize, usize)>| match limit {
            None => Ok(()),
            Some((what, _, max)) if !(1..=max).contains(&value) => {
                Err(format!("{option} {value}: the {what} of {name} may be 1 to {max}"))
            }
            Some(_) => Ok(()),
        };
        range("--size", self.size, traits.size)?;
        range("--depth", self.depth, traits.depth)?;
        if let Some((rank, _)) = self.delay.filter(|(rank, _)| *rank >= self.ranks) {
            return Err(format!(
                "--delay: there is no rank {rank}, the last is {}",
                self.ranks - 1
            ));
        }
        let memory = self.memory() + self.ranks * RECEIVES * self.message();
        if memory > MAX_MEMORY {
            return Err(format!(
                "{name} needs {} MiB of memory for each rank, and {} MiB is the limit: choose a \
                 smaller --size, --depth or --ranks",
                memory >> 20,
                MAX_MEMORY >> 20
            ));
        }
        Ok(())
    }
}
