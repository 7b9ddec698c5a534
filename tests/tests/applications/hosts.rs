//! Runs programs with `ferroce run`, on this host or on one of two others.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferroce_test_support::{built, find_program};
use ferroce_tests::hosts;

/// Returns the command.
pub(crate) fn ferroce() -> PathBuf {
    built::folder().join("ferroce")
}

/// Whether a program is installed; skips if not.
pub(crate) fn has(program: &str) -> bool {
    find_program(program).is_some()
}

/// Two hosts, each with its own loopback, whose link the kernel reports as up.
pub(crate) struct Hosts(hosts::Hosts);

impl Hosts {
    /// Returns `None`, after a skip, where namespaces cannot be created.
    pub(crate) fn new() -> Option<Self> {
        Some(Self(hosts::Hosts::new("apps")?.ready()))
    }

    pub(crate) fn address(side: usize) -> String {
        format!("10.9.0.{}", side + 1)
    }

    /// Returns a program on one of them, under `ferroce run` without options.
    pub(crate) fn program(&self, side: usize, name: &str) -> Command {
        let mut run = Command::new(ferroce());
        let mut command = self.0.command(side, run.args(["run", "--", name]));
        plain(&mut command);
        command
    }

    /// Returns a `ferroce` command on one of them.
    pub(crate) fn ferroce(&self, side: usize, arguments: &[&str]) -> Command {
        let mut command = self.0.command(side, Command::new(ferroce()).args(arguments));
        plain(&mut command);
        command
    }

    /// Returns a program on one of them, with a capture of its packets, which all go through sockets.
    pub(crate) fn captured(&self, side: usize, capture: &Path, name: &str) -> Command {
        let mut run = Command::new(ferroce());
        run.args(["run", "--wire", "--capture"]).arg(capture).args(["--", name]);
        let mut command = self.0.command(side, &run);
        plain(&mut command);
        command
    }
}

/// Removes variables of the environment that must not reach these programs.
pub(crate) fn plain(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["FERROCE_", "UCX_", "OMPI_", "FI_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD").stdin(Stdio::null());
}
