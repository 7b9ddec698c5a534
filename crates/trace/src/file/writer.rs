//! The packet type that writers take.

use super::MAX_WRITTEN_LEN;
use super::error::WriteError;
use super::record::{Direction, Record};
use crate::timestamp::Timestamp;

/// A packet to write, with its metadata.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Capture time.
    pub timestamp: Timestamp,
    /// Its interface, as returned by [`super::PcapngWriter::add_interface`].
    pub interface: u32,
    /// Length on the wire.
    pub original_len: u32,
    /// The captured bytes.
    pub data: &'a [u8],
    /// A comment, shown by Wireshark.
    pub comment: Option<&'a str>,
    /// Whether it was received or sent.
    pub direction: Option<Direction>,
    /// Packets of its interface lost between the previous one and this one. Not stored in pcap files.
    pub dropped: u64,
}

impl<'a> Packet<'a> {
    /// Creates a complete packet on interface 0.
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

    /// Creates a copy of a record for interface 0 of another file. Without a timestamp it gets the
    /// epoch.
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

    /// Sets the interface.
    pub fn on_interface(self, interface: u32) -> Packet<'a> {
        Packet { interface, ..self }
    }

    /// Sets the length on the wire, of a packet truncated by the capture.
    pub fn cut_from(self, original_len: u32) -> Packet<'a> {
        Packet { original_len, ..self }
    }

    /// Sets a comment.
    pub fn with_comment(self, comment: &'a str) -> Packet<'a> {
        Packet { comment: Some(comment), ..self }
    }

    /// Sets the direction.
    pub fn going(self, direction: Direction) -> Packet<'a> {
        Packet { direction: Some(direction), ..self }
    }

    /// Sets the number of packets of its interface lost before it.
    pub fn after_dropped(self, dropped: u64) -> Packet<'a> {
        Packet { dropped, ..self }
    }

    /// The captured length, if it is within the limit.
    pub(super) fn captured_len(&self) -> Result<u32, WriteError> {
        let length = self.data.len();
        match u32::try_from(length) {
            Ok(captured) if length <= MAX_WRITTEN_LEN => Ok(captured),
            _ => Err(WriteError::PacketTooLong { length }),
        }
    }
}
