//! What a capture is of, what it does when it cannot keep up, and its state.

use std::io;
use std::path::PathBuf;

/// What happens when packets come faster than a capture can write them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapturePolicy {
    /// The device waits until they are written: a slow disk slows it, and the capture is complete.
    #[default]
    Block,
    /// Packets are missing in the capture, which counts them; the device does not wait.
    Drop,
}

/// A device and its network interface, as captures describe them.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The name of the device.
    pub name: String,
    /// The name of the network interface.
    pub network: String,
    /// The Ethernet address of the network interface; all zero for the loopback.
    pub mac: Option<[u8; 6]>,
}

/// A capture file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the capture {}: {source}", path.display())]
pub struct CaptureError {
    /// The file, with the process ID in its name.
    pub path: PathBuf,
    /// The error of the operating system.
    pub source: io::Error,
}

/// The state of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureStatus {
    /// Packets written.
    pub written: u64,
    /// Packets dropped: they arrived faster than they could be written, or writing failed.
    pub dropped: u64,
    /// Why writing stopped, if it did.
    pub failure: Option<String>,
}

impl CaptureStatus {
    /// A message about missing packets; `None` if the capture is complete.
    pub fn complaint(&self) -> Option<String> {
        match (&self.failure, self.dropped) {
            (Some(failure), _) => Some(format!(
                "the capture ends after {} packets, {} are missing: {failure}",
                self.written, self.dropped
            )),
            (None, 0) => None,
            (None, dropped) => Some(format!(
                "{dropped} of {} packets are missing in the capture: they came faster than they could be written",
                dropped + self.written
            )),
        }
    }

    /// The sum of two parts of a file.
    pub(crate) fn and(self, later: Self) -> Self {
        Self {
            written: self.written + later.written,
            dropped: self.dropped + later.dropped,
            failure: self.failure.or(later.failure),
        }
    }
}
