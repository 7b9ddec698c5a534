//! `ferroce simulate`: reliable connections over a simulated network.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use ferroce_sim::rdma::{Simulation, Summary, Workload};
use ferroce_sim::{Capture, HostId, Vantage};

use crate::args::SimulateArgs;
use crate::exit::ExitStatus;
use crate::style::Screen;

/// Runs the seeds that the arguments name.
pub(crate) fn run(args: &SimulateArgs, screen: &Screen) -> ExitStatus {
    let mut output = BufWriter::new(io::stdout().lock());
    let result = match args.seeds {
        1 => one(args, screen, &mut output),
        _ => many(args, &mut output),
    };
    ExitStatus::of_output(result.and_then(|status| output.flush().map(|()| status)), screen)
}

fn simulation(args: &SimulateArgs, seed: u64) -> Simulation {
    let SimulateArgs { connections, requests, largest, .. } = *args;
    Simulation {
        scenario: args.scenario,
        seed,
        workload: Workload { connections, requests, largest },
    }
}

fn status(summary: &Summary) -> ExitStatus {
    if summary.violations.is_empty() { ExitStatus::Success } else { ExitStatus::Failure }
}

/// One seed, told in full.
fn one(args: &SimulateArgs, screen: &Screen, output: &mut impl Write) -> io::Result<ExitStatus> {
    let simulation = simulation(args, args.seed);
    let summary = match &args.capture {
        None => simulation.run(),
        Some(path) => match captured(&simulation, path) {
            Ok(summary) => summary,
            Err(error) => {
                screen.complain(format_args!("{}: {error}", path.display()));
                return Ok(ExitStatus::Failure);
            }
        },
    };
    writeln!(output, "{}", simulation.replay())?;
    writeln!(output, "  network        {}", args.scenario.description())?;
    writeln!(output, "{summary}")?;
    if let Some(path) = &args.capture {
        let path = path.display();
        writeln!(output, "\nwritten to {path}: ferroce analyze --ladder=1 {path}")?;
    }
    Ok(status(&summary))
}

fn captured(simulation: &Simulation, path: &Path) -> Result<Summary, Box<dyn std::error::Error>> {
    let file = BufWriter::new(File::create(path)?);
    let comment = simulation.replay().to_string();
    let capture = Capture::new(file, Vantage::Host(HostId(0)), &comment)?;
    let (summary, capture) = simulation.run_traced(capture);
    capture.finish()?.flush()?;
    Ok(summary)
}

/// Many seeds: those with violations in full, and how many there were.
fn many(args: &SimulateArgs, output: &mut impl Write) -> io::Result<ExitStatus> {
    let (mut ran, mut failed, mut requests, mut succeeded) = (0u64, 0u64, 0, 0);
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let simulation = simulation(args, seed);
        let summary = simulation.run();
        ran += 1;
        requests += summary.requests;
        succeeded += summary.succeeded;
        if status(&summary) != ExitStatus::Success {
            failed += 1;
            writeln!(output, "{}\n{summary}", simulation.replay())?;
            output.flush()?;
        }
    }
    writeln!(
        output,
        "{succeeded} of {requests} work requests succeeded, the others ended in error"
    )?;
    writeln!(output, "{ran} seeds ran, {failed} failed")?;
    Ok(if failed == 0 { ExitStatus::Success } else { ExitStatus::Failure })
}
