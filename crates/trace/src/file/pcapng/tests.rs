use super::super::bytes::ByteOrder::{self, Big, Little};
use super::super::test_files::{
    BOTH_ORDERS, Bytes, no_options, read_all, read_damaged, read_valid,
};
use super::super::{
    CaptureReader, Direction, Format, MAX_BLOCK_LEN, MAX_INTERFACES, MAX_TEXT_LEN, Oddity, Packet,
    PcapngWriter, Problem, Timestamp, WriteError,
};
use crate::link::LinkType;

fn named<'a>(name: &'a str, resolution: u8) -> impl FnOnce(Bytes) -> Bytes + 'a {
    move |bytes| bytes.option(2, name.as_bytes()).option(9, &[resolution]).option(0, &[])
}

/// A section header of 28 bytes and an interface in microseconds of 20.
fn plain(order: ByteOrder) -> Bytes {
    Bytes::new(order).section().interface(no_options)
}

#[test]
fn reads_packets_of_all_three_block_types() {
    for order in BOTH_ORDERS {
        let file = Bytes::new(order)
            .section()
            .interface(named("eth0", 9))
            .enhanced(0, 1_700_000_000_123_456_789, b"enhanced", no_options)
            .block(3, |body| body.u32(6).raw(b"simple"))
            .block(2, |body| {
                // Appendix A: 16 bits of interface, 16 bits of drop count.
                let body = body.u16(0).u16(0xffff).u32(0).u32(42).u32(3).u32(1000).raw(b"old");
                body.padded().option(2, &Bytes::new(order).u32(1).bytes)
            })
            .bytes;
        let records = read_valid(&file);
        let [enhanced, simple, old] = &records[..] else { panic!("{records:?}") };
        assert_eq!(enhanced.data, b"enhanced");
        assert_eq!(enhanced.nanoseconds(), Some(1_700_000_000_123_456_789));
        assert_eq!(enhanced.interface_name.as_deref(), Some("eth0"));
        assert_eq!(enhanced.link, LinkType::ETHERNET);
        assert_eq!(enhanced.data_offset, enhanced.offset + 28);
        assert_eq!((&simple.data[..], simple.timestamp), (&b"simple"[..], None));
        assert_eq!(simple.data_offset, simple.offset + 12);
        assert_eq!((&old.data[..], old.original_len), (&b"old"[..], 1000));
        assert_eq!((old.nanoseconds(), old.direction), (Some(42), Some(Direction::Inbound)));
        assert!(records.iter().all(|record| record.oddities.is_empty()));
        assert_eq!([enhanced.number, simple.number, old.number], [1, 2, 3]);
        for record in &records {
            let start = record.data_offset as usize;
            assert_eq!(file[start..start + record.data.len()], record.data);
        }
    }
}

