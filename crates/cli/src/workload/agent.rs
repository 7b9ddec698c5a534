//! `--agent`: starts ranks for commands on other hosts.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

use ferroce_sys::tcp;
use serde_json::json;

use super::args::WorkloadArgs;
use super::process;
use crate::exit::ExitStatus;
use crate::style::Screen;

/// The most ranks at a time.
const MAX_PROCESSES: usize = 256;

/// Serves until it is terminated.
pub(super) fn run(args: &WorkloadArgs, screen: &Screen) -> ExitStatus {
    let listener = TcpListener::bind(args.listen.0)
        .and_then(|listener| listener.local_addr().map(|address| (listener, address)));
    let (listener, address) = match listener {
        Ok(found) => found,
        Err(error) => {
            screen.complain(format_args!("cannot listen on TCP {}: {error}", args.listen.0));
            return ExitStatus::Failure;
        }
    };
    match args.json {
        true => println!("{}", json!({ "event": "listening", "address": address })),
        false => println!("agent: listening on TCP {address}"),
    }
    let mut children: Vec<Child> = Vec::new();
    for stream in listener.incoming() {
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let Ok(stream) = stream else { continue };
        if children.len() >= MAX_PROCESSES {
            screen.complain(format_args!("{MAX_PROCESSES} ranks run: a further one is refused"));
            continue;
        }
        match start(stream) {
            Ok(child) => children.push(child),
            Err(error) => screen.complain(format_args!("cannot start a rank: {error}")),
        }
    }
    ExitStatus::Success
}

/// The connection becomes the standard input and output of the rank, so each end notices when the other is gone.
fn start(stream: TcpStream) -> std::io::Result<Child> {
    stream.set_nodelay(true)?;
    // A command whose host disappears ends its ranks, too.
    tcp::set_keepalive(stream.as_fd(), process::KEEPALIVE)?;
    let input = OwnedFd::from(stream.try_clone()?);
    let output = OwnedFd::from(stream);
    process::command()?.arg("--remote").stdin(input).stdout(output).spawn()
}
