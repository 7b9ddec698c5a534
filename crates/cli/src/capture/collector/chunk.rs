//! Packets that a collector has taken, in the order of their times.

use ferroce::live::RecordHeader;

/// Bytes of records that a chunk holds.
const CAPACITY: usize = 1 << 20;

/// Space behind them: the longest record is a packet of 64 KiB with its headers and metadata.
const MAX_RECORD: usize = 128 << 10;

/// A packet, with the frame from its Ethernet header on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured<'a> {
    /// Its metadata. The interface is that of the process: use `interface`.
    pub(crate) header: RecordHeader,
    /// Index into [`super::Collector::interfaces`].
    pub(crate) interface: usize,
    /// Whether the process that sent or received it recorded it, with its queue pair and work request.
    pub(crate) by_process: bool,
    /// The captured bytes.
    pub(crate) frame: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    header: RecordHeader,
    interface: usize,
    by_process: bool,
    start: usize,
    length: usize,
}

/// Packets and their bytes; reused.
#[derive(Debug)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    used: usize,
    entries: Vec<Entry>,
}

impl Default for Chunk {
    fn default() -> Self {
        Self { bytes: vec![0; CAPACITY + MAX_RECORD], used: 0, entries: Vec::new() }
    }
}

impl Chunk {
    /// The packets.
    pub(crate) fn packets(&self) -> impl Iterator<Item = Captured<'_>> {
        self.entries.iter().map(|entry| Captured {
            header: entry.header,
            interface: entry.interface,
            by_process: entry.by_process,
            frame: &self.bytes[entry.start..entry.start + entry.length],
        })
    }

    /// Whether there are so many packets that more are likely to be there already.
    pub(crate) fn is_large(&self) -> bool {
        self.used >= CAPACITY / 2
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.entries.clear();
    }

    pub(super) fn is_full(&self) -> bool {
        self.used >= CAPACITY
    }

    /// Space for the next record, at least as long as the longest one.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.used..]
    }

    /// Adds the packet whose frame is `length` bytes from `start` on in [`Chunk::room`].
    pub(super) fn push(
        &mut self,
        header: RecordHeader,
        interface: usize,
        by_process: bool,
        start: usize,
        length: usize,
    ) {
        let start = self.used + start;
        self.entries.push(Entry { header, interface, by_process, start, length });
        self.used = start + length;
    }
}
