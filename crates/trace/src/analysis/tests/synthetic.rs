//! Cases missing from the rdma_rxe captures: congestion, XRC, lost unreliable messages, reconnection, offloads, and
//! invalid packets.

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CmMessage, CommId, Drep, Dreq, Rep, Req, Rtu};
use ferroce_wire::frame::Frame;
use ferroce_wire::ip::Ecn;
use ferroce_wire::mad::TransactionId;
use ferroce_wire::number::{Msn, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::setup;
use ferroce_wire::syndrome::{RnrTimer, SyndromeKind};
use ferroce_wire::transport::{Aeth, Deth, Reth};

use crate::analysis::report::{FileReport, JoinedBy, MessageStatus};
use crate::render::sections::{self, View};

use super::capture_builder::{A, B, CaptureBuilder};

fn statuses(report: &FileReport) -> Vec<(&str, u64, MessageStatus)> {
    report
        .messages
        .iter()
        .map(|message| (message.operation, message.size, message.status))
        .collect()
}

#[test]
fn congestion_is_attributed_to_its_connection() {
    let mut wire = CaptureBuilder::new();
    wire.ecn = Ecn::CONGESTION_EXPERIENCED;
    wire.send(A, 2, Opcode::RC_SEND_ONLY, 10, 64).send(A, 2, Opcode::RC_SEND_ONLY, 11, 64);
    wire.ecn = Ecn(0);
    wire.ack(B, 1, 11).send(B, 1, Opcode::CNP, 0, 16);
    let report = wire.report();
    assert_eq!(report.anomaly_counts, [("ecn_marked", 2), ("cnp", 1)].into());
    assert_eq!(report.conversations.len(), 1);
    assert_eq!(report.conversations[0].b_to_a.packets, 2);
    let finding = &report.conversations[0].findings[0];
    assert_eq!(finding.text, "congestion: 2 packets marked and 1 notification");
}

#[test]
fn an_unreliable_message_is_whole_or_lost() {
    let mut wire = CaptureBuilder::new();
    wire.send(A, 2, Opcode::UC_SEND_FIRST, 0, 1024)
        .send(A, 2, Opcode::UC_SEND_LAST, 1, 10)
        .send(A, 2, Opcode::UC_SEND_FIRST, 2, 1024)
        // 3 is lost.
        .send(A, 2, Opcode::UC_SEND_LAST, 4, 10)
        .send(A, 2, Opcode::UC_RDMA_WRITE_ONLY, 5, 7);
    let report = wire.report();
    assert_eq!(
        statuses(&report),
        [
            ("SEND", 1034, MessageStatus::Sent),
            ("SEND", 1034, MessageStatus::Incomplete),
            ("RDMA_WRITE", 7, MessageStatus::Sent)
        ]
    );
    assert_eq!(report.anomaly_counts, [("message_lost", 1)].into());
}

#[test]
fn extended_reliable_connections_are_tracked_as_reliable_ones() {
    let mut wire = CaptureBuilder::new();
    wire.send(A, 2, Opcode::XRC_RDMA_WRITE_FIRST, 0xff_ffff, 1024)
        .send(A, 2, Opcode::XRC_RDMA_WRITE_LAST_WITH_IMMEDIATE, 0, 5)
        .send(B, 1, Opcode::XRC_ACKNOWLEDGE, 0, 0);
    let report = wire.report();
    assert_eq!(statuses(&report), [("RDMA_WRITE", 1029, MessageStatus::Acknowledged)]);
    assert_eq!(report.conversations[0].transport, "XRC");
    assert_eq!(report.conversations[0].joined_by, JoinedBy::Acknowledgement);
    assert_eq!(report.messages[0].latency_ns, Some(20_000));
}

#[test]
fn flush_and_atomic_write_complete_by_read_responses() {
    let mut wire = CaptureBuilder::new();
    wire.send(A, 2, Opcode::RC_FLUSH, 0, 0)
        .send(A, 2, Opcode::RC_ATOMIC_WRITE, 1, 8)
        .send(B, 1, Opcode::RC_RDMA_READ_RESPONSE_ONLY, 0, 0)
        .send(B, 1, Opcode::RC_RDMA_READ_RESPONSE_ONLY, 1, 0);
    let report = wire.report();
    assert_eq!(
        statuses(&report),
        [
            ("FLUSH", 0, MessageStatus::Acknowledged),
            ("ATOMIC_WRITE", 8, MessageStatus::Acknowledged)
        ]
    );
    assert_eq!(report.anomalies, []);
}

#[test]
fn roce_v1_is_analysed_alike() {
    let mut wire = CaptureBuilder::new();
    wire.v1 = true;
    wire.send(A, 2, Opcode::RC_SEND_ONLY, 10, 63).ack(B, 1, 10);
    let report = wire.report();
    assert_eq!((report.icrc.ok, report.roce_packets), (2, 2));
    assert_eq!(statuses(&report), [("SEND", 63, MessageStatus::Acknowledged)]);
    assert_eq!(report.hierarchy[0].children[0].name, "RoCEv1");
}

#[test]
fn a_reconnected_queue_pair_restarts() {
    let mut wire = CaptureBuilder::new();
    wire.send(A, 2, Opcode::RC_SEND_ONLY, 10, 1).ack(B, 1, 10);
    wire.send(A, 2, Opcode::RC_SEND_ONLY, 0x80_0000, 1).ack(B, 1, 0x80_0000);
    let report = wire.report();
    assert_eq!(report.anomaly_counts, [("restart", 1)].into());
    assert!(report.messages.iter().all(|message| message.status == MessageStatus::Acknowledged));
}

#[test]
fn infers_the_mtu_from_the_request_after_a_read() {
    let mut wire = CaptureBuilder::new();
    let read = Opcode::RC_RDMA_READ_REQUEST;
    let set_length = |extensions: &mut ExtensionHeaders| {
        extensions.reth = extensions.reth.map(|reth| Reth { length: 3000, ..reth });
    };
    wire.send_with(A, 2, read, 0, 0, set_length).send_with(A, 2, read, 3, 0, set_length);
    for psn in [0, 3] {
        wire.send(B, 1, Opcode::RC_RDMA_READ_RESPONSE_FIRST, psn, 1024)
            .send(B, 1, Opcode::RC_RDMA_READ_RESPONSE_MIDDLE, psn + 1, 1024)
            .send(B, 1, Opcode::RC_RDMA_READ_RESPONSE_LAST, psn + 2, 952);
    }
    let report = wire.report();
    assert_eq!(report.anomalies, []);
    assert_eq!(statuses(&report), [("RDMA_READ", 3000, MessageStatus::Acknowledged); 2]);
    assert_eq!(report.conversations[0].path_mtu, Some(1024));
}

#[test]
fn classifies_by_time_without_identifications() {
    // Constant identifications: an immediate repeat is a duplicate, a close one is reordering, a late one a timeout.
    let mut wire = CaptureBuilder::new();
    let send = Opcode::RC_SEND_ONLY;
    wire.send(A, 2, send, 0, 8).send(A, 2, send, 0, 8).ack(B, 1, 0);
    wire.send(A, 2, send, 2, 8).send(A, 2, send, 1, 8).ack(B, 1, 2);
    wire.send(A, 2, send, 3, 8);
    wire.wait(60_000_000);
    wire.send(A, 2, send, 3, 8).ack(B, 1, 3);
    let report = wire.report();
    assert_eq!(
        report.anomaly_counts,
        [("duplicate", 1), ("reordered", 1), ("timeout", 1), ("retransmission", 1)].into()
    );
    assert_eq!(statuses(&report), [("SEND", 8, MessageStatus::Acknowledged); 4]);
}

#[test]
fn retransmission_long_after_its_acknowledgement() {
    // A requester retransmits a long message while its acknowledgement is in flight. Even without identifications and
    // with more packets than are remembered, they are known to have been acknowledged before.
    let mut wire = CaptureBuilder::new();
    let message = |wire: &mut CaptureBuilder| {
        wire.send(A, 2, Opcode::RC_SEND_FIRST, 0, 8);
        for psn in 1..99 {
            wire.send(A, 2, Opcode::RC_SEND_MIDDLE, psn, 8);
        }
        wire.send(A, 2, Opcode::RC_SEND_LAST, 99, 8);
    };
    message(&mut wire);
    wire.ack(B, 1, 99);
    message(&mut wire);
    let report = wire.report();
    let kinds: Vec<_> = report.anomaly_counts.keys().copied().collect();
    assert!(!kinds.contains(&"reordered"), "{:?}", report.anomaly_counts);
    assert!(!kinds.contains(&"missing_request"), "{:?}", report.anomaly_counts);
    assert!(report.anomaly_counts["retransmission"] > 0, "{:?}", report.anomaly_counts);
    assert_eq!(statuses(&report), [("SEND", 800, MessageStatus::Acknowledged)]);
}

#[test]
fn a_receiver_not_ready_causes_a_retransmission() {
    let mut wire = CaptureBuilder::new();
    let rnr_nak = |extensions: &mut ExtensionHeaders| {
        let timer = RnrTimer::from_code(12).unwrap();
        let syndrome = SyndromeKind::RnrNak(timer).into();
        extensions.aeth = Some(Aeth { syndrome, msn: Msn(0) });
    };
    wire.send(A, 2, Opcode::RC_SEND_ONLY, 5, 8);
    wire.send_with(B, 1, Opcode::RC_ACKNOWLEDGE, 5, 0, rnr_nak);
    wire.wait(640_000);
    wire.send(A, 2, Opcode::RC_SEND_ONLY, 5, 8).ack(B, 1, 5);
    let report = wire.report();
    assert_eq!(report.anomaly_counts, [("rnr_nak", 1), ("retransmission", 1)].into());
    assert!(report.anomalies[1].text.contains("640.0 µs"), "{}", report.anomalies[1].text);
    assert_eq!(report.messages[0].retransmitted, 1);
}

#[test]
fn a_probe_repeats_the_oldest_and_the_newest_packet_alone() {
    let run = |repeated: &[u32]| {
        let mut wire = CaptureBuilder::new();
        for psn in 0..5 {
            wire.send(A, 2, Opcode::RC_SEND_ONLY, psn, 8);
        }
        wire.wait(10_000_000);
        for &psn in repeated {
            wire.send(A, 2, Opcode::RC_SEND_ONLY, psn, 8);
        }
        wire.ack(B, 1, 4);
        wire.report().anomaly_counts
    };
    assert_eq!(run(&[0, 4]), [("probe", 2)].into());
    let all = run(&[0, 1, 2, 3, 4]);
    assert_eq!(all, [("probe", 1), ("timeout", 1), ("retransmission", 4)].into(), "go-back-N");
    let missing = run(&[0, 3, 4]);
    assert_eq!(
        missing.get("missing_request"),
        Some(&1),
        "PSN 1 and 2 of a longer run: {missing:?}"
    );
}

#[test]
fn invalid_packets_are_problems_with_a_position() {
    let mut wire = CaptureBuilder::new();
    wire.send(A, 2, Opcode::RC_SEND_ONLY, 1, 64);
    // Reserved opcode.
    wire.send(A, 2, Opcode(0x1f), 2, 64);
    // Truncated by the capture after the headers.
    let mut whole = CaptureBuilder::new();
    whole.send(A, 2, Opcode::RC_SEND_ONLY, 3, 64);
    let bytes = whole.writer.finish().unwrap();
    let frame = &bytes[40..];
    wire.raw(&frame[..70], frame.len() as u32);
    // A first fragment: more follow.
    let mut fragment = frame.to_vec();
    fragment[20] |= 0x20;
    wire.raw(&fragment, fragment.len() as u32);
    // An IP header with an excessive length.
    let mut too_long = frame.to_vec();
    too_long[16] = 0x40;
    wire.raw(&too_long, too_long.len() as u32);
    let report = wire.report();
    assert_eq!((report.packets, report.roce_packets), (5, 4));
    assert_eq!((report.icrc.ok, report.icrc.unverifiable), (2, 2));
    let problems: Vec<_> = report.problems.iter().map(|one| (one.frame, &one.text)).collect();
    for ((frame, words), found) in
        [(2, "RESERVED"), (3, "snapped"), (4, "fragment"), (5, "IPv4 total length")]
            .into_iter()
            .zip(&problems)
    {
        assert_eq!(found.0, Some(frame));
        assert!(found.1.contains(words), "{} has no {words}", found.1);
    }
    assert_eq!(problems.len(), 4);
    assert!(report.problems.windows(2).all(|pair| pair[0].offset < pair[1].offset));
}

#[test]
fn unsplit_offload_packets_are_not_reported_as_corrupted() {
    let mut wire = CaptureBuilder::new();
    let mut whole = CaptureBuilder::new();
    whole.send(A, 2, Opcode::RC_SEND_ONLY, 3, 9000);
    let mut bytes = whole.writer.finish().unwrap().split_off(40);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    wire.raw(&bytes, bytes.len() as u32);
    let report = wire.report();
    assert_eq!(report.anomaly_counts, [("oversized", 1)].into());
    assert_eq!(report.problems, []);
}

#[test]
fn the_set_up_exchange_is_listed() {
    let mut wire = CaptureBuilder::new();
    let request = setup::DeviceDiscoveryReq::new(setup::ExchangeId(5), setup::TransactionId(1));
    let extensions = ExtensionHeaders {
        deth: Some(Deth {
            queue_key: setup::QUEUE_KEY,
            source: setup::QUEUE_PAIR,
            ..Deth::default()
        }),
        ..ExtensionHeaders::default()
    };
    let bytes = request.to_bytes();
    wire.frame(A, setup::QUEUE_PAIR.0, Opcode::UD_SEND_ONLY, 0, extensions, &bytes);
    let report = wire.report();
    assert_eq!(report.setup.len(), 1);
    assert_eq!(report.setup[0].message, "DEVICE_DISCOVERY_REQ");
    let fields: Vec<_> = report.setup[0].details.iter().map(|(name, _)| name).collect();
    let prefix = ["message_type", "version", "status", "attempt", "magic", "exchange"];
    assert_eq!(fields[..6], prefix, "in the order of the message");
    assert_eq!(report.setup[0].details.get("exchange"), Some("0x00000005"));
}

/// Analyses these packets with both ends at 127.0.0.1.
fn over_loopback(one: CaptureBuilder) -> FileReport {
    let mut wire = CaptureBuilder::new();
    let file = one.writer.finish().unwrap();
    let mut at = 24;
    while at < file.len() {
        let len = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        let mut frame = file[at + 16..at + 16 + len].to_vec();
        frame[26..34].copy_from_slice(&[127, 0, 0, 1, 127, 0, 0, 1]);
        let parsed = Frame::ethernet(&frame, frame.len());
        let mut out = vec![0; frame.len()];
        let len = parsed.emit(&mut out).unwrap();
        wire.raw(&out[..len], len as u32);
        at += 16 + frame.len();
    }
    wire.report()
}

#[test]
fn loopback_directions_are_joined() {
    // Both ends have the same address: the two streams differ only in their QPNs.
    let mut wire = CaptureBuilder::new();
    wire.send(A, 2, Opcode::RC_SEND_ONLY, 10, 8).ack(B, 1, 10);
    let report = over_loopback(wire);
    assert_eq!(report.conversations.len(), 1);
    assert_eq!(statuses(&report), [("SEND", 8, MessageStatus::Acknowledged)]);
}

/// Packets sent by each side of the only conversation.
fn directions(report: &FileReport) -> (u64, u64, JoinedBy) {
    let [one] = &report.conversations[..] else { panic!("{:?}", report.conversations) };
    (one.a_to_b.packets, one.b_to_a.packets, one.joined_by)
}

#[test]
fn connection_managers_on_one_host_have_two_directions() {
    let (active, passive) = (CommId(7), CommId(9));
    let gid = Gid::from_ip([127, 0, 0, 1].into());
    let mut request = Req { local_comm_id: active, local_qpn: Qpn(0x11), ..Req::default() };
    request.primary_local_gid = gid;
    request.primary_remote_gid = gid;
    let mut wire = CaptureBuilder::new();
    for message in [
        CmMessage::Req(request),
        CmMessage::Rep(Rep {
            local_comm_id: passive,
            remote_comm_id: active,
            local_qpn: Qpn(0x22),
            ..Rep::default()
        }),
        CmMessage::Rtu(Rtu { local_comm_id: active, remote_comm_id: passive, ..Rtu::default() }),
        // The passive side ends the connection.
        CmMessage::Dreq(Dreq { local_comm_id: passive, remote_comm_id: active, ..Dreq::default() }),
        CmMessage::Drep(Drep { local_comm_id: active, remote_comm_id: passive, ..Drep::default() }),
    ] {
        wire.datagram(A, 1, &message.to_mad(TransactionId(5)));
    }
    let report = over_loopback(wire);
    assert_eq!(directions(&report), (3, 2, JoinedBy::Datagram));
}

#[test]
fn set_up_exchanges_on_one_host_have_two_directions() {
    let (exchange, transaction) = (setup::ExchangeId(5), setup::TransactionId(1));
    let mut wire = CaptureBuilder::new();
    for bytes in [
        &setup::DeviceDiscoveryReq::new(exchange, transaction).to_bytes()[..],
        &setup::DeviceDiscoveryResp::new(exchange, transaction).to_bytes(),
        &setup::QpCreateReq::new(exchange, transaction).to_bytes(),
    ] {
        let deth = Deth { source: setup::QUEUE_PAIR, ..Deth::default() };
        let extensions = ExtensionHeaders { deth: Some(deth), ..ExtensionHeaders::default() };
        wire.frame(A, setup::QUEUE_PAIR.0, Opcode::UD_SEND_ONLY, 0, extensions, bytes);
    }
    assert_eq!(directions(&over_loopback(wire)), (2, 1, JoinedBy::Datagram));
}

#[test]
fn a_queue_pair_that_sends_to_itself_is_one_endpoint() {
    let mut wire = CaptureBuilder::new();
    wire.send(A, 0x99, Opcode::UD_SEND_ONLY, 1, 8);
    let report = over_loopback(wire);
    assert_eq!(directions(&report), (1, 0, JoinedBy::SameEndpoint));
    let view = View { columns: 100, ..View::default() };
    let text: String =
        sections::report(&report, &view).iter().map(|it| format!("{it}\n")).collect();
    assert!(text.contains("a queue pair that sends to itself"), "{text}");
    assert_eq!(text.matches("127.0.0.1 QP 0x000099").count(), 1, "{text}");
}
