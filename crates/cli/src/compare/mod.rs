//! `ferroce compare`: the same bytes by RDMA WRITE and by TCP, measured side by side.
//!
//! | file | role |
//! |---|---|
//! | `plan` | what is transferred: size, chunks, how many in flight |
//! | `control` | the messages between client and server |
//! | `server`, `serve` | `--server`: the listener, and one client of it |
//! | `client` | the rounds |
//! | `rdma`, `tcp`, `transfer` | one transfer |
//! | `method` | the rows |
//! | `result`, `verdict`, `host` | the figures |
//! | `output`, `figures` | text, SVG and HTML |
//! | `captures`, `tcp_capture` | `--capture` |

mod args;
mod captures;
mod client;
mod control;
mod figures;
mod host;
mod interrupt;
mod memory;
mod method;
mod output;
mod plan;
mod rdma;
mod result;
mod serve;
mod server;
mod tcp;
mod tcp_capture;
mod transfer;
mod verdict;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::Path;

use crate::child_server::ServerProcess;
use crate::exit::ExitStatus;
use crate::session::address;
use crate::session::failure::Failure;
use crate::style::Screen;
pub(crate) use args::{CompareArgs, EXAMPLES};
use client::Client;
use plan::Plan;
use result::Comparison;

/// Measures and reports, or serves.
pub(crate) fn run(args: &CompareArgs, screen: &Screen) -> ExitStatus {
    if args.server {
        return server::run(args, screen);
    }
    let interrupted = *screen;
    interrupt::handle(move || {
        if io::stderr().is_terminal() {
            // The progress line.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        interrupted.complain("interrupted: there is no result");
    });
    let result = match compare(args, screen) {
        Ok(comparison) => comparison,
        Err(failure) => {
            screen.complain(failure);
            return ExitStatus::Failure;
        }
    };
    let mut status = match args.json {
        true => crate::devices::json(&result, screen),
        false => output::write(&result, screen),
    };
    let files = [
        (&args.svg, (|result| figures::throughput(result).to_svg()) as fn(&Comparison) -> String),
        (&args.html, figures::page),
    ];
    for (path, make) in files {
        let Some(path) = path else { continue };
        if let Err(error) = fs::write(path, make(&result)) {
            screen.complain(format_args!("cannot write {}: {error}", path.display()));
            status = status.and(ExitStatus::Failure);
        }
    }
    status
}

fn compare(args: &CompareArgs, screen: &Screen) -> Result<Comparison, Failure> {
    let plan = Plan::new(args.size, args.chunk, args.depth).map_err(Failure::Other)?;
    for file in args.svg.iter().chain(&args.html).chain(&args.capture) {
        check_folder(file)?;
    }
    match &args.host {
        Some(host) => measure(address::resolve(host)?, plan, args, screen),
        None => {
            // The client has checked that the memory of this host suffices.
            let unlimited = ["--memory", "1048576G"];
            let listen = SocketAddr::new(args.address, 0);
            let mut server = ServerProcess::start("compare", listen, &unlimited)?;
            measure(server.address, plan, args, screen).map_err(|failure| match server.end() {
                Some(end) => Failure::Other(format!("{failure}; {end}")),
                None => failure,
            })
        }
    }
}

/// A file that cannot be written is better noticed before the measurement.
fn check_folder(file: &Path) -> Result<(), Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => Err(Failure::Other(format!(
            "cannot write {}: {} is not a directory",
            file.display(),
            folder.display()
        ))),
        _ => Ok(()),
    }
}

fn measure(
    server: SocketAddr,
    plan: Plan,
    args: &CompareArgs,
    screen: &Screen,
) -> Result<Comparison, Failure> {
    let own = args.host.is_none();
    let sides = if own { 2 } else { 1 };
    let mut client = Client::connect(server, plan, args.verify, sides, screen)?;
    let senders = client.open(args.wire)?;
    let measured = client::measure(&mut client, &senders, args)?;
    senders.close()?;
    let mut result = Comparison::new(client.server, own, plan, args.verify, measured)?;
    if let Some(prefix) = &args.capture {
        let captured = captures::capture(&mut client, prefix);
        let failed = |failure| Failure::Other(format!("captured transfer: {failure}"));
        result.captures = captured.map_err(failed)?;
    }
    Ok(result)
}
