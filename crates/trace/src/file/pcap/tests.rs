use super::super::bytes::ByteOrder::{Big, Little};
use super::super::test_files::{BOTH_ORDERS, Bytes, read_damaged, read_valid};
use super::super::{
    CaptureReader, Format, MAX_CAPTURED_LEN, Oddity, Packet, PcapWriter, Problem, Resolution,
    Timestamp, WriteError,
};
use super::{MAGIC_MICROSECONDS, MAGIC_NANOSECONDS};
use crate::link::LinkType;

fn two_records(order: super::super::bytes::ByteOrder, magic: u32) -> Vec<u8> {
    let file = Bytes::new(order).pcap_header(magic);
    file.pcap_record(1, 999_999, b"abcde").pcap_record(0xffff_ffff, 7, b"").bytes
}

#[test]
fn reads_both_byte_orders_and_units() {
    for order in BOTH_ORDERS {
        for (magic, unit, resolution) in [
            (MAGIC_MICROSECONDS, 1000, Resolution::MICROSECONDS),
            (MAGIC_NANOSECONDS, 1, Resolution::NANOSECONDS),
        ] {
            let file = two_records(order, magic);
            let records = read_valid(&file);
            assert_eq!(records.len(), 2);
            let [first, second] = &records[..] else { unreachable!() };
            assert_eq!((first.number, first.offset, first.data_offset), (1, 24, 40));
            assert_eq!(first.nanoseconds(), Some(1_000_000_000 + 999_999 * unit));
            assert_eq!((&first.data[..], first.original_len), (&b"abcde"[..], 5));
            assert_eq!((first.link, first.interface, first.section), (LinkType::ETHERNET, 0, 0));
            assert!(first.oddities.is_empty());
            assert_eq!((second.number, second.offset), (2, 45));
            assert_eq!(second.nanoseconds(), Some(0xffff_ffff * 1_000_000_000 + 7 * unit));

            let mut reader = CaptureReader::new(&file[..]).unwrap();
            assert_eq!(reader.format(), Format::Pcap);
            assert_eq!(reader.offset(), 24);
            assert_eq!(reader.interfaces()[0].resolution, resolution);
            assert_eq!(reader.interfaces()[0].snap_len, 65_535);
            while reader.next_record().unwrap().is_some() {}
            assert_eq!(reader.offset(), file.len() as u64);
        }
    }
}

#[test]
fn every_truncation_is_reported_with_its_offset() {
    let file = two_records(Little, MAGIC_NANOSECONDS);
    for length in 0..file.len() {
        let (records, end) = super::super::test_files::read_all(&file[..length]);
        match (length, end) {
            (0, Err(error)) => assert!(matches!(error.problem, Problem::Empty)),
            (24, Ok(())) => assert!(records.is_empty()),
            (45, Ok(())) => assert_eq!(records.len(), 1),
            (_, Err(error)) => {
                let (offset, complete) = match length {
                    0..24 => (0, 0),
                    24..45 => (24, 0),
                    _ => (45, 1),
                };
                assert_eq!((error.offset, records.len()), (offset, complete), "cut at {length}");
                let Problem::Truncated { needed, available, .. } = error.problem else {
                    panic!("cut at {length}: {error}");
                };
                assert_eq!(available, length as u64 - offset);
                assert!(needed > available);
            }
            (_, Ok(())) => panic!("cut at {length}: no error"),
        }
    }
}

#[test]
fn a_truncated_record_is_explained() {
    let file = two_records(Big, MAGIC_MICROSECONDS);
    let (_, error) = read_damaged(&file[..43]);
    assert_eq!(
        error.to_string(),
        "at byte 24: the file is cut short: a record of 21 bytes starts here \
         and only 19 bytes follow"
    );
}

#[test]
fn an_excessive_length_allocates_nothing() {
    for captured in [2 << 30, u32::MAX, MAX_CAPTURED_LEN + 1] {
        let file = Bytes::new(Little).pcap_header(MAGIC_NANOSECONDS).pcap_record(0, 0, b"x");
        let file = file.u32(0).u32(0).u32(captured).u32(captured).raw(&[0; 100]).bytes;
        let (records, error) = read_damaged(&file);
        assert_eq!((records.len(), error.offset), (1, 24 + 17));
        let Problem::InvalidLength { length, limit, .. } = error.problem else { panic!("{error}") };
        assert_eq!((length, limit), (u64::from(captured), u64::from(MAX_CAPTURED_LEN)));

        let mut reader = CaptureReader::new(&file[..]).unwrap();
        while let Ok(Some(_)) = reader.next_record() {}
        assert_eq!(reader.buffer_len(), 256 << 10);
    }
}

#[test]
fn the_buffer_grows_only_as_bytes_arrive() {
    // The length field says 15 MiB, the file has 1 MiB: the buffer grows by the latter.
    let file = Bytes::new(Little).pcap_header(MAGIC_NANOSECONDS);
    let file = file.u32(0).u32(0).u32(15 << 20).u32(15 << 20).raw(&vec![0; 1 << 20]).bytes;
    let mut reader = CaptureReader::new(&file[..]).unwrap();
    let error = reader.next_record().unwrap_err();
    assert!(matches!(error.problem, Problem::Truncated { .. }));
    assert!(reader.buffer_len() <= 2 << 20);
}

