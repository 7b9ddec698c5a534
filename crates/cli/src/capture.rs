//! `--capture` of the commands that open a device.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use clap::{Args, ValueHint};
use ferroce::Options;
use ferroce_net::signal::{Signal, Signals};

use crate::style::Screen;

/// Where packets are written to.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CaptureArgs {
    /// Write all packets to a pcapng file; %p in its name is the process's number
    ///
    /// The variable FERROCE_CAPTURE does the same.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) capture: Option<PathBuf>,
}

impl CaptureArgs {
    /// The options for opening a device: the command line comes before the environment.
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::default();
        options.capture = self.capture.clone().or(options.capture);
        options
    }
}

/// Empties a file, or creates it for its owner alone: captures and traces have payload and keys in them.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    private().create(true).truncate(true).open(path)
}

/// The same, but only where nothing is yet: in a folder that everybody can write to, no link of somebody else's is followed.
pub(crate) fn create_new_private(path: &Path) -> io::Result<File> {
    private().create_new(true).open(path)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// A capture that takes the place of a file when it is a success. Until then the file that is there stays as it is.
#[derive(Debug)]
pub(crate) struct Pending {
    target: PathBuf,
    /// Another name in the same directory, where the target is a file that exists.
    temporary: Option<PathBuf>,
}

impl Pending {
    /// For a capture at `path`, which can be written. Nothing is created yet if nothing is there.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        // What is no file, such as a FIFO or /dev/stdout, is written as it is.
        if !fs::metadata(path).is_ok_and(|found| found.is_file()) {
            return Ok(Self { target: path.to_owned(), temporary: None });
        }
        OpenOptions::new().write(true).open(path)?;
        // A link keeps its place: what it leads to is replaced.
        let target = fs::canonicalize(path)?;
        let mut temporary = target.clone().into_os_string();
        temporary.push(".new");
        Ok(Self { target: path.to_owned(), temporary: Some(temporary.into()) })
    }

    /// For a file that was just created.
    pub(crate) fn fresh(target: PathBuf) -> Self {
        Self { target, temporary: None }
    }

    /// Where to write.
    pub(crate) fn path(&self) -> &Path {
        self.temporary.as_deref().unwrap_or(&self.target)
    }

    /// The file that is there stays, and the capture is where it was written.
    pub(crate) fn is_beside(&self) -> bool {
        self.temporary.is_some()
    }

    /// It is a success: puts it in its place, and returns the name that was asked for.
    pub(crate) fn commit(self) -> io::Result<PathBuf> {
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, fs::canonicalize(&self.target)?)?;
        }
        Ok(self.target)
    }
}

/// Has a signal end the process in order, if it captures: devices are closed and captures written, then `report` says how
/// they went. To be called before the first thread is started.
pub(crate) fn finish_on_signal(options: &Options, report: impl FnOnce() + Send + 'static) {
    if options.capture.is_none() {
        return;
    }
    // Without a descriptor for them, signals end the process as always.
    let Ok(signals) = Signals::new() else { return };
    thread::spawn(move || {
        let signal = loop {
            match signals.wait() {
                Ok(Signal::Terminal(signal) | Signal::Process(signal)) => break signal,
                Ok(Signal::Child) => {}
                Err(_) => return,
            }
        };
        ferroce::leave();
        report();
        std::process::exit(128 + signal);
    });
}

/// Says what is missing in the captures of this process, if something is, when their devices are closed.
pub(crate) fn report_all(screen: &Screen) {
    for (path, status) in ferroce::captures() {
        if let Some(complaint) = status.complaint() {
            screen.complain(format_args!("{}: {complaint}", path.display()));
        }
    }
}
