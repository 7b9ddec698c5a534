//! A rank as the command sees it: a child process, or a process of an agent on another host.

use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_sys::tcp;

use super::control::{self, FromRank, ToRank};
use crate::session::failure::Failure;

/// How long an agent may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// After this time without packets, the kernel probes whether the host of an agent exists.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(5);

/// How long to wait for the exit status of a process that has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Where a rank runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On this host, at this address.
    Here(IpAddr),
    /// With the agent that listens there.
    Agent(SocketAddr),
}

impl Place {
    pub(super) fn address(self) -> IpAddr {
        match self {
            Self::Here(address) => address,
            Self::Agent(agent) => agent.ip(),
        }
    }
}

/// A rank.
pub(super) struct RankProcess {
    output: Box<dyn Write>,
    child: Option<Child>,
    place: Place,
    pub(super) pid: Option<u32>,
}

/// A message of a rank; `None` when it has closed its output, normally because it ended.
pub(super) type Report = (usize, Option<FromRank>);

impl RankProcess {
    /// Starts a rank. Its messages go to `reports`.
    pub(super) fn start(
        rank: usize,
        place: Place,
        reports: Sender<Report>,
    ) -> Result<Self, Failure> {
        match place {
            Place::Here(_) => {
                let failed = |error| {
                    Failure::Other(format!("cannot start a process for rank {rank}: {error}"))
                };
                let mut child = command()
                    .map_err(failed)?
                    // A capture file has one writer; --capture chooses it.
                    .env_remove("FERROCE_CAPTURE")
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .map_err(failed)?;
                let (input, output) = (child.stdout.take(), child.stdin.take());
                let missing = || failed(io::ErrorKind::BrokenPipe.into());
                listen(rank, input.ok_or_else(missing)?, reports);
                let output = Box::new(output.ok_or_else(missing)?);
                Ok(Self { output, child: Some(child), place, pid: None })
            }
            Place::Agent(agent) => {
                let stream = connect(agent).map_err(|error| unreachable(agent, &error))?;
                let failed = |error| Failure::Other(format!("agent {agent}: {error}"));
                listen(rank, stream.try_clone().map_err(failed)?, reports);
                Ok(Self { output: Box::new(stream), child: None, place, pid: None })
            }
        }
    }

    /// Sends a message. A rank that cannot receive it has ended, which its output shows.
    pub(super) fn send(&mut self, message: &ToRank) {
        let _ = control::send(&mut self.output, message);
    }

    /// Its process and host, for messages.
    pub(super) fn name(&self) -> String {
        let pid = self.pid.map(|pid| format!("process {pid}"));
        match (pid, self.place) {
            (Some(pid), Place::Here(_)) => format!(" ({pid})"),
            (Some(pid), Place::Agent(agent)) => format!(" ({pid} on {})", agent.ip()),
            (None, Place::Agent(agent)) => format!(" (on {})", agent.ip()),
            (None, Place::Here(_)) => String::new(),
        }
    }

    /// How it ended.
    pub(super) fn end(&mut self) -> String {
        let status = self.child.as_mut().and_then(|child| wait(child, EXIT_TIMEOUT));
        match status.map(|status| (status.signal(), status.code())) {
            Some((Some(signal), _)) => format!("was killed by signal {signal}"),
            Some((_, Some(code))) => format!("ended with status {code}"),
            _ => "closed its connection".into(),
        }
    }
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        // A rank ends when this end of its input closes. A stopped one has to be killed.
        self.output = Box::new(io::sink());
        if let Some(child) = &mut self.child {
            if wait(child, EXIT_TIMEOUT).is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// The command that runs a rank.
pub(super) fn command() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // Ctrl-C is for the command that started it, with which all ranks end.
    command.args(["workload", "--rank"]).process_group(0);
    Ok(command)
}

fn wait(child: &mut Child, timeout: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + timeout;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(2)),
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
}

/// Forwards the messages of a rank.
fn listen(rank: usize, input: impl Read + Send + 'static, reports: Sender<Report>) {
    thread::spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let message = control::receive(&mut input).unwrap_or(None);
            let end = message.is_none();
            if reports.send((rank, message)).is_err() || end {
                break;
            }
        }
    });
}

fn connect(agent: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&agent, CONNECT_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
    tcp::set_keepalive(stream.as_fd(), KEEPALIVE)?;
    Ok(stream)
}

fn unreachable(agent: SocketAddr, error: &io::Error) -> Failure {
    Failure::Other(match error.kind() {
        io::ErrorKind::ConnectionRefused => format!(
            "no agent listens on {agent}: start `ferroce workload --agent --listen {agent}` there \
             first"
        ),
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable => format!(
            "{} does not respond: check that the host is up, and that firewalls allow TCP and UDP \
             port 4791",
            agent.ip()
        ),
        _ => format!("cannot connect to the agent {agent}: {error}"),
    })
}
