//! `ferroce simulate`: connections over a simulated network.

mod ladder;

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
        _ => many(args, screen, &mut output),
    };
    ExitStatus::of_output(result.and_then(|status| output.flush().map(|()| status)), screen)
}

fn simulation(args: &SimulateArgs, seed: u64) -> Simulation {
    let workload = Workload {
        hosts: args.hosts,
        connections: args.connections,
        requests: args.requests,
        largest: args.largest,
        services: args.service,
        set_up: args.set_up,
        congestion: args.congestion,
    };
    Simulation { scenario: args.scenario, seed, workload }
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
    if status(&summary) != ExitStatus::Success {
        ladder::draw(&simulation, &summary, screen, output)?;
    }
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

/// A seed that failed: the command that runs it again, what is wrong, and the ladder of the connection it is wrong with.
fn failure(
    simulation: &Simulation,
    summary: &Summary,
    screen: &Screen,
    output: &mut impl Write,
) -> io::Result<()> {
    writeln!(output, "{}\n{summary}", simulation.replay())?;
    ladder::draw(simulation, summary, screen, output)
}

/// Many seeds: those with violations in full, and how many there were.
fn many(args: &SimulateArgs, screen: &Screen, output: &mut impl Write) -> io::Result<ExitStatus> {
    let (mut ran, mut failed, mut requests, mut succeeded) = (0u64, 0u64, 0, 0);
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let simulation = simulation(args, seed);
        let summary = simulation.run();
        ran += 1;
        requests += summary.requests;
        succeeded += summary.succeeded;
        if status(&summary) != ExitStatus::Success {
            failed += 1;
            failure(&simulation, &summary, screen, output)?;
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

#[cfg(test)]
mod tests {
    use ferroce_sim::Scenario;

    use super::*;
    use crate::style::ColorChoice;

    /// No seed is known to fail, so one that did not is said to have.
    #[test]
    fn a_failure_comes_with_its_command_and_its_ladder() {
        let services = "rc".parse().unwrap();
        let workload = Workload { hosts: 3, services, ..Workload::default() };
        let simulation = Simulation { scenario: Scenario::lossy(0.02), seed: 7, workload };
        let mut summary = simulation.run();
        summary.violations.push("connection 2: it is only said to be wrong".to_owned());
        (summary.suspects, summary.suspect_pairs) = simulation.connection(2);
        let mut output = Vec::new();
        failure(&simulation, &summary, &Screen::new(ColorChoice::Never), &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        let command = "ferroce simulate --scenario lossy:0.02 --seed 7 --hosts 3 --service rc\n";
        assert!(text.starts_with(command), "{text}");
        assert!(text.contains("violations     1\n    connection 2: it is only said"), "{text}");
        let pair = format!("0x{:06x}", summary.suspect_pairs[0].0);
        let ladder = text.split("\n\n").nth(1).unwrap();
        assert!(ladder.contains(&pair), "{text}");
        assert!((10..120).contains(&ladder.lines().count()), "{text}");
        assert!(ladder.contains("RC"), "{text}");
    }
}
