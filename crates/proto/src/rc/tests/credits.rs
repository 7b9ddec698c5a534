//! End-to-end flow control (IBA 9.7.7.2).

use ferroce_wire::number::Msn;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::syndrome::{Credits, SyndromeKind};
use ferroce_wire::transport::{Aeth, Bth};

use super::helpers::{REMOTE_OFFSET, clean, deliver, read, request, statuses};
use super::pair::{Faults, Pair};
use crate::congestion::{Congestion, cost};
use crate::work::{Operation, Status};

#[test]
fn credits_limit_requests_that_consume_a_receive() {
    let mut pair = clean(256);
    let psn = pair.hosts[0].qp.config().send_psn;
    for id in 0..4 {
        pair.post_receive(1, id, REMOTE_OFFSET, 8);
        pair.hosts[0].qp.post_send(request(id, Operation::SEND, 8)).unwrap();
    }
    // The first is sent, and its ACK has credit for one more.
    let first = pair.hosts[0].poll(pair.now).unwrap().bth.psn;
    assert_eq!(first, psn);
    let credits = SyndromeKind::Ack(Credits::from_code(1).unwrap()).into();
    let extensions = ExtensionHeaders {
        aeth: Some(Aeth { syndrome: credits, msn: Msn(1) }),
        ..Default::default()
    };
    let bth = Bth { opcode: Opcode::RC_ACKNOWLEDGE, psn, ..Bth::default() };
    deliver(&mut pair, 0, bth, extensions, &[]);
    let mut sent = 0;
    while pair.hosts[0].poll(pair.now).is_some() {
        sent += 1;
    }
    assert_eq!(sent, 1);
}

/// A long READ is several requests on the wire, and the responder counts each as a message: its MSN runs ahead of the
/// work requests, and so must the SSNs that credits are compared with.
#[test]
fn chunks_of_a_read_count_as_messages() {
    let mut pair = Pair::with(1, Faults::default(), 256, |config| {
        config.congestion = Congestion::Window(8 * cost(256, 1));
    });
    let psn = pair.hosts[0].qp.config().send_psn;
    // Five chunks of four packets.
    pair.hosts[0].qp.post_send(read(0, 20 * 256)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(0, Status::Success)]);
    let (_, last) = pair.log.iter().rev().find(|(side, _)| *side == 1).unwrap();
    let msn = Packet::parse(last).unwrap().extensions.aeth.unwrap().msn;
    assert_eq!(msn, Msn(5));
    for id in 1..5 {
        pair.hosts[0].qp.post_send(request(id, Operation::SEND, 8)).unwrap();
    }
    // The ACK of the first SEND has credit for one more.
    assert_eq!(pair.hosts[0].poll(pair.now).unwrap().bth.psn, psn.add(20));
    let credits = SyndromeKind::Ack(Credits::from_code(1).unwrap()).into();
    let aeth = Some(Aeth { syndrome: credits, msn: Msn(6) });
    let extensions = ExtensionHeaders { aeth, ..Default::default() };
    let bth = Bth { opcode: Opcode::RC_ACKNOWLEDGE, psn: psn.add(20), ..Bth::default() };
    deliver(&mut pair, 0, bth, extensions, &[]);
    let mut sent = 0;
    while pair.hosts[0].poll(pair.now).is_some() {
        sent += 1;
    }
    assert_eq!(sent, 1);
}
