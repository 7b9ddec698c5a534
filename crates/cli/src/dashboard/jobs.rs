//! The commands that the form of the page runs: one at a time, from a fixed list, with a time limit.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_sys::signal::{Signals, send_to_group};
use serde::Serialize;

use super::choices::{FIGURE, Request};

/// How long a command may take.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// How long a command may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// How often a running command is checked.
const STEP: Duration = Duration::from_millis(20);

/// The number of bytes kept of each output; what follows is only counted.
const MAX_OUTPUT: usize = 512 << 10;

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// How a command is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    Running,
    /// It returned status 0.
    Succeeded,
    /// It returned another status, or a signal ended it.
    Failed,
    /// It took longer than the time limit.
    TimedOut,
    /// The user stopped it.
    Stopped,
}

/// One run of a command, as the page shows it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Job {
    pub(super) id: u64,
    /// The command line, to repeat it in a terminal.
    pub(super) command: String,
    pub(super) stage: Stage,
    pub(super) seconds: f64,
    pub(super) output: String,
    pub(super) errors: String,
    /// Bytes of output that are not shown.
    pub(super) omitted: usize,
    /// The chart that it has drawn, as SVG.
    pub(super) figure: Option<String>,
    #[serde(skip)]
    started: Instant,
}

/// Why a command was not started.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StartError {
    /// Another one is running.
    Busy,
    /// The system refused.
    System(String),
}

#[derive(Debug, Default)]
struct Inner {
    job: Option<Job>,
    stop: bool,
    /// No further command starts.
    closed: bool,
    started: u64,
}

/// The current or last command.
#[derive(Debug)]
pub(super) struct Jobs {
    inner: Mutex<Inner>,
    ended: Condvar,
    program: PathBuf,
    signals: Arc<Signals>,
    limit: Duration,
}

impl Jobs {
    /// `signals` has the signal mask that commands start with.
    pub(super) fn new(program: PathBuf, signals: Arc<Signals>) -> Arc<Self> {
        Self::with_limit(program, signals, TIME_LIMIT)
    }

    fn with_limit(program: PathBuf, signals: Arc<Signals>, limit: Duration) -> Arc<Self> {
        let (inner, ended) = (Mutex::default(), Condvar::new());
        Arc::new(Self { inner, ended, program, signals, limit })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current or last command.
    pub(super) fn current(&self) -> Option<Job> {
        let mut job = self.lock().job.clone()?;
        if job.stage == Stage::Running {
            job.seconds = job.started.elapsed().as_secs_f64();
        }
        Some(job)
    }

    /// Starts a command unless one is running.
    pub(super) fn start(self: &Arc<Self>, request: &Request) -> Result<u64, StartError> {
        let arguments = request.arguments();
        self.start_with(&arguments)
    }

    fn start_with(self: &Arc<Self>, arguments: &[String]) -> Result<u64, StartError> {
        let system = |error: io::Error| StartError::System(error.to_string());
        let mut inner = self.lock();
        if inner.closed || inner.job.as_ref().is_some_and(|job| job.stage == Stage::Running) {
            return Err(StartError::Busy);
        }
        let id = inner.started + 1;
        let directory = Directory::new(id).map_err(system)?;
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&directory.0);
        // The width of the page's output area, and text without escape sequences.
        command.env("COLUMNS", "110").env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
        command.env_remove("FERROCE_CAPTURE");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Its own process group, so that it ends together with the processes that it starts.
        self.signals.restore_mask(&mut command).process_group(0);
        let mut child = command.spawn().map_err(system)?;
        (inner.started, inner.stop) = (id, false);
        inner.job = Some(Job {
            id,
            command: format!("ferroce {}", arguments.join(" ")),
            stage: Stage::Running,
            seconds: 0.0,
            output: String::new(),
            errors: String::new(),
            omitted: 0,
            figure: None,
            started: Instant::now(),
        });
        drop(inner);
        let output = child.stdout.take().map(|pipe| self.collect(pipe, id, |job| &mut job.output));
        let errors = child.stderr.take().map(|pipe| self.collect(pipe, id, |job| &mut job.errors));
        let jobs = Arc::clone(self);
        thread::spawn(move || {
            let stage = jobs.supervise(&mut child);
            for reader in [output, errors].into_iter().flatten() {
                let _ = reader.join();
            }
            let figure = directory.figure();
            drop(directory);
            if let Some(job) = jobs.lock().job.as_mut() {
                (job.stage, job.figure) = (stage, figure);
                job.seconds = job.started.elapsed().as_secs_f64();
            }
            jobs.ended.notify_all();
        });
        Ok(id)
    }

    /// Asks the running command to end.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
    }

    /// Ends the running command, waits for it, and starts no other.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        (inner.stop, inner.closed) = (true, true);
        while inner.job.as_ref().is_some_and(|job| job.stage == Stage::Running) {
            inner = self.ended.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn supervise(&self, child: &mut Child) -> Stage {
        let start = Instant::now();
        let mut terminated: Option<(Instant, Stage)> = None;
        loop {
            let ended = child.try_wait();
            if let Ok(None) = ended {
                match terminated {
                    Some((at, _)) if at.elapsed() > GRACE => send_to_group(child.id(), SIGKILL),
                    Some(_) => {}
                    None => {
                        let stop = self.lock().stop.then_some(Stage::Stopped);
                        let late = (start.elapsed() > self.limit).then_some(Stage::TimedOut);
                        if let Some(stage) = stop.or(late) {
                            send_to_group(child.id(), SIGTERM);
                            terminated = Some((Instant::now(), stage));
                        }
                    }
                }
                thread::sleep(STEP);
                continue;
            }
            return match (terminated, ended) {
                (Some((_, stage)), _) => stage,
                (None, Ok(Some(status))) if status.success() => Stage::Succeeded,
                (None, _) => Stage::Failed,
            };
        }
    }

    /// Reads an output into the job.
    fn collect(
        self: &Arc<Self>,
        mut pipe: impl Read + Send + 'static,
        id: u64,
        place: fn(&mut Job) -> &mut String,
    ) -> thread::JoinHandle<()> {
        let jobs = Arc::clone(self);
        thread::spawn(move || {
            let (mut bytes, mut pending) = ([0; 4096], Vec::new());
            while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                pending.extend_from_slice(&bytes[..count]);
                let text = complete_text(&mut pending);
                let mut inner = jobs.lock();
                let Some(job) = inner.job.as_mut().filter(|job| job.id == id) else { return };
                let kept = place(job);
                if kept.len() + text.len() <= MAX_OUTPUT {
                    kept.push_str(&text);
                } else {
                    job.omitted += text.len();
                }
            }
        })
    }
}

