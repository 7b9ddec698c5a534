//! A child process, its output, and a deadline.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Serialises tests while their programs run. nextest runs each test in its own process and network namespace, and
/// `.config/nextest.toml` lists the tests that need all processors. With `cargo test`, the tests of a binary are
/// threads of one process and share the programs' ports, so they run one after the other.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child process, which is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    lines: Receiver<String>,
    seen: String,
    errors: Option<JoinHandle<String>>,
    /// Whether it leads its own process group.
    leads: bool,
}

impl Running {
    /// Starts a process.
    pub fn start(command: Command) -> Self {
        Self::spawn(command, false)
    }

    /// Starts a process in its own process group, whose members are killed with it. Signals to this test's process
    /// group do not reach them.
    pub fn start_group(mut command: Command) -> Self {
        command.process_group(0);
        Self::spawn(command, true)
    }

    fn spawn(mut command: Command, leads: bool) -> Self {
        let name = format!("{command:?}");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let errors = thread::spawn(move || {
            let mut bytes = Vec::new();
            err.map(|mut err| err.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = out.into_iter().flat_map(|out| BufReader::new(out).split(b'\n'));
            for line in lines.map_while(Result::ok) {
                let _ = send.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        Self { name, child, lines, seen: String::new(), errors: Some(errors), leads }
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line of its output, and returns it. Panics if it ends without one, or at the deadline.
    pub fn wait_for(&mut self, wanted: impl Fn(&str) -> bool, until: Instant) -> String {
        while let Ok(line) =
            self.lines.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            self.seen += &line;
            self.seen.push('\n');
            if wanted(&line) {
                return line;
            }
        }
        panic!("{}: the expected line was not printed:\n{}", self.name, self.seen);
    }

    /// Returns the exit status; `None` while it runs.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it can be waited for")
    }

    /// Waits until `holds` returns true, the process ends, or the deadline passes.
    pub fn wait_until(&mut self, holds: impl Fn(&Self) -> bool, until: Instant) {
        while !holds(self) && self.status().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for its exit. A status of `None` means that it was killed at the deadline. Also returns its name and
    /// output.
    pub fn end(mut self, until: Instant) -> (Option<ExitStatus>, String) {
        while self.status().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
        let status = self.status();
        self.kill();
        let mut said = std::mem::take(&mut self.seen);
        self.lines.iter().for_each(|line| said += &(line + "\n"));
        said += &self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        (status, format!("{}:\n{said}", self.name))
    }

    /// As [`Running::end`]: returns the output of a successful exit, or a description of the failure.
    pub fn good_end(self, until: Instant) -> Result<String, String> {
        match self.end(until) {
            (Some(status), said) if status.success() => Ok(said),
            (status, said) => Err(format!("{status:?} (None means the deadline passed) {said}")),
        }
    }

    /// Waits for a successful exit, and returns the output.
    pub fn finish(self, until: Instant) -> String {
        self.good_end(until).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Kills it with SIGKILL, and its group if it leads one.
    pub fn kill(&mut self) {
        if std::mem::take(&mut self.leads) {
            let mut kill = Command::new("kill");
            let group = format!("-{}", self.child.id());
            let _ = kill.args(["-9", "--", &group]).stderr(Stdio::null()).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a port that no socket listens on. In its own namespace a test could use any; in the machine's it cannot.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
    listener.and_then(|listener| listener.local_addr()).expect("there is a port").port()
}

/// Whether a socket in a process's network namespace listens on a TCP port. Connecting instead would look like the
/// client.
pub fn listens(process: u32, port: u16) -> bool {
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
