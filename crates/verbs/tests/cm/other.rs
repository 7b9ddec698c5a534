//! Another process: this program again, with one ignored test that does as it is told.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Another process: this program again, with one ignored test that does as it is told.
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

    /// One at our own port.
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
        // One that has nothing to hear may be done already.
        let _ = writeln!(self.input, "{line}");
    }

    /// Reads until one of these lines, or the end; a test of its that failed is a failure here.
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

    /// Reads until a line that begins so, and returns the rest of it.
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
    /// Stops it, as SIGSTOP does, and returns when it is.
    pub(crate) fn stop(&self) {
        ferroce_sys::signal::send(self.child.id(), libc::SIGSTOP);
        let status = format!("/proc/{}/stat", self.child.id());
        // The state stands behind the name, which is in brackets.
        while !std::fs::read_to_string(&status).unwrap().contains(") T ") {
            std::thread::yield_now();
        }
    }

    pub(crate) fn resume(&self) {
        ferroce_sys::signal::send(self.child.id(), libc::SIGCONT);
    }

    /// Kills it, and returns when its sockets are closed.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Another process of the same test has the same port.
pub(crate) fn port() -> u16 {
    let given = std::env::var(PORT).ok().and_then(|port| port.parse().ok());
    given.unwrap_or(10_000 + (std::process::id() % 10_000) as u16)
}

impl Drop for Other {
    fn drop(&mut self) {
        // One that did as it was told ends by itself.
        if std::thread::panicking() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
