//! `--capture` of the commands that open a device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use ferroce::{Context, Options};

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

/// Says what is missing in the capture, if something is. To be called when all is done.
pub(crate) fn report(context: &Context, screen: &Screen) {
    if let Some(complaint) = context.flush_capture().and_then(|status| status.complaint()) {
        screen.complain(complaint);
    }
}
