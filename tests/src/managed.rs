//! A server that uses the connection manager, its clients, and a deadline.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::libraries::program;
use crate::running::{Running, turn};
use crate::{listening, perftest};

const LIMIT: Duration = Duration::from_secs(150);

/// When a server is ready for its clients.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// It listens on this port: see [`listening`].
    Listens(u16),
    /// It has joined this multicast group.
    Group(Ipv4Addr),
    /// It has bound this UDP port, so that datagrams are queued for it.
    Udp(u16),
}

impl Ready {
    fn holds(self, server: u32) -> bool {
        let lists = |table: &str, wanted: &str| {
            let table = fs::read_to_string(format!("/proc/{server}/net/{table}"));
            table.unwrap_or_default().lines().any(|line| line.contains(wanted))
        };
        match self {
            Self::Listens(port) => listening::is_announced(server, port),
            Self::Group(group) => {
                lists("igmp", &format!("{:08X}", u32::from_le_bytes(group.octets())))
            }
            Self::Udp(port) => {
                let local = format!(":{port:04X} ");
                ["udp", "udp6"].iter().any(|table| lists(table, &local))
            }
        }
    }
}

/// How the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// It exits successfully, like the client.
    Ends,
    /// A perftest server, which exits successfully too. After the first connection it destroys its listener and creates
    /// another, and its client does not wait for that: a client that connects too early is rejected, correctly, and
    /// crashes. So each connection of the client waits for its listener.
    ListensTwice,
    /// It runs until it is killed, and serves this many clients, one after the other.
    Serves(usize),
}

fn command(line: &str) -> Option<Command> {
    let mut words = line.split_whitespace();
    let mut command = program(words.next()?)?;
    command.args(words);
    Some(command)
}

/// Runs both sides, and returns the outputs of server and client. Returns `None`, after a skip, if they are not
/// installed.
pub fn run(server: &str, client: &str, ready: Ready, ends: Server) -> Option<[String; 2]> {
    let _turn = turn();
    let (first, second) = (server.split(' ').next()?, client.split(' ').next()?);
    program(first).and(program(second))?;
    Some(perftest::calibrated(|| once(server, client, ready, ends), |both| both.concat()))
}

fn once(server: &str, client: &str, ready: Ready, ends: Server) -> [String; 2] {
    let until = Instant::now() + LIMIT;
    let start = |line: &str| {
        let mut command = command(line).expect("it was there before");
        if let Ready::Listens(port) = ready {
            match ends {
                Server::ListensTwice => listening::await_listeners(&mut command, port, 2),
                _ => listening::announce(&mut command),
            };
        }
        Running::start(command)
    };
    let mut server = start(server);
    server.wait_until(|server| ready.holds(server.id()), until);
    let Server::Serves(clients) = ends else {
        return perftest::both_ends(server, start(client), until);
    };
    let mut said = String::new();
    for _ in 0..clients {
        said = start(client).finish(until);
    }
    assert!(server.status().is_none(), "the server has ended: {}", server.finish(until));
    [String::new(), said]
}

/// Runs a program that has no peer.
pub fn alone(command: Command) -> String {
    let _turn = turn();
    Running::start(command).finish(Instant::now() + LIMIT)
}

/// Runs a program that must fail, and returns its output. Returns `None` if it is not installed.
pub fn refused(line: &str) -> Option<String> {
    let _turn = turn();
    let (status, said) = Running::start(command(line)?).end(Instant::now() + LIMIT);
    assert!(status.is_some_and(|status| !status.success()), "{status:?} {said}");
    Some(said)
}
