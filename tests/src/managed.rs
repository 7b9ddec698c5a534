//! A server of the connection manager's, its clients, and a limit of time.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::libraries::program;
use crate::running::Running;

const LIMIT: Duration = Duration::from_secs(100);

/// When a server is ready for its clients.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// It has claimed this service: port space and port.
    Service(u16, u16),
    /// The same, of one that accepts without rest, and is never seen to wait: rstream.
    Restless(u16, u16),
    /// It is in this group.
    Group(Ipv4Addr),
    /// It has this port of UDP: what comes there waits for it, whatever it does.
    Udp(u16),
}

impl Ready {
    fn holds(self) -> bool {
        let lists = |table: &str, wanted: &str| {
            fs::read_to_string(table).unwrap_or_default().lines().any(|line| line.contains(wanted))
        };
        match self {
            Self::Service(space, port) | Self::Restless(space, port) => {
                lists("/proc/net/unix", &format!("/svc/00000000{space:04x}{port:04x}"))
            }
            Self::Group(group) => {
                lists("/proc/net/igmp", &format!("{:08X}", u32::from_le_bytes(group.octets())))
            }
            Self::Udp(port) => {
                let local = format!(":{port:04X} ");
                ["/proc/net/udp", "/proc/net/udp6"].iter().any(|table| lists(table, &local))
            }
        }
    }
}

/// These programs have the ports that they have, and some poll without rest: one pair at a time.
static ONE: Mutex<()> = Mutex::new(());

/// What becomes of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// It ends well, like the client.
    Ends,
    /// It ends well, unless the client has asked for its second connection before the server listened for it: perftest's
    /// server destroys the first listener and makes another, its two ends do not wait for each other there, and its
    /// client, which means to try again, uses memory then that it has freed. That one answer of the connection manager,
    /// which is the right one, makes both start anew.
    EndsUnlessEarly,
    /// It goes on until it is killed, and serves this many clients, one after the other.
    Serves(usize),
}

fn command(line: &str) -> Option<Command> {
    let mut words = line.split_whitespace();
    let mut command = program(words.next()?)?;
    command.args(words);
    Some(command)
}

/// Runs both ends, and returns what server and client printed. `None`, and a word about it, when they are not installed.
pub fn run(server: &str, client: &str, ready: Ready, ends: Server) -> Option<[String; 2]> {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let until = Instant::now() + LIMIT;
    loop {
        let both = once(server, client, ready, ends, until)?;
        match both {
            Err(failure)
                if ends == Server::EndsUnlessEarly
                    && EARLY.iter().any(|one| failure.contains(one)) => {}
            both => return Some(both.unwrap_or_else(|failure| panic!("{failure}"))),
        }
    }
}

/// What perftest's client says of a service that nobody listens for yet: for datagrams, and for connections.
const EARLY: [&str; 2] =
    ["RDMA_CM_EVENT_UNREACHABLE; error: 1.", "RDMA_CM_EVENT_REJECTED; error: 8."];

fn once(
    server: &str,
    client: &str,
    ready: Ready,
    ends: Server,
    until: Instant,
) -> Option<Result<[String; 2], String>> {
    let (first, second) = (command(server)?, command(client)?);
    let mut server = Running::start(first);
    // A service is claimed by who binds it. To listen follows at once, and then there is nothing to do but to wait.
    let restless = matches!(ready, Ready::Restless(..) | Ready::Udp(_));
    let listens = |server: &Running| ready.holds() && (restless || server.sleeps());
    server.wait_until(listens, until);
    let mut said = match Running::start(second).good_end(until) {
        Ok(said) => said,
        Err(failure) => return Some(Err(failure)),
    };
    Some(Ok(match ends {
        Server::Ends | Server::EndsUnlessEarly => [server.finish(until), said],
        Server::Serves(clients) => {
            for _ in 1..clients {
                said = Running::start(command(client)?).finish(until);
            }
            assert!(server.status().is_none(), "the server has ended: {}", server.finish(until));
            [String::new(), said]
        }
    }))
}

/// Runs a program that has no other end.
pub fn alone(command: Command) -> String {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    Running::start(command).finish(Instant::now() + LIMIT)
}

/// Runs a program that must fail by itself, and returns what it printed. `None` when it is not installed.
pub fn refused(line: &str) -> Option<String> {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (status, said) = Running::start(command(line)?).end(Instant::now() + LIMIT);
    assert!(status.is_some_and(|status| !status.success()), "{status:?} {said}");
    Some(said)
}
