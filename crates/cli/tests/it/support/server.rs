//! A running `ferroce server`.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

/// A listening `ferroce server --json`, killed on drop.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut server = Self { child, lines, address: String::new() };
        server.address = server.event("listening")["address"].as_str().unwrap().to_owned();
        server
    }

    /// Returns the next event; panics if it is not `name`.
    pub(crate) fn event(&mut self, name: &str) -> Value {
        let line = self.lines.next().expect("the server printed another line").unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["event"], name, "{event}");
        event
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
