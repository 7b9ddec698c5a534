//! The capture file reader: detects the format and delivers records.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;
use std::ops::Range;

use super::error::{FileError, Problem};
use super::record::{Direction, Interface, Oddities, Record};
use super::source::Source;
use super::{pcap, pcapng};
use crate::timestamp::Timestamp;

/// The format of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// The classic format of libpcap, in micro- or nanoseconds.
    Pcap,
    /// Its successor, with sections, interfaces and comments.
    Pcapng,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Pcap => "pcap",
            Format::Pcapng => "pcapng",
        })
    }
}

/// Reads the records of a capture file, pcap or pcapng, from any input.
///
/// It has its own buffer: pass a plain file, not a `BufReader`. See the [module](super) for its
/// guarantees.
pub struct CaptureReader<R> {
    source: Source<R>,
    format: FormatReader,
    records: u64,
    finished: bool,
}

enum FormatReader {
    Pcap(pcap::Reader),
    Pcapng(pcapng::Reader),
}

/// A record located by a format reader, as ranges of the buffer.
pub(super) struct LocatedRecord {
    pub(super) offset: u64,
    /// Distance from `offset` to the packet.
    pub(super) header_len: u32,
    pub(super) timestamp: Option<Timestamp>,
    pub(super) interface: u32,
    pub(super) original_len: u32,
    pub(super) data: Range<usize>,
    /// The options of the block, in pcapng.
    pub(super) options: Range<usize>,
    /// Packets lost before this one.
    pub(super) dropped: u64,
    pub(super) oddities: Oddities,
}

impl<R: Read> CaptureReader<R> {
    /// Reads the header of a capture file and detects the format.
    pub fn new(input: R) -> Result<CaptureReader<R>, FileError> {
        let mut source = Source::new(input);
        let magic = match source.fill(4)? {
            0 => return Err(FileError::new(0, Problem::Empty)),
            _ => source.available().first_chunk::<4>().copied(),
        };
        let format = match magic {
            Some(pcapng::SECTION_MAGIC) => FormatReader::Pcapng(pcapng::Reader::new(&mut source)?),
            Some(magic) => FormatReader::Pcap(pcap::Reader::new(&mut source, magic)?),
            None => {
                source.require(4, "file header")?;
                return Err(FileError::new(0, Problem::Empty));
            }
        };
        Ok(CaptureReader { source, format, records: 0, finished: false })
    }

    /// Returns the next record, or `None` at the end of the file.
    ///
    /// After an error, further calls return `None`. Records before the error are valid.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, FileError> {
        if self.finished {
            return Ok(None);
        }
        let found = match &mut self.format {
            FormatReader::Pcap(reader) => reader.next(&mut self.source),
            FormatReader::Pcapng(reader) => reader.next(&mut self.source),
        };
        let found = match found {
            Ok(Some(found)) => found,
            other => {
                self.finished = true;
                return other.map(|_| None);
            }
        };
        self.records += 1;
        Ok(Some(self.lend(found)))
    }

    /// Borrows a located record from the buffer.
    #[inline]
    fn lend(&self, found: LocatedRecord) -> Record<'_> {
        let (interface, section, annotations) = match &self.format {
            FormatReader::Pcap(reader) => (reader.interface(), 0, Annotations::default()),
            FormatReader::Pcapng(reader) => (
                // The reader has just checked this index.
                &reader.interfaces()[found.interface as usize],
                reader.section(),
                reader.annotations(self.source.bytes(found.options)),
            ),
        };
        let mut oddities = found.oddities;
        oddities.note(super::Oddity::DamagedOptions, annotations.damaged);
        Record {
            number: self.records,
            offset: found.offset,
            data_offset: found.offset + u64::from(found.header_len),
            timestamp: found.timestamp,
            section,
            interface: found.interface,
            interface_name: interface.name.as_deref(),
            link: interface.link,
            original_len: found.original_len,
            data: self.source.bytes(found.data),
            comment: annotations.comment,
            direction: annotations.direction,
            dropped: found.dropped,
            segment: None,
            oddities,
        }
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        match self.format {
            FormatReader::Pcap(_) => Format::Pcap,
            FormatReader::Pcapng(_) => Format::Pcapng,
        }
    }

    /// Offset in the file of the next record.
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// Number of records delivered.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Interfaces described so far in the current section; one in a pcap file.
    pub fn interfaces(&self) -> &[Interface] {
        match &self.format {
            FormatReader::Pcap(reader) => std::slice::from_ref(reader.interface()),
            FormatReader::Pcapng(reader) => reader.interfaces(),
        }
    }

    /// Number of packets lost by the capture so far, from the counters in statistics blocks and on packets. Always 0 for
    /// pcap, which has no counters.
    #[doc(alias = "isb_ifdrop")]
    #[doc(alias = "isb_osdrop")]
    #[doc(alias = "epb_dropcount")]
    pub fn dropped(&self) -> u64 {
        match &self.format {
            FormatReader::Pcap(_) => 0,
            FormatReader::Pcapng(reader) => reader.dropped(),
        }
    }

    /// The comments on the current section of a pcapng file, joined by newlines.
    pub fn section_comment(&self) -> Option<&str> {
        match &self.format {
            FormatReader::Pcap(_) => None,
            FormatReader::Pcapng(reader) => reader.comment(),
        }
    }

    #[cfg(test)]
    pub(super) fn buffer_len(&self) -> usize {
        self.source.buffer_len()
    }
}

/// Shows the position, not the buffer.
impl<R> fmt::Debug for CaptureReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureReader")
            .field("records", &self.records)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

/// Contents of the options of a packet block.
#[derive(Default)]
pub(super) struct Annotations<'a> {
    pub(super) comment: Option<Cow<'a, str>>,
    pub(super) direction: Option<Direction>,
    pub(super) damaged: bool,
}
