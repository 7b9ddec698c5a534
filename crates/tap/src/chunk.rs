//! Packets on their way from the data path to the writer thread.

use std::time::SystemTime;

use ferroce_wire::transport::Bth;

use crate::metadata::PacketMetadata;

/// A packet in the queue.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) interface: u32,
    pub(super) metadata: PacketMetadata,
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    /// The length of the packet.
    pub(super) length: usize,
    /// Packets of its interface dropped since the previous one.
    pub(super) dropped: u64,
}

/// Packets that are written together.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) entries: Vec<Entry>,
    /// Their bytes, concatenated.
    pub(super) bytes: Vec<u8>,
    /// Why packets were refused, by their positions in `entries`, in no order.
    pub(super) reasons: Vec<(usize, String)>,
}

/// Records among which a refused packet is looked for: it was sent or received a moment ago.
const MAX_SEARCHED: usize = 4096;

impl Chunk {
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    /// Adds why a packet was refused to its last record. Returns whether it was found.
    pub(super) fn annotate(&mut self, packet: &Bth, reason: &str) -> bool {
        let mut start = self.bytes.len();
        for (index, entry) in self.entries.iter().enumerate().rev().take(MAX_SEARCHED) {
            start = start.saturating_sub(entry.length);
            let header = self.bytes[start..].first_chunk().map(Bth::parse);
            if header.as_ref() == Some(packet) {
                self.reasons.push((index, reason.to_owned()));
                return true;
            }
        }
        false
    }
}

/// Nanoseconds since 1970.
pub(super) fn real_time() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
