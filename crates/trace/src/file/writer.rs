//! What a writer takes: a packet, and what the file shall say of it.

use super::MAX_WRITTEN_LEN;
use super::error::WriteError;
use super::record::{Direction, Record};
use super::timestamp::Timestamp;

/// A packet to write, with all that a capture file can say of it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When it was captured.
    pub timestamp: Timestamp,
    /// The interface it was captured on, as returned by [`super::PcapngWriter::add_interface`].
    pub interface: u32,
    /// How long it was on the wire.
    pub original_len: u32,
    /// The bytes captured.
    pub data: &'a [u8],
    /// A comment that Wireshark shows.
    pub comment: Option<&'a str>,
    /// Whether it was received or sent.
    pub direction: Option<Direction>,
    /// Packets of its interface that were lost between the previous one and this. A pcap file cannot say it.
    pub dropped: u64,
}

impl<'a> Packet<'a> {
    /// A whole packet, on interface 0.
    pub fn new(timestamp: Timestamp, data: &'a [u8]) -> Packet<'a> {
        let original_len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Packet {
            timestamp,
            interface: 0,
            original_len,
            data,
            comment: None,
            direction: None,
            dropped: 0,
        }
    }

    /// A packet as it was read, to be copied to interface 0 of another file. A packet without a
    /// time gets the epoch.
    pub fn from_record(record: &'a Record<'_>) -> Packet<'a> {
        Packet {
            timestamp: record.timestamp.unwrap_or_default(),
            interface: 0,
            original_len: record.original_len,
            data: record.data,
            comment: record.comment.as_deref(),
            direction: record.direction,
            dropped: record.dropped,
        }
    }

    /// The same packet, captured on `interface`.
    pub fn on_interface(self, interface: u32) -> Packet<'a> {
        Packet { interface, ..self }
    }

    /// The same packet, cut by the capture from `original_len` bytes on the wire.
    pub fn cut_from(self, original_len: u32) -> Packet<'a> {
        Packet { original_len, ..self }
    }

    /// The same packet, with a comment.
    pub fn with_comment(self, comment: &'a str) -> Packet<'a> {
        Packet { comment: Some(comment), ..self }
    }

    /// The same packet, going this way.
    pub fn going(self, direction: Direction) -> Packet<'a> {
        Packet { direction: Some(direction), ..self }
    }

    /// The same packet, before which so many others of its interface were lost.
    pub fn after_dropped(self, dropped: u64) -> Packet<'a> {
        Packet { dropped, ..self }
    }

    /// The captured length as both formats write it, if they can.
    pub(super) fn captured_len(&self) -> Result<u32, WriteError> {
        let length = self.data.len();
        match u32::try_from(length) {
            Ok(captured) if length <= MAX_WRITTEN_LEN => Ok(captured),
            _ => Err(WriteError::PacketTooLong { length }),
        }
    }
}
