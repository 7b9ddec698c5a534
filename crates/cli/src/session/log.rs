//! The steps of a run, with their times.

use std::io::{self, Write};

use ferroce::clock;
use ferroce_trace::render::text::wrap;
use serde::{Deserialize, Serialize};

use crate::style::{Role, Screen};

/// A step: what was done, by which side, when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// `client` or `server`.
    pub(crate) side: String,
    /// The part of the program.
    pub(crate) part: String,
    /// When it was done, in nanoseconds of the monotonic clock, which all processes share.
    pub(crate) at_ns: u64,
    /// How long it took, if that is significant.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) took_ns: Option<u64>,
    /// The text.
    pub(crate) text: String,
}

/// The steps of one side.
#[derive(Debug)]
pub(crate) struct Log {
    side: &'static str,
    pub(crate) steps: Vec<Step>,
}

impl Log {
    pub(crate) fn new(side: &'static str) -> Self {
        Self { side, steps: Vec::new() }
    }

    /// Logs a step.
    pub(crate) fn say(&mut self, part: &str, text: impl Into<String>) -> &Step {
        self.push(part, None, text.into())
    }

    /// Logs a step that began at this time.
    pub(crate) fn done(&mut self, part: &str, since: u64, text: impl Into<String>) -> &Step {
        self.push(part, Some(clock::now().saturating_sub(since)), text.into())
    }

    fn push(&mut self, part: &str, took_ns: Option<u64>, text: String) -> &Step {
        let at = self.steps.len();
        let (side, part) = (self.side.to_owned(), part.to_owned());
        self.steps.push(Step { side, part, at_ns: clock::now(), took_ns, text });
        &self.steps[at]
    }
}

/// Prints a step: time, side, text, duration. Long text is wrapped.
pub(crate) fn write_step(
    step: &Step,
    start: u64,
    screen: &Screen,
    output: &mut impl Write,
) -> io::Result<()> {
    let paint = screen.paint;
    let at = step.at_ns.saturating_sub(start) as f64 / 1e6;
    let role = if step.side == "server" { Role::Second } else { Role::First };
    let label = format!("[{} {}]", step.side, step.part);
    let mut text = crate::style::printable(&step.text).into_owned();
    let took = step.took_ns.map(ferroce_trace::render::units::duration);
    if let Some(took) = &took {
        text.push_str(&format!("  ({took})"));
    }
    let used = TIME + 1 + label.chars().count() + 1;
    let mut lines = hanging(&text, screen.log_columns.unwrap_or(usize::MAX), used).into_iter();
    let at = paint.role(Role::Quiet, format!("{at:>TIME$.3}"));
    let first = lines.next().unwrap_or_default();
    writeln!(output, "{at} {} {first}", paint.role(role, label))?;
    lines.try_for_each(|line| writeln!(output, "{:INDENT$}{line}", ""))
}

/// The width of a step's time, and the indentation of continuation lines.
const TIME: usize = 8;
const INDENT: usize = TIME + 1;

/// Wraps text to `columns`; the first line has `used` columns less, the others [`INDENT`].
fn hanging(text: &str, columns: usize, used: usize) -> Vec<String> {
    let first = wrap(text, columns.saturating_sub(used).max(MIN_TEXT_WIDTH)).into_iter().next();
    let first = first.unwrap_or_default();
    let rest = text.get(first.len()..).unwrap_or_default().trim_start();
    let below = wrap(rest, columns.saturating_sub(INDENT).max(MIN_TEXT_WIDTH));
    std::iter::once(first).chain(below.into_iter().filter(|line| !line.is_empty())).collect()
}

/// The minimum width of text, however narrow the screen.
const MIN_TEXT_WIDTH: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_steps_wrap() {
        assert_eq!(hanging("one two", 100, 30), ["one two"]);
        let text = "WR: wr_id=1 opcode=RDMA_WRITE signaled=1 num_sge=1 remote_addr=0x7f rkey=0x5";
        let lines = hanging(text, 60, 30);
        assert_eq!(lines[0], "WR: wr_id=1 opcode=RDMA_WRITE");
        assert_eq!(lines[1], "signaled=1 num_sge=1 remote_addr=0x7f rkey=0x5");
        assert_eq!(lines.len(), 2);
        assert_eq!(lines.join(" "), text);
    }
}
