//! Packets that are late, not lost; and datagrams that are lost, or went elsewhere.

use std::collections::BTreeMap;

use ferroce_wire::number::{Msn, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::syndrome::{NakCode, Syndrome, SyndromeKind};
use ferroce_wire::transport::{Aeth, Deth};

use super::capture_builder::{A, B, CaptureBuilder};

type Counts = BTreeMap<&'static str, u64>;

#[test]
fn a_gap_that_late_packets_fill_is_no_loss() {
    for (opcode, kind) in
        [(Opcode::UC_SEND_ONLY, "message_lost"), (Opcode::RC_SEND_ONLY, "missing_request")]
    {
        let counts = |psns: &[u32]| {
            let mut wire = CaptureBuilder::new();
            for &psn in psns {
                wire.send(A, 2, opcode, psn, 8);
            }
            let report = wire.report();
            let listed = report.anomalies.iter().filter(|anomaly| anomaly.kind.name() == kind);
            assert_eq!(listed.count() as u64, report.anomaly_counts.get(kind).map_or(0, |it| *it));
            report.anomaly_counts
        };
        assert_eq!(counts(&[5, 6, 9, 8, 7, 10]), [("reordered", 2)].into());
        // The PSNs wrap within the gap.
        assert_eq!(counts(&[0xff_fffe, 1, 0xff_ffff, 0, 2]), [("reordered", 2)].into());
        assert_eq!(counts(&[5, 6, 9, 8, 10]), [(kind, 1), ("reordered", 1)].into());
        assert_eq!(counts(&[5, 6, 9, 10]), [(kind, 1)].into());
    }
}

/// After a silence, a requester repeats its oldest packet, which the capture does not have, and asks for an acknowledgement.
#[test]
fn a_lost_packet_that_is_probed_is_not_late() {
    let counts = |silence: i64| {
        let mut wire = CaptureBuilder::new();
        for psn in [5, 6, 8, 9] {
            wire.send(A, 2, Opcode::RC_SEND_ONLY, psn, 8);
        }
        wire.ack(B, 1, 6);
        wire.wait(silence);
        wire.ack_request = true;
        wire.send(A, 2, Opcode::RC_SEND_ONLY, 7, 8).send(A, 2, Opcode::RC_SEND_ONLY, 9, 8);
        let report = wire.report();
        (report.anomaly_counts.get("reordered").copied(), report.losses.total())
    };
    assert_eq!(counts(0), (Some(1), 0));
    assert_eq!(counts(190_000), (None, 1));
}

/// Packets 5 to 9 without 7, and NAKs for it, each followed by packets that are repeated after a wait in nanoseconds. Those
/// with `true` ask for an ACK.
fn repeated_after_naks(repeats: &[&[(i64, u32, bool)]]) -> Counts {
    let nak = |extensions: &mut ExtensionHeaders| {
        let syndrome = SyndromeKind::Nak(NakCode::PsnSequenceError).into();
        extensions.aeth = Some(Aeth { syndrome, msn: Msn(0) });
    };
    let mut wire = CaptureBuilder::new();
    for psn in [5, 6, 8, 9] {
        wire.send(A, 2, Opcode::RC_SEND_ONLY, psn, 8);
    }
    for repeats in repeats {
        wire.send_with(B, 1, Opcode::RC_ACKNOWLEDGE, 7, 0, nak);
        for &(wait, psn, asks) in *repeats {
            wire.wait(wait);
            wire.ack_request = asks;
            wire.send(A, 2, Opcode::RC_SEND_ONLY, psn, 8);
        }
    }
    wire.ack(B, 1, 9);
    wire.report().anomaly_counts
}

/// A requester without credit asks for an ACK with its newest packet, before it reads the NAK.
#[test]
fn a_packet_that_is_requested_again_is_not_late_after_another() {
    let counts =
        repeated_after_naks(&[&[(0, 9, true), (0, 7, false), (0, 8, false), (0, 9, true)]]);
    let expected = [("missing_request", 1), ("nak_sequence", 1)];
    let expected: Counts =
        expected.into_iter().chain([("probe", 1), ("retransmission", 3)]).collect();
    assert_eq!(counts, expected);
    // Or with the one that was lost.
    let counts =
        repeated_after_naks(&[&[(0, 7, false), (0, 7, true), (0, 8, false), (0, 9, true)]]);
    assert_eq!(counts, expected);
}

/// The requester goes back, the packet is lost again, and a probe repeats it.
#[test]
fn a_packet_that_is_lost_twice_is_not_late() {
    let probed = [(0, 8, false), (0, 9, true), (90_000, 7, true), (0, 9, true)];
    let expected = [("missing_request", 1), ("nak_sequence", 1), ("retransmission", 2)];
    assert_eq!(
        repeated_after_naks(&[&probed]),
        expected.into_iter().chain([("probe", 2)]).collect()
    );
    // The newest packet may be all that arrives of what was repeated.
    let probed = [(0, 9, true), (90_000, 7, true), (0, 9, true)];
    let counts = repeated_after_naks(&[&probed]);
    assert_eq!((counts.get("reordered"), counts.get("duplicate")), (None, None), "{counts:?}");
    assert_eq!(counts["missing_request"], 1, "{counts:?}");
    // It arrives, is lost after the capture point, and requested again while the requester asks for an ACK.
    let again = [(0, 8, true), (0, 7, false), (0, 8, false), (0, 9, true)];
    let counts = repeated_after_naks(&[&[(0, 7, false), (0, 8, false)], &again]);
    assert_eq!((counts.get("reordered"), counts.get("duplicate")), (None, None), "{counts:?}");
}

/// Why a requester goes back is not in the capture if the response that made it do so was lost.
#[test]
fn lost_packets_that_are_repeated_among_others_are_not_late() {
    let counts = |first: &[u32], repeated: &[u32]| {
        let mut wire = CaptureBuilder::new();
        for psn in first.iter().chain(repeated) {
            wire.send(A, 2, Opcode::RC_SEND_ONLY, *psn, 8);
        }
        wire.report().anomaly_counts
    };
    let once = counts(&[5, 6, 8, 10, 11], &[6, 7, 8, 9, 10, 11]);
    assert_eq!(once, [("missing_request", 2), ("probe", 1), ("retransmission", 5)].into());
    let twice = counts(&[5, 6, 8, 9], &[6, 7, 8, 9, 6, 7, 8, 9]);
    assert_eq!(twice, [("missing_request", 1), ("probe", 2), ("retransmission", 6)].into());
}

/// The note of a packet goes with the anomaly.
#[test]
fn a_packet_keeps_no_note_of_a_loss_that_was_none() {
    let mut wire = CaptureBuilder::new();
    for psn in [5, 7, 6, 8] {
        wire.send(A, 2, Opcode::UC_SEND_ONLY, psn, 8);
    }
    let options = crate::analysis::Options { packet_list: true, ..Default::default() };
    let report = wire.report_with(&options);
    let notes: Vec<_> = report.packet_list.iter().map(|row| row.notes.len()).collect();
    assert_eq!(notes, [0, 0, 1, 0]);
}

fn response(msn: u32) -> impl FnOnce(&mut ExtensionHeaders) {
    move |extensions| extensions.aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: Msn(msn) })
}

