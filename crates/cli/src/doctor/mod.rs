//! `ferroce doctor`: what works on this host and what does not, each with the fix.
//!
//! [`system`] and [`program`] read facts, [`checks`] are pure functions from facts to findings, and [`self_test`] sends
//! packets. Each finding has a stable ID, for scripts and for docs/troubleshooting.md.

mod args;
mod checks;
mod finding;
mod output;
mod program;
mod self_test;
mod system;

pub(crate) use args::{DoctorArgs, EXAMPLES};

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::exit::ExitStatus;
use crate::progress::{Progress, Unit};
use crate::style::Screen;
use finding::{Finding, Level};
use output::Report;
use program::Program;
use system::System;

/// Findings about a program that `ferroce run` cannot reach, or not completely.
const OBSTACLES: [&str; 6] = [
    "program.architecture",
    "program.static",
    "program.privileged",
    "program.own_verbs",
    "program.rpath",
    "program.preload",
];

/// What keeps Ferroce's libraries from a program, and what to do about it. `libraries` is their folder.
pub(crate) fn obstacles(name: &OsStr, libraries: &Path) -> Vec<String> {
    let program = Program::read(name, &system::environment(), libraries.to_str());
    let user = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    let findings = checks::program::check(user, &program).into_iter();
    let findings = findings
        .filter(|finding| finding.result >= Level::Warning && OBSTACLES.contains(&finding.id));
    let text = |finding: Finding| match finding.fix {
        Some(fix) => format!("{}; {fix}", finding.finding),
        None => finding.finding,
    };
    findings.map(text).collect()
}

/// Checks this host, and a program if one is given.
pub(crate) fn run(args: &DoctorArgs, screen: &Screen) -> ExitStatus {
    let system = System::read();
    let folder = system.libraries.as_ref().and_then(|found| found.as_deref().ok());
    let program = args.program.first().map(|name| Program::read(name, &system.environment, folder));
    let mut findings = checks::all(&system, program.as_ref());
    if !args.no_self_test {
        let devices = ferroce::devices().unwrap_or_default();
        let mut progress =
            Progress::new("self-test", Some(devices.len() as u64), Unit::Count, args.json);
        for (number, device) in devices.iter().enumerate() {
            progress.show(number as u64);
            findings.extend(self_test::run(device));
        }
        progress.erase();
    }
    Report::new(findings).print(args.json, args.strict, screen)
}
