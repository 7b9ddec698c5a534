//! The capture tap: writes every packet of a device, as on the wire, to a pcapng file, to live collectors, or both.
//!
//! For a file, the data path copies packets into a queue, and a thread turns them into frames and writes them. When the
//! queue is full, the device waits for the thread, or the tap drops packets ([`CapturePolicy`]), and the file records how
//! many and where (epb_dropcount, isb_ifdrop). Fields that a socket does not reveal are filled in: Ethernet addresses other
//! than the interface's own, and the UDP checksum of received packets.
//!
//! A packet that this process sends to itself is recorded once, as sent; a second time, as received, if it was corrupted
//! on its way.
//!
//! This crate knows the bytes of packets, their [metadata](PacketMetadata), files and collectors. It does not know devices,
//! queue pairs, or how packets are sent: the code that sends or receives a packet describes it ([`PacketMetadata::sent`],
//! [`PacketMetadata::received`]) and calls [`Tap::record`].
//!
//! | file | role |
//! |---|---|
//! | `metadata` | the metadata of a packet: direction, addresses, QP, work request |
//! | `capture` | what a capture is of, its policy, its state |
//! | `file` | the open capture files |
//! | `chunk` | packets that are written together |
//! | `queue` | the queue between the data path and the writer thread |
//! | `writer` | the writer thread: builds frames and writes them |
//! | `frame` | a packet with all its headers, and its comment |
//! | `live` | collectors in other processes, and the rings to them |
#![forbid(unsafe_code)]

// A tap looks for collectors, which a network namespace of its own does not have.
#[cfg(test)]
use ferroce_test_support as _;

mod capture;
mod chunk;
mod file;
mod frame;
mod live;
mod metadata;
mod queue;
mod sync;
mod writer;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use ferroce_wire::transport::Bth;

use crate::sync::lock;
pub use capture::{CaptureError, CapturePolicy, CaptureStatus, Interface};
pub use file::{captures, finish_all};
pub use frame::Comments;
use live::attachment::Attachment;
pub use live::look_for_collectors;
pub use live::message::{Message, RecordHeader};
pub use metadata::{Owner, PacketMetadata};
use queue::Shared;

/// Captures the packets of one device: to a file, to live collectors, or not at all.
#[derive(Debug)]
pub struct Tap {
    interface: Interface,
    /// The file, and the number of the device in it. The devices of a process may share a file.
    file: Option<(Arc<Shared>, u32)>,
    /// The addresses that the device sends from.
    sources: Mutex<Vec<SocketAddr>>,
    /// The collectors, each with the number of the device in its records.
    outputs: RwLock<Vec<(Arc<Attachment>, u32)>>,
    is_live: AtomicBool,
}

impl Tap {
    /// Starts to capture the packets of a device that sends from these addresses, to a file if there is one; `%p` in its name
    /// becomes the process ID. Live collectors may join at any time.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened.
    pub fn open(
        interface: Interface,
        sources: impl Iterator<Item = SocketAddr>,
        file: Option<(&Path, CapturePolicy)>,
    ) -> Result<Arc<Self>, CaptureError> {
        let sources: Vec<_> = sources.collect();
        let file = file.map(|(path, policy)| {
            let path = file::expanded(path, std::process::id());
            file::open(&path, interface.clone(), sources.iter().copied(), policy)
                .map_err(|source| CaptureError { path, source })
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
    pub fn is_active(&self) -> bool {
        self.file.is_some() || self.is_live()
    }

    /// Whether a collector in another process has asked for packets. Packets of several processes are put in order by
    /// their times.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Relaxed)
    }

    /// Adds a send address of the device.
    pub fn add_source(&self, source: SocketAddr) {
        if let Some((file, _)) = &self.file {
            file.sources.set(source, true);
        }
        lock(&self.sources).push(source);
        for (collector, _) in self.outputs().iter() {
            collector.add_source(source);
        }
    }

    /// Records a packet, from the BTH to the ICRC.
    pub fn record(&self, metadata: &PacketMetadata, packet: &[u8]) {
        if let Some((file, interface)) = &self.file {
            // A packet from this process is there already, as sent.
            if !file.sources.record(metadata) {
                file.push(*interface, metadata, packet);
            }
        }
        if self.is_live() {
            for (collector, interface) in self.outputs().iter() {
                collector.push(*interface, &self.interface, metadata, packet);
            }
        }
    }

    /// Adds why a packet was refused to the comment of its last record in the file.
    #[cold]
    pub fn annotate(&self, packet: &Bth, reason: &str) {
        if let Some((file, _)) = &self.file {
            file.annotate(packet, reason);
        }
    }

    /// The state of the file.
    pub fn status(&self) -> Option<CaptureStatus> {
        self.file.as_ref().map(|(file, _)| file.status())
    }

    /// The packets missing in the file so far.
    pub fn dropped(&self) -> u64 {
        self.file.as_ref().map_or(0, |(file, _)| file.dropped())
    }

    /// Waits until all packets recorded so far are in the file.
    pub fn flush(&self) {
        if let Some((file, _)) = &self.file {
            file.flush();
        }
    }

    fn outputs(&self) -> RwLockReadGuard<'_, Vec<(Arc<Attachment>, u32)>> {
        self.outputs.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_outputs(&self, change: impl FnOnce(&mut Vec<(Arc<Attachment>, u32)>)) {
        let mut outputs = self.outputs.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut outputs);
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

#[cfg(test)]
mod tests;