#[test]
fn each_section_has_its_own_byte_order() {
    let first = plain(Big).enhanced(0, 1, b"one", no_options).bytes;
    let second = Bytes::new(Little)
        .section_version(1, 2)
        .interface(named("a", 9))
        .enhanced(0, 2, b"two", no_options)
        .interface(named("b", 9))
        .enhanced(1, 3, b"three", no_options);
    let records = read_valid(&[first, second.bytes].concat());
    let seen: Vec<_> = records
        .iter()
        .map(|record| {
            (
                record.section,
                record.interface,
                record.interface_name.as_deref(),
                record.nanoseconds(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [(0, 0, None, Some(1000)), (1, 0, Some("a"), Some(2)), (1, 1, Some("b"), Some(3))]
    );
}

#[test]
fn interface_options_are_read() {
    for order in BOTH_ORDERS {
        let offset = Bytes::new(order).i64(-5).bytes;
        let file = Bytes::new(order)
            .section()
            .block(1, |body| {
                let body = body.u16(276).u16(0xbeef).u32(96);
                let body = body.option(2, b"any\0junk").option(3, b"all of them");
                body.option(9, &[0x80 | 10]).option(14, &offset).option(12, b"Linux")
            })
            .enhanced(0, 3 << 10 | 1 << 9, b"x", no_options)
            .bytes;
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        assert_eq!((reader.format(), reader.interfaces().len()), (Format::Pcapng, 0));
        let record = reader.next_record().unwrap().unwrap();
        // 3.5 s of 1/1024 each, less 5 s.
        assert_eq!(record.timestamp, Some(Timestamp::from_nanoseconds(-1_500_000_000)));
        let interface = &reader.interfaces()[0];
        assert_eq!((interface.link, interface.snap_len), (LinkType::LINUX_SLL2, 96));
        assert_eq!(interface.name.as_deref(), Some("any"));
        assert_eq!(interface.description.as_deref(), Some("all of them"));
        assert_eq!(interface.resolution.to_string(), "2^-10 s");
        assert_eq!(interface.offset_seconds, -5);
    }
}

#[test]
fn texts_are_converted_to_utf8_and_truncated() {
    let long = "é".repeat(1000);
    let file = Bytes::new(Little)
        .section()
        .interface(|body| body.option(2, long.as_bytes()))
        .enhanced(0, 0, b"x", |body| {
            body.option(1, b"one").option(1, b"\xfftwo").option(1, "drei, ü".as_bytes())
        })
        .bytes;
    let records = read_valid(&file);
    assert_eq!(records[0].interface_name.as_ref().unwrap().len(), MAX_TEXT_LEN);
    assert_eq!(records[0].comment.as_deref(), Some("one\n\u{fffd}two\ndrei, ü"));
}

#[test]
fn a_single_comment_is_borrowed() {
    let file = plain(Little).enhanced(0, 0, b"x", |body| body.option(1, b"hello")).bytes;
    let mut reader = CaptureReader::new(&file[..]).unwrap();
    let record = reader.next_record().unwrap().unwrap();
    assert!(matches!(record.comment, Some(std::borrow::Cow::Borrowed("hello"))));
}

#[test]
fn directions_are_the_lowest_two_bits() {
    for order in BOTH_ORDERS {
        for (flags, direction) in [
            (0, None),
            (1, Some(Direction::Inbound)),
            (0xff00_0002, Some(Direction::Outbound)),
            (3, None),
        ] {
            let flags = Bytes::new(order).u32(flags).bytes;
            let file = plain(order).enhanced(0, 0, b"x", |body| body.option(2, &flags)).bytes;
            assert_eq!(read_valid(&file)[0].direction, direction);
        }
    }
}

#[test]
fn damaged_options_do_not_stop_the_reader() {
    let file = plain(Big)
        .enhanced(0, 0, b"first", |body| body.option(1, b"kept").u16(1).u16(5000).raw(b"cut\0"))
        .enhanced(0, 0, b"second", |body| body.option(2, b"no flags"))
        .enhanced(0, 0, b"third", |body| body.option(0, &[]).raw(b"after the end"))
        .bytes;
    let records = read_valid(&file);
    assert_eq!(records[0].comment.as_deref(), Some("kept"));
    assert!(records[0].oddities.contains(Oddity::DamagedOptions));
    assert!(records[1].oddities.contains(Oddity::DamagedOptions));
    assert!(records[2].oddities.is_empty());
}

#[test]
fn unknown_blocks_of_any_length_are_skipped() {
    let large = vec![0x55; 3 << 20];
    let file = plain(Little)
        .block(0x0000_0bad, |body| body.raw(b"custom"))
        .block(5, |body| body.raw(&large))
        .block(0x8000_0001, no_options)
        .enhanced(0, 0, b"found", no_options)
        .bytes;
    let mut reader = CaptureReader::new(&file[..]).unwrap();
    assert_eq!(reader.next_record().unwrap().unwrap().data, b"found");
    assert!(reader.next_record().unwrap().is_none());
    assert_eq!(reader.buffer_len(), 256 << 10);

    // Longer than the limit of parsed blocks, and longer than the file.
    let start = plain(Little).bytes.len() as u64;
    let file = plain(Little).u32(5).u32(0xffff_fff0).raw(&large).bytes;
    let (_, error) = read_damaged(&file);
    assert_eq!(error.offset, start);
    let available = 8 + large.len() as u64;
    let Problem::Truncated { needed: 0xffff_fff0, available: found, .. } = error.problem else {
        panic!("{error}");
    };
    assert_eq!(found, available);
}

#[test]
fn every_truncation_is_reported_with_its_offset() {
    let file = plain(Big)
        .enhanced(0, 0, b"one", no_options)
        .block(5, |body| body.raw(b"skipped"))
        .enhanced(0, 0, b"two", |body| body.option(1, b"comment"))
        .bytes;
    let starts = [0, 28, 48, 84, 104];
    for length in 1..file.len() {
        let (records, end) = read_all(&file[..length]);
        let complete = usize::from(length >= 84);
        assert_eq!(records.len(), complete, "cut at {length}");
        if starts.contains(&length) {
            assert!(end.is_ok(), "cut at {length}");
            continue;
        }
        let error = end.unwrap_err();
        let start = starts.iter().rev().find(|start| **start < length).unwrap();
        assert_eq!(error.offset, *start as u64, "cut at {length}: {error}");
        let Problem::Truncated { available, .. } = error.problem else { panic!("{error}") };
        assert_eq!(available, (length - start) as u64, "cut at {length}");
    }
}

#[test]
fn invalid_lengths_are_rejected() {
    let before = plain(Little).enhanced(0, 0, b"before", no_options);
    let start = before.bytes.len() as u64;
    let lie = |bytes: Bytes| {
        let before = plain(Little).enhanced(0, 0, b"before", no_options).bytes;
        let (records, error) = read_damaged(&[before, bytes.bytes].concat());
        assert_eq!((records.len(), error.offset), (1, start), "{error}");
        error.problem
    };
    // A parsed block of 2 GB.
    let block = Bytes::new(Little).u32(6).u32(2 << 30).raw(&[0; 64]);
    let problem = lie(block);
    assert!(matches!(problem, Problem::InvalidLength { length, limit, .. }
            if length == 2 << 30 && limit == u64::from(MAX_BLOCK_LEN)));
    // A packet longer than its block.
    for captured in [8, 9, u32::MAX - 2, u32::MAX] {
        let block = Bytes::new(Little)
            .block(6, |body| body.u32(0).u32(0).u32(0).u32(captured).u32(captured).raw(b"1234"));
        let problem = lie(block);
        assert!(matches!(problem, Problem::InvalidLength { limit: 4, .. }), "{problem}");
    }
    // Blocks too short for their type, or for any type.
    for (kind, length, minimum) in [(6, 28, 32), (2, 28, 32), (3, 12, 16), (1, 16, 20), (5, 8, 12)]
    {
        let block = Bytes::new(Little).u32(kind).u32(length).raw(&[0; 40]);
        let problem = lie(block);
        assert!(
            matches!(problem, Problem::BlockTooShort { minimum: found, .. } if found == minimum),
            "{problem}"
        );
    }
    let problem = lie(Bytes::new(Little).u32(0x0a0d_0d0a).u32(24).u32(0x1a2b_3c4d).raw(&[0; 12]));
    assert!(matches!(problem, Problem::BlockTooShort { minimum: 28, .. }), "{problem}");
    let problem = lie(Bytes::new(Little).u32(6).u32(33).raw(&[0; 40]));
    assert!(matches!(problem, Problem::MisalignedBlock { length: 33 }), "{problem}");
    // A different length at the end, in a parsed and in a skipped block.
    for kind in [6, 5] {
        let problem = lie(Bytes::new(Little).u32(kind).u32(36).raw(&[0; 24]).u32(32).u32(32));
        assert!(
            matches!(problem, Problem::TrailerMismatch { header: 36, trailer: 32 }),
            "{problem}"
        );
    }
    let problem = lie(Bytes::new(Little).u32(0x0a0d_0d0a).u32(28).raw(b"what").raw(&[0; 20]));
    assert!(matches!(problem, Problem::BadByteOrderMagic { found: [b'w', b'h', b'a', b't'] }));
}

#[test]
fn interfaces_must_be_described() {
    let file = Bytes::new(Little).section().block(3, |body| body.u32(1).raw(b"x")).bytes;
    let (_, error) = read_damaged(&file);
    assert!(matches!(error.problem, Problem::UnknownInterface { interface: 0, described: 0 }));

    let file = plain(Little).enhanced(0, 0, b"x", no_options).enhanced(7, 0, b"y", no_options);
    let (records, error) = read_damaged(&file.bytes);
    assert_eq!(records.len(), 1);
    assert_eq!(
        error.to_string(),
        "at byte 84: a packet refers to interface 7, \
         but the section has described only 1"
    );
    // Interfaces of an earlier section do not count.
    let file = plain(Little).section().enhanced(0, 0, b"x", no_options).bytes;
    assert!(matches!(read_damaged(&file).1.problem, Problem::UnknownInterface { .. }));
}

#[test]
fn interfaces_are_bounded() {
    let mut file = Bytes::new(Little).section();
    for _ in 0..=MAX_INTERFACES {
        file = file.interface(no_options);
    }
    let (_, error) = read_damaged(&file.bytes);
    assert!(matches!(error.problem, Problem::TooManyInterfaces { limit: MAX_INTERFACES }));
    assert_eq!(error.offset, 28 + 20 * MAX_INTERFACES as u64);
}

#[test]
fn a_section_of_another_version_is_skipped_and_reported_at_the_end() {
    let file = plain(Little).enhanced(0, 0, b"first", no_options);
    let start = file.bytes.len() as u64;
    let file = file
        .section_version(2, 0)
        .block(6, |body| body.raw(b"who knows"))
        .section()
        .interface(no_options)
        .enhanced(0, 0, b"third", no_options);
    let (records, error) = read_damaged(&file.bytes);
    let data: Vec<&[u8]> = records.iter().map(|record| &record.data[..]).collect();
    assert_eq!(data, [&b"first"[..], b"third"]);
    assert_eq!(records[1].section, 2);
    assert_eq!(
        error.to_string(),
        format!("at byte {start}: version 2.0 of pcapng is not supported")
    );
}

#[test]
fn simple_packets_are_truncated_to_the_snap_length() {
    let idb = |snap_len: u32| {
        Bytes::new(Little).section().block(1, |body| body.u16(1).u16(0).u32(snap_len))
    };
    let file = idb(3).block(3, |body| body.u32(100).raw(b"abc")).bytes;
    let record = &read_valid(&file)[0];
    assert_eq!((&record.data[..], record.original_len), (&b"abc"[..], 100));
    assert!(record.oddities.is_empty());

    let file = idb(0).block(3, |body| body.u32(100).raw(b"abcd")).bytes;
    let record = &read_valid(&file)[0];
    assert_eq!(record.data, b"abcd");
    assert!(record.oddities.contains(Oddity::ShortSimplePacket));
}

#[test]
fn timestamps_out_of_range_are_none() {
    let file = Bytes::new(Little)
        .section()
        .interface(|body| body.option(9, &[0]))
        .enhanced(0, u64::MAX, b"x", no_options)
        .enhanced(0, 1, b"y", no_options)
        .bytes;
    let records = read_valid(&file);
    assert_eq!(records[0].timestamp, None);
    assert!(records[0].oddities.contains(Oddity::TimestampOutOfRange));
    assert_eq!(records[1].nanoseconds(), Some(1_000_000_000));
}

#[test]
fn the_writer_follows_the_draft() {
    let mut writer = PcapngWriter::with_comment(Vec::new(), "all").unwrap();
    let section = writer.finish().unwrap();
    let application = concat!("ferroce ", env!("CARGO_PKG_VERSION"));
    let expected = Bytes::new(Little).block(0x0a0d_0d0a, |body| {
        let body = body.u32(0x1a2b_3c4d).u16(1).u16(0).i64(-1);
        body.option(1, b"all").option(4, application.as_bytes()).option(0, &[])
    });
    assert_eq!(section, expected.bytes);

    writer = PcapngWriter::new(Vec::new()).unwrap();
    assert_eq!(writer.add_interface(LinkType::ETHERNET, Some("eth0")).unwrap(), 0);
    assert_eq!(writer.add_interface(LinkType::RAW, None).unwrap(), 1);
    let when = Timestamp::from_nanoseconds(0x1122_3344_5566_7788);
    let packet = Packet::new(when, b"abc").cut_from(9).on_interface(1);
    writer.write(&packet.going(Direction::Outbound).with_comment("why")).unwrap();
    writer.write(&Packet::new(when, b"")).unwrap();
    writer.write_statistics(1, when, 9, 8).unwrap();
    let file = writer.finish().unwrap();
    let expected = Bytes::new(Little)
        .block(0x0a0d_0d0a, |body| {
            let body = body.u32(0x1a2b_3c4d).u16(1).u16(0).i64(-1);
            body.option(4, application.as_bytes()).option(0, &[])
        })
        .block(1, |body| {
            let body = body.u16(1).u16(0).u32(262_144);
            body.option(2, b"eth0").option(9, &[9]).option(0, &[])
        })
        .block(1, |body| body.u16(101).u16(0).u32(262_144).option(9, &[9]).option(0, &[]))
        .block(6, |body| {
            let body = body.u32(1).u32(0x1122_3344).u32(0x5566_7788).u32(3).u32(9);
            let body = body.raw(b"abc\0").option(2, &[2, 0, 0, 0]);
            body.option(1, b"why").option(0, &[])
        })
        .block(6, |body| body.u32(0).u32(0x1122_3344).u32(0x5566_7788).u32(0).u32(0))
        .block(5, |body| {
            let body = body.u32(1).u32(0x1122_3344).u32(0x5566_7788);
            let body = body.option(4, &[9, 0, 0, 0, 0, 0, 0, 0]);
            body.option(5, &[8, 0, 0, 0, 0, 0, 0, 0]).option(0, &[])
        });
    assert_eq!(file, expected.bytes);
    // Readers skip it.
    assert_eq!(read_valid(&file).len(), 2);
}

#[test]
fn oversized_values_are_rejected_and_leave_the_file_valid() {
    let mut writer = PcapngWriter::new(Vec::new()).unwrap();
    let long = "x".repeat(1 << 16);
    let epoch = Timestamp::default();
    let refused = writer.write(&Packet::new(epoch, b"x"));
    assert!(matches!(refused, Err(WriteError::UnknownInterface(0))));
    let refused = writer.write_statistics(0, epoch, 0, 0);
    assert!(matches!(refused, Err(WriteError::UnknownInterface(0))));
    let refused = writer.add_interface(LinkType::RAW, Some(&long));
    assert!(matches!(refused, Err(WriteError::TextTooLong { length: 65_536 })));
    assert_eq!(writer.add_interface(LinkType::RAW, Some(&long[1..])).unwrap(), 0);
    let refused = writer.write(&Packet::new(epoch, b"x").with_comment(&long));
    assert!(matches!(refused, Err(WriteError::TextTooLong { .. })));
    let refused = writer.write(&Packet::new(Timestamp::from_nanoseconds(-1), b"x"));
    assert!(matches!(refused, Err(WriteError::TimestampOutOfRange(_))));
    let refused = writer.write(&Packet::new(epoch, &vec![0; (1 << 18) + 1]));
    assert!(matches!(refused, Err(WriteError::PacketTooLong { .. })));
    writer.write(&Packet::new(epoch, b"fine")).unwrap();
    assert!(PcapngWriter::with_comment(Vec::new(), &long).is_err());

    let file = writer.finish().unwrap();
    let records = read_valid(&file);
    assert_eq!((records.len(), &records[0].data[..]), (1, &b"fine"[..]));
    assert_eq!(records[0].comment, None);
}

#[test]
fn section_comments() {
    let writer = PcapngWriter::with_comment(Vec::new(), "what it shows").unwrap();
    let file = writer.finish().unwrap();
    let reader = CaptureReader::new(&file[..]).unwrap();
    assert_eq!(reader.section_comment(), Some("what it shows"));
}

#[test]
fn lost_packets_are_counted() {
    for order in BOTH_ORDERS {
        let number = |value: u64| match order {
            Little => value.to_le_bytes(),
            Big => value.to_be_bytes(),
        };
        let statistics = |interface: u32, by_interface: u64, by_system: u64| {
            move |body: Bytes| {
                let body = body.u32(interface).u32(0).u32(0).option(4, &number(100));
                body.option(5, &number(by_interface)).option(7, &number(by_system))
            }
        };
        let file = plain(order)
            .interface(no_options)
            .enhanced(0, 0, b"x", |body| body.option(4, &number(3)))
            .enhanced(1, 0, b"y", |body| body.option(4, &number(4)).option(1, b"after four"))
            // Appendix A: 16 bits of interface, 16 bits of drop count.
            .block(2, |body| body.u16(1).u16(5).u32(0).u32(42).u32(1).u32(1).raw(b"z").padded())
            // Totals since the start of the capture: the latest counts, including drops recorded on packets.
            .block(5, statistics(0, 6, 1))
            .block(5, statistics(0, 10, 2))
            // Unknown interface, too short, damaged: ignored.
            .block(5, statistics(7, 1000, 0))
            .block(5, |body| body.u32(0))
            .block(5, |body| body.u32(1).u32(0).u32(0).option(5, b"abc"));
        let mut reader = CaptureReader::new(&file.bytes[..]).unwrap();
        let mut dropped = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            dropped.push(record.dropped);
        }
        assert_eq!(dropped, [3, 4, 5]);
        assert_eq!(reader.dropped(), 12 + 9);
        // Another section counts from zero.
        let one = plain(order).enhanced(0, 0, b"x", |body| body.option(4, &number(3))).bytes;
        let two = one.repeat(2);
        let mut reader = CaptureReader::new(&two[..]).unwrap();
        while reader.next_record().unwrap().is_some() {}
        assert_eq!(reader.dropped(), 6);
    }
}
