//! The result of the demo, as text and JSON.

use std::io::{self, BufWriter, Write};
use std::net::IpAddr;

use ferroce::setup::{Phase, PhaseTime};
use ferroce_trace::render::text::wrap;
use ferroce_trace::render::units;
use serde::Serialize;

use super::DemoArgs;
use super::wire::Wire;
use crate::analyze::output::{Alphabet, print};
use crate::exit::ExitStatus;
use crate::session::bytes::Size;
use crate::session::log::{Step, write_step};
use crate::session::set_up::SetUp;
use crate::style::{Role, Screen};

/// The version of the JSON format.
const SCHEMA: &str = "ferroce-demo-1";

/// An operation, and its time from post to completion.
#[derive(Debug, Serialize)]
struct Timing {
    operation: &'static str,
    bytes: u64,
    duration_ns: u64,
}

/// A verified condition.
#[derive(Debug, Serialize)]
struct Check {
    what: String,
    right_bytes: u64,
    bytes: u64,
}

/// A phase of the set-up exchange.
#[derive(Debug, Serialize)]
struct PhaseTiming {
    phase: String,
    duration_ns: u64,
    round_trip_ns: Option<u64>,
    attempts: u32,
}

/// The result of the demo.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    schema: &'static str,
    set_up: SetUp,
    address: IpAddr,
    size: u64,
    /// On the monotonic clock, as the times of the steps.
    start_ns: u64,
    pub(super) steps: Vec<Step>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    phases: Vec<PhaseTiming>,
    operations: Vec<Timing>,
    checks: Vec<Check>,
    /// Whether every byte was verified, which is the condition of success.
    verified: bool,
    verified_bytes: u64,
    #[serde(rename = "capture")]
    pub(super) wire: Option<Wire>,
    /// Packets missing in the capture.
    pub(super) dropped: u64,
    /// The same as a message.
    #[serde(skip)]
    pub(super) capture_complaint: Option<String>,
    #[serde(skip)]
    pub(super) queue_pairs: Vec<u32>,
}

/// The number of checks of a complete demo: READ, WRITE_WITH_IMM, SEND, two atomics and the counter.
const CHECKS: usize = 6;

impl Outcome {
    pub(super) fn new(args: &DemoArgs, start_ns: u64) -> Self {
        Self {
            schema: SCHEMA,
            set_up: args.set_up,
            address: args.address,
            size: args.size.0,
            start_ns,
            steps: Vec::new(),
            phases: Vec::new(),
            operations: Vec::new(),
            checks: Vec::new(),
            verified: false,
            verified_bytes: 0,
            wire: None,
            dropped: 0,
            capture_complaint: None,
            queue_pairs: Vec::new(),
        }
    }

    pub(super) fn timed(&mut self, operation: &'static str, bytes: u64, duration_ns: u64) {
        self.operations.push(Timing { operation, bytes, duration_ns });
    }

    pub(super) fn phase(&mut self, phase: Phase, time: &PhaseTime) {
        self.phases.push(PhaseTiming {
            phase: format!("{phase:?}"),
            duration_ns: time.duration().as_nanos() as u64,
            round_trip_ns: time.round_trip.map(|time| time.as_nanos() as u64),
            attempts: time.attempts,
        });
    }

    pub(super) fn check(&mut self, what: &str, right_bytes: u64, bytes: u64) {
        self.checks.push(Check { what: what.to_owned(), right_bytes, bytes });
        self.verified_bytes += right_bytes;
        self.verified = self.checks.len() == CHECKS
            && self.checks.iter().all(|check| check.right_bytes == check.bytes);
    }

    /// Merges the server's steps with ours: both processes use the same clock.
    pub(super) fn add_server(&mut self, steps: Vec<Step>) {
        self.steps.extend(steps);
        self.steps.sort_by_key(|step| step.at_ns);
    }

