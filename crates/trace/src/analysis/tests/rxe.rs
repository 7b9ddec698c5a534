//! Analysis of captured rdma_rxe traffic, and of modified captures.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::analysis::anomaly::AnomalyKind as Kind;
use crate::analysis::report::{FileReport, JoinedBy, MessageStatus};
use crate::analysis::{Options, analyze};
use crate::file::{CaptureReader, Packet, PcapWriter};

pub(super) fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/rxe"))
        .join(format!("{name}.pcap"))
}

pub(super) fn captures() -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path("x").parent().unwrap())
        .unwrap()
        .filter_map(|entry| {
            entry
                .unwrap()
                .file_name()
                .into_string()
                .unwrap()
                .strip_suffix(".pcap")
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() >= 52, "captures are missing");
    names
}

fn report(name: &str) -> FileReport {
    with(name, &Options::default())
}

fn with(name: &str, options: &Options) -> FileReport {
    analyze(name, &*fs::read(path(name)).unwrap(), options, &mut |_| ())
}

fn counts(report: &FileReport) -> BTreeMap<&str, u64> {
    report.anomaly_counts.iter().map(|(kind, count)| (*kind, *count)).collect()
}

fn findings(report: &FileReport) -> String {
    let all = report.conversations.iter().flat_map(|conversation| &conversation.findings);
    all.map(|finding| finding.text.as_str()).collect::<Vec<_>>().join("\n")
}

/// Copies the frames selected by `keep` to a new file.
fn filtered(name: &str, mut keep: impl FnMut(u64) -> bool) -> Vec<u8> {
    let bytes = fs::read(path(name)).unwrap();
    let mut reader = CaptureReader::new(&*bytes).unwrap();
    let mut writer = None;
    while let Some(record) = reader.next_record().unwrap() {
        let writer =
            writer.get_or_insert_with(|| PcapWriter::new(Vec::new(), record.link).unwrap());
        if keep(record.number) {
            writer.write(&Packet::from_record(&record)).unwrap();
        }
    }
    writer.unwrap().finish().unwrap()
}

fn modified(bytes: &[u8]) -> FileReport {
    analyze("modified", bytes, &Options::default(), &mut |_| ())
}

#[test]
fn every_packet_of_every_capture_is_accounted_for() {
    for name in captures() {
        let report = report(&name);
        assert_eq!(report.problems, [], "{name}");
        assert_eq!(report.packets, report.roce_packets, "{name}");
        assert_eq!((report.icrc.ok, report.icrc.bad), (report.packets, 0), "{name}");
        assert_eq!(report.opcodes.values().sum::<u64>(), report.packets, "{name}");
        let tracked: u64 =
            report.conversations.iter().map(|one| one.a_to_b.packets + one.b_to_a.packets).sum();
        assert_eq!(tracked, report.packets, "{name}");
        assert_eq!(report.messages.len() as u64, report.messages_total, "{name}");
        let graphed: u64 = report.graph.bins.iter().map(|bin| bin.packets).sum();
        assert_eq!(graphed, report.packets, "{name}");
        assert_eq!(report.hierarchy.iter().map(|node| node.packets).sum::<u64>(), report.packets);
    }
}

#[test]
fn captures_without_faults_have_no_anomalies() {
    let faulty = [
        "bad_rkey_read",
        "bad_rkey_write",
        "cm_reject",
        "duplicate",
        "invalidate",
        "loss_requests",
        "loss_responses",
        "no_access",
        "op_error",
        "out_of_bounds",
        "reorder",
        "rnr",
        "rnr_exceeded",
        "timeout",
        "too_long",
    ];
    for name in captures().iter().filter(|name| !faulty.contains(&name.as_str())) {
        let report = report(name);
        assert_eq!(report.anomalies, [], "{name}");
        for message in &report.messages {
            let expected = match report.conversations[message.conversation as usize - 1].transport {
                "RC" => MessageStatus::Acknowledged,
                _ => MessageStatus::Sent,
            };
            assert_eq!(message.status, expected, "{name}: {message:?}");
        }
    }
}

