//! Duplicates, loss after the capture point, and probes.

use ferroce_wire::number::Msn;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::syndrome::{NakCode, SyndromeKind};
use ferroce_wire::transport::{Aeth, Reth};

use super::capture_builder::{A, B, CaptureBuilder};

#[test]
fn unreliable_packets_are_duplicated_or_reordered() {
    for opcode in [Opcode::UC_SEND_ONLY, Opcode::UD_SEND_ONLY] {
        let counts = |psns: &[u32]| {
            let mut wire = CaptureBuilder::new();
            for &psn in psns {
                wire.send(A, 2, opcode, psn, 8);
            }
            wire.report().anomaly_counts
        };
        assert_eq!(counts(&[10, 11, 12, 13]), [].into());
        assert_eq!(counts(&[10, 11, 11, 12, 11]), [("duplicate", 2)].into());
        let reordered = counts(&[0xff_fffe, 0xff_ffff, 1, 0, 2]);
        assert_eq!(reordered.get("reordered"), Some(&1), "{reordered:?}");
        assert_eq!(reordered.get("duplicate"), None, "{reordered:?}");
    }
    // A sender of datagrams that does not count PSNs.
    let mut wire = CaptureBuilder::new();
    for _ in 0..4 {
        wire.send(A, 2, Opcode::UD_SEND_ONLY, 0, 8);
    }
    assert_eq!(wire.report().anomaly_counts, [].into());
}

#[test]
fn a_nak_for_a_captured_packet_is_loss_after_the_capture_point() {
    let nak = |extensions: &mut ExtensionHeaders| {
        let syndrome = SyndromeKind::Nak(NakCode::PsnSequenceError).into();
        extensions.aeth = Some(Aeth { syndrome, msn: Msn(0) });
    };
    let counts = |first: &[u32]| {
        let mut wire = CaptureBuilder::new();
        for &psn in first {
            wire.send(A, 2, Opcode::RC_SEND_ONLY, psn, 8);
        }
        wire.send_with(B, 1, Opcode::RC_ACKNOWLEDGE, 6, 0, nak);
        wire.send(A, 2, Opcode::RC_SEND_ONLY, 6, 8).send(A, 2, Opcode::RC_SEND_ONLY, 7, 8);
        wire.ack(B, 1, 7);
        wire.report().anomaly_counts
    };
    let after = counts(&[5, 6, 7]);
    let expected = [("lost_after_capture", 1), ("nak_sequence", 1), ("retransmission", 2)];
    assert_eq!(after, expected.into());
    let before = counts(&[5, 7]);
    assert_eq!((before.get("missing_request"), before.get("lost_after_capture")), (Some(&1), None));
}

/// A busy receiver shows what it received meanwhile as if it had come at once.
#[test]
fn a_packet_repeated_after_a_pause_is_not_a_duplicate() {
    let counts = |pause: i64| {
        let mut wire = CaptureBuilder::new();
        wire.send(A, 2, Opcode::RC_SEND_ONLY, 0, 8).ack(B, 1, 0);
        wire.wait(pause);
        wire.send(A, 2, Opcode::RC_SEND_ONLY, 1, 8).send(A, 2, Opcode::RC_SEND_ONLY, 1, 8);
        wire.ack(B, 1, 1);
        wire.report().anomaly_counts
    };
    assert_eq!(counts(0), [("duplicate", 1)].into());
    assert_eq!(counts(400_000), [("probe", 1)].into());
    // Another one is in flight, which a probe would have repeated first.
    let mut wire = CaptureBuilder::new();
    wire.send(A, 2, Opcode::RC_SEND_ONLY, 0, 8);
    wire.wait(400_000);
    wire.send(A, 2, Opcode::RC_SEND_ONLY, 1, 8).send(A, 2, Opcode::RC_SEND_ONLY, 1, 8);
    wire.ack(B, 1, 1);
    assert_eq!(wire.report().anomaly_counts, [("duplicate", 1)].into());
}

/// A requester that runs out of credit sends its newest packet again at once, to ask for an ACK.
#[test]
fn a_packet_repeated_to_ask_for_an_ack_is_not_a_duplicate() {
    let counts = |first: bool, second: bool| {
        let mut wire = CaptureBuilder::new();
        wire.send(A, 2, Opcode::RC_SEND_ONLY, 0, 8);
        wire.ack_request = first;
        wire.send(A, 2, Opcode::RC_SEND_ONLY, 1, 8);
        wire.ack_request = second;
        wire.send(A, 2, Opcode::RC_SEND_ONLY, 1, 8).ack(B, 1, 1);
        wire.report().anomaly_counts
    };
    assert_eq!(counts(false, true), [("probe", 1)].into());
    assert_eq!(counts(true, true), [("duplicate", 1)].into());
    assert_eq!(counts(false, false), [("duplicate", 1)].into());
}

/// The MTU is known from one direction, and the other one has a READ when the two are matched.
#[test]
fn a_path_mtu_applies_to_a_read_in_the_other_direction() {
    let mut wire = CaptureBuilder::new();
    wire.send(A, 2, Opcode::RC_SEND_FIRST, 0, 1024).send(A, 2, Opcode::RC_SEND_LAST, 1, 8);
    let length = |extensions: &mut ExtensionHeaders| {
        extensions.reth = extensions.reth.map(|reth| Reth { length: 3000, ..reth });
    };
    wire.send_with(B, 1, Opcode::RC_RDMA_READ_REQUEST, 100, 0, length);
    wire.send(A, 2, Opcode::RC_RDMA_READ_RESPONSE_FIRST, 100, 1024)
        .send(A, 2, Opcode::RC_RDMA_READ_RESPONSE_MIDDLE, 101, 1024)
        .send(A, 2, Opcode::RC_RDMA_READ_RESPONSE_LAST, 102, 952)
        .ack(B, 1, 1);
    let report = wire.report();
    assert_eq!(report.anomalies, []);
    assert_eq!(report.messages.iter().map(|message| message.size).sum::<u64>(), 4032);
}
