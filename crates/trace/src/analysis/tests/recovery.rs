//! Duplicates, loss after the capture point, and probes.

use std::collections::BTreeMap;

use ferroce_wire::number::Msn;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::syndrome::{NakCode, SyndromeKind};
use ferroce_wire::transport::{Aeth, Reth};

use super::capture_builder::{A, B, CaptureBuilder};

type Counts = BTreeMap<&'static str, u64>;

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

/// A wait in nanoseconds, and the packets of a message that are repeated after it.
type Repeat = (i64, &'static [u32]);

/// Messages of four packets, whether each is acknowledged before its packets are repeated, and how they are.
fn repeated(messages: &[(bool, &[Repeat])]) -> Counts {
    let mut wire = CaptureBuilder::new();
    for (index, (acknowledged_first, repeats)) in (0..).zip(messages) {
        let start = 4 * index;
        (start..start + 4).for_each(|psn| _ = wire.send(A, 2, Opcode::RC_SEND_ONLY, psn, 8));
        if *acknowledged_first {
            wire.ack(B, 1, start + 3);
        }
        for &(wait, packets) in *repeats {
            wire.wait(wait);
            wire.ack_request = packets.len() < 4;
            packets.iter().for_each(|at| _ = wire.send(A, 2, Opcode::RC_SEND_ONLY, start + at, 8));
            wire.ack_request = false;
        }
        if !acknowledged_first {
            wire.ack(B, 1, start + 3);
        }
    }
    wire.report().anomaly_counts
}

/// A busy requester probes a packet whose ACK has arrived, reads the ACK, sends the next message, and probes that one too.
#[test]
fn probes_of_two_messages_are_not_one_run() {
    let probes: &[Repeat] = &[(300_000, &[0, 3])];
    assert_eq!(repeated(&[(true, probes), (false, probes)]), [("probe", 4)].into());
    assert_eq!(repeated(&[(false, probes), (false, probes)]), [("probe", 4)].into());
}

/// The response that the requester lacks is in the capture, however many requests it has answered since.
#[test]
fn a_response_that_is_lost_after_the_capture_point_is_named() {
    for count in [20, 60] {
        let mut wire = CaptureBuilder::new();
        (0..count).for_each(|psn| _ = wire.send(A, 2, Opcode::RC_SEND_ONLY, psn, 8));
        wire.ack(B, 1, count - 1);
        (0..count).for_each(|psn| _ = wire.send(A, 2, Opcode::RC_SEND_ONLY, psn, 8));
        assert_eq!(wire.report().losses.after_capture, 1, "{count}");
    }
}

/// The ACK timer expires between probes, of which there are as many after it as before.
#[test]
fn probes_after_a_timeout_are_not_timeouts() {
    let mut repeats: Vec<Repeat> = Vec::new();
    for round in 0..2 {
        repeats.extend((0..5).map(|probe| (1_000_000 << probe, &[0, 3][..])));
        if round == 0 {
            repeats.push((28_000_000, &[0, 1, 2, 3]));
        }
    }
    let counts = repeated(&[(false, &repeats)]);
    assert_eq!(counts, [("probe", 21), ("timeout", 1), ("retransmission", 3)].into());
    // Of a packet alone in flight, the waits are those of the probes and then of the timer.
    let mut wire = CaptureBuilder::new();
    wire.ack_request = true;
    wire.send(A, 2, Opcode::RC_SEND_ONLY, 0, 8);
    for wait in (0..6).map(|probe| 200_000 << probe).chain([54_000_000]) {
        wire.wait(wait);
        wire.send(A, 2, Opcode::RC_SEND_ONLY, 0, 8);
    }
    wire.ack(B, 1, 0);
    let counts = wire.report().anomaly_counts;
    assert_eq!(counts, [("probe", 6), ("timeout", 1), ("retransmission", 1)].into());
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
