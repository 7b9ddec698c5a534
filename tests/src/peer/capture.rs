//! Capturing packets at the bridge.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Error;
use super::supervisor::Supervisor;

/// A running capture. If dropped without [`Capture::finish`], it continues, and its file is discarded.
#[derive(Debug)]
pub struct Capture<'p> {
    supervisor: &'p Supervisor,
    name: String,
    path: PathBuf,
}

impl<'p> Capture<'p> {
    pub(super) fn start(
        supervisor: &'p Supervisor,
        path: PathBuf,
        filter: &str,
    ) -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("capture{}", COUNT.fetch_add(1, Ordering::Relaxed));
        supervisor.request(&format!("capture {name} {filter}"))?;
        Ok(Self { supervisor, name, path })
    }

    /// Stops the capture and returns the path of the file, which contains exactly the packets that passed the bridge
    /// before the call.
    pub fn finish(self) -> Result<PathBuf, Error> {
        self.supervisor.request(&format!("finish {}", self.name))?;
        let recorded = self.supervisor.folder().join(format!("{}.pcap", self.name));
        copy(&recorded, &self.path)?;
        Ok(self.path)
    }
}

/// Moves a file, to another file system if need be.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    fs::copy(from, to).map_err(|error| Error::io(to, error))?;
    fs::remove_file(from).map_err(|error| Error::io(from, error))
}
