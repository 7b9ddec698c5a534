//! A process with all that it has started, its output, and a limit of time.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Beyond what anything here takes on a busy machine, and within what a test may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(150);

/// It ends with this, and so does all that is in its process group.
pub(crate) struct Running {
    name: String,
    child: Child,
    lines: Receiver<String>,
    seen: String,
    errors: Option<JoinHandle<String>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let name = format!("{command:?}");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
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
        Self { name, child, lines, seen: String::new(), errors: Some(errors) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that it prints. Panics when it ends without one, or is late.
    pub(crate) fn wait_for(&mut self, wanted: impl Fn(&str) -> bool, until: Instant) {
        while let Ok(line) =
            self.lines.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            self.seen += &line;
            self.seen.push('\n');
            if wanted(&line) {
                return;
            }
        }
        panic!("{}: not what was waited for:\n{}", self.name, self.seen);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_some()
    }

    /// Waits for its end. `None` is too late, and then it was killed. With all that it has printed.
    pub(crate) fn end(mut self, until: Instant) -> (Option<ExitStatus>, String) {
        while !self.has_ended() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let status = self.child.try_wait().expect("it can be waited for");
        self.kill();
        let mut said = std::mem::take(&mut self.seen);
        self.lines.iter().for_each(|line| said += &(line + "\n"));
        said += &self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        (status, format!("{}:\n{said}", self.name))
    }

    /// Waits for a good end, and returns what was printed.
    pub(crate) fn finish(self, until: Instant) -> String {
        let (status, said) = self.end(until);
        let good = status.is_some_and(|status| status.success());
        assert!(good, "{status:?} (none is too late) {said}");
        said
    }

    /// Kills all of it with signal 9.
    pub(crate) fn kill(&mut self) {
        let mut kill = Command::new("kill");
        let group = format!("-{}", self.child.id());
        let _ = kill.args(["-9", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
