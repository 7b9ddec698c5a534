//! `--capture` of the commands that open a device.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use ferroce::{CaptureStatus, Context, Options};

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

/// Says what is missing in the capture, if something is. To be called when all is done.
pub(crate) fn report(context: &Context, screen: &Screen) {
    if let Some(complaint) = context.flush_capture().and_then(|status| complaint(&status)) {
        screen.complain(complaint);
    }
}

fn complaint(status: &CaptureStatus) -> Option<String> {
    match (&status.failure, status.dropped) {
        (Some(failure), _) => Some(format!(
            "the capture ends after {} packets, {} are missing: {failure}",
            status.written, status.dropped
        )),
        (None, 0) => None,
        (None, dropped) => Some(format!(
            "the disk was too slow: {dropped} packets are missing in the capture, of {}",
            dropped + status.written
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_said() {
        let mut status = CaptureStatus { written: 7, ..CaptureStatus::default() };
        assert_eq!(complaint(&status), None);
        status.dropped = 3;
        let slow = "the disk was too slow: 3 packets are missing in the capture, of 10";
        assert_eq!(complaint(&status).as_deref(), Some(slow));
        status.failure = Some("cannot write: no space".into());
        let failed = "the capture ends after 7 packets, 3 are missing: cannot write: no space";
        assert_eq!(complaint(&status).as_deref(), Some(failed));
    }
}
