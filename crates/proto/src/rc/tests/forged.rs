//! Responses of an attacker who knows the addresses and the QPN of a requester, but not its PSNs.
//!
//! Anyone can compute the ICRC, so a response with the PSN of a packet in flight cannot be told from the peer's. All others
//! must have no effect.

use ferroce_wire::number::{Msn, Psn, Word};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::syndrome::{Credits, NakCode, RnrTimer, Syndrome, SyndromeKind};
use ferroce_wire::transport::{Aeth, AtomicAckEth, Bth};

use super::helpers::{REMOTE_OFFSET, clean, deliver, opcodes, remote, statuses};
use super::pair::{Faults, Pair, Random, sge};
use crate::rc::Fault;
use crate::work::{Data, Operation, SendRequest, SgList, Status, WorkId};

const MTU: u16 = 256;
const READ_INTO: u64 = 0x8_0000;
const RECEIVED: u64 = 0xc_0000;

/// A mixture of all operations, with READs and atomics into parts of the region of their own.
fn operation(id: u64) -> SendRequest {
    let into = |length| Data::SgList(SgList::from(sge(READ_INTO + id * 4096, length)));
    let from = |length| Data::SgList(SgList::from(sge(0, length)));
    let (operation, data) = match id % 5 {
        0 => (Operation::Write { remote: remote(REMOTE_OFFSET), immediate: None }, from(1000)),
        1 | 3 => (Operation::SEND, from(300)),
        2 => (Operation::Read { remote: remote(id * 64) }, into(1000)),
        _ => (Operation::FetchAdd { remote: remote(REMOTE_OFFSET + 4096), add: 1 }, into(8)),
    };
    SendRequest::new(WorkId(id), operation, data)
}

fn post(pair: &mut Pair, ids: u64) {
    for id in 0..ids {
        pair.post_receive(1, id, RECEIVED, 300);
        pair.hosts[0].qp.post_send(operation(id)).unwrap();
    }
}

fn forge(pair: &mut Pair, opcode: Opcode, psn: Psn, syndrome: Syndrome, msn: u32) {
    let info = opcode.info().unwrap();
    let extensions = ExtensionHeaders {
        aeth: (opcode != Opcode::RC_RDMA_READ_RESPONSE_MIDDLE)
            .then_some(Aeth { syndrome, msn: Msn(msn & 0xff_ffff) }),
        atomic_ack: (opcode == Opcode::RC_ATOMIC_ACKNOWLEDGE)
            .then_some(AtomicAckEth { original: Word(0x6666) }),
        ..Default::default()
    };
    let payload = if info.payload { &[0x66; MTU as usize][..] } else { &[] };
    deliver(pair, 0, Bth { opcode, psn, ..Bth::default() }, extensions, payload);
}

/// Delivers forged responses whose PSNs are not in flight: next to those that are, and anywhere else.
fn sweep(pair: &mut Pair, random: &mut Random) {
    const OPCODES: [Opcode; 6] = [
        Opcode::RC_ACKNOWLEDGE,
        Opcode::RC_ATOMIC_ACKNOWLEDGE,
        Opcode::RC_RDMA_READ_RESPONSE_FIRST,
        Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
        Opcode::RC_RDMA_READ_RESPONSE_LAST,
        Opcode::RC_RDMA_READ_RESPONSE_ONLY,
    ];
    for _ in 0..8 {
        let [first, end] = pair.hosts[0].qp.unacknowledged();
        let psn = match random.below(4) {
            0 => end.add(random.below(3) as u32),
            // The last acknowledged PSN may come again, with new credits (IBA 9.7.7.2).
            1 => first.add((-2 - random.below(3) as i32) as u32),
            _ => Psn::new(random.next() as u32),
        };
        let is_near = |psn: Psn| psn.distance(first) >= -1 && psn.distance(end) < 0;
        if is_near(psn) {
            continue;
        }
        let opcode = match random.below(3) {
            0 => OPCODES[random.below(6) as usize],
            _ => Opcode::RC_ACKNOWLEDGE,
        };
        forge(pair, opcode, psn, Syndrome(random.next() as u8), random.next() as u32);
    }
}

