//! Another process: this test binary, running an ignored test in a role.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Another process: this test binary, running an ignored test in a role.
pub(crate) struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

pub(crate) const ROLE: &str = "FERROCE_CM_TEST_ROLE";
pub(crate) const PORT: &str = "FERROCE_CM_TEST_PORT";

impl Other {
    pub(crate) fn is_me(role: &str) -> bool {
        std::env::var(ROLE).is_ok_and(|found| found == role)
    }

    pub(crate) fn start(role: &str) -> Self {
        Self::with(Command::new(std::env::current_exe().unwrap()), role)
    }

    /// Starts a process at our UDP port.
    pub(crate) fn beside(role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(PORT, port().to_string());
        Self::with(command, role)
    }

    pub(crate) fn with(mut command: Command, role: &str) -> Self {
        command
            .args(["--exact", role, "--include-ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, role);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take().unwrap();
        Self { child, input, output }
    }

    pub(crate) fn signal(&self, signal: i32) {
        ferroce_sys::signal::send(self.child.id(), signal);
    }

    pub(crate) fn wait(&mut self) {
        self.child.wait().unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn say(&mut self, line: &str) {
        // A process that reads no input may have ended.
        let _ = writeln!(self.input, "{line}");
    }

    /// Reads up to one of these lines, or the end; a failed test of the process is a failure here.
    pub(crate) fn hear_any<'a>(&mut self, lines: &[&'a str]) -> Option<&'a str> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            assert!(!line.contains("FAILED"), "the other process failed");
            if let Some(found) = lines.iter().find(|one| line.trim_end() == **one) {
                return Some(found);
            }
        }
    }

    /// Reads up to a line with this prefix, and returns the remainder.
    pub(crate) fn hear(&mut self, start: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.output.read_line(&mut line).unwrap();
            assert_ne!(length, 0, "the other process ended");
            if let Some(rest) = line.trim_end().strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Other {
    /// Stops it with SIGSTOP, and waits until it is stopped.
    pub(crate) fn stop(&self) {
        ferroce_sys::signal::send(self.child.id(), libc::SIGSTOP);
        let status = format!("/proc/{}/stat", self.child.id());
        // The state follows the name, which is in parentheses.
        while !std::fs::read_to_string(&status).unwrap().contains(") T ") {
            std::thread::yield_now();
        }
    }

    pub(crate) fn resume(&self) {
        ferroce_sys::signal::send(self.child.id(), libc::SIGCONT);
    }

    /// Kills it, and waits until its sockets are closed.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Returns the UDP port of the test: its other processes use the same.
pub(crate) fn port() -> u16 {
    let given = std::env::var(PORT).ok().and_then(|port| port.parse().ok());
    given.unwrap_or(10_000 + (std::process::id() % 10_000) as u16)
}

impl Drop for Other {
    fn drop(&mut self) {
        // A process that completed its role has ended.
        if std::thread::panicking() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
