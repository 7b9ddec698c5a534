//! A server and a client.

use std::process::Command;
use std::time::{Duration, Instant};

use super::hosts::{Hosts, has};
use ferroce_tests::listening;
use ferroce_tests::running::{Running, listens, turn};

/// Longer than any program here takes on a busy machine, and shorter than the timeout of a test.
pub(crate) const LIMIT: Duration = Duration::from_secs(150);

/// The client's host: the server's, or the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    Same,
    Other,
}

/// What a server does when its client is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// It exits successfully, too.
    Ends,
    /// It waits for the next client.
    Waits,
}

/// A program with its arguments for both sides; the client gets the server's address after them, or in place of an `@`.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) server: &'static str,
    pub(crate) client: &'static str,
    /// Environment variables of both, as `NAME=VALUE`.
    pub(crate) variables: &'static str,
    /// The server's TCP port.
    pub(crate) port: u16,
    pub(crate) end: Server,
}

impl Program {
    fn command(&self, hosts: &Hosts, side: usize, arguments: &str) -> Command {
        let mut command = hosts.program(side, self.name);
        command.args(arguments.split_whitespace());
        command.envs(self.variables.split_whitespace().filter_map(|one| one.split_once('=')));
        command
    }

    /// Starts both sides.
    pub(crate) fn start(&self, hosts: &Hosts, client: Client, until: Instant) -> [Running; 2] {
        let mut command = self.command(hosts, 0, self.server);
        if self.name == "qperf" {
            listening::at_once(&mut command);
        }
        let mut server = Running::start_group(command);
        server.wait_until(|server| listens(server.id(), self.port), until);
        [server, self.start_client(hosts, client)]
    }

    fn start_client(&self, hosts: &Hosts, client: Client) -> Running {
        let side = usize::from(client == Client::Other);
        let (before, after) = self.client.split_once('@').unwrap_or((self.client, ""));
        let mut command = self.command(hosts, side, before);
        command.arg(Hosts::address(0)).args(after.split_whitespace());
        Running::start_group(command)
    }

    /// Runs both sides, and returns the client's output. Returns `None`, after a skip, if something is missing.
    pub(crate) fn run(&self, client: Client) -> Option<String> {
        let _turn = turn();
        let hosts = Some(()).filter(|()| has(self.name)).and_then(|()| Hosts::new())?;
        let until = Instant::now() + LIMIT;
        let [server, client] = self.start(&hosts, client, until);
        let (status, said) = client.end(until);
        if !status.is_some_and(|status| status.success()) {
            let (server_status, server_said) = server.end(Instant::now());
            panic!(
                "{status:?} (None means the deadline passed) {said}\n{server_status:?} {server_said}"
            );
        }
        if self.end == Server::Ends {
            server.finish(until);
        }
        Some(said)
    }

    /// Runs a program that has no peer.
    pub(crate) fn alone(name: &str, arguments: &str) -> Option<String> {
        let _turn = turn();
        let hosts = Some(()).filter(|()| has(name)).and_then(|()| Hosts::new())?;
        let mut command = hosts.program(0, name);
        command.args(arguments.split_whitespace());
        Some(Running::start_group(command).finish(Instant::now() + LIMIT))
    }
}