#[test]
fn messages_are_reassembled_from_their_packets() {
    let report = report("sizes");
    let sizes = [0, 1, 2, 3, 4, 5, 255, 1023, 1024, 1025, 2048, 2049, 3073];
    for operation in ["SEND", "RDMA_WRITE", "RDMA_READ"] {
        let messages: Vec<_> =
            report.messages.iter().filter(|message| message.operation == operation).collect();
        assert_eq!(messages.iter().map(|message| message.size).collect::<Vec<_>>(), sizes);
        for message in messages {
            // One packet per 1024 bytes, at least one; plus the request of a READ.
            let packets = message.size.div_ceil(1024).max(1);
            let request = u64::from(operation == "RDMA_READ");
            assert_eq!(message.packets, packets + request, "{message:?}");
            assert!(message.latency_ns.is_some_and(|latency| latency > 0));
        }
    }
    assert_eq!(report.latency["SEND"].count, 13);
    assert_eq!(report.conversations[0].path_mtu, Some(1024));
}

#[test]
fn psns_wrap() {
    let (plain, wrapped) = (report("sizes"), report("psn_wrap"));
    let shape = |report: &FileReport| {
        let messages = report.messages.iter();
        messages.map(|one| (one.operation, one.size, one.packets, one.status)).collect::<Vec<_>>()
    };
    assert_eq!(shape(&plain), shape(&wrapped));
    assert!(wrapped.messages.iter().any(|message| message.psn.0 > 0xff_0000));
    assert!(wrapped.messages.iter().any(|message| message.psn.0 < 0x100));
}

#[test]
fn immediate_data_and_keys_are_reported() {
    let messages = report("imm").messages;
    assert_eq!(messages.iter().filter(|message| message.immediate.is_some()).count(), 5);
    let invalidated = report("invalidate").messages;
    let send = invalidated.iter().find(|message| message.operation == "SEND").unwrap();
    let refused =
        invalidated.iter().find(|message| message.status == MessageStatus::Refused).unwrap();
    assert_eq!(send.invalidate, refused.remote_key);
}

#[test]
fn directions_are_joined_by_the_strongest_evidence() {
    let joined = |name: &str| {
        let report = report(name);
        let conversations = report.conversations.iter();
        conversations.map(|one| (one.transport, one.joined_by)).collect::<Vec<_>>()
    };
    assert_eq!(joined("rc_pingpong"), [("RC", JoinedBy::Acknowledgement)]);
    assert_eq!(joined("srq_pingpong"), [("RC", JoinedBy::Acknowledgement); 4]);
    assert_eq!(joined("uc_pingpong"), [("UC", JoinedBy::Address)]);
    assert_eq!(joined("ud_pingpong"), [("UD", JoinedBy::Datagram)]);
    assert_eq!(joined("send_uc"), [("UC", JoinedBy::OneWay)]);
    assert_eq!(joined("timeout"), [("RC", JoinedBy::OneWay)]);
    let (ud, rc) = (("UD", JoinedBy::Datagram), ("RC", JoinedBy::Cm));
    assert_eq!(joined("rping"), [ud, rc]);
    assert_eq!(joined("rping_v6"), [ud, rc]);
    assert_eq!(joined("ucmatose"), [ud, rc, rc]);
    // The same QPNs on both sides, four times: each pair is found.
    for conversation in report("srq_pingpong").conversations {
        assert_eq!(conversation.a.qpn, conversation.b.qpn);
    }
}

#[test]
fn cm_messages_form_a_timeline() {
    let names =
        |report: &FileReport| report.cm.iter().map(|event| event.message).collect::<Vec<_>>();
    let rping = report("rping");
    assert_eq!(names(&rping), ["REQ", "REP", "RTU", "DREQ", "DREP"]);
    assert!(rping.cm.iter().all(|event| event.conversation == Some(2) && !event.repeated));
    assert!(rping.cm[0].summary.contains("TCP port 7174"), "{}", rping.cm[0].summary);
    assert_eq!(rping.cm[0].details.get("ip_source"), Some("10.77.0.12"));
    assert_eq!(names(&report("udaddy")), ["SIDR_REQ", "SIDR_REP"]);
    let rstream = report("rstream");
    assert!(rstream.cm[0].private_data.len() > 16, "{}", rstream.cm[0].private_data);
    assert_eq!(report("ucmatose").cm.len(), 10);

    let rejected = report("cm_reject");
    assert_eq!(names(&rejected), ["REQ", "REJ"]);
    assert_eq!(counts(&rejected), [("cm_reject", 1)].into());
    assert!(rejected.anomalies[0].text.contains("reason 8"), "{}", rejected.anomalies[0].text);
}

