//! A server, a client, and a deadline.

use std::process::Command;
use std::time::{Duration, Instant};

use ferroce_tests::libraries::program;
use ferroce_tests::perftest;
use ferroce_tests::running::{Running, free_port, listens, turn};

const LIMIT: Duration = Duration::from_secs(150);

/// Returns a command with the common arguments: our loopback device, its first GID, and the server's port.
fn command(name: &str, arguments: &str, port: u16) -> Option<Command> {
    let mut command = program(name)?;
    let device = if name.starts_with("ibv_") { "-g 0" } else { "-x 0 -F" };
    command.args(["-d", "ferroce_lo", "-p", &port.to_string()]);
    command.args(device.split(' ')).args(arguments.split_whitespace());
    Some(command)
}

/// Runs both sides, and returns the client's output.
pub(crate) fn run(name: &str, arguments: &str) -> Option<String> {
    changed(name, arguments, |_, _| {})
}

/// Server or client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Server,
    Client,
}

/// As [`run`], with `change` applied to each side's command.
pub(crate) fn changed(
    name: &str,
    arguments: &str,
    change: impl Fn(End, &mut Command),
) -> Option<String> {
    program(name)?;
    let _turn = turn();
    let ends = || once(name, arguments, &change);
    let [_, client] = perftest::calibrated(ends, |both: &[String; 2]| both.concat());
    Some(client)
}

/// Runs both sides once, and returns their outputs.
fn once(name: &str, arguments: &str, change: impl Fn(End, &mut Command)) -> [String; 2] {
    let (until, port) = (Instant::now() + LIMIT, free_port());
    let start = |end: End| {
        let mut command = command(name, arguments, port).expect("it was found before");
        command.args((end == End::Client).then_some("localhost"));
        change(end, &mut command);
        Running::start(command)
    };
    let mut server = start(End::Server);
    server.wait_until(|server| listens(server.id(), port), until);
    perftest::both_ends(server, start(End::Client), until)
}

/// Runs a program that has no peer.
pub(crate) fn alone(name: &str, arguments: &str) -> Option<String> {
    let mut command = program(name)?;
    command.args(arguments.split_whitespace());
    Some(Running::start(command).finish(Instant::now() + LIMIT))
}

/// Runs a program that does not exit, until it prints a line, which is returned.
pub(crate) fn watch(name: &str, arguments: &str) -> Option<String> {
    // Line-buffered, so that its output arrives while it runs.
    let mut command = program("stdbuf")?;
    command.arg("-oL").arg(program(name)?.get_program()).args(arguments.split_whitespace());
    Some(Running::start(command).wait_for(|_| true, Instant::now() + LIMIT))
}
