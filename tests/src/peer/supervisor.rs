//! The process that owns a network and its machines, and the protocol of lines with it.

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

/// The exit status of a program that cannot run here.
const SKIPPED: i32 = 77;

/// The timeout for building the image, if `make setup` did not.
const BUILD_LIMIT: Duration = Duration::from_secs(100);

/// The timeout of a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// The result of starting a network.
pub(super) enum Started {
    Running(Supervisor),
    /// It cannot run here; the reason.
    Skipped(String),
}

/// The process. Closing its input ends it and everything that it started.
#[derive(Debug)]
pub(super) struct Supervisor {
    process: Child,
    lines: Mutex<Lines>,
    folder: PathBuf,
}

#[derive(Debug)]
struct Lines {
    requests: Option<ChildStdin>,
    responses: Receiver<String>,
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
        let (sender, responses) = mpsc::channel();
        thread::spawn(move || {
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
                if !line.is_ok_and(|line| sender.send(line).is_ok()) {
                    return;
                }
            }
        });
        let mut supervisor =
            Self { process, lines: Mutex::new(Lines { requests, responses }), folder };

        match supervisor.response(BUILD_LIMIT + options.limit) {
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
                Err(Error::Start(format!("no response, status {status:?}: {text}")))
            }
        }
    }

    /// Returns the folder of the running network.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends a request and waits for the response.
    pub(super) fn request(&self, request: &str) -> Result<(), Error> {
        let mut lines = self.lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let failed = |response: String| Error::Request { request: request.to_owned(), response };
        let sent = match &mut lines.requests {
            Some(requests) => writeln!(requests, "{request}"),
            None => return Err(failed("it has ended".to_owned())),
        };
        sent.map_err(|error| failed(error.to_string()))?;
        match lines.responses.recv_timeout(REQUEST_LIMIT) {
            Ok(response) if response == "ok" => Ok(()),
            Ok(response) => Err(failed(response)),
            Err(_) => Err(failed("no response".to_owned())),
        }
    }

    fn response(&mut self, limit: Duration) -> Option<String> {
        let lines = self.lines.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        lines.responses.recv_timeout(limit).ok()
    }

    /// Ends the process, if it has not ended, without waiting for a response.
    fn end(&mut self) {
        let lines = self.lines.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        lines.requests = None;
        // A process that exited has written everything. One that builds an image does not read its input.
        while lines.responses.recv_timeout(Duration::from_secs(5)).is_ok() {}
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
