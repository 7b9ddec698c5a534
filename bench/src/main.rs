//! `ferroce-bench`: compares Ferroce with its peers on one machine, and writes `docs/benchmarks.md`.
//!
//! A [`row::Row`] has sides, which are measured alternately, and lines, which compare them. Every sample runs in a
//! process of its own with a new network namespace: this program starts itself there with the subcommand `sample`.
//! Unmodified programs run on Ferroce through `ferroce run`, from the folder that this program is in. What no program
//! measures is measured by the subcommands `driver`, which use the library `ferroce`.
//!
//! - [`rows`]: the table of all rows.
//! - [`measure`]: repetitions, timeouts, and repeated samples.
//! - [`sandbox`]: inside a sample, the network and the programs.
//! - [`parse`]: figures from the output of programs.
//! - [`driver`]: programs that we measure with.
//! - [`report`]: tables, JSON, `docs/benchmarks.md`.
#![forbid(unsafe_code)]

mod args;
mod driver;
mod host;
mod interrupt;
mod measure;
mod parse;
mod process;
mod program;
mod report;
mod row;
mod rows;
mod sample;
mod sandbox;
mod statistics;
mod sysctl;

use std::process::ExitCode;

use args::{Args, Mode};
use clap::Parser;

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.mode {
        Some(Mode::Sample(ref which)) => sample::run(which),
        Some(Mode::Driver(ref driver)) => driver::run(driver),
        None => return bench(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferroce-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The load average above which figures are not reliable.
const BUSY: f64 = 0.5;

/// Runs the selected rows and reports them.
fn bench(args: &Args) -> ExitCode {
    let rows = rows::selected(&args.only);
    if rows.is_empty() {
        eprintln!("ferroce-bench: no row's name contains {:?}; see --list", args.only);
        return ExitCode::FAILURE;
    }
    if args.list {
        rows.iter().for_each(|row| println!("{:12} {}", row.name, row.title));
        return ExitCode::SUCCESS;
    }
    let load = host::load();
    if load > BUSY {
        eprintln!(
            "ferroce-bench: the load average is {load}: other programs are running, so the figures are not reliable"
        );
    }
    let outcomes = match measure::all(&rows, args.repetitions()) {
        Ok(outcomes) => outcomes,
        Err(error) => {
            eprintln!("ferroce-bench: {error}");
            return ExitCode::FAILURE;
        }
    };
    if args.json {
        println!("{}", report::json(&outcomes));
    } else {
        print!("{}", report::text(&outcomes));
    }
    if args.write {
        if let Err(error) = report::write_document(&outcomes, args.repetitions(), load) {
            eprintln!("ferroce-bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    if outcomes.iter().any(row::Outcome::has_failed) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