    pub(super) fn print(&self, args: &DemoArgs, screen: &Screen) -> ExitStatus {
        let written = match args.json {
            true => crate::devices::json(self, screen),
            // There is nothing to show; the caller reports the reason.
            false if self.steps.is_empty() => ExitStatus::Failure,
            false => {
                let mut output = BufWriter::new(io::stdout().lock());
                let result = self.text(args, screen, &mut output);
                let result = result.and_then(|()| output.flush());
                ExitStatus::of_output(result.map(|()| ExitStatus::Success), screen)
            }
        };
        let sound = self.wire.as_ref().is_none_or(Wire::is_sound);
        match self.verified && sound {
            true => written,
            false => ExitStatus::Failure,
        }
    }

    fn text(&self, args: &DemoArgs, screen: &Screen, output: &mut impl Write) -> io::Result<()> {
        let paint = screen.paint;
        let how = match self.set_up {
            SetUp::Cm => "the connection manager",
            SetUp::Exchange => "the set-up exchange",
        };
        let (size, address) = (Size(self.size), self.address);
        let title =
            format!("A server and a client process on {address}: {size}, connected by {how}");
        for part in wrap(&title, screen.log_columns.unwrap_or(usize::MAX)) {
            writeln!(output, "{}", paint.role(Role::Title, part))?;
        }
        writeln!(output, "\n{}  ms since the start", paint.role(Role::Heading, "Steps"))?;
        for step in &self.steps {
            write_step(step, self.start_ns, screen, output)?;
        }
        if let Some(wire) = &self.wire {
            for (title, lines) in wire.ladders(screen.columns) {
                writeln!(output, "\n{}", paint.role(Role::Heading, title))?;
                print(&lines, paint, Alphabet::choose(args.ascii), output)?;
            }
        }
        self.summary(screen, output)
    }

    fn summary(&self, screen: &Screen, output: &mut impl Write) -> io::Result<()> {
        let paint = screen.paint;
        writeln!(output, "\n{}", paint.role(Role::Heading, "Summary"))?;
        for (number, one) in self.phases.iter().enumerate() {
            let took = units::duration(one.duration_ns);
            let name = format!("phase {} {}", number + 1, one.phase);
            let trip = one.round_trip_ns.map(units::duration);
            let trip = trip.map_or(String::new(), |trip| format!(", round trip {trip}"));
            writeln!(output, "  {name:<20} {took:>9}{trip}")?;
        }
        for one in &self.operations {
            let took = units::duration(one.duration_ns);
            writeln!(output, "  {:<20} {took:>9}  {}", one.operation, bytes(one.bytes))?;
        }
        for check in &self.checks {
            let (role, word) = match check.right_bytes == check.bytes {
                true => (Role::Good, "right"),
                false => (Role::Bad, "WRONG"),
            };
            let what = &check.what;
            writeln!(output, "  {} {what}: {}", paint.role(role, word), bytes(check.bytes))?;
        }
        if let Some(wire) = &self.wire {
            let (path, packets) = (wire.path.display(), units::counted(wire.packets, "packet"));
            let icrc = match wire.icrc_bad {
                0 => "every ICRC right".to_owned(),
                bad => format!("{} wrong", units::counted(bad, "ICRC")),
            };
            let anomalies = match wire.anomalies {
                0 => "no anomaly".to_owned(),
                count => units::counted(count, "anomaly").replace("anomalys", "anomalies"),
            };
            writeln!(output, "  {path}: {packets}, {icrc}, {anomalies}; for Wireshark, or:")?;
            writeln!(output, "    ferroce analyze {path}")?;
        }
        let verified = bytes(self.verified_bytes);
        let (role, text) = match self.verified {
            true => (Role::Good, format!("  all {verified} verified")),
            false => (Role::Bad, format!("  failed: only {verified} verified")),
        };
        writeln!(output, "{}", paint.role(role, text))
    }
}

fn bytes(count: u64) -> String {
    units::counted(count, "byte")
}
