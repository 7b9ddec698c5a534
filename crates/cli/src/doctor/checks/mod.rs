//! The checks: pure functions from facts to findings.

mod devices;
mod environment;
mod kernel;
mod messaging;
mod mtu;
mod port;
pub(super) mod program;
#[cfg(test)]
mod tests;

use super::finding::Finding;
use super::program::Program;
use super::system::System;

/// All checks that need no packet.
pub(super) fn all(system: &System, program: Option<&Program>) -> Vec<Finding> {
    let mut findings = devices::check(system);
    findings.extend(port::check(system));
    findings.extend(mtu::check(system));
    findings.extend(kernel::check(system));
    findings.extend(environment::check(system, program.is_some()));
    findings.extend(messaging::check(system));
    if let Some(program) = program {
        findings.extend(program::check(system.kernel.user, program));
    }
    findings
}
