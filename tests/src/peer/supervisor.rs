//! The process that owns a network and its machines, and the lines that are exchanged with it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use super::{Error, Options, program};

/// The status of a program that cannot do its work here.
const SKIPPED: i32 = 77;

/// How long the image may take to build, where `make setup` did not.
const BUILD_LIMIT: Duration = Duration::from_secs(100);

/// How long a request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// What became of a start.
pub(super) enum Started {
    Running(Supervisor),
    /// It cannot be done here, and why.
    Skipped(String),
}

/// The process. To close its input ends it and all that it started.
#[derive(Debug)]
pub(super) struct Supervisor {
    process: Child,
    lines: Mutex<Lines>,
    folder: PathBuf,
}

#[derive(Debug)]
struct Lines {
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Supervisor {
    pub(super) fn start(options: &Options) -> Result<Started, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ferroce-peer-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).map_err(|error| Error::io(&folder, error))?;
        let said = folder.join("said");
        let log = File::create(&said).map_err(|error| Error::io(&said, error))?;
        let mut process = Command::new(program())
            .arg("up")
            .args(["--machines", &options.machines.to_string()])
            .args(["--mtu", &options.mtu.to_string()])
            .args(["--limit", &options.limit.as_secs().max(1).to_string()])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| Error::io(program(), error))?;
        let requests = process.stdin.take();
        let output = process.stdout.take();
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
                if !line.is_ok_and(|line| sender.send(line).is_ok()) {
                    return;
                }
            }
        });
        let mut supervisor =
            Self { process, lines: Mutex::new(Lines { requests, answers }), folder };

        match supervisor.answer(BUILD_LIMIT + options.limit) {
            Some(line) if line == "ready" => Ok(Started::Running(supervisor)),
            Some(line) => {
                let log = fs::read_to_string(supervisor.folder.join("log")).unwrap_or_default();
                Err(Error::Start(format!("{line}\n{log}")))
            }
            None => {
                supervisor.end();
                let status = supervisor.process.wait().ok().and_then(|status| status.code());
                let text = fs::read_to_string(&said).unwrap_or_default().trim().to_owned();
                if status == Some(SKIPPED) {
                    return Ok(Started::Skipped(text));
                }
                Err(Error::Start(format!("no answer, status {status:?}: {text}")))
            }
        }
    }

    /// Where the running network keeps its files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Asks for something and waits until it is done.
    pub(super) fn request(&self, request: &str) -> Result<(), Error> {
        let mut lines = self.lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let failed = |answer: String| Error::Request { request: request.to_owned(), answer };
        let sent = match &mut lines.requests {
            Some(requests) => writeln!(requests, "{request}"),
            None => return Err(failed("it has ended".to_owned())),
        };
        sent.map_err(|error| failed(error.to_string()))?;
        match lines.answers.recv_timeout(REQUEST_LIMIT) {
            Ok(answer) if answer == "ok" => Ok(()),
            Ok(answer) => Err(failed(answer)),
            Err(_) => Err(failed("no answer".to_owned())),
        }
    }

    fn answer(&mut self, limit: Duration) -> Option<String> {
        let lines = self.lines.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        lines.answers.recv_timeout(limit).ok()
    }

    /// Ends the process, if it has not ended, and does not wait for it to answer.
    fn end(&mut self) {
        let lines = self.lines.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        lines.requests = None;
        // A process that ended by itself has said all. One that builds an image does not read its input.
        while lines.answers.recv_timeout(Duration::from_secs(5)).is_ok() {}
        if !matches!(self.process.try_wait(), Ok(Some(_))) && !self.ended_soon() {
            let _ = self.process.kill();
        }
    }

    fn ended_soon(&mut self) -> bool {
        (0..100).any(|_| {
            thread::sleep(Duration::from_millis(10));
            matches!(self.process.try_wait(), Ok(Some(_)))
        })
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("the peer's consoles and log are in {}", self.folder.display());
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
