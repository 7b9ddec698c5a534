//! Captures that lost packets, and say so.

use ferroce_wire::opcode::Opcode;

use super::wire::{A, B, Wire};
use crate::analysis::report::{FileReport, MessageStatus};
use crate::analysis::{Options, analyze};
use crate::file::{CaptureReader, Packet, PcapngWriter, Timestamp};
use crate::link::LinkType;

/// How the file says that packets are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// On the packet after them.
    There,
    /// In the statistics at its end.
    AtTheEnd,
    /// Not at all.
    Nothing,
}

/// The capture without these frames, in pcapng.
fn without(wire: Wire, missing: &[u64], says: Says) -> FileReport {
    let whole = wire.writer.finish().unwrap();
    let mut reader = CaptureReader::new(&whole[..]).unwrap();
    let mut writer = PcapngWriter::new(Vec::new()).unwrap();
    writer.add_interface(LinkType::ETHERNET, None).unwrap();
    let mut dropped = 0;
    while let Some(record) = reader.next_record().unwrap() {
        if missing.contains(&record.number) {
            dropped += 1;
            continue;
        }
        let count = if says == Says::There { std::mem::take(&mut dropped) } else { 0 };
        writer.write(&Packet::from_record(&record).after_dropped(count)).unwrap();
    }
    if says == Says::AtTheEnd {
        writer.write_statistics(0, Timestamp::default(), 100, missing.len() as u64).unwrap();
    }
    analyze("gaps", &writer.finish().unwrap()[..], &Options::default(), &mut |_| ())
}

fn kinds(report: &FileReport) -> Vec<&'static str> {
    report.anomalies.iter().map(|anomaly| anomaly.kind.name()).collect()
}

fn messages(report: &FileReport) -> Vec<(&'static str, u64, MessageStatus)> {
    report.messages.iter().map(|one| (one.operation, one.size, one.status)).collect()
}

/// Two SENDs of 3,000 bytes, the end of the first and the start of the second not captured.
fn sends() -> Wire {
    let mut wire = Wire::new();
    for psn in [0, 3] {
        wire.send(A, 2, Opcode::RC_SEND_FIRST, psn, 1024)
            .send(A, 2, Opcode::RC_SEND_MIDDLE, psn + 1, 1024)
            .send(A, 2, Opcode::RC_SEND_LAST, psn + 2, 952)
            .ack(B, 1, psn + 2);
    }
    wire
}

#[test]
fn two_messages_are_not_one_however_the_gap_is_told() {
    for says in [Says::There, Says::AtTheEnd, Says::Nothing] {
        let report = without(sends(), &[3, 4, 5], says);
        let expected =
            [("SEND", 2048, MessageStatus::Incomplete), ("SEND", 1976, MessageStatus::Incomplete)];
        assert_eq!(messages(&report), expected, "{says:?}");
        assert_eq!(report.dropped, if says == Says::Nothing { 0 } else { 3 }, "{says:?}");
        assert_eq!(report.conversations[0].operations["SEND"].incomplete, 2);
        let gap = if says == Says::There { "capture_gap" } else { "missing_request" };
        assert_eq!(kinds(&report), [gap], "{says:?}");
    }
}

/// One packet cannot have been the end of a message and the start of another.
#[test]
fn one_missing_packet_leaves_one_incomplete_message() {
    let report = without(sends(), &[2], Says::There);
    let expected =
        [("SEND", 1976, MessageStatus::Incomplete), ("SEND", 3000, MessageStatus::Acknowledged)];
    assert_eq!(messages(&report), expected);
    assert_eq!(kinds(&report), ["capture_gap"]);
}

