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

use crate::exit::ExitStatus;
use crate::progress::{Progress, Unit};
use crate::style::Screen;
use output::Report;
use program::Program;
use system::System;

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
