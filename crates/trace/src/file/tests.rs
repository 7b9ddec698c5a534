//! Tests of both formats: round trips, slow and failing inputs, and the rdma_rxe captures.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use proptest::prelude::*;

use super::test_files::{OwnedRecord, Trickle, read_all, read_valid};
use super::{
    Batch, CaptureReader, Direction, MAX_WRITTEN_LEN, Packet, PcapWriter, PcapngWriter, Problem,
    Resolution, Timestamp, WriteError,
};
use crate::link::LinkType;

fn captures() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/rxe");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the captures are part of the repository")
        .map(|entry| entry.expect("a folder entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .collect();
    paths.sort();
    assert!(paths.len() > 40, "only {} captures in {folder}", paths.len());
    paths
}

/// File names and packet counts from the README of the captures.
fn packets_by_readme() -> Vec<(String, usize)> {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/rxe/README.md");
    let text = std::fs::read_to_string(readme).expect("the captures have a README");
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (file, _, packets) = (cells.next()?, cells.next()?, cells.next()?);
        Some((file.to_owned(), packets.parse().ok()?))
    });
    rows.collect()
}

#[test]
fn reads_every_rxe_capture() {
    let expected = packets_by_readme();
    for path in captures() {
        let bytes = std::fs::read(&path).unwrap();
        let records = read_valid(&bytes);
        let name = path.file_stem().unwrap().to_string_lossy();
        let (_, packets) = expected.iter().find(|(file, _)| *file == name).expect("in the README");
        assert_eq!(records.len(), *packets, "{name}");
        for record in &records {
            assert_eq!(record.link, LinkType::ETHERNET);
            assert_eq!(record.data.len() as u32, record.original_len);
            assert!(record.oddities.is_empty());
            let start = record.data_offset as usize;
            assert!(bytes[start..].starts_with(&record.data));
        }
        let times: Vec<_> = records.iter().map(|record| record.timestamp).collect();
        assert!(times.is_sorted(), "{name}");
    }
}

#[test]
fn a_capture_copied_to_either_format_is_unchanged() {
    for path in captures() {
        let bytes = std::fs::read(&path).unwrap();
        let mut pcap = PcapWriter::new(Vec::new(), LinkType::ETHERNET).unwrap();
        let mut pcapng = PcapngWriter::new(Vec::new()).unwrap();
        pcapng.add_interface(LinkType::ETHERNET, None).unwrap();
        let mut reader = CaptureReader::new(&bytes[..]).unwrap();
        while let Some(record) = reader.next_record().unwrap() {
            pcap.write(&Packet::from_record(&record)).unwrap();
            pcapng.write(&Packet::from_record(&record)).unwrap();
        }
        let place_free = |file: &[u8]| -> Vec<OwnedRecord> {
            let kept = read_valid(file).into_iter();
            kept.map(|record| OwnedRecord { offset: 0, data_offset: 0, ..record }).collect()
        };
        let original = place_free(&bytes);
        assert_eq!(place_free(&pcap.finish().unwrap()), original);
        assert_eq!(place_free(&pcapng.finish().unwrap()), original);
    }
}

#[derive(Clone, Debug)]
struct Written {
    nanoseconds: i64,
    interface: u32,
    data: Vec<u8>,
    cut: u32,
    comment: Option<String>,
    direction: Option<Direction>,
    dropped: u64,
}

impl Written {
    fn packet(&self) -> Packet<'_> {
        Packet {
            timestamp: Timestamp::from_nanoseconds(self.nanoseconds),
            interface: self.interface,
            original_len: self.data.len() as u32 + self.cut,
            data: &self.data,
            comment: self.comment.as_deref(),
            direction: self.direction,
            dropped: self.dropped,
        }
    }
}

/// An output that accepts a few bytes per write.
struct Few {
    bytes: Vec<u8>,
    step: usize,
}

