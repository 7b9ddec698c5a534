//! Hand-made reports for the rendering tests.

use crate::analysis::anomaly::AnomalyKind;
use crate::analysis::losses::Losses;
use crate::analysis::report::{
    Anomaly, CapturedMessage, CmEvent, Conversation, Endpoint, FileReport, Finding, GraphBin,
    HierarchyNode, IcrcCounts, JoinedBy, Latency, MessageStatus, OperationStats, PacketRow,
    Traffic,
};

/// Joins lines as printed; asserts that there are no trailing blanks.
pub(super) fn drawn(lines: &[super::Line]) -> String {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    for line in text.lines() {
        assert_eq!(line, line.trim_end(), "blanks at the end");
    }
    text
}

/// A WRITE of seven packets, one of which is lost, reported by a NAK and retransmitted.
pub(super) fn lossy() -> FileReport {
    let anomalies = vec![
        anomaly(AnomalyKind::MissingRequest, 8, 60_000, 6, "1 request packet before PSN 0x000007"),
        anomaly(AnomalyKind::NakSequence, 9, 70_000, 6, "responder expects PSN 0x000006"),
        anomaly(AnomalyKind::Retransmission, 10, 2_070_000, 6, "PSN 0x000006 retransmitted"),
    ];
    let mut rows = vec![row(2, 0, true, "RC RDMA WRITE First", 1, "1024 of 6400 bytes → 0x10")];
    for at in 0..4 {
        let time = 10_000 * (i64::from(at) + 1);
        rows.push(row(3 + u64::from(at), time, true, "RC RDMA WRITE Middle", 2 + at, "1024 bytes"));
    }
    rows.push(row(8, 60_000, true, "RC RDMA WRITE Last", 7, "256 bytes"));
    rows.push(row(9, 70_000, false, "RC NAK", 6, "PSN sequence error  MSN 0"));
    rows.push(row(10, 2_070_000, true, "RC RDMA WRITE Middle", 6, "1024 bytes"));
    rows.push(row(11, 2_080_000, true, "RC RDMA WRITE Last", 7, "256 bytes"));
    rows.push(row(12, 2_100_000, false, "RC ACK", 7, "MSN 1"));
    for row in &mut rows {
        let notes = anomalies.iter().filter(|anomaly| anomaly.frame == row.frame);
        row.notes = notes.map(|anomaly| anomaly.text.clone()).collect();
    }
    FileReport {
        path: "lossy.pcap".into(),
        format: "pcap".into(),
        file_bytes: 12_345,
        packets: 13,
        bytes: 11_000,
        roce_packets: 12,
        start_ns: Some(1_700_000_000_000_001_000),
        duration_ns: 2_100_000,
        icrc: IcrcCounts { ok: 11, bad: 0, unverifiable: 1 },
        opcodes: [("RC_RDMA_WRITE_MIDDLE", 5), ("RC_RDMA_WRITE_LAST", 2), ("RC_ACKNOWLEDGE", 2)]
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count))
            .collect(),
        hierarchy: vec![hierarchy()],
        conversations: vec![conversation(&anomalies)],
        messages: vec![message()],
        messages_total: 1,
        anomaly_counts: anomalies.iter().map(|anomaly| (anomaly.kind.name(), 1)).collect(),
        anomalies,
        latency: [("RDMA_WRITE", latency())].into(),
        cm: vec![request()],
        graph: crate::analysis::report::Graph {
            interval_ns: 1_000_000,
            bins: vec![bin(8), bin(0), bin(4)],
        },
        packet_list: rows,
        ..FileReport::default()
    }
}

fn anomaly(kind: AnomalyKind, frame: u64, time_ns: i64, psn: u32, text: &str) -> Anomaly {
    let severity = kind.severity();
    Anomaly {
        kind,
        severity,
        frame,
        segment: 0,
        time_ns,
        conversation: Some(1),
        psn: Some(psn),
        text: text.into(),
    }
}

fn row(frame: u64, time_ns: i64, from_a: bool, title: &str, psn: u32, rest: &str) -> PacketRow {
    let qpn = if from_a { 0x12 } else { 0x11 };
    PacketRow {
        frame,
        segment: 0,
        time_ns,
        conversation: Some(1),
        from_a,
        icrc: "ok",
        summary: format!("{title}  QP 0x{qpn:06x}  PSN 0x{psn:06x}  {rest}"),
        notes: Vec::new(),
    }
}

fn bin(packets: u64) -> GraphBin {
    GraphBin { packets, bytes: packets * 1000, ..GraphBin::default() }
}

fn hierarchy() -> HierarchyNode {
    let node = |name, packets, bytes, children| HierarchyNode { name, packets, bytes, children };
    let rc = node("RC", 11, 9_900, vec![node("RDMA_WRITE", 9, 9_800, vec![])]);
    let roce = node("RoCEv2", 12, 10_250, vec![rc, node("UD", 1, 350, vec![])]);
    let ip = node("IPv4", 12, 10_250, vec![node("UDP", 12, 10_250, vec![roce])]);
    node("Ethernet", 13, 11_000, vec![ip, node("ARP", 1, 42, vec![])])
}

fn latency() -> Latency {
    let max = 2_100_000;
    Latency {
        count: 1,
        min_ns: max,
        p50_ns: max,
        p90_ns: max,
        p99_ns: max,
        max_ns: max,
        mean_ns: max,
        exact: true,
    }
}

fn conversation(anomalies: &[Anomaly]) -> Conversation {
    let stats = OperationStats {
        messages: 1,
        bytes: 6_400,
        packets: 7,
        latency: Some(latency()),
        ..OperationStats::default()
    };
    Conversation {
        id: 1,
        transport: "RC",
        a: Endpoint { address: "10.0.0.1".into(), qpn: Some(0x11) },
        b: Endpoint { address: "10.0.0.2".into(), qpn: Some(0x12) },
        joined_by: JoinedBy::Cm,
        path_mtu: Some(1024),
        a_to_b: Traffic { packets: 8, bytes: 9_780, payload: 8_704 },
        b_to_a: Traffic { packets: 2, bytes: 124, payload: 0 },
        first_frame: 2,
        last_frame: 12,
        time_ns: 0,
        duration_ns: 2_100_000,
        operations: [("RDMA_WRITE", stats)].into(),
        anomalies: anomalies.iter().map(|anomaly| (anomaly.kind.name(), 1)).collect(),
        losses: Losses::default(),
        findings: vec![Finding {
            severity: crate::analysis::anomaly::Severity::Warning,
            text: "2 packets retransmitted because of 1 × NAK, PSN sequence error".into(),
        }],
    }
}

fn message() -> CapturedMessage {
    CapturedMessage {
        conversation: 1,
        from_a: true,
        operation: "RDMA_WRITE",
        size: 6_400,
        packets: 7,
        retransmitted: 2,
        first_frame: 2,
        last_frame: 12,
        time_ns: 0,
        psn: (1, 7),
        latency_ns: Some(2_100_000),
        status: MessageStatus::Acknowledged,
        immediate: None,
        invalidate: None,
        remote_address: Some(0x10),
        remote_key: Some(0x1a2b),
    }
}

fn request() -> CmEvent {
    CmEvent {
        frame: 1,
        segment: 0,
        time_ns: -5_000,
        source: "10.0.0.1".into(),
        destination: "10.0.0.2".into(),
        message: "REQ",
        transaction: 1,
        local_id: Some(7),
        remote_id: None,
        repeated: false,
        conversation: Some(1),
        details: Default::default(),
        summary: "connect to TCP port 7471 from QP 0x000011".into(),
        private_data: "00000000000010000000ffee".into(),
    }
}
