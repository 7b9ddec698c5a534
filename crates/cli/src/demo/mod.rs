//! `ferroce demo`: a server process and a client process on this machine, step by step and packet by packet.

mod flow;
mod output;
mod process;
mod wire;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use ferroce::clock;

use crate::capture::{Pending, create_new_private, create_private};
use crate::exit::ExitStatus;
use crate::session::bytes::Size;
use crate::session::failure::Failure;
use crate::session::set_up::SetUp;
use crate::style::Screen;
use output::Outcome;
use process::ServerProcess;

/// Arguments of `ferroce demo`.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// How the connection is set up
    #[arg(long, value_name = "HOW", default_value = "cm")]
    pub(crate) set_up: SetUp,

    /// An address of this machine
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(crate) address: IpAddr,

    /// Bytes to write and read back
    #[arg(long, value_name = "BYTES", default_value = "16K")]
    pub(crate) size: Size,

    /// The capture file, for Wireshark [default: demo.pcapng]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) capture: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Keep the server running for `ferroce client`, until this command is terminated
    #[arg(long, conflicts_with_all = ["json"])]
    pub(crate) keep: bool,

    /// Draw with ASCII characters only; the default if the locale is not UTF-8
    #[arg(long)]
    pub(crate) ascii: bool,
}

/// The maximum size: the demo is meant to be looked at.
const MAX_SIZE: Size = Size(1 << 30);

/// The default capture file.
const CAPTURE: &str = "demo.pcapng";

/// Runs both sides and reports.
pub(crate) fn run(args: &DemoArgs, screen: &Screen) -> ExitStatus {
    if args.size > MAX_SIZE {
        screen.complain(format_args!(
            "the demo is limited to {}: use `ferroce client` for more",
            MAX_SIZE
        ));
        return ExitStatus::Failure;
    }
    if args.keep && args.set_up == SetUp::Exchange {
        screen.complain("--keep requires --set-up cm, which `ferroce client` uses");
        return ExitStatus::Failure;
    }
    let capture = match capture(args.capture.as_deref(), screen) {
        Ok(capture) => capture,
        Err(failure) => {
            screen.complain(failure);
            return ExitStatus::Failure;
        }
    };
    let mut outcome = Outcome::new(args, clock::now());
    let mut server = None;
    let ran = demonstrate(args, capture.as_ref().map(Pending::path), &mut outcome, &mut server);
    let read = |path: &Path, outcome: &mut Outcome| {
        outcome.wire = wire::Wire::read(path, &outcome.queue_pairs);
    };
    match (capture, &ran) {
        (None, _) => {}
        (Some(capture), Ok(())) => match capture.commit() {
            Ok(path) => read(&path, &mut outcome),
            Err(error) => {
                screen.complain(format_args!("cannot move the capture to its final name: {error}"))
            }
        },
        (Some(capture), Err(_)) => {
            let path = capture.path();
            read(path, &mut outcome);
            if outcome.wire.is_some() && capture.is_beside() {
                let path = path.display();
                screen.complain(format_args!(
                    "the capture of this attempt is {path}; the one before stays"
                ));
            } else if outcome.wire.is_none()
                && fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
            {
                // Nothing was on the wire. Leaving the file is harmless; removing something else, such as /dev/null,
                // would not be.
                let _ = fs::remove_file(path);
            }
        }
    }
    let status = outcome.print(args, screen);
    if let Some(complaint) = &outcome.capture_complaint {
        screen.complain(complaint);
    }
    if let Err(failure) = ran {
        screen.complain(failure);
        return ExitStatus::Failure;
    }
    if let (true, Some(server)) = (args.keep, server) {
        return server.stay(screen);
    }
    status
}

fn demonstrate(
    args: &DemoArgs,
    capture: Option<&Path>,
    outcome: &mut Outcome,
    kept: &mut Option<ServerProcess>,
) -> Result<(), Failure> {
    let server = ServerProcess::start(SocketAddr::new(args.address, 0), args.set_up)?;
    let ran = flow::run(args, server.address, capture, outcome);
    // The server's steps also help when something went wrong.
    outcome.add_server(server.steps(ran.is_ok()));
    *kept = Some(server);
    ran
}

/// Chooses the capture file. One named by the user must be writable; otherwise other places are tried, and the demo
/// runs without a capture if none is.
fn capture(wanted: Option<&Path>, screen: &Screen) -> Result<Option<Pending>, Failure> {
    let open = |path: &Path| {
        let pending = Pending::new(path)?;
        create_private(pending.path()).map(|_| pending)
    };
    if let Some(path) = wanted {
        let failure =
            |error| Failure::Other(format!("cannot write the capture {}: {error}", path.display()));
        return open(path).map(Some).map_err(failure);
    }
    let error = match open(Path::new(CAPTURE)) {
        Ok(pending) => return Ok(Some(pending)),
        Err(error) => error,
    };
    let name = format!("ferroce-demo-{}.pcapng", std::process::id());
    let elsewhere = std::env::temp_dir().join(name);
    match create_new_private(&elsewhere) {
        Ok(_) => {
            let place = elsewhere.display();
            screen.complain(format_args!("cannot write {CAPTURE} here ({error}): using {place}"));
            Ok(Some(Pending::fresh(elsewhere)))
        }
        Err(_) => {
            screen.complain(format_args!(
                "cannot write {CAPTURE} ({error}): continuing without capture and ladder"
            ));
            Ok(None)
        }
    }
}
