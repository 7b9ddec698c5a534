//! A rank as the command sees it: a child process.

use std::io::{self, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use super::control::{self, FromRank, ToRank};
use crate::session::failure::Failure;

/// How long to wait for the exit status of a process that has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A rank.
pub(super) struct RankProcess {
    /// Taken to end it.
    output: Option<ChildStdin>,
    child: Child,
    pub(super) pid: Option<u32>,
}

/// A message of a rank; `None` when it has closed its output, normally because it ended.
pub(super) type Report = (usize, Option<FromRank>);

impl RankProcess {
    /// Starts a rank. Its messages go to `reports`.
    pub(super) fn start(rank: usize, reports: Sender<Report>) -> Result<Self, Failure> {
        let failed =
            |error| Failure::Other(format!("cannot start a process for rank {rank}: {error}"));
        let mut child = command()
            .map_err(failed)?
            // A capture file has one writer; --capture chooses it.
            .env_remove("FERROCE_CAPTURE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let input = child.stdout.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        listen(rank, input, reports);
        Ok(Self { output: child.stdin.take(), child, pid: None })
    }

    /// Sends a message. A rank that cannot receive it has ended, which its output shows.
    pub(super) fn send(&mut self, message: &ToRank) {
        if let Some(output) = &mut self.output {
            let _ = control::send(output, message);
        }
    }

    /// Its process, for messages.
    pub(super) fn name(&self) -> String {
        self.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    }

    /// How it ended.
    pub(super) fn end(&mut self) -> String {
        let status = wait(&mut self.child, EXIT_TIMEOUT);
        match status.map(|status| (status.signal(), status.code())) {
            Some((Some(signal), _)) => format!("was killed by signal {signal}"),
            Some((_, Some(code))) => format!("ended with status {code}"),
            _ => "closed its output".into(),
        }
    }
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        // A rank ends when this end of its input closes. A stopped one has to be killed.
        self.output = None;
        if wait(&mut self.child, EXIT_TIMEOUT).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The command that runs a rank.
fn command() -> io::Result<Command> {
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
