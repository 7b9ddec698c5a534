//! The server of `perf` and `compare` on one host: a process of its own, which ends with the client.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::session::failure::Failure;

/// How long the server may take to listen, and to end.
const SERVER_TIMEOUT: Duration = Duration::from_secs(20);

/// How long to wait for the exit status of a server that seems to have ended.
const MOMENT: Duration = Duration::from_millis(300);

/// The first event that a server prints.
#[derive(Deserialize)]
struct Listening {
    address: SocketAddr,
}

/// The server process. Dropping this closes its standard input, which ends it.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    input: Option<ChildStdin>,
    pub(crate) address: SocketAddr,
}

impl ServerProcess {
    /// Starts `ferroce SUBCOMMAND --server` with further arguments, and waits until it listens.
    pub(crate) fn start(
        subcommand: &str,
        listen: SocketAddr,
        more: &[&str],
    ) -> Result<Self, Failure> {
        let failure = |error| Failure::Other(format!("cannot start the server: {error}"));
        let program = std::env::current_exe().map_err(failure)?;
        let mut child = Command::new(program)
            .args([subcommand, "--server", "--child", "--json", "--listen", &listen.to_string()])
            .args(more)
            // A capture file has one writer.
            .env_remove("FERROCE_CAPTURE")
            // Ctrl-C is for the client, which ends the server.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failure)?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let mut server = Self { child, input, address: listen };
        let (sender, first) = mpsc::channel();
        thread::spawn(move || {
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
                let Ok(line) = line else { break };
                // The client needs only the first event.
                let _ = sender.send(line);
            }
        });
        let line = first.recv_timeout(SERVER_TIMEOUT).unwrap_or_default();
        match serde_json::from_str(&line) {
            Ok(Listening { address }) => server.address = address,
            // It has printed the reason on our standard error.
            _ => return Err(Failure::Other("the server does not start".into())),
        }
        Ok(server)
    }

    /// How the server ended, if it did.
    pub(crate) fn end(&mut self) -> Option<String> {
        let until = Instant::now() + MOMENT;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(format!("the server process ended: {status}")),
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(2)),
                _ => return None,
            }
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        let end = Instant::now() + SERVER_TIMEOUT;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > end {
                let _ = self.child.kill();
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}
