//! The capture tap: every packet as it is on the wire, in a pcapng file.
//!
//! The data path copies a packet into a queue, and a thread of its own makes frames of what is there and writes them.
//! When the queue is full the device waits for the thread, but not for long; then the tap drops packets, and the file says
//! how many are missing, and where (epb_dropcount, isb_ifdrop). What a socket does not tell is filled
//! in: Ethernet addresses that are not the interface's own, and the UDP checksum of packets that came in.
//!
//! A packet that this process sends to itself is in the file once, as it was sent.
//!
//! | file | role |
//! |---|---|
//! | `file` | which files are open |
//! | `queue` | the queue between the data path and the thread that writes |
//! | `writer` | what that thread does: makes frames and writes them |
//! | `frame` | a packet with all its headers, and the comment on it |

mod file;
mod frame;
mod queue;
mod writer;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferroce_proto::work::WorkId;
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;

use crate::device::Device;
use crate::error::Error;
use crate::headers::Headers;
use queue::{Interface, Shared};

/// How a capture goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureStatus {
    /// Packets in the file.
    pub written: u64,
    /// Packets that are not: they came faster than they could be written, or writing failed.
    pub dropped: u64,
    /// Why nothing more is written, if so.
    pub failure: Option<String>,
}

impl CaptureStatus {
    /// What is missing in the file and why, in words; `None` when nothing is.
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

    /// That of two parts of a file together.
    fn and(self, later: Self) -> Self {
        Self {
            written: self.written + later.written,
            dropped: self.dropped + later.dropped,
            failure: self.failure.or(later.failure),
        }
    }
}

/// How the captures of this process went: each file with what is in it. For who is about to end, and for libraries whose
/// program does not know of them; others ask the device.
pub fn captures() -> Vec<(PathBuf, CaptureStatus)> {
    file::all()
}

/// The process is about to end: what was taken is written, if that can be done until then.
pub(crate) fn finish_all(until: u64) {
    file::end_all(until);
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

/// Whom of ours a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The queue pair.
    pub(crate) queue_pair: Qpn,
    /// The work request, where it is known.
    pub(crate) work: Option<WorkId>,
}

/// What is known of a packet beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketMetadata {
    pub(crate) direction: Direction,
    pub(crate) headers: Headers,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) identification: Identification,
    pub(crate) owner: Owner,
}

/// Writes packets of one device to a file, which devices of one process share.
#[derive(Debug)]
pub(crate) struct Tap {
    file: Arc<Shared>,
    interface: u32,
}

impl Tap {
    /// Opens the file: `%p` in its name is the process's number. `sources` are the addresses that the device sends
    /// from.
    pub(crate) fn open(
        path: &Path,
        device: &Device,
        sources: impl Iterator<Item = SocketAddr>,
    ) -> Result<Self, Error> {
        let path = file::expanded(path, std::process::id());
        let interface = Interface::of(device);
        let (file, interface) = file::open(&path, interface, sources)
            .map_err(|source| Error::Capture { path, source })?;
        Ok(Self { file, interface })
    }

    /// The device sends from this address too, from now on.
    pub(crate) fn add_source(&self, source: SocketAddr) {
        self.file.add_sources([source]);
    }

    /// Takes a packet, from the BTH to the ICRC.
    pub(crate) fn record(&self, metadata: &PacketMetadata, packet: &[u8]) {
        if metadata.direction == Direction::In && self.file.is_source(metadata.headers.source) {
            return; // It is there already, as sent.
        }
        self.file.push(self.interface, metadata, packet);
    }

    pub(crate) fn status(&self) -> CaptureStatus {
        self.file.status()
    }

    /// Waits until all that was taken so far is written.
    pub(crate) fn flush(&self) {
        self.file.flush();
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        file::release(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_said() {
        let mut status = CaptureStatus { written: 7, ..CaptureStatus::default() };
        assert_eq!(status.complaint(), None);
        status.dropped = 3;
        let slow = "3 of 10 packets are missing in the capture: they came faster than they could be written";
        assert_eq!(status.complaint().as_deref(), Some(slow));
        status.failure = Some("cannot write: no space".into());
        let failed = "the capture ends after 7 packets, 3 are missing: cannot write: no space";
        assert_eq!(status.complaint().as_deref(), Some(failed));
    }
}
