//! `many`: pairs of processes that transfer at the same time.

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;

use super::write::{DONE, READY};
use crate::parse::sample;
use crate::process::Process;

/// The first control port; each pair has one.
const FIRST_PORT: usize = 7000;

/// How long the start and the transfer may take together.
const LIMIT: Duration = Duration::from_secs(80);

/// What to run.
#[derive(Args, Debug)]
pub(crate) struct Many {
    /// Number of pairs of processes
    #[arg(long)]
    pairs: usize,
    /// QPs of each pair
    #[arg(long)]
    qps: usize,
    /// Bytes that all pairs together transfer
    #[arg(long)]
    bytes: u64,
    /// Bytes of memory of all servers together, and of all clients
    #[arg(long)]
    footprint: usize,
}

/// Starts all pairs, lets all begin at once, and prints the rate of all together.
pub(crate) fn run(many: &Many) -> Result<(), String> {
    let until = Instant::now() + LIMIT;
    let exe = env::current_exe().map_err(|error| error.to_string())?;
    let start = |pair: usize, name: &str, options: &str| {
        let (port, memory) = (FIRST_PORT + pair, many.footprint / many.pairs);
        let mut command = Command::new(&exe);
        let common = format!("--port {port} --qps {} --footprint {memory}", many.qps);
        command.args(["driver", name]).args(common.split(' ')).args(options.split_whitespace());
        Process::start(command)
    };
    let servers = (0..many.pairs).map(|pair| start(pair, "write-server", ""));
    let mut servers = servers.collect::<Result<Vec<_>, _>>()?;
    for (pair, server) in servers.iter_mut().enumerate() {
        server.wait_listening((FIRST_PORT + pair) as u16, until)?;
    }
    let options = format!("--wait --depth 16 --bytes {}", many.bytes / many.pairs as u64);
    let clients = (0..many.pairs).map(|pair| start(pair, "write-client", &options));
    let mut clients = clients.collect::<Result<Vec<_>, _>>()?;
    clients.iter_mut().try_for_each(|client| client.wait_for(READY, until).map(|_| ()))?;
    let begin = Instant::now();
    clients.iter_mut().try_for_each(|client| client.tell("go"))?;
    clients.iter_mut().try_for_each(|client| client.wait_for(DONE, until).map(|_| ()))?;
    let seconds = begin.elapsed().as_secs_f64();
    for process in clients.into_iter().chain(servers) {
        process.finish(until)?;
    }
    super::print(&sample([("rate", many.bytes as f64 / seconds / 1e9), ("seconds", seconds)]))
}
