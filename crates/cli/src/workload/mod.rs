//! `ferroce workload`: what RDMA is used for, in small programs that verify their results, and the same work over TCP.
//!
//! | file | role |
//! |---|---|
//! | `rendezvous` and others of their names | one workload each |
//! | `job` | the list of workloads, and their parameters |
//! | `node` | a rank as a workload sees it |
//! | `link` | the connections between ranks: RDMA and TCP |
//! | `rank` | the process of a rank |
//! | `launch`, `process`, `control` | the command: starts ranks, and notices those that end |
//! | `tally`, `method`, `result`, `output` | the figures |

mod allreduce;
mod args;
mod control;
mod fault;
mod inference_batching;
mod job;
mod kv;
mod launch;
mod link;
mod method;
mod model;
mod mpi;
mod mr_cache;
mod node;
mod nvmeof;
mod output;
mod parameter_server;
mod process;
mod random;
mod rank;
mod rendezvous;
mod result;
mod tally;

use std::path::Path;

use ferroce::{Local, Options};

use crate::exit::ExitStatus;
use crate::progress::{Progress, Unit};
use crate::session::failure::Failure;
use crate::style::Screen;
pub(crate) use args::{EXAMPLES, WorkloadArgs};
use job::Workload;
use launch::Launch;
use method::Method;
use result::{MethodResult, Outcome};
use tally::Totals;

/// Runs a workload by all methods and reports, or serves as a rank.
pub(crate) fn run(args: &WorkloadArgs, screen: &Screen) -> ExitStatus {
    let Some(workload) = args.workload else { return rank::run() };
    match measure(workload, args, screen) {
        Ok(outcome) if args.json => crate::devices::json(&outcome, screen),
        Ok(outcome) => output::write(&outcome, screen),
        Err(failure) => {
            screen.complain(failure);
            ExitStatus::Failure
        }
    }
}

fn measure(workload: Workload, args: &WorkloadArgs, screen: &Screen) -> Result<Outcome, Failure> {
    let job = args.job(workload)?;
    if let Some(capture) = &args.capture {
        check_folder(capture)?;
    }
    let mut outcome = Outcome::new(&job);
    let mut progress = Progress::new("", None, Unit::Count, args.quiet);
    let mut launch = Launch {
        job: &job,
        address: args.address,
        method: Method::Tcp,
        capture: None,
        verbose: args.verbose,
        screen,
    };
    for method in methods(args)? {
        progress.rename(&format!("{}: {}", workload.name(), method.title()));
        launch.method = method;
        if let Some(ranks) = launch.run(&mut progress)? {
            outcome.methods.push(MethodResult { method, totals: Totals::new(&ranks) });
        }
    }
    if let Some(capture) = &args.capture {
        // After the measurement, which a capture would slow down.
        progress.rename(&format!("{}: capture", workload.name()));
        launch.method = Method::RdmaWire;
        launch.capture = Some(capture);
        launch.run(&mut progress)?;
        let ranks = 0..job.ranks;
        outcome.captures = ranks.filter_map(|rank| launch::capture_of(capture, rank)).collect();
    }
    progress.erase();
    Ok(outcome)
}

/// The rows.
fn methods(args: &WorkloadArgs) -> Result<Vec<Method>, Failure> {
    if !args.method.is_empty() {
        return Ok(args.method.clone());
    }
    let sockets = Options::from_env()?.local == Local::Sockets;
    let shared = (!sockets).then_some(Method::RdmaSharedMemory);
    Ok(shared.into_iter().chain([Method::RdmaWire, Method::Tcp]).collect())
}

/// A file that cannot be written is better noticed before the measurement.
fn check_folder(file: &Path) -> Result<(), Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => Err(Failure::Other(format!(
            "cannot write {}: {} is not a directory",
            file.display(),
            folder.display()
        ))),
        _ => Ok(()),
    }
}