/// Takes the text of all complete UTF-8 sequences; bytes that are not UTF-8 become U+FFFD.
fn complete_text(pending: &mut Vec<u8>) -> String {
    let complete = match std::str::from_utf8(pending) {
        Ok(_) => pending.len(),
        // `None`: the end is the beginning of a sequence whose other bytes follow.
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Err(_) => pending.len(),
    };
    let text = String::from_utf8_lossy(&pending[..complete]).into_owned();
    pending.drain(..complete);
    text
}

/// The working directory of a command, for the files that it writes; removed with its contents.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn new(id: u64) -> io::Result<Self> {
        let name = format!(
            "ferroce-dashboard-{}-{id}-{:x}",
            std::process::id(),
            ferroce_sys::random::number()
        );
        let path = std::env::temp_dir().join(name);
        // Fails if anything exists there, such as another user's link.
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// The chart in it, if a command has written one.
    fn figure(&self) -> Option<String> {
        let mut text = String::new();
        let file = fs::File::open(self.0.join(FIGURE)).ok()?;
        file.take(MAX_OUTPUT as u64).read_to_string(&mut text).ok()?;
        Some(text)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let path: &Path = &self.0;
        let _ = fs::remove_dir_all(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(limit: Duration) -> Arc<Jobs> {
        let signals = Arc::new(Signals::new().unwrap());
        Jobs::with_limit("/bin/sh".into(), signals, limit)
    }

    fn run(jobs: &Arc<Jobs>, script: &str) -> Result<u64, StartError> {
        jobs.start_with(&["-c".to_owned(), script.to_owned()])
    }

    fn wait(jobs: &Jobs) -> Job {
        let mut inner = jobs.lock();
        while inner.job.as_ref().is_some_and(|job| job.stage == Stage::Running) {
            inner = jobs.ended.wait(inner).unwrap();
        }
        inner.job.clone().unwrap()
    }

    #[test]
    fn a_command_runs_in_a_directory_that_is_removed() {
        let jobs = jobs(TIME_LIMIT);
        assert!(jobs.current().is_none());
        assert_eq!(run(&jobs, "pwd; echo svg > figure.svg; echo problem >&2; exit 3"), Ok(1));
        let job = wait(&jobs);
        assert_eq!((job.stage, job.errors.as_str()), (Stage::Failed, "problem\n"));
        assert!(job.output.contains("ferroce-dashboard-"), "{}", job.output);
        assert_eq!(job.figure.as_deref(), Some("svg\n"));
        assert!(!Path::new(job.output.trim()).exists());
        assert_eq!(run(&jobs, "true"), Ok(2));
        assert_eq!(wait(&jobs).stage, Stage::Succeeded);
    }

    #[test]
    fn one_runs_at_a_time_and_ends_with_its_children() {
        let jobs = jobs(TIME_LIMIT);
        run(&jobs, "sleep 1000 & echo $!; wait").unwrap();
        assert_eq!(run(&jobs, "true"), Err(StartError::Busy));
        while !jobs.current().unwrap().output.ends_with('\n') {
            thread::sleep(STEP);
        }
        jobs.close();
        let job = jobs.current().unwrap();
        assert_eq!(job.stage, Stage::Stopped);
        // A child that was killed stays in /proc until it is waited for, by whatever process adopted it.
        let stat =
            fs::read_to_string(format!("/proc/{}/stat", job.output.trim())).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
        assert_eq!(run(&jobs, "true"), Err(StartError::Busy), "closed");
    }

    #[test]
    fn a_command_that_ignores_the_signal_is_killed_after_the_time_limit() {
        let jobs = jobs(Duration::from_millis(100));
        run(&jobs, "trap '' TERM; while :; do sleep 0.1; done").unwrap();
        assert_eq!(wait(&jobs).stage, Stage::TimedOut);
    }

    #[test]
    fn output_is_bounded_and_always_text() {
        let jobs = jobs(TIME_LIMIT);
        run(&jobs, r"printf '\303'; sleep 0.05; printf '\251\377\n'; head -c 2000000 /dev/zero")
            .unwrap();
        let job = wait(&jobs);
        assert!(job.output.starts_with("é\u{fffd}\n"), "{:?}", job.output.get(..8));
        assert!(job.output.len() <= MAX_OUTPUT);
        assert!(job.omitted > 1_000_000, "{}", job.omitted);
    }

    #[test]
    fn sequences_across_two_reads_are_joined() {
        let mut pending = vec![b'a', 0xe2, 0x86];
        assert_eq!(complete_text(&mut pending), "a");
        pending.push(0x92);
        assert_eq!((complete_text(&mut pending).as_str(), pending.len()), ("→", 0));
    }
}