/// Three atomics, and the responses to them in this order: PSN and MSN.
fn atomics(responses: &[(u32, u32)]) -> Counts {
    let mut wire = CaptureBuilder::new();
    for psn in 0..3 {
        wire.send(A, 2, Opcode::RC_FETCH_ADD, psn, 0);
    }
    for &(psn, msn) in responses {
        wire.send_with(B, 1, Opcode::RC_ATOMIC_ACKNOWLEDGE, psn, 0, response(msn));
    }
    wire.report().anomaly_counts
}

#[test]
fn a_response_that_was_overtaken_is_late() {
    assert_eq!(atomics(&[(0, 1), (1, 2), (2, 3)]), [].into());
    assert_eq!(atomics(&[(0, 1), (2, 3), (1, 2)]), [("reordered", 1)].into());
    assert_eq!(atomics(&[(0, 1), (2, 3)]), [("missing_response", 1)].into());
    // A copy of an earlier response, which arrived in order.
    let copied = atomics(&[(0, 1), (1, 2), (2, 3), (1, 2)]);
    assert_eq!(copied, [("repeated_response", 1)].into());
}

/// A READ whose second response of three is not there when the third is; then the READ is repeated.
fn read(rest: &[u32]) -> Counts {
    let mut wire = CaptureBuilder::new();
    let length = |extensions: &mut ExtensionHeaders| {
        extensions.reth =
            extensions.reth.map(|reth| ferroce_wire::transport::Reth { length: 768, ..reth });
    };
    wire.send(A, 2, Opcode::RC_SEND_FIRST, 0, 256).send(A, 2, Opcode::RC_SEND_LAST, 1, 8);
    wire.ack(B, 1, 1);
    wire.send_with(A, 2, Opcode::RC_RDMA_READ_REQUEST, 2, 0, length);
    let respond = |wire: &mut CaptureBuilder, psn: u32| {
        let opcode = match psn {
            2 => Opcode::RC_RDMA_READ_RESPONSE_FIRST,
            3 => Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
            _ => Opcode::RC_RDMA_READ_RESPONSE_LAST,
        };
        wire.send_with(B, 1, opcode, psn, 256, response(2));
    };
    respond(&mut wire, 2);
    respond(&mut wire, 4);
    wire.send_with(A, 2, Opcode::RC_RDMA_READ_REQUEST, 2, 0, length);
    rest.iter().for_each(|&psn| respond(&mut wire, psn));
    wire.report().anomaly_counts
}

