//! The `ferroce` command.
//!
//! This crate handles command lines, files and terminals; the crates below it understand packets. Each subcommand is a
//! module with a `run` function that takes its arguments and the [`style::Screen`], and returns an
//! [`exit::ExitStatus`].
#![forbid(unsafe_code)]

// Unit tests open sockets too.
#[cfg(test)]
use ferroce_test_support as _;

mod analyze;
mod args;
mod capture;
mod child_server;
mod client;
mod compare;
mod dashboard;
mod decode;
mod demo;
mod devices;
mod devinfo;
mod discover;
mod doctor;
mod duration;
mod environment;
mod exit;
mod explain;
mod filter;
mod generate;
mod input;
mod latencies;
mod live_output;
mod packet_line;
mod perf;
mod progress;
mod recent;
mod report;
mod run;
mod server;
mod session;
mod simulate;
mod stat;
mod style;
mod top;
mod workload;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use args::{Cli, Command};
use exit::ExitStatus;
use style::{ColorChoice, Screen};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match parse(&arguments) {
        Ok(cli) => {
            let screen = Screen::new(cli.color);
            if let Err(error) = ferroce::log_to_stderr() {
                screen.complain(error);
                return ExitStatus::Failure.into();
            }
            run(&cli.command, &screen)
        }
        Err(error) => {
            // A failure to print help cannot be reported anywhere.
            let _ = error.print();
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitStatus::Success,
                _ => ExitStatus::Failure,
            }
            .into()
        }
    }
}

fn run(command: &Command, screen: &Screen) -> ExitCode {
    let status = match command {
        // The status is that of the executed command.
        Command::Run(args) => return run::run(args, screen),
        Command::Env(args) => environment::run(args, screen),
        Command::Demo(args) => demo::run(args, screen),
        Command::Capture(args) => capture::run(args, screen),
        Command::Server(args) => server::run(args, screen),
        Command::Client(args) => client::run(args, screen),
        Command::Perf(args) => perf::run(args, screen),
        Command::Compare(args) => compare::run(args, screen),
        Command::Workload(args) => workload::run(args, screen),
        Command::Decode(args) => decode::run(args, screen),
        Command::Analyze(args) => analyze::run(args, screen),
        Command::Report(args) => report::run(args, screen),
        Command::Dashboard(args) => dashboard::run(args, screen),
        Command::Simulate(args) => simulate::run(args, screen),
        Command::Devices(args) => devices::run(args, screen),
        Command::Devinfo(args) => devinfo::run(args, screen),
        Command::Discover(args) => discover::run(args, screen),
        Command::Doctor(args) => doctor::run(args, screen),
        Command::Explain(args) => explain::run(args, screen),
        Command::Stat(args) => stat::run(args, screen),
        Command::Top(args) => top::run(args, screen),
        Command::Completions { shell } => generate::completions(*shell, screen),
        Command::Man { dir } => generate::man(dir.as_deref(), screen),
    };
    status.into()
}

/// Parses the command line. Help and usage errors are printed by the parser, so it must know the colour choice first.
fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let color = match color_choice(arguments) {
        ColorChoice::Auto => clap::ColorChoice::Auto,
        ColorChoice::Always => clap::ColorChoice::Always,
        ColorChoice::Never => clap::ColorChoice::Never,
    };
    let mut command = Cli::command().color(color);
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn color_choice(arguments: &[OsString]) -> ColorChoice {
    let words = arguments.iter().filter_map(|argument| argument.to_str());
    let next = words.clone().skip(1);
    words
        .zip(next.chain([""]))
        .find_map(|(word, next)| match word.strip_prefix("--color") {
            Some("") => Some(next),
            Some(value) => value.strip_prefix('='),
            None => None,
        })
        .and_then(|value| clap::ValueEnum::from_str(value, false).ok())
        .unwrap_or_default()
}
