//! What `ferroce capture` says: the live line, losses, and the result.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use ferroce_trace::render::text::cut;
use ferroce_trace::render::units;
use serde::Serialize;

use super::args::CaptureCommandArgs;
use super::collector::Collector;
use super::output::Files;
use crate::style::{Screen, printable};

/// The time between two updates of the live line.
const STEP: Duration = Duration::from_millis(200);

/// The messages of a capture.
pub(super) struct Summary {
    quiet: bool,
    live: bool,
    started: Instant,
    shown: Instant,
    bytes_shown: u64,
    drawn: bool,
    announced: bool,
    dropped: u64,
}

/// The result, for machines.
#[derive(Serialize)]
struct Outcome {
    file: String,
    files: u32,
    packets: u64,
    bytes: u64,
    dropped: u64,
    processes: usize,
    duration_ns: u64,
    interfaces: Vec<OutcomeInterface>,
}

#[derive(Serialize)]
struct OutcomeInterface {
    name: String,
    process: Option<u32>,
    program: Option<String>,
    dropped: u64,
}

impl Summary {
    pub(super) fn new(quiet: bool) -> Self {
        let now = Instant::now();
        Self {
            quiet,
            live: !quiet && io::stderr().is_terminal(),
            started: now,
            shown: now,
            bytes_shown: 0,
            drawn: false,
            announced: false,
            dropped: 0,
        }
    }

    /// The time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Says once that the processes found at the start are captured.
    pub(super) fn announce(&mut self, collector: &Collector, files: &Files, screen: &Screen) {
        if self.announced || !collector.is_ready() {
            return;
        }
        self.announced = true;
        if self.quiet {
            return;
        }
        let mut names: Vec<_> = collector
            .interfaces()
            .iter()
            .map(|interface| match &interface.process {
                Some((number, program)) => format!("{program} ({number})"),
                None => interface.name.clone(),
            })
            .collect();
        names.dedup();
        let more = names.len().saturating_sub(5);
        names.truncate(5);
        if more > 0 {
            names.push(format!("{more} more"));
        }
        let from = match names.is_empty() {
            true => "no process yet: those that start are included".to_owned(),
            false => printable(&names.join(", ")).into_owned(),
        };
        let to = files.current().display().to_string();
        let to = if to == "-" { "standard output".to_owned() } else { to };
        screen.note(format_args!("capturing to {to} from {from}; Ctrl-C ends it"));
    }

    /// Says at once that packets are lost, the first time and whenever the number has doubled.
    pub(super) fn state_losses(&mut self, dropped: u64, screen: &Screen) {
        if dropped <= self.dropped.saturating_mul(2) {
            return;
        }
        self.dropped = dropped;
        self.erase();
        screen.complain(format_args!(
            "{} packets lost so far: they come faster than they can be written",
            units::count(dropped)
        ));
    }

    /// Updates the live line.
    pub(super) fn show(&mut self, collector: &Collector, files: &Files) {
        let elapsed = self.shown.elapsed();
        if !self.live || elapsed < STEP {
            return;
        }
        let rate = (files.bytes - self.bytes_shown) as f64 / elapsed.as_secs_f64();
        (self.shown, self.bytes_shown, self.drawn) = (Instant::now(), files.bytes, true);
        let line = format!(
            "{} packets  {}  {}/s  {} process{}  {} lost",
            units::count(files.packets),
            units::bytes(files.bytes),
            units::bytes(rate as u64),
            collector.processes(),
            if collector.processes() == 1 { "" } else { "es" },
            units::count(collector.dropped()),
        );
        let columns = terminal_size::terminal_size_of(io::stderr());
        let columns = columns.map_or(80, |(width, _)| usize::from(width.0));
        let _ = write!(io::stderr(), "\r\x1b[K{}", cut(&line, columns.saturating_sub(1)));
    }

    /// Removes the live line.
    pub(super) fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// Prints the result.
    pub(super) fn finish(
        &self,
        collector: &Collector,
        files: &Files,
        args: &CaptureCommandArgs,
        screen: &Screen,
    ) {
        let elapsed = self.elapsed();
        let dropped = collector.dropped();
        if args.json {
            let interfaces = collector.interfaces().iter().map(|interface| OutcomeInterface {
                name: interface.name.clone(),
                process: interface.process.as_ref().map(|(number, _)| *number),
                program: interface.process.as_ref().map(|(_, program)| program.clone()),
                dropped: interface.dropped,
            });
            let outcome = Outcome {
                file: files.current().display().to_string(),
                files: files.count(),
                packets: files.packets,
                bytes: files.bytes,
                dropped,
                processes: collector.attached(),
                duration_ns: elapsed.as_nanos() as u64,
                interfaces: interfaces.collect(),
            };
            crate::devices::json(&outcome, screen);
        }
        if self.quiet || args.json {
            return;
        }
        screen.note(format_args!(
            "{} packets, {}, of {} process{} in {}; {}",
            units::count(files.packets),
            units::bytes(files.bytes),
            collector.attached(),
            if collector.attached() == 1 { "" } else { "es" },
            units::duration(elapsed.as_nanos() as u64),
            if dropped == 0 {
                "none lost".to_owned()
            } else {
                format!("{} lost", units::count(dropped))
            },
        ));
        if collector.refused() > 0 {
            screen.complain(format_args!(
                "{} connections were refused: processes of another version of Ferroce are missing",
                collector.refused()
            ));
        }
    }
}

/// The message at the end of a capture with losses.
pub(super) fn losses(dropped: u64, written: u64) -> String {
    format!(
        "{} of {} packets are missing in the capture: they came faster than they could be written; \
         a larger --buffer, faster storage, --snaplen, or --capture-policy block avoids this",
        units::count(dropped),
        units::count(dropped + written),
    )
}

/// A capture may end this much later than asked before it says so.
const PUNCTUAL: Duration = Duration::from_secs(1);

/// The message of a capture that took longer than asked. `longest` is its longest pass.
pub(super) fn late(asked: Duration, took: Duration, longest: Duration) -> Option<String> {
    let late = took.checked_sub(asked).filter(|late| *late > PUNCTUAL)?;
    let shown = |time: Duration| units::duration(time.as_nanos() as u64);
    Some(format!(
        "the capture took {} longer than asked, and {} to take and write packets once: the machine is busy, or the output \
         takes them slowly",
        shown(late),
        shown(longest)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_that_took_too_long_says_so() {
        let seconds = Duration::from_secs_f64;
        assert_eq!(late(seconds(5.0), seconds(5.9), seconds(0.1)), None);
        assert_eq!(late(seconds(5.0), seconds(4.0), seconds(0.1)), None);
        let text = late(seconds(5.0), seconds(21.4), seconds(16.0)).unwrap();
        assert!(text.contains("16.4 s longer") && text.contains("16.0 s to take"), "{text}");
    }
}
