//! The `--capture` option of commands that open a device.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use clap::{Args, ValueEnum, ValueHint};
use ferroce::{CapturePolicy, EnvironmentError, Options};
use ferroce_sys::signal::{Signal, Signals};

use crate::style::Screen;

/// The capture option.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CaptureArgs {
    /// Write all packets to a pcapng file; %p in its name becomes the process ID
    ///
    /// The variable FERROCE_CAPTURE does the same.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) capture: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// The option for what a capture does when it cannot keep up.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct PolicyArgs {
    /// What --capture does when packets come faster than they can be written [default: block]
    ///
    /// The variable FERROCE_CAPTURE_POLICY does the same.
    #[arg(long, value_name = "POLICY")]
    pub(crate) capture_policy: Option<PolicyChoice>,
}

impl PolicyArgs {
    /// Sets the policy, if the command line has one: it comes before the environment.
    pub(crate) fn apply(self, options: &mut Options) {
        if let Some(choice) = self.capture_policy {
            options.capture_policy = choice.policy();
        }
    }
}

/// What a capture does when packets come faster than they can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyChoice {
    /// The sender waits, and the capture is complete
    Block,
    /// Packets are missing in the capture, which counts them
    Drop,
}

impl PolicyChoice {
    /// The policy.
    pub(crate) const fn policy(self) -> CapturePolicy {
        match self {
            Self::Block => CapturePolicy::Block,
            Self::Drop => CapturePolicy::Drop,
        }
    }

    /// Its name, in the environment.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Drop => "drop",
        }
    }
}

impl CaptureArgs {
    /// The options for opening a device: the command line comes before the environment.
    pub(crate) fn options(&self) -> Result<Options, EnvironmentError> {
        let mut options = Options::from_env()?;
        options.capture = self.capture.clone().or(options.capture);
        self.policy.apply(&mut options);
        Ok(options)
    }
}

/// Truncates a file, or creates it with access for its owner only: captures and traces contain payload and keys.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    private().create(true).truncate(true).open(path)
}

/// The same, but only if nothing exists there: in a world-writable folder, another user's link must not be followed.
pub(crate) fn create_new_private(path: &Path) -> io::Result<File> {
    private().create_new(true).open(path)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// A capture that replaces an existing file only on success.
#[derive(Debug)]
pub(crate) struct Pending {
    target: PathBuf,
    /// A temporary name in the same directory, if the target exists and is a regular file.
    temporary: Option<PathBuf>,
}

impl Pending {
    /// A capture at `path`, after checking that it is writable. Creates nothing.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        // FIFOs, /dev/stdout and the like are written directly.
        if !fs::metadata(path).is_ok_and(|found| found.is_file()) {
            return Ok(Self { target: path.to_owned(), temporary: None });
        }
        OpenOptions::new().write(true).open(path)?;
        // A link stays: the file it points to is replaced.
        let target = fs::canonicalize(path)?;
        let mut temporary = target.clone().into_os_string();
        temporary.push(".new");
        Ok(Self { target: path.to_owned(), temporary: Some(temporary.into()) })
    }

    /// A capture for a file that was just created.
    pub(crate) fn fresh(target: PathBuf) -> Self {
        Self { target, temporary: None }
    }

    /// The path to write to.
    pub(crate) fn path(&self) -> &Path {
        self.temporary.as_deref().unwrap_or(&self.target)
    }

    /// Keeps the existing file; the capture stays where it was written.
    pub(crate) fn is_beside(&self) -> bool {
        self.temporary.is_some()
    }

    /// Moves the capture to its final name on success, and returns that name.
    pub(crate) fn commit(self) -> io::Result<PathBuf> {
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, fs::canonicalize(&self.target)?)?;
        }
        Ok(self.target)
    }
}

/// Handles termination signals, if the process captures: closes the devices, finishes the captures and calls `report`.
/// Must be called before the first thread is started.
pub(crate) fn finish_on_signal(options: &Options, report: impl FnOnce() + Send + 'static) {
    if options.capture.is_none() {
        return;
    }
    // Without a free descriptor, signals terminate the process as usual.
    let Ok(signals) = Signals::new() else { return };
    thread::spawn(move || {
        let signal = loop {
            match signals.wait() {
                Ok(Signal::Terminal(signal) | Signal::Process(signal)) => break signal,
                Ok(Signal::Child) => {}
                Err(_) => return,
            }
        };
        ferroce::exit::shut_down();
        report();
        std::process::exit(128 + signal);
    });
}

/// Reports packets missing in this process's captures, after their devices are closed.
pub(crate) fn report_all(screen: &Screen) {
    for (path, status) in ferroce::captures() {
        if let Some(complaint) = status.complaint() {
            screen.complain(format_args!("{}: {complaint}", path.display()));
        }
    }
}
