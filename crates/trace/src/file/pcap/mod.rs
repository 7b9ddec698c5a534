//! The classic libpcap format (draft-ietf-opsawg-pcap): one header, then records.

mod read;
mod write;

#[cfg(test)]
mod tests;

pub(super) use read::Reader;
pub use write::PcapWriter;

/// Seconds and microseconds.
const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
/// Seconds and nanoseconds.
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;

/// The length of the file's header (section 4).
const FILE_HEADER_LEN: usize = 24;
/// The length of a record's header (section 5).
const RECORD_HEADER_LEN: usize = 16;

/// The only version since 1998 (section 4).
const VERSION: (u16, u16) = (2, 4);
