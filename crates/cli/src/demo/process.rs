//! The demo server, as a separate process of this command.

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::exit::ExitStatus;
use crate::server::Report;
use crate::session::failure::Failure;
use crate::session::log::Step;
use crate::session::set_up::SetUp;
use crate::style::Screen;

/// How long the server may take to listen, and to send its last report.
const SERVER_TIMEOUT: Duration = Duration::from_secs(20);

/// How long to wait for reports if the server may not send its last one.
const MOMENT: Duration = Duration::from_millis(200);

/// The server process. Dropping this closes its standard input, which ends it.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    input: Option<ChildStdin>,
    reports: Receiver<Report>,
    pub(super) address: SocketAddr,
}

impl ServerProcess {
    pub(super) fn start(listen: SocketAddr, set_up: SetUp) -> Result<Self, Failure> {
        let failure = |error| Failure::Other(format!("cannot start the server: {error}"));
        let program = std::env::current_exe().map_err(failure)?;
        let set_up = match set_up {
            SetUp::Cm => "cm",
            SetUp::Exchange => "exchange",
        };
        // The demo is about packets, so they are on the wire for sniffers. One side that shares no memory is enough.
        let local = std::env::var_os("FERROCE_LOCAL").filter(|value| !value.is_empty());
        let local = local.unwrap_or_else(|| "sockets".into());
        let mut child = Command::new(program)
            .env("FERROCE_LOCAL", local)
            .args(["server", "--json", "--demo", "--set-up", set_up])
            .args(["--listen", &listen.to_string()])
            // A file has one writer.
            .env_remove("FERROCE_CAPTURE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failure)?;
        let input = child.stdin.take();
        let (sender, reports) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                // Lines that are not reports are ignored.
                let reports = lines.filter_map(|line| serde_json::from_str(&line).ok());
                for report in reports {
                    if sender.send(report).is_err() {
                        break;
                    }
                }
            });
        }
        let mut server = Self { child, input, reports, address: listen };
        match server.reports.recv_timeout(SERVER_TIMEOUT) {
            Ok(Report::Listening { address }) => server.address = address,
            // It has printed the reason on our standard error.
            _ => return Err(Failure::Other("the server does not start".into())),
        }
        Ok(server)
    }

    /// Its steps until the client disconnected.
    pub(super) fn steps(&self, whole: bool) -> Vec<Step> {
        let end = Instant::now() + if whole { SERVER_TIMEOUT } else { MOMENT };
        let mut steps = Vec::new();
        while let Ok(report) =
            self.reports.recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            match report {
                Report::Step(step) => steps.push(step),
                Report::Left { .. } => break,
                _ => {}
            }
        }
        steps
    }

    /// Keeps it running until both processes are terminated.
    pub(super) fn stay(mut self, screen: &Screen) -> ExitStatus {
        let address = self.address;
        let text = format!(
            "\nThe server keeps running: try `ferroce client {address} bulk`. Ctrl-C stops it."
        );
        // A closed pipe changes nothing.
        let _ = writeln!(io::stdout(), "{text}");
        match self.child.wait() {
            Ok(status) if status.success() => ExitStatus::Success,
            Ok(status) => {
                screen.complain(format_args!("the server ended: {status}"));
                ExitStatus::Failure
            }
            Err(_) => ExitStatus::Failure,
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
