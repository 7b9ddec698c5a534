//! Hand-made capture files for the tests, in either byte order, valid or damaged.

use super::bytes::ByteOrder::{self, Big, Little};
use super::{CaptureReader, Direction, FileError, Oddities, Timestamp};
use crate::link::LinkType;

pub(super) const BOTH_ORDERS: [ByteOrder; 2] = [Little, Big];

/// Bytes in a byte order.
pub(super) struct Bytes {
    pub(super) order: ByteOrder,
    pub(super) bytes: Vec<u8>,
}

impl Bytes {
    pub(super) fn new(order: ByteOrder) -> Bytes {
        Bytes { order, bytes: Vec::new() }
    }

    pub(super) fn u16(mut self, value: u16) -> Bytes {
        match self.order {
            Little => self.bytes.extend(value.to_le_bytes()),
            Big => self.bytes.extend(value.to_be_bytes()),
        }
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Bytes {
        match self.order {
            Little => self.bytes.extend(value.to_le_bytes()),
            Big => self.bytes.extend(value.to_be_bytes()),
        }
        self
    }

    pub(super) fn i64(mut self, value: i64) -> Bytes {
        match self.order {
            Little => self.bytes.extend(value.to_le_bytes()),
            Big => self.bytes.extend(value.to_be_bytes()),
        }
        self
    }

    pub(super) fn raw(mut self, bytes: &[u8]) -> Bytes {
        self.bytes.extend(bytes);
        self
    }

    pub(super) fn padded(mut self) -> Bytes {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    // pcap

    pub(super) fn pcap_header(self, magic: u32) -> Bytes {
        self.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65_535).u32(1)
    }

    pub(super) fn pcap_record(self, seconds: u32, fraction: u32, data: &[u8]) -> Bytes {
        let length = data.len() as u32;
        self.u32(seconds).u32(fraction).u32(length).u32(length).raw(data)
    }

    // pcapng

    /// A block around `body`, which is padded.
    pub(super) fn block(self, kind: u32, body: impl FnOnce(Bytes) -> Bytes) -> Bytes {
        let body = body(Bytes::new(self.order)).padded().bytes;
        let length = body.len() as u32 + 12;
        self.u32(kind).u32(length).raw(&body).u32(length)
    }

    pub(super) fn option(self, code: u16, value: &[u8]) -> Bytes {
        self.u16(code).u16(value.len() as u16).raw(value).padded()
    }

    pub(super) fn section_version(self, major: u16, minor: u16) -> Bytes {
        self.block(0x0a0d_0d0a, |body| body.u32(0x1a2b_3c4d).u16(major).u16(minor).i64(-1))
    }

    pub(super) fn section(self) -> Bytes {
        self.section_version(1, 0)
    }

    pub(super) fn interface(self, options: impl FnOnce(Bytes) -> Bytes) -> Bytes {
        self.block(1, |body| options(body.u16(1).u16(0).u32(0)))
    }

    /// An Enhanced Packet Block, its data padded before the options.
    pub(super) fn enhanced(
        self,
        interface: u32,
        units: u64,
        data: &[u8],
        options: impl FnOnce(Bytes) -> Bytes,
    ) -> Bytes {
        let length = data.len() as u32;
        self.block(6, |body| {
            let body = body.u32(interface).u32((units >> 32) as u32).u32(units as u32);
            options(body.u32(length).u32(length).raw(data).padded())
        })
    }
}

pub(super) fn no_options(bytes: Bytes) -> Bytes {
    bytes
}

/// An owned copy of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnedRecord {
    pub(super) number: u64,
    pub(super) offset: u64,
    pub(super) data_offset: u64,
    pub(super) timestamp: Option<Timestamp>,
    pub(super) section: u32,
    pub(super) interface: u32,
    pub(super) interface_name: Option<String>,
    pub(super) link: LinkType,
    pub(super) original_len: u32,
    pub(super) data: Vec<u8>,
    pub(super) comment: Option<String>,
    pub(super) direction: Option<Direction>,
    pub(super) dropped: u64,
    pub(super) oddities: Oddities,
}

impl OwnedRecord {
    pub(super) fn nanoseconds(&self) -> Option<i64> {
        self.timestamp.map(Timestamp::as_nanoseconds)
    }
}

/// Reads all records of a file, and how reading ended.
pub(super) fn read_all(file: impl std::io::Read) -> (Vec<OwnedRecord>, Result<(), FileError>) {
    let mut records = Vec::new();
    let mut reader = match CaptureReader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (records, Err(error)),
    };
    let end = loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(OwnedRecord {
                number: record.number,
                offset: record.offset,
                data_offset: record.data_offset,
                timestamp: record.timestamp,
                section: record.section,
                interface: record.interface,
                interface_name: record.interface_name.map(str::to_owned),
                link: record.link,
                original_len: record.original_len,
                data: record.data.to_vec(),
                comment: record.comment.map(|comment| comment.into_owned()),
                direction: record.direction,
                dropped: record.dropped,
                oddities: record.oddities,
            }),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // After the end or an error, the reader stays at the end.
    assert!(matches!(reader.next_record(), Ok(None)));
    assert_eq!(reader.records(), records.len() as u64);
    (records, end)
}

/// Reads the records of a valid file.
pub(super) fn read_valid(file: &[u8]) -> Vec<OwnedRecord> {
    let (records, end) = read_all(file);
    end.expect("a sound file");
    records
}

/// Reads the records before the damage, and the error.
pub(super) fn read_damaged(file: &[u8]) -> (Vec<OwnedRecord>, FileError) {
    let (records, end) = read_all(file);
    (records, end.expect_err("a damaged file"))
}

/// An input that returns at most `step` bytes per read and is interrupted before each.
pub(super) struct Trickle<'a> {
    pub(super) rest: &'a [u8],
    pub(super) step: usize,
    pub(super) interrupted: bool,
}

impl std::io::Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let count = self.step.min(buffer.len()).min(self.rest.len());
        buffer[..count].copy_from_slice(&self.rest[..count]);
        self.rest = &self.rest[count..];
        Ok(count)
    }
}
