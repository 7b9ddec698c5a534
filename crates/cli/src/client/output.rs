//! The client's results, as text and JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ferroce::{Context, clock};
use ferroce_trace::render::units;
use serde::Serialize;

use super::Job;
use crate::exit::ExitStatus;
use crate::session::bytes::Size;
use crate::style::{Role, Screen};

/// All operations of one kind in a run.
#[derive(Debug, Serialize)]
struct Operations {
    operation: &'static str,
    count: u64,
    bytes: u64,
    /// Their total.
    duration_ns: u64,
    mib_per_second: f64,
}

/// The time from a WRITE_WITH_IMM to the server's answer.
#[derive(Debug, Serialize)]
struct RoundTrips {
    min_ns: u64,
    median_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

/// The capture file.
#[derive(Debug, Serialize)]
struct Capture {
    path: PathBuf,
    dropped: u64,
    /// A message about missing packets.
    #[serde(skip)]
    complaint: Option<String>,
}

/// The result of a run.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    job: &'static str,
    server: SocketAddr,
    size: u64,
    operations: Vec<Operations>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trips: Option<RoundTrips>,
    #[serde(skip)]
    answers: Vec<u64>,
    /// Bytes verified by both sides, or by the server alone. If any byte is wrong there is no result.
    verified_bytes: u64,
    packets_out: u64,
    packets_in: u64,
    /// The transport counters, by their names in Linux `hw_counters`.
    hw_counters: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capture: Option<Capture>,
}

impl Outcome {
    pub(super) fn new(job: Job, server: SocketAddr, size: u64) -> Self {
        Self {
            job: job.name(),
            server,
            size,
            operations: Vec::new(),
            round_trips: None,
            answers: Vec::new(),
            verified_bytes: 0,
            packets_out: 0,
            packets_in: 0,
            hw_counters: BTreeMap::new(),
            capture: None,
        }
    }

    /// Records an operation that began at this time.
    pub(super) fn timed(&mut self, operation: &'static str, bytes: u64, since: u64) {
        self.lasted(operation, bytes, clock::now().saturating_sub(since));
    }

    /// Records an operation that took this time, in nanoseconds.
    pub(super) fn lasted(&mut self, operation: &'static str, bytes: u64, took: u64) {
        let found = self.operations.iter().position(|one| one.operation == operation);
        let at = found.unwrap_or_else(|| {
            let none =
                Operations { operation, count: 0, bytes: 0, duration_ns: 0, mib_per_second: 0.0 };
            self.operations.push(none);
            self.operations.len() - 1
        });
        let one = &mut self.operations[at];
        one.count += 1;
        one.bytes += bytes;
        one.duration_ns += took;
        let seconds = one.duration_ns.max(1) as f64 / 1e9;
        one.mib_per_second = one.bytes as f64 / f64::from(1 << 20) / seconds;
    }

    /// Records the server's answer to a request that began at this time.
    pub(super) fn answered(&mut self, since: u64) {
        self.answers.push(clock::now().saturating_sub(since));
    }

    pub(super) fn verified(&mut self, bytes: u64) {
        self.verified_bytes += bytes;
    }

    /// Records the device's counters.
    pub(super) fn network(&mut self, context: &Context, capture: Option<&Path>) {
        let counted = context.statistics();
        (self.packets_out, self.packets_in) = (counted.packets_out, counted.packets_in);
        self.hw_counters = counted.hw_counters().collect();
        let captured = context.flush_capture().unwrap_or_default();
        self.capture = capture.map(|path| Capture {
            path: path.to_owned(),
            dropped: captured.dropped,
            complaint: captured.complaint(),
        });
        self.answers.sort_unstable();
        if let (Some(&min_ns), Some(&max_ns)) = (self.answers.first(), self.answers.last()) {
            let (median_ns, p99_ns) =
                (percentile(&self.answers, 50), percentile(&self.answers, 99));
            self.round_trips = Some(RoundTrips { min_ns, median_ns, p99_ns, max_ns });
        }
    }

    pub(super) fn print(&self, screen: &Screen) -> ExitStatus {
        let mut output = io::stdout().lock();
        let result = self.write(screen, &mut output).map(|()| ExitStatus::Success);
        ExitStatus::of_output(result, screen)
    }

    fn write(&self, screen: &Screen, output: &mut impl Write) -> io::Result<()> {
        let paint = screen.paint;
        let title = format!("{} with {}: {}", self.job, self.server, Size(self.size));
        writeln!(output, "{}", paint.role(Role::Title, title))?;
        for one in &self.operations {
            let times = if one.count == 1 { String::new() } else { format!("{} × ", one.count) };
            let each = Size(one.bytes / one.count.max(1));
            writeln!(
                output,
                "  {:<15} {times}{each} in {:.6} s, {:.1} MiB/s ({})",
                one.operation,
                one.duration_ns as f64 / 1e9,
                one.mib_per_second,
                units::bit_rate(one.bytes, one.duration_ns).unwrap_or_default(),
            )?;
        }
        if self.job == Job::Bulk.name() {
            let timed = "until the last ACK, without filling the buffers and verifying";
            writeln!(output, "  {:<15} {timed}", "timed")?;
        }
        if let Some(times) = &self.round_trips {
            writeln!(
                output,
                "  {:<15} min {}, median {}, 99% {}, max {}, the server's check included",
                "to the answer",
                units::duration(times.min_ns),
                units::duration(times.median_ns),
                units::duration(times.p99_ns),
                units::duration(times.max_ns),
            )?;
        }
        let (out, back) = (units::count(self.packets_out), units::count(self.packets_in));
        writeln!(output, "  {:<15} {out} out, {back} in", "packets")?;
        let counted = self.hw_counters.iter().filter(|(_, count)| **count > 0);
        for (number, (name, count)) in counted.enumerate() {
            let title = if number == 0 { "counters" } else { "" };
            writeln!(output, "  {title:<15} {name} {}", units::count(*count))?;
        }
        if let Some(capture) = &self.capture {
            write!(output, "  {:<15} {}", "capture", capture.path.display())?;
            match &capture.complaint {
                None => writeln!(output)?,
                Some(complaint) => {
                    writeln!(output, "; {}", paint.role(Role::Warning, complaint))?;
                }
            }
        }
        let verified = format!("{}, every byte", Size(self.verified_bytes));
        writeln!(output, "  {:<15} {}", "verified", paint.role(Role::Good, verified))
    }
}

/// The nearest-rank percentile, as in `ferroce analyze`; 0 without samples.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_are_measured_values() {
        assert_eq!([50, 99].map(|percent| percentile(&[466, 535, 1677], percent)), [535, 1677]);
        let many: Vec<u64> = (1..=1000).collect();
        assert_eq!([50, 99].map(|percent| percentile(&many, percent)), [500, 990]);
        assert_eq!(percentile(&[], 50), 0);
    }
}
