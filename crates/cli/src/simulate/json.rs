//! `ferroce simulate --json`: every run and the totals in one document, written run by run. `docs/simulator.md`
//! documents the schema.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use ferroce_sim::rdma::{Posting, Simulation, Summary};
use serde::Serialize;

use super::{SimulateArgs, Totals, seeds, simulation, summary};
use crate::exit::ExitStatus;
use crate::progress::Progress;
use crate::style::Screen;

/// Name and version of the schema.
const SCHEMA: &str = "ferroce-simulate/1";

/// One seed.
#[derive(Debug, Serialize)]
struct Run<'a> {
    /// The command that repeats it.
    command: String,
    scenario: String,
    seed: u64,
    workload: Workload,
    time_ns: u64,
    events: u64,
    requests: u64,
    succeeded: u64,
    failed: BTreeMap<String, u64>,
    refused: u64,
    flushed_by_refused: u64,
    unconnected: u64,
    crashed: u64,
    bytes: u64,
    disconnected: u64,
    established: u64,
    records: u64,
    forwarded: u64,
    damaged: u64,
    frames: Frames,
    hash: String,
    violations: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    capture: Option<&'a Path>,
}

#[derive(Debug, Serialize)]
struct Workload {
    hosts: u32,
    connections: u32,
    requests: u32,
    largest: u32,
    service: String,
    set_up: String,
    congestion: String,
    /// Only if it is not the default, which it was before the option existed.
    #[serde(skip_serializing_if = "Option::is_none")]
    posting: Option<String>,
}

/// Counters of the network.
#[derive(Debug, Serialize)]
struct Frames {
    sent: u64,
    duplicated: u64,
    replicated: u64,
    delivered: u64,
    dropped: BTreeMap<String, u64>,
    in_flight: u64,
    marked: u64,
    corrupted: u64,
    reordered: u64,
}

impl<'a> Run<'a> {
    fn of(simulation: &Simulation, summary: &'a Summary, capture: Option<&'a Path>) -> Self {
        let (load, totals) = (&summary.workload, &summary.totals);
        let failed = summary.failed.iter();
        let dropped = totals.dropped.iter();
        Self {
            command: simulation.replay().to_string(),
            scenario: simulation.scenario.to_string(),
            seed: simulation.seed,
            workload: Workload {
                hosts: load.hosts,
                connections: load.connections,
                requests: load.requests,
                largest: load.largest,
                service: load.services.to_string(),
                set_up: load.set_up.to_string(),
                congestion: load.congestion.to_string(),
                posting: Some(load.posting)
                    .filter(|posting| *posting != Posting::AtOnce)
                    .map(|posting| posting.to_string()),
            },
            time_ns: u64::try_from(summary.time.as_nanos()).unwrap_or(u64::MAX),
            events: summary.events,
            requests: summary.requests,
            succeeded: summary.succeeded,
            failed: failed.map(|(status, count)| (format!("{status:?}"), *count)).collect(),
            refused: summary.refused,
            flushed_by_refused: summary.flushed_by_refused,
            unconnected: summary.unconnected,
            crashed: summary.crashed,
            bytes: summary.bytes,
            disconnected: summary.disconnected,
            established: summary.established,
            records: summary.records,
            forwarded: summary.forwarded,
            damaged: summary.damaged,
            frames: Frames {
                sent: totals.sent,
                duplicated: totals.duplicated,
                replicated: totals.replicated,
                delivered: totals.delivered,
                dropped: dropped.map(|(cause, count)| (cause.to_string(), count)).collect(),
                in_flight: totals.in_flight,
                marked: totals.marked,
                corrupted: totals.corrupted,
                reordered: totals.reordered,
            },
            hash: format!("{:016x}", summary.hash),
            violations: &summary.violations,
            capture,
        }
    }
}

/// Runs the seeds and writes the document.
pub(super) fn write(
    args: &SimulateArgs,
    screen: &Screen,
    output: &mut impl Write,
    progress: &mut Progress,
) -> io::Result<ExitStatus> {
    let mut totals = Totals::default();
    write!(output, "{{\"schema\":\"{SCHEMA}\",\"runs\":[")?;
    let mut status = ExitStatus::Success;
    for seed in seeds(args) {
        let simulation = simulation(args, seed);
        let Some(summary) = summary(&simulation, args, screen) else {
            // The document stays valid.
            status = ExitStatus::Failure;
            break;
        };
        if totals.runs > 0 {
            write!(output, ",")?;
        }
        writeln!(output)?;
        serde_json::to_writer(
            &mut *output,
            &Run::of(&simulation, &summary, args.capture.as_deref()),
        )?;
        totals.add(&summary);
        progress.show(totals.runs);
    }
    write!(output, "\n],\"totals\":")?;
    serde_json::to_writer(&mut *output, &totals)?;
    writeln!(output, "}}")?;
    Ok(status.and(totals.status()))
}
