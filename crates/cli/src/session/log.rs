//! The steps of a run, and how long each took.

use std::io::{self, Write};

use ferroce::clock;
use serde::{Deserialize, Serialize};

use crate::style::{Paint, Role};

/// A step: what was done, by whom, when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// `client` or `server`.
    pub(crate) side: String,
    /// The part of the program that speaks.
    pub(crate) part: String,
    /// When it was done, in nanoseconds: of the monotonic clock, which all processes share.
    pub(crate) at_ns: u64,
    /// How long it took, if it took any time worth speaking of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) took_ns: Option<u64>,
    /// What.
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

    /// Something was done or is to be.
    pub(crate) fn say(&mut self, part: &str, text: impl Into<String>) -> &Step {
        self.push(part, None, text.into())
    }

    /// Something was done, since then.
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

/// Writes a step on one line: when, who, what, how long it took.
pub(crate) fn write_step(
    step: &Step,
    start: u64,
    paint: Paint,
    output: &mut impl Write,
) -> io::Result<()> {
    let at = step.at_ns.saturating_sub(start) as f64 / 1e6;
    let role = if step.side == "server" { Role::Second } else { Role::First };
    let who = format!("[{} {}]", step.side, step.part);
    write!(
        output,
        "{} {} {}",
        paint.role(Role::Quiet, format_args!("{at:>8.3}")),
        paint.role(role, who),
        crate::style::printable(&step.text)
    )?;
    match step.took_ns {
        Some(took) => {
            let took = ferroce_trace::render::units::duration(took);
            writeln!(output, "  {}", paint.role(Role::Quiet, format_args!("({took})")))
        }
        None => writeln!(output),
    }
}
