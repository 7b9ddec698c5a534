//! A process, its output, and a limit of time.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Held by a test while its programs run. nextest runs each test in a process and a network namespace of its own, and
/// `.config/nextest.toml` says which tests need the processors for themselves. With `cargo test`, the tests of a binary
/// are threads of one process, and share the ports that the programs have: one after the other, then.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// It ends with this.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    lines: Receiver<String>,
    seen: String,
    errors: Option<JoinHandle<String>>,
    /// Whether it leads a process group of its own.
    leads: bool,
}

impl Running {
    /// Starts it.
    pub fn start(command: Command) -> Self {
        Self::spawn(command, false)
    }

    /// Starts what starts others: they end with it. They are not in this test's process group, so who ends that from
    /// outside does not end them.
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

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that it prints, and returns it. Panics when it ends without one, or is late.
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
        panic!("{}: not what was waited for:\n{}", self.name, self.seen);
    }

    /// How it ended; `None` while it runs.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it can be waited for")
    }

    /// Waits until something holds, or it has ended, or it is late.
    pub fn wait_until(&mut self, holds: impl Fn(&Self) -> bool, until: Instant) {
        while !holds(self) && self.status().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for its end. `None` is too late, and then it was killed. With its name, and all that it has printed.
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

    /// The same: what was printed, or all about it when it was no good end.
    pub fn good_end(self, until: Instant) -> Result<String, String> {
        match self.end(until) {
            (Some(status), said) if status.success() => Ok(said),
            (status, said) => Err(format!("{status:?} (none is too late) {said}")),
        }
    }

    /// Waits for a good end, and returns what was printed.
    pub fn finish(self, until: Instant) -> String {
        self.good_end(until).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Kills it with signal 9, and its group if it leads one.
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

/// A port that nobody listens on. In a namespace of its own a test could take any; in the machine's it cannot.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
    listener.and_then(|listener| listener.local_addr()).expect("there is a port").port()
}

/// Whether somebody in a process's network namespace listens on a TCP port. To connect would be taken for the client.
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