/// Whatever the rest of the PSN space brings, both sides send the same packets as without it.
#[test]
fn responses_to_packets_that_are_not_in_flight_change_nothing() {
    for seed in 0..60 {
        let [quiet, swept] = [false, true].map(|is_attacked| {
            let mut pair = Pair::new(seed, Faults::of(seed), MTU);
            let mut random = Random(seed ^ 0xa77ac);
            post(&mut pair, 40);
            pair.drain();
            while pair.step() {
                if is_attacked {
                    sweep(&mut pair, &mut random);
                }
                pair.drain();
            }
            pair
        });
        assert_eq!(swept.hosts[0].qp.fault(), None, "seed {seed}");
        assert_eq!(statuses(&swept), statuses(&quiet), "seed {seed}");
        assert!(swept.log == quiet.log, "seed {seed}: other packets are sent");
        assert!(swept.hosts[0].memory.bytes == quiet.hosts[0].memory.bytes, "seed {seed}");
    }
}

/// The attacker hits a PSN in flight. SENDs and WRITEs up to it complete, or the QP fails, as after a packet of the peer. No
/// READ or atomic completes without its response, and no packet is answered with more than one retransmission of the window.
#[test]
fn a_forged_ack_or_nak_in_flight_completes_no_read() {
    let rnr = RnrTimer::from_code(1).unwrap();
    let kinds = [
        SyndromeKind::Ack(Credits::from_code(31).unwrap()),
        SyndromeKind::Ack(Credits::from_code(0).unwrap()),
        SyndromeKind::RnrNak(rnr),
        SyndromeKind::Nak(NakCode::PsnSequenceError),
        SyndromeKind::Nak(NakCode::InvalidRequest),
        SyndromeKind::Nak(NakCode::RemoteAccessError),
        SyndromeKind::Nak(NakCode::RemoteOperationalError),
        SyndromeKind::Nak(NakCode::InvalidRdRequest),
    ];
    for kind in kinds {
        let is_fatal = matches!(kind, SyndromeKind::Nak(code) if code != NakCode::PsnSequenceError);
        for index in 0.. {
            let mut pair = clean(MTU);
            post(&mut pair, 10);
            pair.drain();
            let [first, end] = pair.hosts[0].qp.unacknowledged();
            let in_flight = end.distance(first) as usize;
            if index == in_flight {
                assert_eq!(in_flight, 2 * (4 + 2 + 4 + 2 + 1), "all are in flight");
                break;
            }
            let context = (kind, index);
            for _ in 0..100 {
                forge(&mut pair, Opcode::RC_ACKNOWLEDGE, first.add(index as u32), kind.into(), 1);
            }
            pair.drain();
            if !is_fatal {
                pair.run();
            }
            assert_eq!(
                pair.hosts[0].qp.fault(),
                is_fatal.then_some(Fault::Requester),
                "{context:?}"
            );
            // Each request completes once, in order.
            let all = statuses(&pair);
            assert!(all.iter().map(|one| one.0).eq(0..10), "{context:?}: {all:?}");
            let failed = all.iter().filter(|one| one.1 != Status::Success).count();
            assert_eq!(failed > 0, is_fatal, "{context:?}: {all:?}");
            for (id, _) in all.iter().filter(|one| one.1 == Status::Success) {
                let into = READ_INTO + id * 4096;
                let read = pair.hosts[0].memory.part(into, 1000);
                if id % 5 == 2 {
                    assert!(read == pair.hosts[1].memory.part(id * 64, 1000), "{context:?}");
                }
            }
            let requests = opcodes(&pair, 0).len();
            assert!(requests <= 3 * in_flight, "{context:?}: {requests} packets for {in_flight}");
        }
    }
}
