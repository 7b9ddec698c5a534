//! A progress bar for long-running work.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use ferroce_trace::render::bar;
use ferroce_trace::render::text::cut;
use ferroce_trace::render::units;

use crate::style::printable;

/// Nothing is drawn before this: most work finishes earlier.
const DELAY: Duration = Duration::from_millis(300);

/// The minimum time between two updates.
const STEP: Duration = Duration::from_millis(100);

/// The width of the bar in columns.
const BAR: usize = 24;

/// The unit of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// `500 MB of 2.00 GB  500 MB/s`
    Bytes,
    /// `500 of 2,000  500 /s`
    Count,
}

impl Unit {
    fn amount(self, value: u64) -> String {
        match self {
            Self::Bytes => units::bytes(value),
            Self::Count => units::count(value),
        }
    }

    fn speed(self, rate: f64) -> String {
        match self {
            Self::Bytes => format!("{}/s", units::bytes(rate as u64)),
            Self::Count => units::packets_per_second(rate),
        }
    }
}

/// One line on standard error while the work lasts, if that is a terminal.
pub(crate) struct Progress {
    name: String,
    /// The total, if known.
    length: Option<u64>,
    unit: Unit,
    start: Instant,
    next: Duration,
    drawn: bool,
    wanted: bool,
}

impl Progress {
    pub(crate) fn new(name: &str, length: Option<u64>, unit: Unit, quiet: bool) -> Self {
        let wanted = !quiet && io::stderr().is_terminal();
        let name = printable(name).into_owned();
        Self { name, length, unit, start: Instant::now(), next: DELAY, drawn: false, wanted }
    }

    /// Changes the name, for the next part of the work.
    pub(crate) fn rename(&mut self, name: &str) {
        self.name = printable(name).into_owned();
    }

    /// Updates the amount done.
    pub(crate) fn show(&mut self, done: u64) {
        let elapsed = self.start.elapsed();
        if !self.wanted || elapsed < self.next {
            return;
        }
        self.next = elapsed + STEP;
        self.drawn = true;
        let columns = terminal_size::terminal_size_of(io::stderr());
        let columns = columns.map_or(80, |(width, _)| usize::from(width.0));
        let line = line(&self.name, done, self.length, self.unit, elapsed);
        // One column stays free: a terminal that wraps would leave lines behind. A failing output must not stop the
        // work.
        let line = cut(&line, columns.saturating_sub(1));
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }

    /// Removes the line.
    pub(crate) fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(name: &str, done: u64, length: Option<u64>, unit: Unit, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-9);
    let speed = unit.speed(rate);
    let Some(length) = length.filter(|length| *length > 0) else {
        return format!("{name}  {}  {speed}", unit.amount(done));
    };
    let done = done.min(length);
    // Whole seconds: more digits would only flicker.
    let left = match ((length - done) as f64 / rate.max(1e-9)) as u64 {
        seconds @ ..=118 => format!("{} s", seconds + 1),
        seconds => units::duration(seconds.saturating_mul(1_000_000_000)),
    };
    format!(
        "{name}  {:<BAR$}  {} of {}  {speed}  {left} left",
        bar::horizontal(done as f64, length as f64, BAR),
        unit.amount(done),
        unit.amount(length),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_shows_progress_rate_and_time_left() {
        assert_eq!(
            line("x.pcap", 500_000_000, Some(2_000_000_000), Unit::Bytes, Duration::from_secs(1)),
            "x.pcap  ██████                    500 MB of 2.00 GB  500 MB/s  4 s left"
        );
    }

    #[test]
    fn counts_show_progress_rate_and_time_left() {
        assert_eq!(
            line("seeds", 250, Some(1_000), Unit::Count, Duration::from_secs(500)),
            "seeds  ██████                    250 of 1,000  0.50 /s  25 min 0 s left"
        );
    }

    #[test]
    fn a_pipe_shows_only_amount_and_rate() {
        let text = line("-", 3_000_000, None, Unit::Bytes, Duration::from_millis(500));
        assert_eq!(text, "-  3.00 MB  6.00 MB/s");
    }

    #[test]
    fn extreme_values_do_not_panic() {
        for length in [None, Some(0), Some(1)] {
            for unit in [Unit::Bytes, Unit::Count] {
                line("x", u64::MAX, length, unit, Duration::ZERO);
                line("x", 0, length, unit, Duration::MAX);
            }
        }
    }
}
