//! Captures crafted to cost time or memory: the analysis must visit a bounded number of entries per packet, counted in
//! [`FileReport::steps`].

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CmMessage, CommId, Rep, Req};
use ferroce_wire::mad::TransactionId;
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::syndrome::{NakCode, Syndrome, SyndromeKind};

use super::capture_builder::{A, B, CaptureBuilder};
use crate::analysis::report::FileReport;
use crate::analysis::{Options, analyze};
use crate::render::sections::{self, LadderView, View};

/// Packets of each capture; those of the second half are the expensive ones.
const PACKETS: u32 = 12_000;

/// Limit of entries visited per packet on average, plus a constant per file.
const PER_PACKET: u64 = 48;
const PER_FILE: u64 = 1 << 18;

#[track_caller]
fn assert_linear(wire: CaptureBuilder) -> FileReport {
    let report = wire.report();
    let FileReport { packets, steps, .. } = report;
    assert!(steps <= PER_PACKET * packets + PER_FILE, "{steps} steps for {packets} packets");
    assert!(steps >= packets, "every packet is counted");
    report
}

/// Requests that only their own response completes, without any response; then repeated retransmissions of one of them,
/// each followed by an acknowledgement of all.
fn without_responses(opcode: Opcode, retransmitted: impl Fn(u32) -> u32) -> CaptureBuilder {
    let mut wire = CaptureBuilder::new();
    let open = PACKETS / 2;
    for psn in 0..open {
        wire.send(A, 2, opcode, psn, 0);
    }
    wire.ack(B, 1, open - 1);
    for round in 0..PACKETS / 4 {
        // Too late for a duplicate: classified as a retransmission.
        wire.wait(1_000_000);
        wire.send(A, 2, opcode, retransmitted(round), 0).ack(B, 1, open - 1);
    }
    wire
}

#[test]
fn reads_without_response_retransmitted_from_the_oldest() {
    assert_linear(without_responses(Opcode::RC_RDMA_READ_REQUEST, |_| 0));
}

#[test]
fn reads_without_response_retransmitted_one_by_one() {
    assert_linear(without_responses(Opcode::RC_RDMA_READ_REQUEST, |round| round));
}

#[test]
fn reads_without_response_retransmitted_backwards() {
    assert_linear(without_responses(Opcode::RC_RDMA_READ_REQUEST, |round| PACKETS / 2 - 1 - round));
}

#[test]
fn atomics_without_response_retransmitted() {
    assert_linear(without_responses(Opcode::RC_COMPARE_SWAP, |_| 0));
    assert_linear(without_responses(Opcode::RC_ATOMIC_WRITE, |round| round % 7));
}

/// A READ without a response keeps everything after it in the window.
#[test]
fn sends_after_a_read_without_response_retransmitted() {
    let mut wire = CaptureBuilder::new();
    let open = PACKETS / 2;
    wire.send(A, 2, Opcode::RC_RDMA_READ_REQUEST, 0, 0);
    for psn in 1..open {
        wire.send(A, 2, Opcode::RC_SEND_ONLY, psn, 0);
    }
    wire.ack(B, 1, open - 1);
    for _ in 0..PACKETS / 4 {
        wire.wait(1_000_000);
        wire.send(A, 2, Opcode::RC_SEND_ONLY, 1, 0).ack(B, 1, open - 1);
    }
    assert_linear(wire);
}

#[test]
fn naks_and_responses_visit_no_more_than_acknowledgements() {
    let mut wire = CaptureBuilder::new();
    let open = PACKETS / 2;
    for psn in 0..open {
        wire.send(A, 2, Opcode::RC_RDMA_READ_REQUEST, psn, 0);
    }
    let nak = Syndrome::from(SyndromeKind::Nak(NakCode::PsnSequenceError));
    for round in 0..PACKETS / 6 {
        wire.wait(1_000_000);
        wire.send(A, 2, Opcode::RC_RDMA_READ_REQUEST, 0, 0)
            .send_with(B, 1, Opcode::RC_ACKNOWLEDGE, open - 1, 0, |headers| {
                headers.aeth = headers
                    .aeth
                    .map(|aeth| ferroce_wire::transport::Aeth { syndrome: nak, ..aeth });
            })
            .send(B, 1, Opcode::RC_RDMA_READ_RESPONSE_ONLY, open - 1 - round % 2, 0);
    }
    assert_linear(wire);
}