#[test]
fn a_response_that_arrives_as_often_as_it_was_requested_is_late() {
    assert_eq!(read(&[2, 3, 4]).get("missing_response"), Some(&1));
    assert_eq!(read(&[2, 3, 4]).get("reordered"), None);
    for late in [&[3, 2, 3, 4][..], &[2, 3, 4, 3]] {
        let counts = read(late);
        assert_eq!(counts.get("missing_response"), None, "{late:?}: {counts:?}");
        assert_eq!(counts.get("reordered"), Some(&1), "{late:?}: {counts:?}");
    }
}

/// A requester that others still answer has not given up, even if one of its responses is missing.
#[test]
fn a_requester_that_is_answered_has_not_given_up() {
    let nak = |extensions: &mut ExtensionHeaders| {
        let syndrome = SyndromeKind::Nak(NakCode::PsnSequenceError).into();
        extensions.aeth = Some(Aeth { syndrome, msn: Msn(0) });
    };
    let counts = |answered: bool| {
        let mut wire = CaptureBuilder::new();
        wire.send(A, 2, Opcode::RC_FETCH_ADD, 0, 0).send(A, 2, Opcode::RC_SEND_ONLY, 1, 8);
        wire.send_with(B, 1, Opcode::RC_ACKNOWLEDGE, 0, 0, nak);
        wire.send(A, 2, Opcode::RC_FETCH_ADD, 0, 0).send(A, 2, Opcode::RC_SEND_ONLY, 1, 8);
        if answered {
            wire.ack(B, 1, 1);
        }
        wire.report().anomaly_counts
    };
    assert_eq!(counts(true).get("retry_exceeded"), None);
    assert_eq!(counts(false).get("retry_exceeded"), Some(&1));
}

/// Datagrams of one queue pair with these PSNs, each to queue pair 2 or 3.
fn datagrams(psns: impl IntoIterator<Item = u32>, receivers: u32) -> Counts {
    let mut wire = CaptureBuilder::new();
    for psn in psns {
        let source = |extensions: &mut ExtensionHeaders| {
            extensions.deth = Some(Deth { source: Qpn(0x99), ..Deth::default() });
        };
        wire.send_with(A, 2 + psn % receivers, Opcode::UD_SEND_ONLY, psn, 8, source);
    }
    wire.report().anomaly_counts
}

#[test]
fn a_missing_datagram_is_lost() {
    for receivers in [1, 2] {
        assert_eq!(datagrams(0..20, receivers), [].into());
        let lost = datagrams((0..20).filter(|psn| *psn != 9), receivers);
        assert_eq!(lost, [("message_lost", 1)].into(), "{receivers}");
    }
    let wrapped = (0xff_fff8..0x100_0008_u32).filter(|psn| *psn != 0x100_0000);
    assert_eq!(datagrams(wrapped.map(|psn| psn & 0xff_ffff), 1), [("message_lost", 1)].into());
    let late = datagrams((0..9).chain([10, 11, 9]).chain(12..20), 1);
    assert_eq!(late, [("reordered", 1)].into());
}

/// The capture has one of the receivers of a queue pair, which take turns or get a few datagrams each.
#[test]
fn datagrams_to_other_receivers_are_not_lost() {
    for turn in [1, 4, 16, 100] {
        for receivers in [2, 3, 10] {
            let own = (0..3000).filter(|psn| psn / turn % receivers == 0);
            assert_eq!(datagrams(own, 1), [].into(), "{turn} {receivers}");
        }
    }
    // Too few to tell.
    assert_eq!(datagrams([1, 2, 3, 5], 1), [].into());
    // Another sequence.
    assert_eq!(datagrams((0..20).chain(70_000..70_020).chain(5..25), 1), [].into());
}
