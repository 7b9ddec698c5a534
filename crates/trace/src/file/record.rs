//! What a reader delivers: records, the interfaces they came in on, and what was odd about them.

use std::borrow::Cow;
use std::fmt;

use super::timestamp::{Resolution, Timestamp};
use crate::link::LinkType;
use crate::segments::Segment;

/// One captured packet, lent from the reader's buffer until the next call.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// Its number in the file, from 1, as Wireshark counts.
    pub number: u64,
    /// Where its header starts in the file.
    pub offset: u64,
    /// Where [`Record::data`] starts in the file. The headers of a packet that was split out of a larger record are not in
    /// the file as they are here; for such a packet, byte n of the BTH and of what follows it is at `data_offset` plus its
    /// offset in `data`.
    pub data_offset: u64,
    /// When it was captured. Simple Packet Blocks have no time, and some times are out of range.
    pub timestamp: Option<Timestamp>,
    /// The section of the file it is in, from 0. A pcap file is one section.
    pub section: u32,
    /// The interface it was captured on, an index into the section's interfaces.
    pub interface: u32,
    /// The name of that interface, if the file has it.
    pub interface_name: Option<&'a str>,
    /// What the bytes start with.
    pub link: LinkType,
    /// How long the packet was on the wire. More than `data.len()` if the capture cut it.
    pub original_len: u32,
    /// The bytes captured.
    pub data: &'a [u8],
    /// The comments on this packet, joined by newlines if there are several.
    pub comment: Option<Cow<'a, str>>,
    /// Whether it was received or sent, if the file says so.
    pub direction: Option<Direction>,
    /// Packets that the capture lost between the previous packet of this interface and this one, if it says so.
    pub dropped: u64,
    /// Which packet of its record this is, if it was split out of a larger one ([`crate::segments`]).
    pub segment: Option<Segment>,
    /// What is strange about this record, yet did not stop the reading.
    pub oddities: Oddities,
}

impl Record<'_> {
    /// Whether the capture holds less than the whole packet.
    pub fn is_cut(&self) -> bool {
        (self.data.len() as u64) < u64::from(self.original_len)
    }
}

/// Which way a packet went, seen from the interface.
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

/// An interface packets were captured on: an Interface Description Block of a pcapng file, or what
/// the header of a pcap file says of its only one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// What the packets start with.
    pub link: LinkType,
    /// The most bytes captured of a packet; 0 is no limit.
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

/// Something strange about a record that is safe to read past.
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
    /// None: what a sound record has.
    pub const NONE: Oddities = Oddities(0);

    /// Whether the record is sound.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `oddity` was seen.
    pub const fn contains(self, oddity: Oddity) -> bool {
        self.0 & oddity as u8 != 0
    }

    /// All that were seen.
    pub fn iter(self) -> impl Iterator<Item = Oddity> {
        Oddity::ALL.into_iter().filter(move |oddity| self.contains(*oddity))
    }

    /// Notes `oddity` if `seen`.
    #[inline]
    pub(super) fn note(&mut self, oddity: Oddity, seen: bool) {
        self.0 |= if seen { oddity as u8 } else { 0 };
    }
    /// Notes what is odd about the lengths of a packet.
    #[inline]
    pub(super) fn note_lengths(&mut self, captured: u32, original: u32, snap_len: u32) {
        self.note(Oddity::LongerThanOriginal, captured > original);
        self.note(Oddity::LongerThanSnapLength, snap_len != 0 && captured > snap_len);
    }
}
