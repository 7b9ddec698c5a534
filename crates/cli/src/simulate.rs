//! `ferroce simulate`: RDMA connections over a simulated network, and traffic patterns (`pattern`).

mod json;
mod ladder;
mod pattern;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use ferroce_sim::rdma::{Congestion, Posting, Services, SetUp, Simulation, Summary, Workload};
use ferroce_sim::{Capture, HostId, Scenario, Vantage};
use ferroce_trace::render::units;

use crate::capture::Pending;
use crate::exit::ExitStatus;
use crate::progress::{Progress, Unit};
use crate::style::Screen;

/// Arguments of `ferroce simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// The network; the scenarios are listed below
    #[arg(long, value_name = "NAME", default_value = "hostile")]
    pub(crate) scenario: Scenario,

    /// Seed of all random choices; with --seeds, the first seed [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Number of consecutive seeds to run
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) seeds: u64,

    /// Number of hosts [default: 2; with --pattern, 9]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub(crate) hosts: Option<u32>,

    /// Number of connections, each between two hosts; a group of UD queue pairs counts as one
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) connections: u32,

    /// Work requests per connection and sending direction
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) requests: u32,

    /// Size of the largest message in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 9_000, value_parser = clap::value_parser!(u32).range(8..=1_048_576))]
    pub(crate) largest: u32,

    /// Transport services to draw connections from: rc, uc, ud, xrc, separated by commas
    #[arg(long, value_name = "LIST", default_value_t = Services::ALL)]
    pub(crate) service: Services,

    /// How connections are established: direct, cm (connection manager) or exchange (set-up exchange)
    #[arg(long, value_name = "HOW", default_value_t = SetUp::Direct)]
    pub(crate) set_up: SetUp,

    /// Congestion control of reliable connections: window, dcqcn or none [default: window; with --pattern, dcqcn]
    #[arg(long, value_name = "KIND")]
    pub(crate) congestion: Option<Congestion>,

    /// When requests are posted: at-once, or lists (a few at a time; some are held back and leave with later ones)
    #[arg(long, value_name = "HOW", default_value_t = Posting::AtOnce)]
    pub(crate) posting: Posting,

    /// Write the packets of the first host, or of --capture-link, to a pcapng file; for one seed only
    #[arg(long, value_name = "FILE", conflicts_with = "seeds", value_hint = ValueHint::FilePath)]
    pub(crate) capture: Option<PathBuf>,

    /// Write JSON: every run, and the totals; with --pattern, the results
    #[arg(long)]
    pub(crate) json: bool,

    /// Do not show a progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) pattern: pattern::PatternArgs,
}

/// Runs the seeds that the arguments name.
pub(crate) fn run(args: &SimulateArgs, screen: &Screen) -> ExitStatus {
    if args.pattern.is_given() {
        return pattern::run(args, screen);
    }
    let mut output = BufWriter::new(io::stdout().lock());
    let mut progress = Progress::new("seeds", Some(args.seeds), Unit::Count, args.quiet);
    let result = if args.json {
        json::write(args, screen, &mut output, &mut progress)
    } else if args.seeds == 1 {
        one(args, screen, &mut output)
    } else {
        many(args, screen, &mut output, &mut progress)
    };
    progress.erase();
    ExitStatus::of_output(result.and_then(|status| output.flush().map(|()| status)), screen)
}

/// Returns the seeds to run.
fn seeds(args: &SimulateArgs) -> std::ops::Range<u64> {
    let first = args.seed.unwrap_or(0);
    first..first.saturating_add(args.seeds)
}

/// The totals of all runs.
#[derive(Debug, Default, serde::Serialize)]
struct Totals {
    runs: u64,
    /// Runs with violations.
    failed: u64,
    /// Work requests.
    requests: u64,
    succeeded: u64,
    /// Invalid on purpose and refused, and flushed because of one of those.
    refused: u64,
    flushed_by_refused: u64,
}

impl Totals {
    fn add(&mut self, summary: &Summary) {
        self.runs += 1;
        self.failed += u64::from(status(summary) != ExitStatus::Success);
        self.requests += summary.requests;
        self.succeeded += summary.succeeded;
        self.refused += summary.refused;
        self.flushed_by_refused += summary.flushed_by_refused;
    }

    fn status(&self) -> ExitStatus {
        if self.failed == 0 { ExitStatus::Success } else { ExitStatus::Failure }
    }
}

