//! The findings as text and JSON.

use std::io::{self, BufWriter, Write};

use ferroce_trace::render::text::wrap;
use serde::Serialize;

use super::finding::{Finding, Level};
use crate::exit::ExitStatus;
use crate::style::{Role, Screen, printable};

/// The version of the JSON format.
const SCHEMA: &str = "ferroce-doctor-1";

/// The titles of the groups, in the order of the output.
const GROUPS: [(&str, &str); 14] = [
    ("devices", "Devices"),
    ("mtu", "MTU"),
    ("port", "UDP port 4791"),
    ("sockets", "Sockets"),
    ("buffers", "Socket buffers"),
    ("offload", "Kernel features"),
    ("namespaces", "Namespaces"),
    ("sharing", "Processes of this host"),
    ("capture", "Captures"),
    ("limits", "Limits"),
    ("environment", "Variables of Ferroce"),
    ("messaging", "UCX, libfabric, Open MPI, NCCL"),
    ("libraries", "Libraries"),
    ("program", "Program"),
];

/// All findings of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    version: &'static str,
    /// The most serious result.
    result: Level,
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(findings: Vec<Finding>) -> Self {
        let result = findings.iter().map(|finding| finding.result).max().unwrap_or(Level::Ok);
        Self { schema: SCHEMA, version: env!("CARGO_PKG_VERSION"), result, findings }
    }

    /// Whether the command succeeds.
    pub(super) fn status(&self, strict: bool) -> ExitStatus {
        match self.result {
            Level::Problem => ExitStatus::Failure,
            Level::Warning if strict => ExitStatus::Failure,
            _ => ExitStatus::Success,
        }
    }

    pub(super) fn print(&self, json: bool, strict: bool, screen: &Screen) -> ExitStatus {
        if json {
            return crate::devices::json(self, screen).and(self.status(strict));
        }
        let mut output = BufWriter::new(io::stdout().lock());
        let written = self.text(screen, &mut output).and_then(|()| output.flush());
        ExitStatus::of_output(written.map(|()| ExitStatus::Success), screen)
            .and(self.status(strict))
    }

    pub(super) fn text(&self, screen: &Screen, output: &mut impl Write) -> io::Result<()> {
        let self_test = ("selftest", "Self-test");
        for (group, title) in GROUPS.into_iter().chain([self_test]) {
            let findings: Vec<_> =
                self.findings.iter().filter(|finding| finding.group() == group).collect();
            if findings.is_empty() {
                continue;
            }
            writeln!(output, "{}", screen.paint.role(Role::Heading, title))?;
            for finding in findings {
                line(finding, screen, output)?;
            }
        }
        self.summary(screen, output)
    }

    fn summary(&self, screen: &Screen, output: &mut impl Write) -> io::Result<()> {
        let count = |level| self.findings.iter().filter(|finding| finding.result == level).count();
        let [problems, warnings, notes] = [Level::Problem, Level::Warning, Level::Note].map(count);
        let plural = |count: usize, one: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {one}s"),
        };
        let rest = format!(
            "{}, {} among {}",
            plural(warnings, "warning"),
            plural(notes, "note"),
            plural(self.findings.len(), "check")
        );
        let (role, text) = match problems {
            0 => (Role::Good, format!("Ferroce works here: {rest}")),
            count => (Role::Bad, format!("{} to solve; {rest}", plural(count, "problem"))),
        };
        writeln!(output, "\n{}", screen.paint.role(role, text))
    }
}

/// The mark, the finding, its name, and below it the fix.
fn line(finding: &Finding, screen: &Screen, output: &mut impl Write) -> io::Result<()> {
    const INDENT: usize = 12;
    let (role, word) = match finding.result {
        Level::Ok => (Role::Good, "ok"),
        Level::Note => (Role::Value, "note"),
        Level::Warning => (Role::Warning, "warning"),
        Level::Problem => (Role::Bad, "PROBLEM"),
    };
    let width = screen.columns.saturating_sub(INDENT).max(30);
    // Where the finding does not say what it is about.
    let subject = finding.subject.as_deref().filter(|subject| !finding.finding.contains(subject));
    let text = match subject {
        Some(subject) => format!("{subject}: {}", finding.finding),
        None => finding.finding.clone(),
    };
    let text = printable(&text).into_owned();
    for (number, part) in wrap(&text, width).into_iter().enumerate() {
        match number {
            0 => write!(output, "  {:<8}  {part}", screen.paint.role(role, word))?,
            _ => write!(output, "\n{:INDENT$}{part}", "")?,
        }
    }
    writeln!(output)?;
    if let Some(fix) = &finding.fix {
        let fix = format!("→ {}", printable(fix));
        for part in wrap(&fix, width) {
            writeln!(output, "{:INDENT$}{}", "", screen.paint.role(Role::Quiet, part))?;
        }
    }
    Ok(())
}
