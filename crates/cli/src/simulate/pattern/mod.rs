//! `ferroce simulate --pattern`: traffic patterns on a topology, measured.

mod chart;
mod json;
mod link;
mod options;
mod text;
mod units;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use ferroce_sim::rdma::traffic::{Experiment, Results};
use ferroce_sim::{Capture, EventLog};

use self::link::Link;
use self::options::Options;
use super::SimulateArgs;
use crate::capture::Pending;
use crate::exit::ExitStatus;
use crate::progress::{Progress, Unit};
use crate::style::Screen;

/// Options of other simulations.
const OTHER_OPTIONS: [&str; 8] =
    ["scenario", "seeds", "connections", "requests", "largest", "service", "set_up", "posting"];

/// Arguments of `ferroce simulate --pattern`.
#[derive(Debug, Args)]
pub(crate) struct PatternArgs {
    #[command(flatten)]
    options: Options,

    /// Read these options from a TOML file; options on the command line have precedence
    #[arg(long, value_name = "FILE", group = "traffic", conflicts_with_all = OTHER_OPTIONS, value_hint = ValueHint::FilePath)]
    experiment: Option<PathBuf>,

    /// Write a chart of queue depth and rates over time to this file
    #[arg(long, value_name = "FILE", requires = "traffic", value_hint = ValueHint::FilePath)]
    svg: Option<PathBuf>,

    /// The link that --capture records: that of a host, as host3, or one between switches, as leaf0-spine1 [default: host0]
    #[arg(long, value_name = "LINK", requires_all = ["traffic", "capture"])]
    capture_link: Option<Link>,
}

impl PatternArgs {
    /// Whether a traffic pattern is to be measured.
    pub(super) fn is_given(&self) -> bool {
        self.options.pattern.is_some() || self.experiment.is_some()
    }
}

/// Measures a traffic pattern.
pub(super) fn run(args: &SimulateArgs, screen: &Screen) -> ExitStatus {
    let experiment = match experiment(args) {
        Ok(experiment) => experiment,
        Err(problem) => {
            screen.complain(problem);
            return ExitStatus::Failure;
        }
    };
    let start = Instant::now();
    let results = match measure(&experiment, args) {
        Ok(results) => results,
        Err(error) => {
            screen.complain(error);
            return ExitStatus::Failure;
        }
    };
    let elapsed = start.elapsed();
    let status = if results.failed == 0 { ExitStatus::Success } else { ExitStatus::Failure };
    let written = write(&experiment, &results, elapsed, args);
    ExitStatus::of_output(written.map(|()| status), screen).and(chart(
        &experiment,
        &results,
        args,
        screen,
    ))
}

/// Returns the experiment that the arguments and the file describe.
fn experiment(args: &SimulateArgs) -> Result<Experiment, String> {
    let pattern = &args.pattern;
    let mut given = pattern.options.clone();
    (given.hosts, given.congestion, given.seed) = (args.hosts, args.congestion, args.seed);
    let Some(path) = &pattern.experiment else { return given.experiment() };
    let named = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let text = fs::read_to_string(path).map_err(|error| named(&error))?;
    let read: Options =
        toml::from_str(&text).map_err(|error| named(&error.to_string().trim_end()))?;
    let options = given.or(read);
    if options.pattern.is_none() {
        return Err(named(&"there is no pattern; add a line such as pattern = \"incast\""));
    }
    options.experiment().map_err(|problem| named(&problem))
}

/// Runs the experiment, with a capture if requested.
fn measure(
    experiment: &Experiment,
    args: &SimulateArgs,
) -> Result<Results, Box<dyn std::error::Error>> {
    let Some(path) = &args.capture else { return Ok(logged(experiment, args, ()).0?) };
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    captured(experiment, args, path).map_err(|error| failed(&error).into())
}

fn captured(
    experiment: &Experiment,
    args: &SimulateArgs,
    path: &Path,
) -> Result<Results, Box<dyn std::error::Error>> {
    let vantage = args.pattern.capture_link.unwrap_or(Link::Host(0)).vantage(experiment)?;
    let pending = Pending::new(path)?;
    let file = BufWriter::new(File::create(pending.path())?);
    let capture = Capture::new(file, vantage, &text::title(experiment))?;
    let (results, capture) = logged(experiment, args, capture);
    capture.finish()?.flush()?;
    let results = results?;
    pending.commit()?;
    Ok(results)
}

fn logged<T: EventLog>(
    experiment: &Experiment,
    args: &SimulateArgs,
    event_log: T,
) -> (Result<Results, ferroce_sim::rdma::traffic::DidNotEnd>, T) {
    let flows = experiment.flows() as u64;
    let mut progress = Progress::new("flows", Some(flows), Unit::Count, args.quiet);
    let result = experiment.run_logged(event_log, |done| progress.show(done));
    progress.erase();
    result
}

fn write(
    experiment: &Experiment,
    results: &Results,
    elapsed: Duration,
    args: &SimulateArgs,
) -> io::Result<()> {
    let mut output = BufWriter::new(io::stdout().lock());
    if args.json {
        json::write(experiment, results, args.capture.as_deref(), &mut output)?;
    } else {
        text::write(experiment, results, elapsed, &mut output)?;
    }
    output.flush()
}

fn chart(
    experiment: &Experiment,
    results: &Results,
    args: &SimulateArgs,
    screen: &Screen,
) -> ExitStatus {
    let Some(path) = &args.pattern.svg else { return ExitStatus::Success };
    match fs::write(path, chart::svg(experiment, results)) {
        Ok(()) => ExitStatus::Success,
        Err(error) => {
            let path = path.display();
            screen.complain(format_args!("cannot write the chart {path}: {error}"));
            ExitStatus::Failure
        }
    }
}