fn simulation(args: &SimulateArgs, seed: u64) -> Simulation {
    let workload = Workload {
        hosts: args.hosts.unwrap_or(2),
        connections: args.connections,
        requests: args.requests,
        largest: args.largest,
        services: args.service,
        set_up: args.set_up,
        congestion: args.congestion.unwrap_or(Congestion::Window),
        posting: args.posting,
    };
    Simulation { scenario: args.scenario, seed, workload }
}

fn status(summary: &Summary) -> ExitStatus {
    if summary.violations.is_empty() { ExitStatus::Success } else { ExitStatus::Failure }
}

/// Runs a simulation, with a capture if requested. Returns `None`, after reporting why, if the capture cannot be
/// written.
fn summary(simulation: &Simulation, args: &SimulateArgs, screen: &Screen) -> Option<Summary> {
    let Some(path) = &args.capture else { return Some(simulation.run()) };
    let failed = |error| screen.complain(format_args!("{}: {error}", path.display()));
    captured(simulation, path).map_err(failed).ok()
}

/// Runs one seed and prints its full summary.
fn one(args: &SimulateArgs, screen: &Screen, output: &mut impl Write) -> io::Result<ExitStatus> {
    let simulation = simulation(args, args.seed.unwrap_or(0));
    let Some(summary) = summary(&simulation, args, screen) else { return Ok(ExitStatus::Failure) };
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
    let pending = Pending::new(path)?;
    let file = BufWriter::new(File::create(pending.path())?);
    let comment = simulation.replay().to_string();
    let capture = Capture::new(file, Vantage::Host(HostId(0)), &comment)?;
    let (summary, capture) = simulation.run_logged(capture);
    capture.finish()?.flush()?;
    pending.commit()?;
    Ok(summary)
}

/// Prints a failed seed: the command that repeats it, its violations, and the ladder of the first affected connection.
fn failure(
    simulation: &Simulation,
    summary: &Summary,
    screen: &Screen,
    output: &mut impl Write,
) -> io::Result<()> {
    writeln!(output, "{}\n{summary}", simulation.replay())?;
    ladder::draw(simulation, summary, screen, output)
}

/// Runs several seeds: prints those with violations in full, and the totals.
fn many(
    args: &SimulateArgs,
    screen: &Screen,
    output: &mut impl Write,
    progress: &mut Progress,
) -> io::Result<ExitStatus> {
    let mut totals = Totals::default();
    for seed in seeds(args) {
        let simulation = simulation(args, seed);
        let summary = simulation.run();
        totals.add(&summary);
        if status(&summary) != ExitStatus::Success {
            progress.erase();
            failure(&simulation, &summary, screen, output)?;
            output.flush()?;
        }
        progress.show(totals.runs);
    }
    progress.erase();
    let Totals { runs, failed, requests, succeeded, refused, flushed_by_refused } = totals;
    let others = requests - succeeded - refused - flushed_by_refused;
    let requests = units::counted(requests, "work request");
    let succeeded = units::count(succeeded);
    writeln!(
        output,
        "{succeeded} of {requests} succeeded; {} invalid on purpose and refused, {} flushed because of those, {} failed otherwise",
        units::count(refused),
        units::count(flushed_by_refused),
        units::count(others)
    )?;
    writeln!(output, "{} ran, {} failed", units::counted(runs, "seed"), units::count(failed))?;
    Ok(totals.status())
}

#[cfg(test)]
mod tests {
    use ferroce_sim::Scenario;

    use super::*;
    use crate::style::ColorChoice;

    /// No seed is known to fail, so a violation is added to one that passed.
    #[test]
    fn a_failure_prints_its_command_and_its_ladder() {
        let services = "rc".parse().unwrap();
        let workload = Workload { hosts: 3, services, ..Workload::default() };
        let simulation = Simulation { scenario: Scenario::lossy(0.02), seed: 7, workload };
        let mut summary = simulation.run();
        summary.violations.push("connection 2: an invented violation".to_owned());
        (summary.suspects, summary.suspect_pairs) = simulation.connection(2);
        let mut output = Vec::new();
        failure(&simulation, &summary, &Screen::new(ColorChoice::Never), &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        let command = "ferroce simulate --scenario lossy:0.02 --seed 7 --hosts 3 --service rc\n";
        assert!(text.starts_with(command), "{text}");
        assert!(
            text.contains("violations     1\n    connection 2: an invented violation"),
            "{text}"
        );
        let pair = format!("0x{:06x}", summary.suspect_pairs[0].0);
        let ladder = text.split("\n\n").nth(1).unwrap();
        assert!(ladder.contains(&pair), "{text}");
        assert!((10..120).contains(&ladder.lines().count()), "{text}");
        assert!(ladder.contains("RC"), "{text}");
    }
}
