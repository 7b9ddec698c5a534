//! Reading and writing of capture files: pcap and pcapng as streams of records.
//!
//! This module knows only the two file formats: a record is a timestamp, an interface, two lengths and
//! bytes with a [`LinkType`]. The bytes are interpreted by [`crate::link`] and the dissection above it.
//! It opens no files: readers take any [`std::io::Read`] (a file, standard input, a slice) and writers
//! any [`std::io::Write`].
//!
//! # Guarantees
//! - **Streaming.** Records are borrowed from one buffer without a copy. Nothing seeks.
//! - **Bounded memory.** The buffer starts at 256 KiB and never grows past 32 MiB, and it grows only
//!   as bytes arrive: a length field alone allocates nothing. Interfaces of a section are
//!   capped at [`MAX_INTERFACES`], their texts at [`MAX_TEXT_LEN`] bytes.
//! - **Errors have a position.** Every [`FileError`] has the byte offset of the record or block at
//!   fault. All records before it have been delivered.
//! - **Harmless irregularities do not stop the reader.** They are marked on the record, see [`Oddity`].
//!
//! The formats are those of draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng, whose sections are
//! cited at the lines that implement them.
//!
//! ```
//! use ferroce_trace::file::{CaptureReader, Packet, PcapngWriter, Timestamp};
//! use ferroce_trace::link::LinkType;
//!
//! let mut writer = PcapngWriter::new(Vec::new())?;
//! let eth0 = writer.add_interface(LinkType::ETHERNET, Some("eth0"))?;
//! let when = Timestamp::from_nanoseconds(1_700_000_000_123_456_789);
//! writer.write(&Packet::new(when, &[0; 60]).on_interface(eth0).with_comment("hello"))?;
//! let bytes = writer.finish()?;
//!
//! let mut reader = CaptureReader::new(bytes.as_slice())?;
//! while let Some(record) = reader.next_record()? {
//!     assert_eq!((record.number, record.timestamp), (1, Some(when)));
//!     assert_eq!(record.interface_name, Some("eth0"));
//!     assert_eq!(record.comment.as_deref(), Some("hello"));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bytes;
mod drop_counters;
mod error;
mod pcap;
mod pcapng;
mod reader;
mod record;
mod source;
mod writer;

#[cfg(test)]
mod test_files;
#[cfg(test)]
mod tests;

pub use error::{FileError, Problem, WriteError};
pub use pcap::PcapWriter;
pub use pcapng::{Batch, PcapngWriter};
pub use reader::{CaptureReader, Format};
pub use record::{Direction, Interface, Oddities, Oddity, Record, Segment};
pub use writer::Packet;

pub use crate::timestamp::{Resolution, Timestamp};

#[doc(no_inline)]
pub use crate::link::LinkType;

/// Limit of the captured length of a record: 16 MiB. Longer records are rejected as damaged.
///
/// Network captures stay far below (libpcap's limit is 256 KiB for most link types), and a damaged
/// length field is usually far above.
pub const MAX_CAPTURED_LEN: u32 = 16 << 20;

/// Limit of the length of a parsed pcapng block: a packet of [`MAX_CAPTURED_LEN`] plus 1 MiB of
/// header and options. Skipped blocks may have any length.
pub const MAX_BLOCK_LEN: u32 = MAX_CAPTURED_LEN + (1 << 20);

/// Limit of interfaces per pcapng section, which bounds memory: as many as the obsolete Packet Block
/// can address.
pub const MAX_INTERFACES: usize = 1 << 16;

/// Limit of the stored length of an interface's name and description.
pub const MAX_TEXT_LEN: usize = 256;

/// Limit of the length of a written packet: what Wireshark and libpcap accept.
pub const MAX_WRITTEN_LEN: usize = 1 << 18;
