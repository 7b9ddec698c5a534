//! What a process and a collector of its packets say to each other, and the form of a packet in their ring.
//!
//! Everything is read as if it came from a stranger: a message or record of another form is `None`.

use std::net::{IpAddr, SocketAddr};

use ferroce_proto::work::WorkId;
use ferroce_trace::file::Direction;
use ferroce_wire::number::Qpn;

use super::super::frame::Comments;
use crate::metadata::Owner;

/// The longest name in a message; longer ones are cut.
const MAX_NAME: usize = 64;

/// A message on the connection between a process and a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// From a process: the device behind a number in its records, and the network interface of the device.
    Interface {
        /// The number.
        index: u32,
        /// The device.
        device: String,
        /// The network interface.
        network: String,
    },
    /// From a process: it sends from this address. From a collector: another process does, and records these packets.
    Source(SocketAddr),
    /// From a collector: no process that it collects from sends from this address any more.
    NoSource(SocketAddr),
    /// From a collector: record packets from now on.
    Begin,
    /// From a process: it records packets.
    Begun,
    /// From a process: its ring is full, or has its first record.
    Bell,
}

impl Message {
    /// The bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Interface { index, device, network } => {
                [&[b'I'][..], &index.to_le_bytes(), &put_name(device), &put_name(network)].concat()
            }
            Self::Source(source) => [vec![b'S'], put_address(*source)].concat(),
            Self::NoSource(source) => [vec![b'N'], put_address(*source)].concat(),
            Self::Begin => vec![b'B'],
            Self::Begun => vec![b'b'],
            Self::Bell => vec![b'!'],
        }
    }

    /// Parses a message.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match (kind, rest) {
            (b'I', rest) => {
                let (index, rest) = rest.split_first_chunk()?;
                let (device, rest) = take_name(rest)?;
                let (network, rest) = take_name(rest)?;
                let index = u32::from_le_bytes(*index);
                rest.is_empty().then_some(Self::Interface { index, device, network })
            }
            (b'S', rest) => Some(Self::Source(take_address(rest)?)),
            (b'N', rest) => Some(Self::NoSource(take_address(rest)?)),
            (b'B', []) => Some(Self::Begin),
            (b'b', []) => Some(Self::Begun),
            (b'!', []) => Some(Self::Bell),
            _ => None,
        }
    }
}

fn put_name(name: &str) -> Vec<u8> {
    let end = (0..=name.len().min(MAX_NAME)).rev().find(|&end| name.is_char_boundary(end));
    let name = &name[..end.unwrap_or(0)];
    [&[name.len() as u8], name.as_bytes()].concat()
}

fn take_name(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((std::str::from_utf8(name).ok()?.to_owned(), rest))
}

fn put_address(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_le_bytes();
    match address.ip() {
        IpAddr::V4(ip) => [&port[..], &[4], &ip.octets()].concat(),
        IpAddr::V6(ip) => [&port[..], &[6], &ip.octets()].concat(),
    }
}

fn take_address(bytes: &[u8]) -> Option<SocketAddr> {
    let (port, address) = bytes.split_first_chunk()?;
    let ip: IpAddr = match address.split_first()? {
        (4, ip) => <[u8; 4]>::try_from(ip).ok()?.into(),
        (6, ip) => <[u8; 16]>::try_from(ip).ok()?.into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_le_bytes(*port)))
}

/// The metadata of a packet in a ring; the frame follows, from the Ethernet header on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The number of the device.
    pub interface: u32,
    /// The length of the frame on the wire.
    pub original: u32,
    /// It was received.
    pub received: bool,
    /// The QP of the process that it belongs to.
    pub queue_pair: u32,
    /// The work request that it belongs to, if known.
    pub work: Option<u64>,
    /// Packets of this device that were dropped since its previous record.
    pub dropped: u64,
}

impl RecordHeader {
    /// The bytes of a header.
    pub const LENGTH: usize = 40;

    /// Writes the header.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0..8].copy_from_slice(&self.time.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.interface.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.original.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.queue_pair.to_le_bytes());
        bytes[20] = self.received.into();
        bytes[21] = self.work.is_some().into();
        bytes[24..32].copy_from_slice(&self.work.unwrap_or(0).to_le_bytes());
        bytes[32..40].copy_from_slice(&self.dropped.to_le_bytes());
        bytes
    }

    /// Splits a record into its header and its frame.
    pub fn decode(record: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, frame) = record.split_first_chunk::<{ Self::LENGTH }>()?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let header = Self {
            time: long(0),
            interface: word(8),
            original: word(12),
            queue_pair: word(16),
            received: bytes[20] != 0,
            work: (bytes[21] != 0).then(|| long(24)),
            dropped: long(32),
        };
        Some((header, frame))
    }
}

impl Comments {
    /// The comment on a packet whose BTH has this opcode, as in the files that processes write themselves.
    pub fn on(&mut self, header: &RecordHeader, opcode: u8) -> &str {
        let direction = if header.received { Direction::Inbound } else { Direction::Outbound };
        let owner = Owner { queue_pair: Qpn(header.queue_pair), work: header.work.map(WorkId) };
        self.of(direction, owner, ferroce_wire::opcode::Opcode(opcode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_as_they_were_written() {
        let messages = [
            Message::Interface { index: 7, device: "ferroce_é0".into(), network: "é0".into() },
            Message::Source("192.0.2.1:49152".parse().unwrap()),
            Message::NoSource("[2001:db8::1]:49152".parse().unwrap()),
            Message::Begin,
            Message::Begun,
            Message::Bell,
        ];
        for message in messages {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes).as_ref(), Some(&message));
            // Nothing else parses: neither a part of it nor more.
            for end in 0..bytes.len() {
                assert_eq!(Message::decode(&bytes[..end]), None, "{message:?}");
            }
            assert_eq!(Message::decode(&[&bytes[..], &[0]].concat()), None, "{message:?}");
        }
        let long = Message::Interface { index: 0, device: "é".repeat(50), network: String::new() };
        let Some(Message::Interface { device, .. }) = Message::decode(&long.encode()) else {
            panic!("{long:?}");
        };
        assert_eq!(device, "é".repeat(32));
    }

    #[test]
    fn records_are_parsed_as_they_were_written() {
        for (received, work) in [(false, None), (true, Some(u64::MAX))] {
            let header = RecordHeader {
                time: u64::MAX - 1,
                interface: 3,
                original: 4154,
                received,
                queue_pair: 0xff_fffe,
                work,
                dropped: 1 << 40,
            };
            let record = [&header.encode()[..], b"frame"].concat();
            assert_eq!(RecordHeader::decode(&record), Some((header, &b"frame"[..])));
            assert_eq!(RecordHeader::decode(&record[..RecordHeader::LENGTH - 1]), None);
        }
    }
}
