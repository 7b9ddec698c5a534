//! Packets that were recorded before the PSNs wrapped (24 bits), and are sent again afterwards.
//!
//! A replayed request with exactly the expected PSN cannot be told from the peer's next one, nor a replayed response with the
//! PSN of a packet in flight: IBA assumes that packets do not live as long as 2^23 others take. All others must have no effect.

use std::vec::Vec;

use ferroce_wire::packet::Packet;

use super::helpers::{REMOTE_OFFSET, remote, request, statuses};
use super::pair::{Faults, Host, Pair, REGION};
use crate::congestion::Congestion;
use crate::work::{Operation, Status};

/// One byte a packet, so that short messages take many PSNs.
const MTU: u16 = 1;

/// PSNs of one WRITE that only advances them.
const STEP: u32 = 1 << 16;

const TO: u64 = REGION - 64;

/// A recorded packet, and the side that sent it.
type Recorded = Vec<(usize, Vec<u8>)>;

fn pair(seed: u64) -> Pair {
    let mut pair = Pair::with(seed, Faults::default(), MTU, |config| {
        config.congestion = Congestion::Window(usize::MAX / 4);
    });
    for host in &mut pair.hosts {
        host.qp.set_lossless(true);
        host.qp.set_max_run(STEP);
    }
    pair
}

/// Delivers all packets that both sides send, and returns them.
fn exchange(pair: &mut Pair) -> Recorded {
    pair.run_in_runs();
    core::mem::take(&mut pair.log)
}

/// One message of each kind, and all packets of both sides.
fn messages(pair: &mut Pair) -> Recorded {
    pair.post_receive(1, 7, TO, 2);
    let to = remote(TO + 8);
    let posts = [
        (Operation::Write { remote: remote(TO), immediate: None }, 3),
        (Operation::SEND, 2),
        (Operation::Read { remote: remote(TO) }, 4),
        (Operation::FetchAdd { remote: to, add: 5 }, 8),
        (Operation::CompareSwap { remote: to, compare: 1, swap: 2 }, 8),
        (Operation::Write { remote: remote(TO), immediate: None }, 1),
    ];
    for (id, (operation, length)) in (0..).zip(posts) {
        pair.hosts[0].qp.post_send(request(id, operation, length)).unwrap();
    }
    let recorded = exchange(pair);
    assert!(statuses(pair).iter().all(|one| one.1 == Status::Success));
    recorded
}

/// Advances the PSN of side 0.
fn advance(pair: &mut Pair, mut psns: u32) {
    pair.takes_whole = true;
    while psns > 0 {
        let length = psns.min(STEP);
        let write = Operation::Write { remote: remote(REMOTE_OFFSET), immediate: None };
        pair.hosts[0].qp.post_send(request(9, write, length)).unwrap();
        exchange(pair);
        psns -= length;
    }
    pair.takes_whole = false;
}

/// Everything of a side that a replayed packet must not change.
#[derive(PartialEq)]
struct State {
    memory: Vec<u8>,
    atomics: u64,
    receives: usize,
    completions: [usize; 2],
    failed: bool,
}

fn state(pair: &Pair) -> [State; 2] {
    [0, 1].map(|side| {
        let Host { qp, receives, memory, sent, received } = &pair.hosts[side];
        State {
            memory: memory.bytes.clone(),
            atomics: memory.atomics,
            receives: receives.len(),
            completions: [sent.len(), received.len()],
            failed: qp.fault().is_some(),
        }
    })
}

/// The distance from the first recorded PSN to the next one of side 0.
fn position(pair: &Pair) -> i32 {
    let [_, next] = pair.hosts[0].qp.unacknowledged();
    next.distance(pair.hosts[0].qp.config().send_psn)
}

#[test]
fn packets_from_before_the_psn_wrapped_change_nothing() {
    let mut pair = pair(1);
    let recorded = messages(&mut pair);
    let length = position(&pair);
    assert_eq!(length, 3 + 2 + 4 + 1 + 1 + 1);
    let mut at = length as u32;
    const SPACE: u32 = 1 << 24;
    const HALF: u32 = SPACE / 2;
    for target in [
        // New messages get the same PSNs as the recorded ones.
        SPACE,
        SPACE + 1000,
        // The recorded ones are half of the PSN space behind, and ahead.
        SPACE + HALF - 20,
        SPACE + HALF + 20,
        // They are ahead by less than the requester may have in flight.
        2 * SPACE - (1 << 16),
        2 * SPACE - 40,
    ] {
        advance(&mut pair, target - at);
        // Other content than before.
        for host in &mut pair.hosts {
            host.memory.bytes[..64].iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
            host.sent.clear();
        }
        messages(&mut pair);
        at = target + length as u32;
        let before = state(&pair);
        for (side, bytes) in &recorded {
            let psns = Packet::parse(bytes).unwrap().extensions.reth.map_or(1, |reth| reth.length);
            pair.deliver_run(1 - side, bytes);
            // Whatever the other side gets for it.
            let answers = exchange(&mut pair).len();
            assert!(answers <= psns as usize, "{answers} answers at {target:#x}");
            assert!(state(&pair) == before, "at {target:#x}: {bytes:x?}");
        }
    }
    // The connection still works.
    pair.hosts[0].sent.clear();
    messages(&mut pair);
}

/// The limit of the protocol: 24 bits identify a packet.
#[test]
fn a_request_with_exactly_the_expected_psn_is_executed() {
    let mut pair = pair(2);
    let written = pair.hosts[0].memory.part(0, 3).to_vec();
    let recorded = messages(&mut pair);
    let at = position(&pair) as u32;
    advance(&mut pair, (1 << 24) - at);
    assert_eq!(position(&pair), 0);
    pair.hosts[1].memory.bytes[TO as usize..][..3].fill(0);
    for (_, bytes) in recorded.iter().filter(|(side, _)| *side == 0).take(3) {
        pair.deliver_run(1, bytes);
    }
    assert_eq!(pair.hosts[1].memory.part(TO, 3), written);
}