/// A WRITE announces its length, so it is known where it ends.
#[test]
fn a_write_ends_where_it_says() {
    let mut wire = Wire::new();
    let write = |wire: &mut Wire, psn: u32| {
        wire.send_with(A, 2, Opcode::RC_RDMA_WRITE_FIRST, psn, 256, |headers| {
            headers.reth.as_mut().unwrap().length = 5 * 256;
        });
        for middle in 1..4 {
            wire.send(A, 2, Opcode::RC_RDMA_WRITE_MIDDLE, psn + middle, 256);
        }
        wire.send(A, 2, Opcode::RC_RDMA_WRITE_LAST, psn + 4, 256);
    };
    write(&mut wire, 0);
    write(&mut wire, 5);
    wire.ack(B, 1, 9);
    // Three packets inside of the first, and the end and start of both.
    let report = without(wire, &[2, 3, 4], Says::AtTheEnd);
    let expected = [
        ("RDMA_WRITE", 512, MessageStatus::Incomplete),
        ("RDMA_WRITE", 1280, MessageStatus::Acknowledged),
    ];
    assert_eq!(messages(&report), expected);
}

fn reads() -> Wire {
    let mut wire = Wire::new();
    for psn in [0, 4] {
        wire.send_with(A, 2, Opcode::RC_RDMA_READ_REQUEST, psn, 0, |headers| {
            headers.reth.as_mut().unwrap().length = 4000;
        });
        wire.send(B, 1, Opcode::RC_RDMA_READ_RESPONSE_FIRST, psn, 1024)
            .send(B, 1, Opcode::RC_RDMA_READ_RESPONSE_MIDDLE, psn + 1, 1024)
            .send(B, 1, Opcode::RC_RDMA_READ_RESPONSE_MIDDLE, psn + 2, 1024)
            .send(B, 1, Opcode::RC_RDMA_READ_RESPONSE_LAST, psn + 3, 928);
    }
    wire
}

#[test]
fn a_read_whose_response_has_a_gap_is_incomplete() {
    let whole = without(reads(), &[], Says::Nothing);
    let read = ("RDMA_READ", 4000, MessageStatus::Acknowledged);
    assert_eq!((messages(&whole), kinds(&whole)), (vec![read, read], vec![]));
    // In its middle, and at its end.
    for (missing, size) in [(&[8][..], 2976), (&[9, 10], 2048)] {
        let report = without(reads(), missing, Says::AtTheEnd);
        let cut = ("RDMA_READ", report.messages[1].size, MessageStatus::Incomplete);
        assert_eq!(messages(&report), [read, cut], "{missing:?}");
        assert!(cut.1 <= size, "{missing:?}: {cut:?}");
    }
    let report = without(reads(), &[8], Says::There);
    let cut = ("RDMA_READ", 2976, MessageStatus::Incomplete);
    assert_eq!((messages(&report), kinds(&report)), (vec![read, cut], vec!["capture_gap"]));
    // The end of the first, which the answer to the second shows.
    let report = without(reads(), &[4, 5], Says::There);
    let cut = ("RDMA_READ", 2048, MessageStatus::Incomplete);
    assert_eq!((messages(&report), kinds(&report)), (vec![cut, read], vec!["capture_gap"]));
}

#[test]
fn an_unreliable_message_with_a_gap_is_incomplete() {
    let mut wire = Wire::new();
    for psn in [0, 3] {
        wire.send(A, 2, Opcode::UC_SEND_FIRST, psn, 1024)
            .send(A, 2, Opcode::UC_SEND_MIDDLE, psn + 1, 1024)
            .send(A, 2, Opcode::UC_SEND_LAST, psn + 2, 952);
    }
    let report = without(wire, &[3, 4], Says::There);
    let expected =
        [("SEND", 2048, MessageStatus::Incomplete), ("SEND", 1976, MessageStatus::Incomplete)];
    assert_eq!(messages(&report), expected);
    assert_eq!(kinds(&report), ["capture_gap"]);
}

#[test]
fn what_the_capture_lost_is_not_blamed_on_the_network() {
    let report = without(sends(), &[3, 4, 5], Says::There);
    let findings = &report.conversations[0].findings;
    assert!(findings[0].text.contains("the capture lost packets"), "{findings:?}");
    let lines = crate::render::sections::report(
        &report,
        &crate::render::sections::View { columns: 120, ..Default::default() },
    );
    let text = lines.iter().map(|line| line.to_string() + "\n").collect::<String>();
    assert!(text.contains("3 lost by the capture"), "{text}");
    assert!(text.contains("the capture lost 3 packets"), "{text}");
    assert!(text.contains("2 incomplete messages"), "{text}");
    assert!(!text.contains("nothing out of the ordinary"), "{text}");
}
