//! A server, a client, and a limit of time.

use std::process::Command;
use std::time::{Duration, Instant};

use ferroce_tests::libraries::program;
use ferroce_tests::perftest;
use ferroce_tests::running::{Running, free_port, listens, turn};

const LIMIT: Duration = Duration::from_secs(150);

/// What every program is told: our loopback device, by its first address, and where the server listens.
fn command(name: &str, arguments: &str, port: u16) -> Option<Command> {
    let mut command = program(name)?;
    let device = if name.starts_with("ibv_") { "-g 0" } else { "-x 0 -F" };
    command.args(["-d", "ferroce_lo", "-p", &port.to_string()]);
    command.args(device.split(' ')).args(arguments.split_whitespace());
    Some(command)
}

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
    program(name)?;
    let _turn = turn();
    let ends = || once(name, arguments, &change);
    let [_, client] = perftest::calibrated(ends, |both: &[String; 2]| both.concat());
    Some(client)
}

/// What server and client printed.
fn once(name: &str, arguments: &str, change: impl Fn(End, &mut Command)) -> [String; 2] {
    let (until, port) = (Instant::now() + LIMIT, free_port());
    let start = |end: End| {
        let mut command = command(name, arguments, port).expect("it was there before");
        command.args((end == End::Client).then_some("localhost"));
        change(end, &mut command);
        Running::start(command)
    };
    let mut server = start(End::Server);
    server.wait_until(|server| listens(server.id(), port), until);
    perftest::both_ends(server, start(End::Client), until)
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
