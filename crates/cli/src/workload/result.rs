//! The result of a workload.

use std::path::PathBuf;

use serde::Serialize;

use super::job::{Job, Workload};
use super::method::Method;
use super::tally::Totals;

/// The result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) workload: Workload,
    pub(super) ranks: usize,
    pub(super) count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) depth: Option<usize>,
    pub(super) seed: u64,
    pub(super) methods: Vec<MethodResult>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) captures: Vec<PathBuf>,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MethodResult {
    pub(super) method: Method,
    #[serde(flatten)]
    pub(super) totals: Totals,
}

impl Outcome {
    pub(super) fn new(job: &Job) -> Self {
        let traits = job.workload.traits();
        Self {
            workload: job.workload,
            ranks: job.ranks,
            count: job.count,
            size: traits.size.map(|_| job.size),
            depth: traits.depth.map(|_| job.depth),
            seed: job.seed,
            methods: Vec::new(),
            captures: Vec::new(),
        }
    }
}
