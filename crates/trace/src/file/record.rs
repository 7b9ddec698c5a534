//! Records, interfaces and irregularities delivered by a reader.

use std::borrow::Cow;
use std::fmt;

use crate::link::LinkType;
use crate::timestamp::{Resolution, Timestamp};

/// One captured packet, borrowed from the reader's buffer until the next call.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// Its number in the file, from 1, as Wireshark counts.
    pub number: u64,
    /// Offset of its header in the file.
    pub offset: u64,
    /// Offset of [`Record::data`] in the file. The headers of a packet split from a larger record are rebuilt and not in the
    /// file; for such a packet, bytes from the BTH on are at `data_offset` plus their offset in `data`.
    pub data_offset: u64,
    /// Capture time. `None` for Simple Packet Blocks and for times out of range.
    pub timestamp: Option<Timestamp>,
    /// The section of the file it is in, from 0. A pcap file is one section.
    pub section: u32,
    /// Index of its interface in the section.
    pub interface: u32,
    /// The name of that interface, if the file has it.
    pub interface_name: Option<&'a str>,
    /// Link type of the bytes.
    pub link: LinkType,
    /// Length of the packet on the wire. More than `data.len()` if the capture truncated it.
    pub original_len: u32,
    /// The captured bytes.
    pub data: &'a [u8],
    /// The comments on this packet, joined by newlines if there are several.
    pub comment: Option<Cow<'a, str>>,
    /// Whether it was received or sent, if the file says so.
    pub direction: Option<Direction>,
    /// Packets lost by the capture between the previous packet of this interface and this one, if recorded.
    pub dropped: u64,
    /// Position in its record, if it was split from a larger one ([`crate::segments`]).
    pub segment: Option<Segment>,
    /// Irregularities of this record that did not stop the reader.
    pub oddities: Oddities,
}

/// Position of a packet in the record it was split from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Counted from 1.
    pub number: u32,
    /// Packets in the record, including those cut off by the capture.
    pub count: u32,
}

impl Record<'_> {
    /// Whether the capture truncated the packet.
    pub fn is_cut(&self) -> bool {
        (self.data.len() as u64) < u64::from(self.original_len)
    }
}

/// Direction of a packet, seen from the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Inbound => "inbound",
            Direction::Outbound => "outbound",
        })
    }
}

/// A capture interface: an Interface Description Block of a pcapng file, or the header of a pcap
/// file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Link type of its packets.
    pub link: LinkType,
    /// Limit of bytes captured per packet; 0 means no limit.
    pub snap_len: u32,
    /// Its name, such as `eth0`, cut to [`super::MAX_TEXT_LEN`] bytes.
    pub name: Option<String>,
    /// Its description, cut likewise.
    pub description: Option<String>,
    /// The unit of its timestamps.
    pub resolution: Resolution,
    /// Seconds added to its timestamps.
    pub offset_seconds: i64,
}

/// A harmless irregularity of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Oddity {
    /// More bytes were captured than the interface's snap length allows.
    LongerThanSnapLength = 1 << 0,
    /// More bytes were captured than the packet had on the wire.
    LongerThanOriginal = 1 << 1,
    /// A Simple Packet Block is shorter than the packet it should hold: its last bytes may be
    /// padding.
    ShortSimplePacket = 1 << 2,
    /// The fraction of the timestamp is a second or more.
    FractionOverflow = 1 << 3,
    /// The timestamp is before 1677 or after 2262.
    TimestampOutOfRange = 1 << 4,
    /// The options of the block are damaged; those before the damage were read.
    DamagedOptions = 1 << 5,
}

impl Oddity {
    const ALL: [Oddity; 6] = [
        Oddity::LongerThanSnapLength,
        Oddity::LongerThanOriginal,
        Oddity::ShortSimplePacket,
        Oddity::FractionOverflow,
        Oddity::TimestampOutOfRange,
        Oddity::DamagedOptions,
    ];
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Oddity::LongerThanSnapLength => "captured more bytes than the snap length",
            Oddity::LongerThanOriginal => "captured more bytes than the packet had",
            Oddity::ShortSimplePacket => "its block is shorter than the packet it should hold",
            Oddity::FractionOverflow => "the fraction of its timestamp is a second or more",
            Oddity::TimestampOutOfRange => "its timestamp is out of range",
            Oddity::DamagedOptions => "its options are damaged",
        })
    }
}

/// A set of [`Oddity`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities(u8);

impl Oddities {
    /// The empty set.
    pub const NONE: Oddities = Oddities(0);

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `oddity` is in the set.
    pub const fn contains(self, oddity: Oddity) -> bool {
        self.0 & oddity as u8 != 0
    }

    /// The irregularities in the set.
    pub fn iter(self) -> impl Iterator<Item = Oddity> {
        Oddity::ALL.into_iter().filter(move |oddity| self.contains(*oddity))
    }

    /// Adds `oddity` if `present`.
    #[inline]
    pub(super) fn note(&mut self, oddity: Oddity, present: bool) {
        self.0 |= if present { oddity as u8 } else { 0 };
    }

    /// Checks the lengths of a packet.
    #[inline]
    pub(super) fn note_lengths(&mut self, captured: u32, original: u32, snap_len: u32) {
        self.note(Oddity::LongerThanOriginal, captured > original);
        self.note(Oddity::LongerThanSnapLength, snap_len != 0 && captured > snap_len);
    }
}
