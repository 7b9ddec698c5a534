//! A child process, its output, and a deadline.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How often the state of a process is looked at.
const INTERVAL: Duration = Duration::from_millis(2);

/// How long the last lines of a process that has ended may take.
const PIPE_LIMIT: Duration = Duration::from_millis(500);

/// A child process, which is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: String,
    errors: Receiver<String>,
}

impl Process {
    /// Starts it.
    pub(crate) fn start(mut command: Command) -> Result<Self, String> {
        let name = Path::new(command.get_program()).file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        let (input, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (lines, errors) = (read(out), read(err));
        Ok(Self { name, child, input, lines, seen: String::new(), errors })
    }

    /// Returns the process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("no standard input")?;
        writeln!(input, "{line}").map_err(|error| format!("{}: {error}", self.name))
    }

    /// Waits for a line of its output that contains a text.
    pub(crate) fn wait_for(&mut self, text: &str, until: Instant) -> Result<String, String> {
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen += &line;
                    self.seen.push('\n');
                    if line.contains(text) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("{}: no line with {text:?}: timeout", self.name));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.describe_end()),
            }
        }
    }

    /// Waits until it listens on a TCP port.
    pub(crate) fn wait_listening(&mut self, port: u16, until: Instant) -> Result<(), String> {
        while !listens(self.id(), port) {
            if self.status().is_some() {
                return Err(self.describe_end());
            }
            if Instant::now() > until {
                return Err(format!("{} does not listen on TCP port {port}: timeout", self.name));
            }
            thread::sleep(INTERVAL);
        }
        Ok(())
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn describe_end(&mut self) -> String {
        let _ = self.child.kill();
        let status = self.child.wait().map_or_else(|error| error.to_string(), |s| s.to_string());
        let said = self.output();
        format!("{}: {status}: {said}", self.name)
    }

    /// What it printed. A child of a killed process may keep the pipes open, so this does not wait for their end.
    fn output(&mut self) -> String {
        let mut said = std::mem::take(&mut self.seen);
        for pipe in [&self.lines, &self.errors] {
            while let Ok(line) = pipe.recv_timeout(PIPE_LIMIT) {
                said += &(line + "\n");
            }
        }
        said
    }

    /// Waits for its exit, and returns its output. An exit status other than 0 and a timeout are errors.
    pub(crate) fn finish(mut self, until: Instant) -> Result<String, String> {
        self.input = None;
        while self.status().is_none() {
            if Instant::now() > until {
                return Err(format!("timeout: {}", self.describe_end()));
            }
            thread::sleep(INTERVAL);
        }
        if self.status().is_some_and(|status| status.success()) {
            return Ok(self.output());
        }
        Err(self.describe_end())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a thread that reads lines.
fn read(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, lines) = mpsc::channel();
    thread::spawn(move || {
        let lines = pipe.into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n'));
        for line in lines.map_while(Result::ok) {
            let _ = send.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    lines
}

/// Whether a socket in a process's network namespace listens on a TCP port. Connecting instead would look like the
/// client.
fn listens(process: u32, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let wanted = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        table.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields.len() > 3 && fields[1].ends_with(&wanted) && fields[3] == LISTEN
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn output_of_a_successful_exit() {
        assert_eq!(sh("echo a; echo b").finish(soon()), Ok("a\nb\n".to_owned()));
    }

    #[test]
    fn a_failure_has_status_and_messages() {
        let error = sh("echo no device >&2; exit 3").finish(soon()).unwrap_err();
        assert!(error.contains("exit status: 3") && error.contains("no device"), "{error}");
    }

    #[test]
    fn a_deadline_kills() {
        let error = sh("exec sleep 600").finish(Instant::now()).unwrap_err();
        assert!(error.starts_with("timeout"), "{error}");
    }

    #[test]
    fn a_child_that_keeps_the_pipe_does_not_block() {
        let error = sh("echo a; sleep 5 & wait").finish(Instant::now() + INTERVAL).unwrap_err();
        assert!(error.starts_with("timeout"), "{error}");
    }

    #[test]
    fn lines_in_and_out() {
        let mut process = sh("read line; echo \"got $line\"");
        process.tell("this").unwrap();
        assert_eq!(process.wait_for("got", soon()), Ok("got this".to_owned()));
        assert_eq!(process.finish(soon()), Ok("got this\n".to_owned()));
    }
}
