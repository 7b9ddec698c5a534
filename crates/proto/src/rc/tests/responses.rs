//! Invalid responses, responses that cannot be sent, and duplicate requests.

use ferroce_wire::number::{Msn, Psn, Word};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::syndrome::{NakCode, Syndrome, SyndromeKind};
use ferroce_wire::transport::{Aeth, AtomicAckEth, Bth, FlushPlacement, FlushSelectivity};

use super::helpers::{
    REMOTE_OFFSET, clean, deliver, opcodes, read, remote, request, statuses, syndromes, write,
};
use super::pair::{Faults, Pair};
use crate::memory::AccessFlags;
use crate::rc::Fault;
use crate::work::{Operation, SendRequest, Status};

/// One request in flight on side 0, and a forged response to its packet `index`.
fn respond(
    request: SendRequest,
    index: u32,
    opcode: Opcode,
    syndrome: Option<Syndrome>,
    payload: &[u8],
) -> Pair {
    let mut pair = clean(256);
    let psn = pair.hosts[0].qp.config().send_psn;
    pair.hosts[0].qp.post_send(request).unwrap();
    while pair.hosts[0].poll(pair.now).is_some() {}
    let aeth = syndrome.map(|syndrome| Aeth { syndrome, msn: Msn(1) });
    let atomic = matches!(opcode, Opcode::RC_ATOMIC_ACKNOWLEDGE);
    let atomic_ack = atomic.then_some(AtomicAckEth { original: Word(5) });
    let extensions = ExtensionHeaders { aeth, atomic_ack, ..Default::default() };
    let bth = Bth { opcode, psn: Psn::new(psn.0 + index), ..Bth::default() };
    deliver(&mut pair, 0, bth, extensions, payload);
    pair.drain();
    pair
}

fn add(id: u64) -> SendRequest {
    request(id, Operation::FetchAdd { remote: remote(REMOTE_OFFSET), add: 1 }, 8)
}

#[test]
fn a_response_of_the_wrong_kind_is_a_bad_response() {
    let ack = Some(Syndrome::ACK);
    let nak = Some(Syndrome::from(SyndromeKind::Nak(NakCode::RemoteAccessError)));
    let whole = [7; 256];
    for (what, pair) in [
        (
            "a READ answered as an atomic",
            respond(read(1, 8), 0, Opcode::RC_ATOMIC_ACKNOWLEDGE, ack, &[]),
        ),
        (
            "an atomic answered as a READ",
            respond(add(1), 0, Opcode::RC_RDMA_READ_RESPONSE_ONLY, ack, &[0; 8]),
        ),
        (
            "a refusal in an atomic's answer",
            respond(add(1), 0, Opcode::RC_ATOMIC_ACKNOWLEDGE, nak, &[]),
        ),
        (
            "a READ answered by too many bytes",
            respond(read(1, 8), 0, Opcode::RC_RDMA_READ_RESPONSE_ONLY, ack, &[0; 12]),
        ),
        (
            "a READ that ends too early",
            respond(read(1, 512), 0, Opcode::RC_RDMA_READ_RESPONSE_ONLY, ack, &whole),
        ),
        (
            "a READ that does not end",
            respond(read(1, 256), 0, Opcode::RC_RDMA_READ_RESPONSE_FIRST, ack, &whole),
        ),
        (
            "a WRITE answered as a READ",
            respond(write(1, 8), 0, Opcode::RC_RDMA_READ_RESPONSE_ONLY, ack, &[]),
        ),
    ] {
        assert_eq!(statuses(&pair), [(1, Status::BadResponse)], "{what}");
        assert_eq!(pair.hosts[0].qp.fault(), Some(Fault::Requester), "{what}");
    }
}

#[test]
fn ignores_reserved_syndromes() {
    // 0b01100000: a reserved class.
    let reserved = Some(Syndrome(0x60));
    let mut pair = respond(write(1, 8), 0, Opcode::RC_ACKNOWLEDGE, reserved, &[]);
    assert_eq!(statuses(&pair), []);
    assert_eq!(pair.hosts[0].qp.fault(), None);
    pair.run();
    assert_eq!(statuses(&pair).len(), 1, "what was never answered is sent again");
}

#[test]
fn naks_a_read_whose_memory_was_deregistered() {
    let mut pair = clean(256);
    pair.hosts[0].qp.post_send(read(1, 2000)).unwrap();
    pair.drain();
    pair.step();
    // The request passed its checks; its response cannot be sent.
    pair.hosts[1].memory.valid = false;
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RemoteAccess)]);
    assert_eq!(syndromes(&pair), [SyndromeKind::Nak(NakCode::RemoteAccessError)]);
    assert_eq!(pair.hosts[1].qp.refusal(), Some(NakCode::RemoteAccessError));
}

#[test]
fn responds_to_duplicate_flush_and_atomic_write() {
    for lost in [1, 2] {
        let mut pair = Pair::with(1, Faults::default(), 256, |config| {
            config.access |= AccessFlags::FLUSH_GLOBAL;
        });
        pair.hosts[1].memory.access |= AccessFlags::FLUSH_GLOBAL;
        pair.lost = [lost].into();
        let flush = Operation::Flush {
            remote: remote(REMOTE_OFFSET),
            length: 64,
            selectivity: FlushSelectivity(0),
            placement: FlushPlacement(1),
        };
        pair.hosts[0].qp.post_send(request(1, flush, 0)).unwrap();
        pair.run();
        let atomic_write = Operation::AtomicWrite { remote: remote(REMOTE_OFFSET) };
        pair.hosts[0].qp.post_send(request(2, atomic_write, 8)).unwrap();
        pair.run();
        assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)], "lost {lost}");
        assert_eq!(pair.hosts[1].memory.part(REMOTE_OFFSET, 8), pair.hosts[0].memory.part(0, 8));
        let answers = opcodes(&pair, 1);
        assert!(answers.iter().all(|one| *one == Opcode::RC_RDMA_READ_RESPONSE_ONLY));
    }
}

#[test]
fn err_flushes_the_receive_queue() {
    let mut pair = clean(256);
    (0..3).for_each(|id| pair.post_receive(0, id, REMOTE_OFFSET, 8));
    let host = &mut pair.hosts[0];
    host.qp.handle_error();
    host.qp.flush_receives(&mut host.receives);
    pair.drain();
    let ended = pair.hosts[0].received.iter().map(|one| (one.id.0, one.status));
    assert!(ended.eq((0..3).map(|id| (id, Status::Flushed))));
}