#[test]
fn naks_are_explained() {
    for (name, kind, words) in [
        ("bad_rkey_write", Kind::NakRemoteAccess, "RC_RDMA_WRITE_FIRST"),
        ("bad_rkey_read", Kind::NakRemoteAccess, "RC_RDMA_READ_REQUEST"),
        ("out_of_bounds", Kind::NakRemoteAccess, "outside the memory region"),
        ("invalidate", Kind::NakRemoteAccess, "rkey"),
        ("no_access", Kind::NakInvalidRequest, "does not allow this operation"),
        ("too_long", Kind::NakRemoteOperational, "too short"),
        ("op_error", Kind::NakRemoteOperational, "failed locally"),
    ] {
        let report = report(name);
        assert_eq!(counts(&report), [(kind.name(), 1)].into(), "{name}");
        let refused =
            report.messages.iter().filter(|message| message.status == MessageStatus::Refused);
        assert_eq!(refused.count(), 1, "{name}");
        assert!(findings(&report).contains(words), "{name}: {}", findings(&report));
    }
}

#[test]
fn rnr_naks_are_diagnosed() {
    let late = report("rnr");
    assert_eq!(counts(&late), [("rnr_nak", 3), ("nak_sequence", 3), ("retransmission", 9)].into());
    assert!(findings(&late).contains("3 RNR NAKs"));
    for anomaly in late.anomalies.iter().filter(|one| one.kind == Kind::Retransmission) {
        assert!(anomaly.text.contains("after RNR NAK, wait 1.28 ms"), "{}", anomaly.text);
    }
    assert!(late.messages.iter().all(|message| message.status == MessageStatus::Acknowledged));

    let never = report("rnr_exceeded");
    assert_eq!(
        counts(&never),
        [("rnr_nak", 3), ("retransmission", 2), ("rnr_retry_exceeded", 1)].into()
    );
    assert!(findings(&never).contains("never posted a receive"), "{}", findings(&never));
    assert_eq!(never.messages[0].status, MessageStatus::Unacknowledged);
}

#[test]
fn an_unreachable_peer_is_diagnosed() {
    let report = report("timeout");
    assert_eq!(
        counts(&report),
        // The first repetition looks like a probe until the second follows after the same time.
        [("probe", 1), ("timeout", 3), ("retransmission", 2), ("retry_exceeded", 1)].into()
    );
    assert!(findings(&report).contains("4 attempts"), "{}", findings(&report));
    assert_eq!(report.messages[0].retransmitted, 3);
}