/// Every second PSN first, then the others, each of which goes to the middle of the window.
#[test]
fn gaps_filled_from_the_middle() {
    let mut wire = CaptureBuilder::new();
    for at in 0..PACKETS / 2 {
        wire.send(A, 2, Opcode::RC_RDMA_READ_REQUEST, 2 * at, 0);
    }
    for at in 0..PACKETS / 2 {
        let at = if at % 2 == 0 { at / 2 } else { PACKETS / 2 - 1 - at / 2 };
        wire.send(A, 2, Opcode::RC_RDMA_READ_REQUEST, 2 * at + 1, 0);
    }
    wire.ack(B, 1, PACKETS - 1);
    assert_linear(wire);
}

/// Streams of requests with the same PSN, and responses that match all of them or none.
#[test]
fn responses_that_match_many_streams_or_none() {
    for psn in [5, 0x70_0000] {
        let mut wire = CaptureBuilder::new();
        for qpn in 0..PACKETS / 2 {
            wire.send(A, 0x100 + qpn, Opcode::RC_SEND_ONLY, 5, 0);
        }
        for qpn in 0..PACKETS / 2 {
            wire.ack(B, 0x100 + qpn % 64, psn);
        }
        assert_linear(wire);
    }
}

/// Streams merged one by one, the oldest last.
#[test]
fn streams_merged_from_a_long_list() {
    let mut wire = CaptureBuilder::new();
    for qpn in 0..PACKETS / 2 {
        wire.send(A, 0x10_0000 + qpn, Opcode::RC_SEND_ONLY, 100 * qpn, 0);
    }
    for qpn in (0..PACKETS / 2).rev() {
        wire.ack(B, 0x20_0000 + qpn, 100 * qpn);
    }
    let report = assert_linear(wire);
    // Many streams must have been merged for this test to be meaningful.
    assert!(report.conversations.len() < PACKETS as usize - 1_000);
}

#[test]
fn restarts_with_a_full_window() {
    let mut wire = CaptureBuilder::new();
    for round in 0..PACKETS / 100 {
        for psn in 0..100 {
            let psn = (round % 2) * 0x80_0000 + psn;
            wire.send(A, 2, Opcode::RC_RDMA_READ_REQUEST, psn, 0);
        }
    }
    let report = assert_linear(wire);
    assert_eq!(report.anomaly_counts["restart"], u64::from(PACKETS / 100 - 1));
}

/// READs that each consume half the PSN space, to advance sequence numbers as fast as possible.
#[test]
fn reads_that_wrap_around() {
    let mut wire = CaptureBuilder::new();
    wire.send(A, 2, Opcode::RC_SEND_FIRST, 0, 256);
    let mut psn = 1_u32;
    for round in 0..PACKETS / 2 {
        let length = [0x4000_0000_u32, 0xffff_ffff, 0x8000_0000, 1][round as usize % 4];
        wire.send_with(A, 2, Opcode::RC_RDMA_READ_REQUEST, psn & 0xff_ffff, 0, |headers| {
            headers.reth =
                headers.reth.map(|reth| ferroce_wire::transport::Reth { length, ..reth });
        });
        wire.ack(B, 1, psn & 0xff_ffff);
        psn = psn.wrapping_add(length.div_ceil(256));
    }
    assert_linear(wire);
}

/// Timestamps at both ends of the representable range.
#[test]
fn timestamps_that_jump_between_the_extremes() {
    let mut wire = CaptureBuilder::new();
    for psn in 0..1_000 {
        wire.time = i64::from(psn % 2) * i64::from(u32::MAX) * 1_000_000_000;
        wire.send(A, 2, Opcode::RC_SEND_ONLY, psn / 2, 0).ack(B, 1, psn / 3);
    }
    assert_linear(wire);
}

