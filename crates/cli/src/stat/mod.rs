//! `ferroce stat`: the counters and the objects of all processes that have a device open.

mod args;
pub(crate) mod drops;
pub(crate) mod rates;
pub(crate) mod since;
mod summary;
mod tables;
mod watch;

use std::io::{self, BufWriter, Write};

use ferroce_stat::read_all;
use ferroce_stat::snapshot::Snapshot;
use ferroce_trace::render::Line;
use serde::Serialize;

use crate::analyze::output::{Alphabet, print};
use crate::devices::json;
use crate::exit::ExitStatus;
use crate::style::Screen;
pub(crate) use args::{EXAMPLES, StatArgs};
pub(crate) use summary::reason_text;
pub(crate) use tables::peer;
pub(crate) use watch::json_with_rates;

/// The version of the JSON output.
pub(crate) const SCHEMA: &str = "ferroce-stat/1";

/// A snapshot as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    snapshot: &'a Snapshot,
}

impl<'a> Document<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Self {
        Self { schema: SCHEMA, snapshot }
    }
}

/// Shows what processes publish.
pub(crate) fn run(args: &StatArgs, screen: &Screen) -> ExitStatus {
    if let Some(interval) = args.watch {
        return watch::run(args, interval, screen);
    }
    let snapshot = read_all(&args.filter());
    if args.pid.is_some() && snapshot.processes.is_empty() {
        screen.complain(missing(args));
        return ExitStatus::Failure;
    }
    if args.json {
        return json(&Document::new(&snapshot), screen);
    }
    let lines = if args.objects.is_empty() && !args.verbose {
        summary::lines(&snapshot)
    } else {
        tables::lines(&snapshot, args, screen.columns)
    };
    let mut output = BufWriter::new(io::stdout().lock());
    let result = show(&lines, screen, &mut output);
    ExitStatus::of_output(result.map(|()| ExitStatus::Success), screen)
}

fn show(lines: &[Line], screen: &Screen, output: &mut impl Write) -> io::Result<()> {
    print(lines, screen.paint, Alphabet::choose(false), output)?;
    output.flush()
}

/// Why a process that was asked for is not shown.
fn missing(args: &StatArgs) -> String {
    let pid = args.pid.unwrap_or(0);
    if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
        return format!("there is no process {pid}");
    }
    if let Err(error) = std::fs::read_dir(format!("/proc/{pid}/fd")) {
        return format!("cannot read process {pid}: {error}; it belongs to another user: use sudo");
    }
    match &args.device {
        Some(device) => format!("process {pid} has no device {device} open"),
        None => format!(
            "process {pid} has no device open, or uses another libibverbs; start it with `ferroce run -- COMMAND`"
        ),
    }
}
