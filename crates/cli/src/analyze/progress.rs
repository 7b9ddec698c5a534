//! A progress bar for files that take long.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use ferroce_trace::render::bar;
use ferroce_trace::render::text::cut;
use ferroce_trace::render::units;

/// Nothing is drawn before: most files are done by then.
const PATIENCE: Duration = Duration::from_millis(300);

/// Least time between two drawings.
const STEP: Duration = Duration::from_millis(100);

/// Columns of the whole bar.
const BAR: usize = 24;

/// One line on the standard error output, while a file is read. Draws nothing unless that is a terminal.
pub(crate) struct Progress {
    name: String,
    /// Bytes of the file, where it is one.
    length: Option<u64>,
    start: Instant,
    next: Duration,
    drawn: bool,
    wanted: bool,
}

impl Progress {
    pub(crate) fn new(name: &str, length: Option<u64>, quiet: bool) -> Self {
        let wanted = !quiet && io::stderr().is_terminal();
        let name = super::output::Printable(name).to_string();
        Self { name, length, start: Instant::now(), next: PATIENCE, drawn: false, wanted }
    }

    /// So many bytes are read.
    pub(crate) fn show(&mut self, done: u64) {
        let elapsed = self.start.elapsed();
        if !self.wanted || elapsed < self.next {
            return;
        }
        self.next = elapsed + STEP;
        self.drawn = true;
        let columns = terminal_size::terminal_size_of(io::stderr());
        let columns = columns.map_or(80, |(width, _)| usize::from(width.0));
        let line = line(&self.name, done, self.length, elapsed);
        // One column is left free: a terminal that wraps would leave lines behind. An output that fails is no
        // reason to stop the work.
        let line = cut(&line, columns.saturating_sub(1));
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }

    /// Takes the line away.
    pub(crate) fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(name: &str, done: u64, length: Option<u64>, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-9);
    let speed = format!("{}/s", units::bytes(rate as u64));
    let Some(length) = length.filter(|length| *length > 0) else {
        return format!("{name}  {}  {speed}", units::bytes(done));
    };
    let done = done.min(length);
    // Whole seconds: more would only flicker.
    let left = match ((length - done) as f64 / rate.max(1.0)) as u64 + 1 {
        seconds @ ..=119 => format!("{seconds} s"),
        seconds => units::duration(seconds.saturating_mul(1_000_000_000)),
    };
    format!(
        "{name}  {:<BAR$}  {} of {}  {speed}  {left} left",
        bar::lying(done as f64, length as f64, BAR),
        units::bytes(done),
        units::bytes(length),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_shows_how_far_and_how_long() {
        assert_eq!(
            line("x.pcap", 500_000_000, Some(2_000_000_000), Duration::from_secs(1)),
            "x.pcap  ██████                    500 MB of 2.00 GB  500 MB/s  4 s left"
        );
    }

    #[test]
    fn a_pipe_has_no_end_to_show() {
        let text = line("-", 3_000_000, None, Duration::from_millis(500));
        assert_eq!(text, "-  3.00 MB  6.00 MB/s");
    }

    #[test]
    fn odd_figures_do_no_harm() {
        for length in [None, Some(0), Some(1)] {
            line("x", u64::MAX, length, Duration::ZERO);
            line("x", 0, length, Duration::MAX);
        }
    }
}