#[test]
fn reads_the_largest_record() {
    let data: Vec<u8> = (0..MAX_CAPTURED_LEN).map(|at| at as u8).collect();
    let file = Bytes::new(Big).pcap_header(MAGIC_NANOSECONDS).pcap_record(3, 4, &data);
    let file = file.pcap_record(5, 6, b"after").bytes;
    let records = read_valid(&file);
    assert!(records[0].data == data);
    assert!(records[0].oddities.contains(Oddity::LongerThanSnapLength));
    assert_eq!(records[1].data, b"after");
}

#[test]
fn oddities_do_not_stop_the_reader() {
    let file = Bytes::new(Little).pcap_header(MAGIC_MICROSECONDS);
    let file = file.u32(1).u32(1_000_000).u32(4).u32(2).raw(b"abcd").pcap_record(9, 9, b"ok").bytes;
    let records = read_valid(&file);
    let oddities: Vec<Oddity> = records[0].oddities.iter().collect();
    assert_eq!(oddities, [Oddity::LongerThanOriginal, Oddity::FractionOverflow]);
    assert_eq!(records[0].nanoseconds(), Some(2_000_000_000));
    assert!(records[1].oddities.is_empty());
}

#[test]
fn other_file_types_are_named() {
    for (start, expected) in [
        (&b"\x1f\x8b\x08\x00..."[..], "gzip"),
        (b"\x28\xb5\x2f\xfd...", "zstd"),
        (b"snoop\0\0\0", "snoop"),
        (b"hello world", "text"),
        (b"\x0a\x0d\x0a\x00", "text mode"),
        (b"\x7fELF", "7f 45 4c 46"),
    ] {
        let (_, error) = read_damaged(start);
        assert!(matches!(error.problem, Problem::NotACapture { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let (_, error) = read_damaged(b"");
    assert_eq!(error.to_string(), "the file is empty");
    let (_, error) = read_damaged(b"\xd4\xc3");
    assert!(matches!(error.problem, Problem::Truncated { needed: 4, available: 2, .. }));
}

#[test]
fn variants_and_other_versions_are_rejected() {
    for order in BOTH_ORDERS {
        let file = Bytes::new(order).pcap_header(0xa1b2_cd34).bytes;
        let (_, error) = read_damaged(&file);
        assert!(error.to_string().contains("Kuznetzov"), "{error}");
        assert!(error.to_string().contains("editcap"), "{error}");

        let file = Bytes::new(order).u32(MAGIC_MICROSECONDS).u16(2).u16(3).raw(&[0; 16]).bytes;
        let (_, error) = read_damaged(&file);
        assert_eq!(error.to_string(), "at byte 0: version 2.3 of pcap is not supported");

        let header = Bytes::new(order).u32(MAGIC_MICROSECONDS).u16(2).u16(4).raw(&[0; 12]);
        let (_, error) = read_damaged(&header.u32(0x0001_0001).bytes);
        assert!(matches!(error.problem, Problem::ReservedBits { field: 0x0001_0001 }));

        // A frame check sequence of 4 bytes: P set, length 2.
        let header = Bytes::new(order).u32(MAGIC_MICROSECONDS).u16(2).u16(4).raw(&[0; 12]);
        assert_eq!(read_valid(&header.u32(0x2400_0001).bytes).len(), 0);
    }
}

#[test]
fn the_writer_follows_the_draft() {
    let mut writer = PcapWriter::new(Vec::new(), LinkType::LINUX_SLL2).unwrap();
    let when = Timestamp::from_nanoseconds(0x6af9_04f8 * 1_000_000_000 + 0x000d_7943);
    writer.write(&Packet::new(when, b"abc").cut_from(9)).unwrap();
    let expected = [
        0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0x14, 0x01, 0, 0,
        0xf8, 0x04, 0xf9, 0x6a, 0x43, 0x79, 0x0d, 0x00, 3, 0, 0, 0, 9, 0, 0, 0, b'a', b'b', b'c',
    ];
    assert_eq!(writer.finish().unwrap(), expected);
}

#[test]
fn oversized_values_are_rejected_and_leave_the_file_valid() {
    let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET).unwrap();
    let long = vec![0; super::super::MAX_WRITTEN_LEN + 1];
    let refused = writer.write(&Packet::new(Timestamp::default(), &long));
    assert!(matches!(refused, Err(WriteError::PacketTooLong { .. })));
    for nanoseconds in [-1, (1 << 32) * 1_000_000_000] {
        let packet = Packet::new(Timestamp::from_nanoseconds(nanoseconds), b"x");
        assert!(matches!(writer.write(&packet), Err(WriteError::TimestampOutOfRange(_))));
    }
    writer.write(&Packet::new(Timestamp::default(), &long[1..])).unwrap();
    assert_eq!(read_valid(&writer.finish().unwrap()).len(), 1);
}
