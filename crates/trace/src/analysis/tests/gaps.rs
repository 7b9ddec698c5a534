//! Captures that lost packets, with and without drop counters.

use ferroce_wire::opcode::Opcode;

use super::capture_builder::{A, B, CaptureBuilder};
use crate::analysis::report::{FileReport, MessageStatus};
use crate::analysis::{Options, analyze};
use crate::file::{CaptureReader, Packet, PcapngWriter, Timestamp};
use crate::link::LinkType;

/// How the file records that packets are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DropRecord {
    /// On the next packet.
    OnNextPacket,
    /// In the statistics block at the end.
    InStatistics,
    /// Not recorded.
    NotRecorded,
}

/// Analyses the capture without these frames, as pcapng.
fn without(wire: CaptureBuilder, missing: &[u64], record_as: DropRecord) -> FileReport {
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
        let count =
            if record_as == DropRecord::OnNextPacket { std::mem::take(&mut dropped) } else { 0 };
        writer.write(&Packet::from_record(&record).after_dropped(count)).unwrap();
    }
    if record_as == DropRecord::InStatistics {
        writer.write_statistics(0, Timestamp::default(), 100, missing.len() as u64).unwrap();
    }
    analyze("gaps", &writer.finish().unwrap()[..], &Options::default(), &mut |_| ())
}

fn kinds(report: &FileReport) -> Vec<&'static str> {
    report.anomalies.iter().map(|anomaly| anomaly.kind.name()).collect()
}

fn messages(report: &FileReport) -> Vec<(&'static str, u64, MessageStatus)> {
    report
        .messages
        .iter()
        .map(|message| (message.operation, message.size, message.status))
        .collect()
}

/// Two SENDs of 3,000 bytes.
fn sends() -> CaptureBuilder {
    let mut wire = CaptureBuilder::new();
    for psn in [0, 3] {
        wire.send(A, 2, Opcode::RC_SEND_FIRST, psn, 1024)
            .send(A, 2, Opcode::RC_SEND_MIDDLE, psn + 1, 1024)
            .send(A, 2, Opcode::RC_SEND_LAST, psn + 2, 952)
            .ack(B, 1, psn + 2);
    }
    wire
}

#[test]
fn two_messages_around_a_gap_are_not_merged() {
    for record_as in [DropRecord::OnNextPacket, DropRecord::InStatistics, DropRecord::NotRecorded] {
        let report = without(sends(), &[3, 4, 5], record_as);
        let expected =
            [("SEND", 2048, MessageStatus::Incomplete), ("SEND", 1976, MessageStatus::Incomplete)];
        assert_eq!(messages(&report), expected, "{record_as:?}");
        assert_eq!(
            report.dropped,
            if record_as == DropRecord::NotRecorded { 0 } else { 3 },
            "{record_as:?}"
        );
        assert_eq!(report.conversations[0].operations["SEND"].incomplete, 2);
        let gap =
            if record_as == DropRecord::OnNextPacket { "capture_gap" } else { "missing_request" };
        assert_eq!(kinds(&report), [gap], "{record_as:?}");
    }
}

/// A single packet cannot be both the end of a message and the start of another.
#[test]
fn one_missing_packet_leaves_one_incomplete_message() {
    let report = without(sends(), &[2], DropRecord::OnNextPacket);
    let expected =
        [("SEND", 1976, MessageStatus::Incomplete), ("SEND", 3000, MessageStatus::Acknowledged)];
    assert_eq!(messages(&report), expected);
    assert_eq!(kinds(&report), ["capture_gap"]);
}

/// The first packet of a WRITE carries the length, so its end is known.
#[test]
fn a_write_ends_at_its_announced_length() {
    let mut wire = CaptureBuilder::new();
    let write = |wire: &mut CaptureBuilder, psn: u32| {
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
    // Three middle packets of the first.
    let report = without(wire, &[2, 3, 4], DropRecord::InStatistics);
    let expected = [
        ("RDMA_WRITE", 512, MessageStatus::Incomplete),
        ("RDMA_WRITE", 1280, MessageStatus::Acknowledged),
    ];
    assert_eq!(messages(&report), expected);
}

fn reads() -> CaptureBuilder {
    let mut wire = CaptureBuilder::new();
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
    let whole = without(reads(), &[], DropRecord::NotRecorded);
    let read = ("RDMA_READ", 4000, MessageStatus::Acknowledged);
    assert_eq!((messages(&whole), kinds(&whole)), (vec![read, read], vec![]));
    // Missing in the middle, and at the end.
    for (missing, size) in [(&[8][..], 2976), (&[9, 10], 2048)] {
        let report = without(reads(), missing, DropRecord::InStatistics);
        let cut = ("RDMA_READ", report.messages[1].size, MessageStatus::Incomplete);
        assert_eq!(messages(&report), [read, cut], "{missing:?}");
        assert!(cut.1 <= size, "{missing:?}: {cut:?}");
    }
    let report = without(reads(), &[8], DropRecord::OnNextPacket);
    let cut = ("RDMA_READ", 2976, MessageStatus::Incomplete);
    assert_eq!((messages(&report), kinds(&report)), (vec![read, cut], vec!["capture_gap"]));
    // The end of the first, detected by the response to the second.
    let report = without(reads(), &[4, 5], DropRecord::OnNextPacket);
    let cut = ("RDMA_READ", 2048, MessageStatus::Incomplete);
    assert_eq!((messages(&report), kinds(&report)), (vec![cut, read], vec!["capture_gap"]));
}

#[test]
fn an_unreliable_message_with_a_gap_is_incomplete() {
    let mut wire = CaptureBuilder::new();
    for psn in [0, 3] {
        wire.send(A, 2, Opcode::UC_SEND_FIRST, psn, 1024)
            .send(A, 2, Opcode::UC_SEND_MIDDLE, psn + 1, 1024)
            .send(A, 2, Opcode::UC_SEND_LAST, psn + 2, 952);
    }
    let report = without(wire, &[3, 4], DropRecord::OnNextPacket);
    let expected =
        [("SEND", 2048, MessageStatus::Incomplete), ("SEND", 1976, MessageStatus::Incomplete)];
    assert_eq!(messages(&report), expected);
    assert_eq!(kinds(&report), ["capture_gap"]);
}

#[test]
fn a_datagram_lost_by_the_capture_is_not_lost_on_the_path() {
    let datagrams = || {
        let mut wire = CaptureBuilder::new();
        for psn in 0..20 {
            wire.send(A, 2, Opcode::UD_SEND_ONLY, psn, 8);
        }
        wire
    };
    let report = without(datagrams(), &[7, 8], DropRecord::OnNextPacket);
    assert_eq!(kinds(&report), ["capture_gap"]);
    assert_eq!(kinds(&without(datagrams(), &[7, 8], DropRecord::NotRecorded)), ["message_lost"]);
}

#[test]
fn capture_losses_are_not_attributed_to_the_network() {
    let report = without(sends(), &[3, 4, 5], DropRecord::OnNextPacket);
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
    assert!(!text.contains("no anomalies"), "{text}");
}
