//! Another process: this test binary, running an ignored test.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Another process, which is killed on drop. It writes numbers in lines that begin with '@'.
pub struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Runs an ignored test with a variable that tells it what to do.
    pub fn start(test: &str, variable: &str, value: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--ignored", "--nocapture"])
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn say(&mut self, number: u32) {
        writeln!(self.input, "{number}").unwrap();
    }

    /// The numbers in the next line that has some.
    pub fn hear(&mut self) -> Vec<u64> {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the other process has ended");
            if let Some((_, numbers)) = line.trim_end().split_once('@') {
                return numbers.split(' ').map(|number| number.parse().unwrap()).collect();
            }
        }
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.kill();
    }
}
