//! The capture tap: writes every packet, as on the wire, to a pcapng file.
//!
//! The data path copies packets into a queue, and a thread turns them into frames and writes them. When the queue is
//! full, the device waits for the thread for a short time; then the tap drops packets, and the file records how many
//! and where (epb_dropcount, isb_ifdrop). Fields that a socket does not reveal are filled in: Ethernet addresses other
//! than the interface's own, and the UDP checksum of received packets.
//!
//! A packet that this process sends to itself is recorded once, as sent.
//!
//! | file | role |
//! |---|---|
//! | `file` | the open capture files |
//! | `queue` | the queue between the data path and the writer thread |
//! | `writer` | the writer thread: builds frames and writes them |
//! | `frame` | a packet with all its headers, and its comment |

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
use crate::error::OpenError;
use crate::headers::Headers;
use queue::{Interface, Shared};

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
    fn and(self, later: Self) -> Self {
        Self {
            written: self.written + later.written,
            dropped: self.dropped + later.dropped,
            failure: self.failure.or(later.failure),
        }
    }
}

/// The captures of this process: each file with its status. For programs about to exit, and for preloaded libraries;
/// other callers ask the context.
pub fn captures() -> Vec<(PathBuf, CaptureStatus)> {
    file::all()
}

/// Finishes all captures before the process exits, until the deadline.
pub(crate) fn finish_all(until: u64) {
    file::end_all(until);
}

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

/// The owner of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The QP.
    pub(crate) queue_pair: Qpn,
    /// The work request, if known.
    pub(crate) work: Option<WorkId>,
}

/// The metadata of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketMetadata {
    pub(crate) direction: Direction,
    pub(crate) headers: Headers,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) identification: Identification,
    pub(crate) owner: Owner,
}

/// Captures the packets of one device. The devices of a process may share a file.
#[derive(Debug)]
pub(crate) struct Tap {
    file: Arc<Shared>,
    interface: u32,
}

impl Tap {
    /// Opens the file; `%p` in its name becomes the process ID. `sources` are the device's send addresses.
    pub(crate) fn open(
        path: &Path,
        device: &Device,
        sources: impl Iterator<Item = SocketAddr>,
    ) -> Result<Self, OpenError> {
        let path = file::expanded(path, std::process::id());
        let interface = Interface::of(device);
        let (file, interface) = file::open(&path, interface, sources)
            .map_err(|source| OpenError::Capture { path, source })?;
        Ok(Self { file, interface })
    }

    /// Adds a send address of the device.
    pub(crate) fn add_source(&self, source: SocketAddr) {
        self.file.add_sources([source]);
    }

    /// Records a packet, from the BTH to the ICRC.
    pub(crate) fn record(&self, metadata: &PacketMetadata, packet: &[u8]) {
        if metadata.direction == Direction::In && self.file.is_source(metadata.headers.source) {
            return; // It is there already, as sent.
        }
        self.file.push(self.interface, metadata, packet);
    }

    pub(crate) fn status(&self) -> CaptureStatus {
        self.file.status()
    }

    /// Waits until all packets recorded so far are written.
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
