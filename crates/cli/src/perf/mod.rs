//! `ferroce perf`: bandwidth, latency and message rate of every operation over every transport.
//!
//! | file | role |
//! |---|---|
//! | `args` | the command line |
//! | `test` | the parameters of a test, checked by both sides |
//! | `control` | the TCP connection between client and server |
//! | `client`, `server`, `process` | the two sides, and the server of a test on one host |
//! | `session` | the workers of one side |
//! | `worker` | a thread with a CQ and QPs |
//! | `end` | a QP and its memory |
//! | `stream`, `latency` | what workers measure |
//! | `check` | `--verify` |
//! | `tally`, `result` | what was measured, and the JSON |
//! | `output`, `chart` | table and SVG |

mod args;
mod chart;
mod check;
mod client;
mod control;
mod end;
mod latency;
mod output;
mod result;
mod server;
mod session;
mod stream;
mod tally;
mod test;
mod worker;

use std::fs;
use std::io;

pub(crate) use args::{EXAMPLES, PerfArgs};
use result::Outcome;

use crate::exit::ExitStatus;
use crate::style::Screen;

/// Runs a test, or serves tests.
pub(crate) fn run(args: &PerfArgs, screen: &Screen) -> ExitStatus {
    if args.server {
        let reporter = server::Reporter { json: args.json, screen: *screen, child: args.child };
        return server::run(args.listen.0, reporter);
    }
    let (outcome, signal) = match client::run(args) {
        Ok(measured) => measured,
        Err(failure) => {
            screen.complain(failure);
            return ExitStatus::Failure;
        }
    };
    let mut status = print(&outcome, args, screen);
    if let Some(path) = &args.svg {
        if let Err(error) = fs::write(path, outcome.to_svg()) {
            let path = path.display();
            screen.complain(format_args!("cannot write the chart {path}: {error}"));
            status = status.and(ExitStatus::Failure);
        }
    }
    if let Some(signal) = signal {
        // As a shell reports a process that a signal ended.
        std::process::exit(128 + signal);
    }
    status
}

fn print(outcome: &Outcome, args: &PerfArgs, screen: &Screen) -> ExitStatus {
    if args.json {
        return crate::devices::json(outcome, screen);
    }
    let written = outcome.write(screen, &mut io::stdout().lock());
    ExitStatus::of_output(written.map(|()| ExitStatus::Success), screen)
}
