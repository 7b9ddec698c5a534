//! Answers that do not fit, answers that cannot be given, and requests that are asked again.

use ferroce_wire::number::{Msn, Psn, Word};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::syndrome::{NakCode, Syndrome, SyndromeKind};
use ferroce_wire::transport::{Aeth, AtomicAckEth, Bth, FlushPlacement, FlushSelectivity};

use super::pair::{Faults, Pair};
use super::telling::{
    FAR, clean, deliver, opcodes, read, remote, request, statuses, syndromes, write,
};
use crate::memory::AccessFlags;
use crate::rc::Fault;
use crate::work::{Operation, SendRequest, Status};

/// One request under way on side 0, and an answer to its packet number `index` made by hand.
fn answered(
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
    request(id, Operation::FetchAdd { remote: remote(FAR), add: 1 }, 8)
}

#[test]
fn an_answer_of_another_kind_is_a_bad_response() {
    let ack = Some(Syndrome::ACK);
    let nak = Some(Syndrome::from(SyndromeKind::Nak(NakCode::RemoteAccessError)));
    let whole = [7; 256];
    for (what, pair) in [
        (
            "a READ answered as an atomic",
            answered(read(1, 8), 0, Opcode::RC_ATOMIC_ACKNOWLEDGE, ack, &[]),
        ),
        (
            "an atomic answered as a READ",
            answered(add(1), 0, Opcode::RC_RDMA_READ_RESPONSE_ONLY, ack, &[0; 8]),
        ),
        (
            "a refusal in an atomic's answer",
            answered(add(1), 0, Opcode::RC_ATOMIC_ACKNOWLEDGE, nak, &[]),
        ),
        (
            "a READ answered by too many bytes",
            answered(read(1, 8), 0, Opcode::RC_RDMA_READ_RESPONSE_ONLY, ack, &[0; 12]),
        ),
        (
            "a READ that ends too early",
            answered(read(1, 512), 0, Opcode::RC_RDMA_READ_RESPONSE_ONLY, ack, &whole),
        ),
        (
            "a READ that does not end",
            answered(read(1, 256), 0, Opcode::RC_RDMA_READ_RESPONSE_FIRST, ack, &whole),
        ),
        (
            "a WRITE answered as a READ",
            answered(write(1, 8), 0, Opcode::RC_RDMA_READ_RESPONSE_ONLY, ack, &[]),
        ),
    ] {
        assert_eq!(statuses(&pair), [(1, Status::BadResponse)], "{what}");
        assert_eq!(pair.hosts[0].qp.fault(), Some(Fault::Requester), "{what}");
    }
}

#[test]
fn a_reserved_syndrome_is_no_answer() {
    // 0b01100000: a class that the specification keeps for later.
    let reserved = Some(Syndrome(0x60));
    let mut pair = answered(write(1, 8), 0, Opcode::RC_ACKNOWLEDGE, reserved, &[]);
    assert_eq!(statuses(&pair), []);
    assert_eq!(pair.hosts[0].qp.fault(), None);
    pair.run();
    assert_eq!(statuses(&pair).len(), 1, "what was never answered is sent again");
}

#[test]
fn memory_that_goes_away_under_a_read_is_a_refusal() {
    let mut pair = clean(256);
    pair.hosts[0].qp.post_send(read(1, 2000)).unwrap();
    pair.drain();
    pair.step();
    // The request was checked and accepted; its answer cannot be given.
    pair.hosts[1].memory.valid = false;
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RemoteAccess)]);
    assert_eq!(syndromes(&pair), [SyndromeKind::Nak(NakCode::RemoteAccessError)]);
    assert_eq!(pair.hosts[1].qp.refusal(), Some(NakCode::RemoteAccessError));
}

#[test]
fn flush_and_atomic_write_are_answered_again() {
    for lost in [1, 2] {
        let mut pair = Pair::with(1, Faults::default(), 256, |config| {
            config.access |= AccessFlags::FLUSH_GLOBAL;
        });
        pair.hosts[1].memory.access |= AccessFlags::FLUSH_GLOBAL;
        pair.lost = [lost].into();
        let flush = Operation::Flush {
            remote: remote(FAR),
            length: 64,
            selectivity: FlushSelectivity(0),
            placement: FlushPlacement(1),
        };
        pair.hosts[0].qp.post_send(request(1, flush, 0)).unwrap();
        pair.run();
        let atomic_write = Operation::AtomicWrite { remote: remote(FAR) };
        pair.hosts[0].qp.post_send(request(2, atomic_write, 8)).unwrap();
        pair.run();
        assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)], "lost {lost}");
        assert_eq!(pair.hosts[1].memory.part(FAR, 8), pair.hosts[0].memory.part(0, 8));
        let answers = opcodes(&pair, 1);
        assert!(answers.iter().all(|one| *one == Opcode::RC_RDMA_READ_RESPONSE_ONLY));
    }
}

#[test]
fn a_queue_pair_in_error_flushes_its_own_receives() {
    let mut pair = clean(256);
    (0..3).for_each(|id| pair.post_receive(0, id, FAR, 8));
    let host = &mut pair.hosts[0];
    host.qp.handle_error();
    host.qp.flush_receives(&mut host.receives);
    pair.drain();
    let ended = pair.hosts[0].received.iter().map(|one| (one.id.0, one.status));
    assert!(ended.eq((0..3).map(|id| (id, Status::Flushed))));
}