impl std::io::Write for Few {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = bytes.len().min(self.step);
        self.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

prop_compose! {
    fn written(latest: i64)(
        nanoseconds in 0..=latest,
        interface in 0..3u32,
        data in prop::collection::vec(any::<u8>(), 0..300),
        cut in 0..5000u32,
        comment in prop::option::of("[^\0]{0,40}"),
        direction in prop::option::of(prop_oneof![
            Just(Direction::Inbound),
            Just(Direction::Outbound),
        ]),
        dropped in prop_oneof![Just(0), any::<u64>()],
    ) -> Written {
        Written { nanoseconds, interface, data, cut, comment, direction, dropped }
    }
}

const LINKS: [LinkType; 3] = [LinkType::ETHERNET, LinkType::RAW, LinkType(40_000)];

proptest! {
    #[test]
    fn pcapng_round_trip(
        packets in prop::collection::vec(written(i64::MAX), 0..20),
        names in prop::array::uniform3(prop::option::of("[a-z0-9]{1,15}")),
        step in 1..2000usize,
    ) {
        let mut writer = PcapngWriter::new(Vec::new()).unwrap();
        for (link, name) in LINKS.into_iter().zip(&names) {
            writer.add_interface(link, name.as_deref()).unwrap();
        }
        for packet in &packets {
            writer.write(&packet.packet()).unwrap();
        }
        let file = writer.finish().unwrap();
        let (records, end) = read_all(Trickle { rest: &file, step, interrupted: false });
        prop_assert!(end.is_ok());
        prop_assert_eq!(records.len(), packets.len());
        for ((record, packet), number) in records.into_iter().zip(packets).zip(1..) {
            prop_assert_eq!(record.number, number);
            prop_assert_eq!(record.nanoseconds(), Some(packet.nanoseconds));
            prop_assert_eq!(record.interface, packet.interface);
            prop_assert_eq!(record.link, LINKS[packet.interface as usize]);
            prop_assert_eq!(&record.interface_name, &names[packet.interface as usize]);
            prop_assert_eq!(record.original_len, packet.data.len() as u32 + packet.cut);
            prop_assert_eq!(record.data, packet.data);
            prop_assert_eq!(record.comment, packet.comment);
            prop_assert_eq!(record.direction, packet.direction);
            prop_assert_eq!(record.dropped, packet.dropped);
            prop_assert!(record.oddities.is_empty());
        }
    }

    /// Byte by byte, wherever the output makes short writes.
    #[test]
    fn a_batch_equals_single_writes(
        packets in prop::collection::vec(written(i64::MAX), 0..20),
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1500), 20),
        step in 1..5000usize,
    ) {
        let mut one_by_one = PcapngWriter::new(Vec::new()).unwrap();
        let mut together = PcapngWriter::new(Few { bytes: Vec::new(), step }).unwrap();
        for link in LINKS {
            one_by_one.add_interface(link, None).unwrap();
            together.add_interface(link, None).unwrap();
        }
        let long = vec![0; MAX_WRITTEN_LEN + 1];
        let mut batch = Batch::default();
        for (packet, body) in packets.iter().zip(&bodies) {
            let data = [&packet.data[..], body].concat();
            let whole = Packet { data: &data, ..packet.packet() };
            let original_len = data.len() as u32 + packet.cut;
            one_by_one.write(&whole.cut_from(original_len)).unwrap();
            batch.add(&packet.packet(), body).unwrap();
            // An oversized packet leaves the batch unchanged.
            let text = "x".repeat(1 << 16);
            prop_assert!(batch.add(&packet.packet(), &long).is_err());
            prop_assert!(batch.add(&packet.packet().with_comment(&text), body).is_err());
        }
        together.write_batch(batch).unwrap();
        prop_assert_eq!(together.finish().unwrap().bytes, one_by_one.finish().unwrap());
    }

    #[test]
    fn pcap_round_trip(
        packets in prop::collection::vec(written(u32::MAX as i64 * 1_000_000_000), 0..20),
        link in any::<u16>(),
        step in 1..2000usize,
    ) {
        let mut writer = PcapWriter::new(Vec::new(), LinkType(link)).unwrap();
        for packet in &packets {
            writer.write(&packet.packet()).unwrap();
        }
        let file = writer.finish().unwrap();
        let (records, end) = read_all(Trickle { rest: &file, step, interrupted: false });
        prop_assert!(end.is_ok());
        prop_assert_eq!(records.len(), packets.len());
        for (record, packet) in records.into_iter().zip(packets) {
            prop_assert_eq!(record.nanoseconds(), Some(packet.nanoseconds));
            prop_assert_eq!(record.link, LinkType(link));
            prop_assert_eq!(record.original_len, packet.data.len() as u32 + packet.cut);
            prop_assert_eq!(record.data, packet.data);
        }
    }

    /// With any bits flipped, reading ends within the file and without a panic.
    #[test]
    fn damaged_files_never_panic(
        packets in prop::collection::vec(written(i64::MAX), 1..6),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        classic in any::<bool>(),
    ) {
        let mut file = if classic {
            let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET).unwrap();
            for packet in &packets {
                let nanoseconds = packet.nanoseconds % 4_000_000_000_000_000_000;
                writer.write(&Written { nanoseconds, ..packet.clone() }.packet()).unwrap();
            }
            writer.finish().unwrap()
        } else {
            let mut writer = PcapngWriter::new(Vec::new()).unwrap();
            for link in LINKS {
                writer.add_interface(link, Some("eth0")).unwrap();
            }
            for packet in &packets {
                writer.write(&packet.packet()).unwrap();
            }
            writer.finish().unwrap()
        };
        for (index, value) in damage {
            let at = index.index(file.len());
            file[at] = value;
        }
        let (records, end) = read_all(&file[..]);
        for record in &records {
            let start = record.data_offset as usize;
            prop_assert!(file[start..].starts_with(&record.data));
        }
        if let Err(error) = end {
            prop_assert!(error.offset <= file.len() as u64);
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn random_bytes_never_panic(noise in prop::collection::vec(any::<u8>(), 0..200), kind in 0..3usize) {
        let start: [&[u8]; 3] = [
            b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0",
            b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\0\0\0\0\0\0\0\0\x1c\0\0\0",
            b"",
        ];
        let _ = read_all(&[start[kind], &noise].concat()[..]);
    }
}