#[test]
fn lost_requests_are_diagnosed() {
    let report = report("loss_requests");
    let counts = counts(&report);
    assert_eq!(counts["nak_sequence"], 6);
    // The retransmission timer is 67 ms: only later packets are its work.
    assert_eq!(counts["timeout"], 4);
    for anomaly in report.anomalies.iter().filter(|one| one.kind == Kind::Timeout) {
        let wait: f64 =
            anomaly.text.split(" for ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(wait > 60.0, "{}", anomaly.text);
    }
    assert!(!counts.contains_key("reordered") && !counts.contains_key("duplicate"));
    assert!(findings(&report).contains("requests are lost before the capture point"));
    assert!(report.messages.iter().all(|message| message.status == MessageStatus::Acknowledged));
    assert_eq!(report.messages.len(), 24);
}

#[test]
fn lost_responses_are_diagnosed() {
    let report = report("loss_responses");
    let counts = counts(&report);
    // One of the three is lost a second time.
    assert_eq!((counts["missing_response"], counts["timeout"]), (4, 1));
    assert!(!counts.contains_key("nak_sequence") && !counts.contains_key("missing_request"));
    assert!(findings(&report).contains("responses are lost"));
    assert!(report.messages.iter().all(|message| message.status == MessageStatus::Acknowledged));
    let reads = report.messages.iter().filter(|one| one.operation == "RDMA_READ");
    assert!(reads.map(|one| one.size).eq([5000; 6]));
}

#[test]
fn reordering_is_diagnosed() {
    let report = report("reorder");
    let counts = counts(&report);
    assert!(counts["reordered"] > counts["missing_request"]);
    assert_eq!((counts["nak_sequence"], counts["timeout"]), (12, 4));
    assert!(!counts.contains_key("duplicate"));
    assert!(findings(&report).contains("the path reorders"));
    assert!(!findings(&report).contains("lost before"), "nothing was lost: {}", findings(&report));
    assert!(report.messages.iter().all(|message| message.status == MessageStatus::Acknowledged));
}

#[test]
fn duplication_is_diagnosed() {
    let report = report("duplicate");
    let counts = counts(&report);
    assert_eq!(counts["duplicate"], 13);
    assert!(!counts.contains_key("retransmission") && !counts.contains_key("timeout"));
    assert!(findings(&report).contains("the path duplicates"));
}

#[test]
fn one_direction_alone_is_analysed() {
    // Without the acknowledgements, messages are found but unacknowledged.
    let full = report("send_rc");
    let b_to_a: Vec<_> = with("send_rc", &Options { packet_list: true, ..Options::default() })
        .packet_list
        .into_iter()
        .filter(|row| !row.from_a)
        .map(|row| row.frame)
        .collect();
    let report = modified(&filtered("send_rc", |frame| !b_to_a.contains(&frame)));
    assert_eq!(report.conversations.len(), 1);
    assert_eq!(report.conversations[0].joined_by, JoinedBy::OneWay);
    assert_eq!(report.messages.len(), full.messages.len());
    assert!(report.messages.iter().all(|message| message.status == MessageStatus::Unacknowledged));
    assert_eq!(report.anomalies, []);
}

#[test]
fn a_capture_may_start_in_the_middle() {
    for name in ["rc_pingpong", "rping", "read_65536_mtu1024", "sizes", "loss_requests"] {
        let all = report(name).packets;
        for start in 1..all.min(40) {
            let report = modified(&filtered(name, |frame| frame > start));
            assert_eq!(report.packets, all - start);
            assert_eq!(report.problems, []);
        }
    }
}

#[test]
fn lists_are_limited_and_counts_are_not() {
    let options = Options {
        packet_list: true,
        max_packet_rows: 5,
        max_messages: 3,
        max_anomalies: 2,
        max_cm: 1,
        ..Options::default()
    };
    let limited = with("loss_requests", &options);
    assert_eq!((limited.messages.len(), limited.messages_total), (3, 24));
    assert_eq!(limited.anomalies.len(), 2);
    assert_eq!(counts(&limited), counts(&report("loss_requests")));
    assert_eq!(limited.packet_list.len(), 5);
    let crowded = with("srq_pingpong", &Options { max_conversations: 1, ..Options::default() });
    assert_eq!(crowded.conversations.len(), 1);
    assert!(crowded.problems[0].text.contains("more than 1 conversations"));
    assert_eq!(with("rping", &options).cm_omitted, 4);
}

#[test]
fn one_conversation_can_be_selected() {
    let options = Options { packet_list: true, conversation: Some(3), ..Options::default() };
    let report = with("srq_pingpong", &options);
    assert_eq!(report.conversations.len(), 1);
    assert_eq!(report.packet_list.len(), 12);
    assert!(report.messages.iter().all(|one| one.conversation == 3));
}

#[test]
fn corruption_is_detected_and_reported() {
    let mut bytes = fs::read(path("rc_pingpong")).unwrap();
    // The last byte of the first frame's payload; 24 bytes of file header and 16 of record header before it.
    let len = u32::from_le_bytes(bytes[32..36].try_into().unwrap()) as usize;
    bytes[40 + len - 10] ^= 1;
    let report = modified(&bytes);
    assert_eq!((report.icrc.bad, report.icrc.ok), (1, 49));
    assert_eq!(report.anomalies[0].kind, Kind::BadIcrc);
    assert_eq!(report.anomalies[0].frame, 1);
    assert_eq!(report.problems[0].frame, Some(1));

    let cut = &bytes[..bytes.len() - 10];
    let report = modified(cut);
    assert_eq!(report.packets, 49);
    assert_eq!(report.problems.len(), 2);
    assert!(report.problems[1].offset.unwrap() > 40_000 && report.problems[1].frame.is_none());

    let foreign = modified(b"#!/bin/sh\necho this is not a capture\n");
    assert_eq!((foreign.packets, foreign.problems.len()), (0, 1));
}

#[test]
fn no_corrupted_byte_panics() {
    // Inverting every 7th byte of a capture causes neither a panic nor a wrong packet count.
    let bytes = fs::read(path("rping")).unwrap();
    for at in (0..bytes.len()).step_by(7) {
        let mut modified_bytes = bytes.clone();
        modified_bytes[at] ^= 0xff;
        let report = modified(&modified_bytes);
        assert!(report.packets <= 53);
    }
}
