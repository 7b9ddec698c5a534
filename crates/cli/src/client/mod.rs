//! `ferroce client`: accesses a server's memory and verifies every byte.

pub(crate) mod connect;
mod jobs;
mod output;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ferroce::cm::EventChannel;

use crate::capture;
use crate::exit::ExitStatus;
use crate::session::bytes::Size;
use crate::session::events::Haste;
use crate::session::failure::Failure;
use crate::session::log::Log;
use crate::session::protocol::MemoryRequest;
use crate::session::{address, options};
use crate::style::Screen;
use connect::Connection;
use output::Outcome;

/// The jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Job {
    /// WRITE, then READ back
    #[default]
    WriteRead,
    /// WRITE_WITH_IMM in batches, each verified by the server
    Imm,
    /// WRITE a large amount, in chunks
    Bulk,
}

impl Job {
    /// Its name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::WriteRead => "write-read",
            Self::Imm => "imm",
            Self::Bulk => "bulk",
        }
    }

    const fn size(self) -> Size {
        Size(match self {
            Self::WriteRead => 16 << 10,
            Self::Imm => 4 << 10,
            Self::Bulk => 1 << 30,
        })
    }
}

/// Arguments of `ferroce client`.
#[derive(Args, Debug)]
pub(crate) struct ClientArgs {
    /// The server: an address or a name, and its port if it is not 7471
    #[arg(value_name = "ADDRESS[:PORT]", value_hint = clap::ValueHint::Hostname)]
    pub(crate) server: String,

    /// The job
    #[arg(value_name = "JOB", default_value = "write-read")]
    pub(crate) job: Job,

    /// Bytes to transfer; default 16K for write-read, 4K per batch for imm, 1G for bulk
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<Size>,

    /// Bytes per WRITE of bulk: a multiple of 4K [default: 4M]
    #[arg(long, value_name = "BYTES")]
    pub(crate) chunk: Option<Size>,

    /// Repetitions of write-read [default: 1], or batches of imm [default: 100]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: Option<u32>,

    /// Write all packets to this file, for Wireshark; %p in its name becomes the process ID
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) capture: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) policy: capture::PolicyArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Show no progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// The options that only some jobs take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    chunk: Size,
    count: u32,
}

impl Plan {
    /// Refuses options that the job would ignore.
    fn of(args: &ClientArgs) -> Result<Self, Failure> {
        let refused = |option: &str, what: &str| {
            let name = args.job.name();
            Err(Failure::Other(format!("{option} does not apply to {name}: {what}")))
        };
        match args.job {
            Job::Bulk if args.count.is_some() => {
                return refused(
                    "--count",
                    "it writes --size bytes once; write-read and imm repeat",
                );
            }
            Job::WriteRead | Job::Imm if args.chunk.is_some() => {
                return refused("--chunk", "it sends --size bytes as one message; bulk has chunks");
            }
            _ => {}
        }
        let count = if args.job == Job::Imm { 100 } else { 1 };
        Ok(Self { chunk: args.chunk.unwrap_or(Size(4 << 20)), count: args.count.unwrap_or(count) })
    }
}

/// Connects, runs the job and verifies the result.
pub(crate) fn run(args: &ClientArgs, screen: &Screen) -> ExitStatus {
    match work(args, screen) {
        Ok(outcome) if args.json => crate::devices::json(&outcome, screen),
        Ok(outcome) => outcome.print(screen),
        Err(failure) => {
            screen.complain(failure);
            ExitStatus::Failure
        }
    }
}

fn work(args: &ClientArgs, screen: &Screen) -> Result<Outcome, Failure> {
    let options = options(args.capture.as_ref(), args.policy)?;
    let interrupted = *screen;
    capture::finish_on_signal(&options, move || capture::report_all(&interrupted));
    let server = address::resolve(&args.server)?;
    let wish = MemoryRequest { size: args.size.unwrap_or(args.job.size()).0 };
    let plan = Plan::of(args)?;
    jobs::check(args.job, wish.size, plan.chunk)?;
    let channel = EventChannel::with_options(options)?;
    let mut log = Log::new("client");
    let connection = Connection::open(channel, server, wish, Haste::Hasty, &mut log)?;
    let mut outcome = Outcome::new(args.job, server, wish.size);
    match args.job {
        Job::WriteRead => jobs::write_read(&connection, plan.count, &mut outcome)?,
        Job::Imm => jobs::imm(&connection, plan.count, &mut outcome)?,
        Job::Bulk => jobs::bulk(&connection, plan.chunk, args.quiet, &mut outcome)?,
    }
    let context = connection.end.queue_pair.context().clone();
    connection.caller.disconnect()?;
    outcome.network(&context, args.capture.as_deref());
    Ok(outcome)
}