/// An input that fails at its end.
struct Failing<'a>(&'a [u8]);

impl Read for Failing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("disk failure")),
            count => Ok(count),
        }
    }
}

#[test]
fn an_input_error_is_reported_after_the_records_before_it() {
    let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET).unwrap();
    writer.write(&Packet::new(Timestamp::default(), b"whole")).unwrap();
    let file = writer.finish().unwrap();
    let (records, end) = read_all(Failing(&file));
    assert_eq!(records.len(), 1);
    let error = end.unwrap_err();
    assert!(matches!(error.problem, Problem::Io(_)));
    assert_eq!(error.to_string(), "at byte 45: cannot read: disk failure");
}

/// An output with a limited capacity.
struct FullDisk(usize);

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.0);
        self.0 -= count;
        if count == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(count) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_reported() {
    let packet = Packet::new(Timestamp::default(), &[0; 1000]);
    let full = |result: Result<(), WriteError>| matches!(result, Err(WriteError::Io(error)) if error.kind() == io::ErrorKind::StorageFull);
    // Small files fail in `finish`, large ones in `write`.
    let mut writer = PcapWriter::new(FullDisk(500), LinkType::ETHERNET).unwrap();
    writer.write(&packet).unwrap();
    assert!(full(writer.finish().map(drop)));
    let mut writer = PcapngWriter::new(FullDisk(500)).unwrap();
    writer.add_interface(LinkType::ETHERNET, None).unwrap();
    writer.write(&packet).unwrap();
    assert!(full(writer.flush()));
    let mut writer = PcapngWriter::new(FullDisk(500)).unwrap();
    writer.add_interface(LinkType::ETHERNET, None).unwrap();
    assert!(full((0..1000).try_for_each(|_| writer.write(&packet))));
}

#[test]
fn timestamps_print_as_dates() {
    for (nanoseconds, expected) in [
        (0, "1970-01-01T00:00:00.000000000Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (951_782_400_000_000_000, "2000-02-29T00:00:00.000000000Z"),
        (1_709_251_199_000_000_001, "2024-02-29T23:59:59.000000001Z"),
        (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000000Z"),
        (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
        (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
    ] {
        assert_eq!(Timestamp::from_nanoseconds(nanoseconds).to_string(), expected);
    }
    let (early, late) = (Timestamp::from_nanoseconds(-5), Timestamp::from_nanoseconds(7));
    assert_eq!((late.nanoseconds_since(early), early.nanoseconds_since(late)), (12, -12));
}

#[test]
fn resolutions_convert_to_nanoseconds() {
    let nanoseconds = |option: u8, units: u64| {
        let timestamp = Resolution::from_option(option).to_timestamp(units, 0);
        timestamp.map(Timestamp::as_nanoseconds)
    };
    assert_eq!(nanoseconds(0, 3), Some(3_000_000_000));
    assert_eq!(nanoseconds(3, 3), Some(3_000_000));
    assert_eq!(nanoseconds(6, 3), Some(3000));
    assert_eq!(nanoseconds(9, 3), Some(3));
    assert_eq!(nanoseconds(12, 3999), Some(3));
    assert_eq!(nanoseconds(28, u64::MAX), Some(1));
    assert_eq!(nanoseconds(127, u64::MAX), Some(0));
    assert_eq!(nanoseconds(0x80, 3), Some(3_000_000_000));
    assert_eq!(nanoseconds(0x80 | 1, 3), Some(1_500_000_000));
    assert_eq!(nanoseconds(0x80 | 32, 3 << 31), Some(1_500_000_000));
    assert_eq!(nanoseconds(0xff, u64::MAX), Some(0));
    assert_eq!(nanoseconds(6, u64::MAX), None);
    let offset = Resolution::NANOSECONDS.to_timestamp(5, i64::MIN);
    assert_eq!(offset, None);
    for (option, expected) in [(0, "1 s"), (6, "1 µs"), (9, "1 ns"), (7, "10^-7 s")] {
        assert_eq!(Resolution::from_option(option).to_string(), expected);
    }
}
