//! The server's output: lines of text, or JSON.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use ferroce::clock;
use serde::{Deserialize, Serialize};

use crate::session::bytes::Size;
use crate::session::log::Step;
use crate::style::{Role, Screen};

/// An event.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Report {
    /// The server accepts clients.
    Listening {
        /// The address it listens on.
        address: SocketAddr,
    },
    /// A client is connected.
    Connected {
        /// The client's address.
        client: SocketAddr,
        /// The size of its memory in bytes.
        bytes: u64,
    },
    /// A client was refused.
    Refused {
        /// The client's address.
        client: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// A client has disconnected.
    Left {
        /// The client's address.
        client: SocketAddr,
        /// The duration of its session in nanoseconds.
        duration_ns: u64,
        /// Bytes that the server verified.
        verified_bytes: u64,
        /// The error, if there was one.
        failure: Option<String>,
    },
    /// A capture is complete.
    Capture {
        /// The file.
        path: PathBuf,
        /// Packets written.
        packets: u64,
        /// Packets missing.
        dropped: u64,
        /// A message about missing packets.
        complaint: Option<String>,
    },
    /// A step of the demo.
    Step(Step),
}

/// Prints events.
#[derive(Debug)]
pub(crate) struct Reporter {
    json: bool,
    steps: bool,
    start: u64,
    screen: Screen,
}

impl Reporter {
    pub(super) fn new(json: bool, steps: bool, screen: Screen) -> Self {
        Self { json, steps, start: clock::now(), screen }
    }

    /// Whether steps are reported.
    pub(super) fn wants_steps(&self) -> bool {
        self.steps
    }

    /// Prints an event. A closed output does not stop the server.
    pub(super) fn report(&self, report: &Report) {
        let mut output = io::stdout().lock();
        let written = match self.json {
            true => serde_json::to_writer(&mut output, report)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(output)),
            false => self.text(report, &mut output),
        };
        let _ = written.and_then(|()| output.flush());
    }

    /// Reports the status of the captures, after their devices are closed.
    pub(super) fn captures(&self) {
        for (path, status) in ferroce::captures() {
            let complaint = status.complaint();
            let (packets, dropped) = (status.written, status.dropped);
            self.report(&Report::Capture { path, packets, dropped, complaint });
        }
    }

    fn text(&self, report: &Report, output: &mut impl Write) -> io::Result<()> {
        let paint = self.screen.paint;
        let at = (clock::now() - self.start) as f64 / 1e9;
        let at = paint.role(Role::Quiet, format!("{at:>9.3} s"));
        match report {
            Report::Listening { address } => {
                writeln!(output, "{at}  listening on {address} (RDMA-CM), UDP port 4791")
            }
            Report::Connected { client, bytes } => {
                writeln!(output, "{at}  {client} connected, with {} of memory", Size(*bytes))
            }
            Report::Refused { client, reason } => writeln!(output, "{at}  {client}: {reason}"),
            Report::Left { client, duration_ns, verified_bytes, failure } => {
                let took = ferroce_trace::render::units::duration(*duration_ns);
                let (role, end) = match failure {
                    None => (Role::Good, "has left".to_owned()),
                    Some(why) => (Role::Bad, format!("failed: {why}")),
                };
                let verified = Size(*verified_bytes);
                let end = paint.role(role, end);
                writeln!(
                    output,
                    "{at}  {client} {end} after {took}; {verified} verified by the server"
                )
            }
            Report::Capture { path, packets, complaint, .. } => {
                let packets = ferroce_trace::render::units::counted(*packets, "packet");
                write!(output, "{at}  capture {}: {packets}", path.display())?;
                match complaint {
                    Some(complaint) => writeln!(output, "; {}", paint.role(Role::Bad, complaint)),
                    None => writeln!(output),
                }
            }
            Report::Step(_) => Ok(()),
        }
    }
}
