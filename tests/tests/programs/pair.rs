//! A server, a client, and a limit of time.

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ferroce_tests::libraries::program;
use ferroce_tests::running::{Running, free_port, listens};

const LIMIT: Duration = Duration::from_secs(100);

/// What every program is told: our loopback device, by its first address, and where the server listens.
fn command(name: &str, arguments: &str, port: u16) -> Option<Command> {
    let mut command = program(name)?;
    let device = if name.starts_with("ibv_") { "-g 0" } else { "-x 0 -F" };
    command.args(["-d", "ferroce_lo", "-p", &port.to_string()]);
    command.args(device.split(' ')).args(arguments.split_whitespace());
    Some(command)
}

/// These programs poll without rest: two pairs at once would wait for each other's processors longer than a peer does.
static ONE: Mutex<()> = Mutex::new(());

/// Runs both ends, and returns what the client printed.
pub(crate) fn run(name: &str, arguments: &str) -> Option<String> {
    changed(name, arguments, |_, _| {})
}

/// One of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Server,
    Client,
}

/// As [`run`], after something was changed about each end's command.
pub(crate) fn changed(
    name: &str,
    arguments: &str,
    change: impl Fn(End, &mut Command),
) -> Option<String> {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (until, port) = (Instant::now() + LIMIT, free_port());
    let mut server = command(name, arguments, port)?;
    change(End::Server, &mut server);
    let mut server = Running::start(server);
    server.wait_until(|server| listens(server.id(), port), until);
    let mut client = command(name, arguments, port)?;
    client.arg("localhost");
    change(End::Client, &mut client);
    let said = Running::start(client).finish(until);
    server.finish(until);
    Some(said)
}

/// Runs a program that has no other end.
pub(crate) fn alone(name: &str, arguments: &str) -> Option<String> {
    let mut command = program(name)?;
    command.args(arguments.split_whitespace());
    Some(Running::start(command).finish(Instant::now() + LIMIT))
}

/// Runs a program that has no end: until it has said a line, which is returned.
pub(crate) fn watch(name: &str, arguments: &str) -> Option<String> {
    // So that it says what it has to say while it runs.
    let mut command = program("stdbuf")?;
    command.arg("-oL").arg(program(name)?.get_program()).args(arguments.split_whitespace());
    Some(Running::start(command).wait_for(|_| true, Instant::now() + LIMIT))
}
