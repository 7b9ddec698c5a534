//! Capture files, in and out: pcap and pcapng as streams of records.
//!
//! This module knows the two file formats and nothing else: a record is a timestamp, an interface,
//! two lengths and bytes whose meaning starts with their [`LinkType`]. What the bytes are is for
//! [`crate::link`] and the dissection above it. It opens no file by itself either: readers take any
//! [`std::io::Read`] (a file, standard input, a slice) and writers any [`std::io::Write`].
//!
//! # Promises
//! - **Streaming.** One buffer, records lent from it without a copy. Nothing seeks.
//! - **Bounded memory.** The buffer starts at 256 KiB and never grows past 32 MiB, and it grows only
//!   as bytes really arrive: a length field alone allocates nothing. Interfaces of a section are
//!   capped at [`MAX_INTERFACES`], their texts at [`MAX_TEXT_LEN`] bytes.
//! - **Errors name a place.** Every [`FileError`] has the byte offset of the record or block at
//!   fault. All records before it have been delivered and stay valid.
//! - **Oddities do not stop a reading.** What is strange but harmless is marked on the record, see
//!   [`Oddity`].
//!
//! The formats are read as draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng describe them; the
//! sections are cited at the lines that implement them.
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
mod timestamp;
mod writer;

#[cfg(test)]
mod test_files;
#[cfg(test)]
mod tests;

pub use error::{FileError, Problem, WriteError};
pub use pcap::PcapWriter;
pub use pcapng::{Batch, PcapngWriter};
pub use reader::{CaptureReader, Format};
pub use record::{Direction, Interface, Oddities, Oddity, Record};
pub use timestamp::{Resolution, Timestamp};
pub use writer::Packet;

#[doc(no_inline)]
pub use crate::link::LinkType;

/// The most bytes one record may hold: 16 MiB. A file that claims more is refused, as lying.
///
/// Captures of network packets stay far below (libpcap's own limit is 256 KiB for most link types),
/// and a damaged length field lies far above as a rule.
pub const MAX_CAPTURED_LEN: u32 = 16 << 20;

/// The most bytes one pcapng block that is looked into may hold: a packet of [`MAX_CAPTURED_LEN`],
/// plus 1 MiB of header and options. Blocks that are skipped may have any length.
pub const MAX_BLOCK_LEN: u32 = MAX_CAPTURED_LEN + (1 << 20);

/// The most interfaces one pcapng section may describe. Each costs memory for as long as the
/// section lasts, so there must be a limit; this is as many as the obsolete Packet Block can name.
pub const MAX_INTERFACES: usize = 1 << 16;

/// The most bytes kept of an interface's name and description.
pub const MAX_TEXT_LEN: usize = 256;

/// The most bytes a packet may have to be written: what Wireshark and libpcap accept.
pub const MAX_WRITTEN_LEN: usize = 1 << 18;
