//! A server, its clients, and a limit of time.

use std::fs;
use std::io::Read;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::libraries::program;

const LIMIT: Duration = Duration::from_secs(100);

/// A process whose output is read while it runs. It ends with this.
pub(crate) struct Running {
    name: String,
    child: Child,
    output: Option<JoinHandle<String>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let name = format!("{command:?}");
        let (out, err) = (Stdio::piped(), Stdio::piped());
        let mut child = command.stdout(out).stderr(err).spawn().expect("the program starts");
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let output = thread::spawn(move || {
            let errors = thread::spawn(move || text(err));
            text(out) + &errors.join().unwrap_or_default()
        });
        Self { name, child, output: Some(output) }
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_some()
    }

    /// Whether its first thread waits for something: proc(5).
    fn sleeps(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        // Behind the name, which may have anything in it.
        stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S")))
    }

    /// Waits for a good end, and returns what was printed.
    pub(crate) fn finish(self, until: Instant) -> String {
        self.end(until).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Waits for the end, and returns what was printed; or all about it when it was no good one.
    fn end(mut self, until: Instant) -> Result<String, String> {
        while !self.has_ended() && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
        let status = self.child.try_wait().expect("it can be waited for");
        let _ = self.child.kill();
        let output = self.output.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        match status.is_some_and(|status| status.success()) {
            true => Ok(output),
            false => {
                let name = &self.name;
                Err(format!("{name}: {status:?} (none is too late), and it said:\n{output}"))
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let _ = from.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// When a server is ready for its clients.
#[derive(Clone, Copy)]
pub(crate) enum Ready {
    /// It has claimed this service: port space and port.
    Service(u16, u16),
    /// The same, of one that accepts without rest, and is never seen to wait: rstream.
    Restless(u16, u16),
    /// It is in this group.
    Group(Ipv4Addr),
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
        }
    }
}

/// These programs have the ports that they have, and some poll without rest: one pair at a time.
static ONE: Mutex<()> = Mutex::new(());

/// What becomes of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
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
pub(crate) fn run(server: &str, client: &str, ready: Ready, ends: Server) -> Option<[String; 2]> {
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
    let restless = matches!(ready, Ready::Restless(..));
    let listens = |server: &Running| ready.holds() && (restless || server.sleeps());
    while !listens(&server) && !server.has_ended() && Instant::now() < until {
        thread::sleep(Duration::from_millis(2));
    }
    let mut said = match Running::start(second).end(until) {
        Ok(said) => said,
        Err(failure) => return Some(Err(failure)),
    };
    Some(Ok(match ends {
        Server::Ends | Server::EndsUnlessEarly => [server.finish(until), said],
        Server::Serves(clients) => {
            for _ in 1..clients {
                said = Running::start(command(client)?).finish(until);
            }
            assert!(!server.has_ended(), "{} has ended", server.name);
            [String::new(), said]
        }
    }))
}

/// Runs a program that has no other end.
pub(crate) fn alone(command: Command) -> String {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    Running::start(command).finish(Instant::now() + LIMIT)
}
