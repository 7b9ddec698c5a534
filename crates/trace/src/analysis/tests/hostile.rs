//! Captures made to cost time or memory: the analysis must look at a bounded number of entries per packet, whatever the
//! packets say. Counted in [`FileReport::steps`], not in seconds.

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CommId, Message, Rep, Req};
use ferroce_wire::mad::TransactionId;
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::syndrome::{NakCode, Syndrome, SyndromeKind};

use super::wire::{A, B, Wire};
use crate::analysis::report::FileReport;
use crate::analysis::{Options, analyze};
use crate::render::sections::{self, LadderView, View};

/// Packets of each capture, in the second half of which every packet tries to be expensive.
const PACKETS: u32 = 12_000;

/// Entries that one packet may look at on average, beside a constant for the whole file.
const PER_PACKET: u64 = 48;
const PER_FILE: u64 = 1 << 18;

#[track_caller]
fn assert_linear(wire: Wire) -> FileReport {
    let report = wire.report();
    let FileReport { packets, steps, .. } = report;
    assert!(steps <= PER_PACKET * packets + PER_FILE, "{steps} steps for {packets} packets");
    assert!(steps >= packets, "every packet is counted");
    report
}

/// Requests that only a response of their own finishes, of which none comes; then one of them again and again, each
/// time with an acknowledgement of all.
fn unanswered(opcode: Opcode, again: impl Fn(u32) -> u32) -> Wire {
    let mut wire = Wire::new();
    let open = PACKETS / 2;
    for psn in 0..open {
        wire.send(A, 2, opcode, psn, 0);
    }
    wire.ack(B, 1, open - 1);
    for round in 0..PACKETS / 4 {
        // Too late for a copy made on the way: the requester sent it again.
        wire.wait(1_000_000);
        wire.send(A, 2, opcode, again(round), 0).ack(B, 1, open - 1);
    }
    wire
}

#[test]
fn unanswered_reads_sent_again_from_the_oldest() {
    assert_linear(unanswered(Opcode::RC_RDMA_READ_REQUEST, |_| 0));
}

#[test]
fn unanswered_reads_sent_again_one_by_one() {
    assert_linear(unanswered(Opcode::RC_RDMA_READ_REQUEST, |round| round));
}

#[test]
fn unanswered_reads_sent_again_backwards() {
    assert_linear(unanswered(Opcode::RC_RDMA_READ_REQUEST, |round| PACKETS / 2 - 1 - round));
}

#[test]
fn unanswered_atomics_sent_again() {
    assert_linear(unanswered(Opcode::RC_COMPARE_SWAP, |_| 0));
    assert_linear(unanswered(Opcode::RC_ATOMIC_WRITE, |round| round % 7));
}

/// One READ without an answer holds everything after it in the window.
#[test]
fn sends_behind_an_unanswered_read_sent_again() {
    let mut wire = Wire::new();
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
fn naks_and_responses_look_at_no_more_than_acknowledgements() {
    let mut wire = Wire::new();
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

/// Every second PSN first, the others after: each of them belongs into the middle of the window.
#[test]
fn gaps_filled_from_the_middle() {
    let mut wire = Wire::new();
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

/// Streams of requests that all wait for the same PSN, and answers that fit every one of them, or none.
#[test]
fn answers_that_fit_many_streams_or_none() {
    for psn in [5, 0x70_0000] {
        let mut wire = Wire::new();
        for qpn in 0..PACKETS / 2 {
            wire.send(A, 0x100 + qpn, Opcode::RC_SEND_ONLY, 5, 0);
        }
        for qpn in 0..PACKETS / 2 {
            wire.ack(B, 0x100 + qpn % 64, psn);
        }
        assert_linear(wire);
    }
}

/// Streams that are joined one by one, the oldest last.
#[test]
fn streams_joined_from_a_long_list() {
    let mut wire = Wire::new();
    for qpn in 0..PACKETS / 2 {
        wire.send(A, 0x10_0000 + qpn, Opcode::RC_SEND_ONLY, 100 * qpn, 0);
    }
    for qpn in (0..PACKETS / 2).rev() {
        wire.ack(B, 0x20_0000 + qpn, 100 * qpn);
    }
    let report = assert_linear(wire);
    // More than a few, or this capture would not be what it claims to be.
    assert!(report.conversations.len() < PACKETS as usize - 1_000);
}

#[test]
fn restarts_with_a_full_window() {
    let mut wire = Wire::new();
    for round in 0..PACKETS / 100 {
        for psn in 0..100 {
            let psn = (round % 2) * 0x80_0000 + psn;
            wire.send(A, 2, Opcode::RC_RDMA_READ_REQUEST, psn, 0);
        }
    }
    let report = assert_linear(wire);
    assert_eq!(report.anomaly_counts["restart"], u64::from(PACKETS / 100 - 1));
}

/// READs that each claim half the PSN space: sequences run away as fast as they can.
#[test]
fn reads_that_wrap_around() {
    let mut wire = Wire::new();
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

/// Times at both ends of what a file can say.
#[test]
fn times_that_jump_between_the_extremes() {
    let mut wire = Wire::new();
    for psn in 0..1_000 {
        wire.time = i64::from(psn % 2) * i64::from(u32::MAX) * 1_000_000_000;
        wire.send(A, 2, Opcode::RC_SEND_ONLY, psn / 2, 0).ack(B, 1, psn / 3);
    }
    assert_linear(wire);
}

/// The same in pcapng, whose interfaces may shift their times by any number of seconds.
#[test]
fn times_beyond_what_a_difference_holds() {
    let block = |kind: u32, body: &[u8]| {
        let length = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let frame = Wire::one_frame(A, 2, Opcode::RC_SEND_ONLY, 5);
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

fn management(wire: &mut Wire, from: [u8; 4], message: &Message, transaction: u64) {
    let mad = message.to_mad(TransactionId(transaction));
    wire.datagram(from, Qpn::GENERAL_SERVICES.0, &mad);
}

/// REQs without end, and REPs without end to one of them: every list of the tracker has a limit.
#[test]
fn floods_of_connection_requests_and_replies() {
    let mut wire = Wire::new();
    for id in 0..PACKETS {
        let req = Req {
            local_comm_id: CommId(id),
            local_qpn: Qpn(id),
            primary_local_gid: Gid::from_ip(A.into()),
            primary_remote_gid: Gid::from_ip(B.into()),
            ..Req::default()
        };
        management(&mut wire, A, &Message::Req(req), u64::from(id));
    }
    for id in 0..PACKETS {
        let rep = Rep {
            local_comm_id: CommId(id),
            remote_comm_id: CommId(PACKETS - 1),
            local_qpn: Qpn(id),
            ..Rep::default()
        };
        management(&mut wire, B, &Message::Rep(rep), u64::from(id));
    }
    let options = Options { max_cm: 100, max_conversations: 50, ..Options::default() };
    let report = wire.report_with(&options);
    assert_eq!((report.cm.len(), report.cm_omitted), (100, 2 * u64::from(PACKETS) - 100));
    assert!(report.steps <= PER_PACKET * report.packets + PER_FILE, "{} steps", report.steps);
}

/// One acknowledgement that leaves thousands of READs without a response: all notes stand on one packet of the ladder.
#[test]
fn one_packet_with_thousands_of_notes() {
    let mut wire = Wire::new();
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
