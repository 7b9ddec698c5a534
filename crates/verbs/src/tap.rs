//! The capture tap: writes every packet, as on the wire, to a pcapng file, to live collectors, or both.
//!
//! For a file, the data path copies packets into a queue, and a thread turns them into frames and writes them. When the
//! queue is full, the device waits for the thread, or the tap drops packets ([`crate::CapturePolicy`]), and the file records how
//! many and where (epb_dropcount, isb_ifdrop). Fields that a socket does not reveal are filled in: Ethernet addresses other
//! than the interface's own, and the UDP checksum of received packets.
//!
//! A packet that this process sends to itself is recorded once, as sent; a second time, as received, if it was corrupted
//! on its way.
//!
//! | file | role |
//! |---|---|
//! | `file` | the open capture files |
//! | `queue` | the queue between the data path and the writer thread |
//! | `writer` | the writer thread: builds frames and writes them |
//! | `frame` | a packet with all its headers, and its comment |
//! | `live` | collectors in other processes, and the rings to them |

mod file;
mod frame;
mod live;
mod queue;
mod writer;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use ferroce_proto::work::WorkId;
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;
use ferroce_wire::transport::Bth;
use ferroce_wire::udp_headers::Headers;

use crate::device::Device;
use crate::error::OpenError;
use crate::options::Options;
use crate::sync::lock;
use live::LiveOutput;
pub(crate) use live::message;
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
enum Direction {
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
    direction: Direction,
    headers: Headers,
    traffic_class: u8,
    hop_limit: u8,
    identification: Identification,
    owner: Owner,
    /// Whether it arrived with a wrong ICRC.
    corrupted: bool,
}

/// The hop limit of packets whose route sets none, and of those whose hop limit the socket did not report: Linux's default
/// (`net.ipv4.ip_default_ttl`).
const DEFAULT_HOP_LIMIT: u8 = 64;

impl PacketMetadata {
    /// The metadata of a packet that this device sends, at an index of its batch; 0 where batches are not segmented.
    pub(crate) fn sent(
        headers: Headers,
        traffic_class: u8,
        hop_limit: Option<u8>,
        index: u16,
        owner: Owner,
    ) -> Self {
        Self {
            direction: Direction::Out,
            headers,
            traffic_class,
            hop_limit: hop_limit.unwrap_or(DEFAULT_HOP_LIMIT),
            identification: Identification::of_segment(index),
            owner,
            corrupted: false,
        }
    }

    /// The metadata of a packet that this device has received, with a correct ICRC.
    pub(crate) fn received(
        headers: Headers,
        traffic_class: u8,
        hop_limit: Option<u8>,
        identification: Identification,
        owner: Owner,
    ) -> Self {
        Self {
            direction: Direction::In,
            headers,
            traffic_class,
            hop_limit: hop_limit.unwrap_or(DEFAULT_HOP_LIMIT),
            identification,
            owner,
            corrupted: false,
        }
    }

    /// The same packet, which arrived with a wrong ICRC.
    pub(crate) fn corrupted(self) -> Self {
        Self { corrupted: true, ..self }
    }

    /// Whether the record of its sender, if there is one, shows all there is to see.
    fn is_known_to_sender(&self) -> bool {
        self.direction == Direction::In && !self.corrupted
    }
}

/// Captures the packets of one device: to a file, to live collectors, or not at all.
#[derive(Debug)]
pub(crate) struct Tap {
    interface: Interface,
    /// The file, and the number of the device in it. The devices of a process may share a file.
    file: Option<(Arc<Shared>, u32)>,
    /// The addresses that the device sends from.
    sources: Mutex<Vec<SocketAddr>>,
    outputs: RwLock<Vec<LiveOutput>>,
    is_live: AtomicBool,
}

impl Tap {
    /// Opens the file, if there is one; `%p` in its name becomes the process ID. `sources` are the device's send
    /// addresses.
    pub(crate) fn open(
        options: &Options,
        device: &Device,
        sources: impl Iterator<Item = SocketAddr>,
    ) -> Result<Arc<Self>, OpenError> {
        let interface = Interface::of(device);
        let sources: Vec<_> = sources.collect();
        let file = options.capture.as_ref().map(|path| {
            let path = file::expanded(path, std::process::id());
            let policy = options.capture_policy;
            file::open(&path, interface.clone(), sources.iter().copied(), policy)
                .map_err(|source| OpenError::Capture { path, source })
        });
        let tap = Arc::new(Self {
            interface,
            file: file.transpose()?,
            sources: Mutex::new(sources),
            outputs: RwLock::default(),
            is_live: AtomicBool::new(false),
        });
        live::register(&tap);
        Ok(tap)
    }

    /// Whether packets are recorded at present.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.file.is_some() || self.is_live()
    }

    /// Whether a collector in another process has asked for packets. Packets of several processes are put in order by
    /// their times.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Relaxed)
    }

    /// Adds a send address of the device.
    pub(crate) fn add_source(&self, source: SocketAddr) {
        if let Some((file, _)) = &self.file {
            file.add_sources([source]);
        }
        lock(&self.sources).push(source);
        for output in self.outputs().iter() {
            output.add_source(source);
        }
    }

    /// Records a packet, from the BTH to the ICRC.
    pub(crate) fn record(&self, metadata: &PacketMetadata, packet: &[u8]) {
        if let Some((file, interface)) = &self.file {
            // A packet from this process is there already, as sent.
            if !metadata.is_known_to_sender() || !file.is_source(metadata.headers.source) {
                file.push(*interface, metadata, packet);
            }
        }
        if self.is_live() {
            for output in self.outputs().iter() {
                output.push(&self.interface, metadata, packet);
            }
        }
    }

    /// Adds why a packet was refused to the comment of its last record in the file.
    #[cold]
    pub(crate) fn annotate(&self, packet: &Bth, reason: &str) {
        if let Some((file, _)) = &self.file {
            file.annotate(packet, reason);
        }
    }

    /// The state of the file.
    pub(crate) fn status(&self) -> Option<CaptureStatus> {
        self.file.as_ref().map(|(file, _)| file.status())
    }

    /// The packets missing in the file so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.file.as_ref().map_or(0, |(file, _)| file.dropped())
    }

    /// Waits until all packets recorded so far are in the file.
    pub(crate) fn flush(&self) {
        if let Some((file, _)) = &self.file {
            file.flush();
        }
    }

    fn outputs(&self) -> RwLockReadGuard<'_, Vec<LiveOutput>> {
        self.outputs.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_output(&self, output: LiveOutput) {
        self.outputs.write().unwrap_or_else(PoisonError::into_inner).push(output);
        self.is_live.store(true, Ordering::Release);
    }

    fn remove_outputs(&self, remove: impl Fn(&LiveOutput) -> bool) {
        let mut outputs = self.outputs.write().unwrap_or_else(PoisonError::into_inner);
        outputs.retain(|output| !remove(output));
        self.is_live.store(!outputs.is_empty(), Ordering::Release);
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if let Some((file, _)) = &self.file {
            file::release(file);
        }
        live::unregister();
    }
}

/// Looks for live collectors, after one has started.
pub(crate) fn look_for_collectors() {
    live::look();
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