/// The same in pcapng, whose interfaces may shift their timestamps by any number of seconds.
#[test]
fn timestamps_whose_difference_overflows() {
    let block = |kind: u32, body: &[u8]| {
        let length = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let frame = CaptureBuilder::one_frame(A, 2, Opcode::RC_SEND_ONLY, 5);
    let mut file = block(
        0x0a0d_0d0a,
        &[&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat(),
    );
    for offset in [-9_000_000_000_i64, 9_000_000_000, 0] {
        // LINKTYPE_ETHERNET, no snap length; option 14 is if_tsoffset.
        let body =
            [&[1, 0, 0, 0, 0, 0, 0, 0, 14, 0, 8, 0][..], &offset.to_le_bytes(), &[0; 4]].concat();
        file.extend(block(1, &body));
    }
    let length = frame.len() as u32;
    let padded = [&frame[..], &[0; 3][..frame.len().wrapping_neg() % 4]].concat();
    for round in 0..300_u32 {
        let head = [[2, 0, 1][round as usize % 3], 0, 0, length, length].map(u32::to_le_bytes);
        file.extend(block(6, &[&head.concat()[..], &padded].concat()));
    }
    let report = analyze("extremes", &*file, &Options::default(), &mut |_| ());
    assert_eq!((report.packets, report.icrc.ok), (300, 300));
    assert!(report.steps <= PER_PACKET * report.packets + PER_FILE);
}

fn management(wire: &mut CaptureBuilder, from: [u8; 4], message: &CmMessage, transaction: u64) {
    let mad = message.to_mad(TransactionId(transaction));
    wire.datagram(from, Qpn::GENERAL_SERVICES.0, &mad);
}

/// Floods of REQs, and of REPs to one of them: every table of the tracker is bounded.
#[test]
fn floods_of_connection_requests_and_replies() {
    let mut wire = CaptureBuilder::new();
    for id in 0..PACKETS {
        let req = Req {
            local_comm_id: CommId(id),
            local_qpn: Qpn(id),
            primary_local_gid: Gid::from_ip(A.into()),
            primary_remote_gid: Gid::from_ip(B.into()),
            ..Req::default()
        };
        management(&mut wire, A, &CmMessage::Req(req), u64::from(id));
    }
    for id in 0..PACKETS {
        let rep = Rep {
            local_comm_id: CommId(id),
            remote_comm_id: CommId(PACKETS - 1),
            local_qpn: Qpn(id),
            ..Rep::default()
        };
        management(&mut wire, B, &CmMessage::Rep(rep), u64::from(id));
    }
    let options = Options { max_cm: 100, max_conversations: 50, ..Options::default() };
    let report = wire.report_with(&options);
    assert_eq!((report.cm.len(), report.cm_omitted), (100, 2 * u64::from(PACKETS) - 100));
    assert!(report.steps <= PER_PACKET * report.packets + PER_FILE, "{} steps", report.steps);
}

/// One acknowledgement that skips thousands of READs: all notes are on one packet of the ladder.
#[test]
fn one_packet_with_thousands_of_notes() {
    let mut wire = CaptureBuilder::new();
    for psn in 0..5_000 {
        wire.send(A, 2, Opcode::RC_RDMA_READ_REQUEST, psn, 0);
    }
    wire.ack(B, 1, 4_999);
    let options = Options { packet_list: true, max_anomalies: 1_000, ..Options::default() };
    let report = wire.report_with(&options);
    let view = View {
        columns: 100,
        all: true,
        ladder: Some(LadderView { conversation: Some(1), rows: None }),
        ..View::default()
    };
    let lines = sections::report(&report, &view);
    let noted = lines.iter().filter(|line| line.to_string().contains("is not in the capture"));
    assert!(noted.count() >= 5_000);
}
