//! RNR NAKs (IBA 9.7.5.2.8).

use core::time::Duration;

use ferroce_wire::number::Msn;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::syndrome::{NakCode, RnrTimer, SyndromeKind};
use ferroce_wire::transport::{Aeth, Bth};

use super::helpers::{REMOTE_OFFSET, clean, deliver, opcodes, request, statuses, syndromes};
use super::pair::{Faults, Pair};
use crate::rc::Config;
use crate::work::{Operation, Status};

#[test]
fn retries_after_an_rnr_nak() {
    let mut pair = clean(256);
    pair.hosts[0].qp.post_send(request(1, Operation::SEND, 300)).unwrap();
    for _ in 0..6 {
        pair.drain();
        pair.step();
    }
    assert!(matches!(syndromes(&pair)[0], SyndromeKind::RnrNak(_)));
    pair.post_receive(1, 9, REMOTE_OFFSET, 300);
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(pair.hosts[1].received[0].length, 300);
}

#[test]
fn waits_for_the_rnr_timer() {
    for code in 0..32 {
        let timer = RnrTimer::from_code(code).unwrap();
        let edit = |config: &mut Config| {
            config.rnr_retry = 1;
            config.rnr_timer = timer;
        };
        let mut pair = Pair::with(1, Faults::default(), 256, edit);
        pair.hosts[0].qp.post_send(request(1, Operation::SEND, 8)).unwrap();
        pair.run();
        // There, back, the wait, there and back: 10 µs in each direction.
        assert_eq!(pair.now.as_nanos(), 40_000 + timer.duration().as_nanos() as u64, "{code}");
        assert_eq!(statuses(&pair), [(1, Status::RnrRetryExceeded)]);
        assert_eq!(opcodes(&pair, 0).len(), 2);
    }
}

#[test]
fn ignores_a_sequence_nak_after_an_rnr_nak() {
    // rdma_rxe sends this when the second packet of a message arrives after the RNR NAK for the first.
    let mut pair = Pair::with(1, Faults::default(), 256, |config| config.retry_count = 0);
    let psn = pair.hosts[0].qp.config().send_psn;
    pair.hosts[0].qp.post_send(request(1, Operation::SEND, 300)).unwrap();
    while pair.hosts[0].poll(pair.now).is_some() {}
    let timer = RnrTimer::from_code(14).unwrap();
    for kind in [SyndromeKind::RnrNak(timer), SyndromeKind::Nak(NakCode::PsnSequenceError)] {
        let aeth = Some(Aeth { syndrome: kind.into(), msn: Msn(0) });
        let extensions = ExtensionHeaders { aeth, ..Default::default() };
        let bth = Bth { opcode: Opcode::RC_ACKNOWLEDGE, psn, ..Bth::default() };
        deliver(&mut pair, 0, bth, extensions, &[]);
    }
    assert_eq!(pair.hosts[0].qp.fault(), None);
    assert!(pair.hosts[0].poll(pair.now).is_none(), "the wait holds");
    pair.post_receive(1, 9, REMOTE_OFFSET, 300);
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
}

/// A pair with an ACK timeout that some responses exceed, like those of a peer that rarely gets a CPU.
fn impatient(seed: u64, timeout: u64, faults: Faults) -> Pair {
    Pair::with(seed, faults, 256, |config| {
        config.timeout = Some(Duration::from_micros(timeout));
        config.retry_count = 3;
        config.rnr_retry = 7;
        config.rnr_timer = RnrTimer::at_least(Duration::from_micros(40));
    })
}

/// Every attempt is answered with an RNR NAK, but later than the ACK timer expects.
#[test]
fn late_rnr_naks_cost_no_transport_retries() {
    for seed in 0..20 {
        // All responses come after 20 µs, or some after up to 220 µs.
        let (timeout, reordering) = if seed % 2 == 0 { (15, 0) } else { (60, 300) };
        let mut pair = impatient(seed, timeout, Faults { reordering, ..Faults::default() });
        pair.hosts[0].qp.post_send(request(1, Operation::SEND, 300)).unwrap();
        pair.run_for(Duration::from_millis(20));
        assert!(syndromes(&pair).len() > 50, "seed {seed}: {}", syndromes(&pair).len());
        assert_eq!(statuses(&pair), [], "seed {seed}");
        pair.post_receive(1, 9, REMOTE_OFFSET, 300);
        pair.run();
        assert_eq!(statuses(&pair), [(1, Status::Success)], "seed {seed}");
    }
}

/// The transport retry counter bounds the silence after the last RNR NAK.
#[test]
fn a_peer_that_falls_silent_after_rnr_naks_is_given_up() {
    let mut pair = impatient(1, 15, Faults::default());
    pair.hosts[0].qp.post_send(request(1, Operation::SEND, 8)).unwrap();
    pair.run_for(Duration::from_millis(1));
    let answered = pair.log.len();
    pair.faults.loss = 1000;
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RetryExceeded)]);
    let unanswered = pair.log[answered..].iter().filter(|(side, _)| *side == 0).count();
    assert!((4..=5).contains(&unanswered), "{unanswered}");
}
