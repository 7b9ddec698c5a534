//! Keepalives: an idle QP finds out whether its peer is there.

use core::time::Duration;

use ferroce_wire::opcode::Opcode;

use super::helpers::{statuses, write};
use super::pair::{Faults, Pair};
use std::vec::Vec;

use crate::qp::Fault;
use crate::rc::Config;
use crate::work::Status;

const INTERVAL: Duration = Duration::from_millis(10);

/// The ACK timeout of the connections here, and how often it may expire.
const TIMEOUT: Duration = Duration::from_micros(500);
const RETRIES: u32 = 7;

fn watching(faults: Faults, edit: impl Fn(&mut Config)) -> Pair {
    Pair::with(1, faults, 1024, |config| {
        config.keepalive = Some(INTERVAL);
        edit(config);
    })
}

/// The keepalives that a side has sent, by their PSNs relative to its first.
fn keepalives(pair: &Pair, side: usize) -> Vec<u32> {
    let sent = pair.sent_packets();
    let asked = sent.iter().filter(|one| one.0 == side && one.1 == Opcode::RC_RDMA_WRITE_ONLY);
    asked.map(|one| one.2).collect()
}

#[test]
fn an_idle_peer_answers_and_nothing_else_happens() {
    let mut pair = watching(Faults::default(), |_| ());
    let memory = pair.hosts[1].memory.bytes.clone();
    pair.run_for(10 * INTERVAL);
    // Before the first request, too. A side that was asked has heard its peer, so one of the two asks.
    let asked = [keepalives(&pair, 0), keepalives(&pair, 1)];
    let all: Vec<u32> = asked.concat();
    assert!((9..=20).contains(&all.len()), "{asked:?}");
    assert!(all.iter().all(|psn| *psn == u32::MAX), "{asked:?}");
    assert_eq!(pair.hosts[1].memory.bytes, memory);
    assert!(pair.hosts.iter().all(|host| host.qp.fault().is_none()));
    assert!(pair.hosts.iter().all(|host| host.sent.is_empty() && host.received.is_empty()));
    // The PSNs are as before.
    pair.hosts[0].qp.post_send(write(1, 5000)).unwrap();
    pair.run_for(INTERVAL / 2);
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
}

#[test]
fn a_silent_peer_is_lost_after_all_retries() {
    let mut pair = watching(Faults { loss: 1_000, ..Faults::default() }, |_| ());
    pair.post_receive(0, 7, 0, 64);
    let lost_after = INTERVAL + TIMEOUT * (RETRIES + 1);
    pair.run_for(lost_after - TIMEOUT / 2);
    assert_eq!(pair.hosts[0].qp.fault(), None);
    assert_eq!(keepalives(&pair, 0).len(), RETRIES as usize + 1);
    pair.run_for(TIMEOUT);
    assert_eq!(pair.hosts[0].qp.fault(), Some(Fault::Requester));
    assert!(pair.hosts[0].qp.is_peer_lost());
    assert_eq!(pair.hosts[0].qp.poll_timeout(), None);
}

#[test]
fn lost_keepalives_are_repeated() {
    let mut pair = watching(Faults { loss: 100, ..Faults::default() }, |_| ());
    pair.run_for(50 * INTERVAL);
    assert!(pair.hosts.iter().all(|host| host.qp.fault().is_none()));
    assert!(keepalives(&pair, 0).len() + keepalives(&pair, 1).len() >= 45);
}

#[test]
fn a_network_error_counts_as_no_answer() {
    let mut pair = watching(Faults { loss: 1_000, ..Faults::default() }, |_| ());
    pair.run_for(INTERVAL);
    // The keepalive has the PSN before the first request's.
    let psn = pair.hosts[0].qp.config().send_psn.add(0xff_ffff);
    for _ in 0..=RETRIES {
        assert_eq!(pair.hosts[0].qp.fault(), None);
        pair.hosts[0].qp.handle_unreachable(pair.now, psn);
        pair.hosts[0].qp.handle_timeout(pair.now);
        pair.drain();
    }
    assert!(pair.hosts[0].qp.is_peer_lost());
}

/// ICMP is not authenticated: an error counts only if it quotes the keepalive.
#[test]
fn a_network_error_for_another_packet_does_not_count() {
    let mut pair = watching(Faults { loss: 1_000, ..Faults::default() }, |_| ());
    pair.run_for(INTERVAL);
    assert_eq!(keepalives(&pair, 0).len(), 1);
    for ahead in 0..1000 {
        let psn = pair.hosts[0].qp.config().send_psn.add(ahead);
        pair.hosts[0].qp.handle_unreachable(pair.now, psn);
        pair.hosts[0].qp.handle_timeout(pair.now);
        pair.drain();
    }
    assert_eq!(keepalives(&pair, 0).len(), 1);
    assert_eq!(pair.hosts[0].qp.fault(), None);
}

/// Traffic in either direction shows that the peer is there.
#[test]
fn a_busy_connection_sends_none() {
    let mut pair = watching(Faults::default(), |_| ());
    for id in 0..40 {
        pair.hosts[0].qp.post_send(write(id, 8)).unwrap();
        pair.run_for(INTERVAL / 4);
    }
    let writes = |side| keepalives(&pair, side).len();
    assert_eq!((writes(0), writes(1)), (40, 0));
}

#[test]
fn without_an_interval_there_is_no_timer() {
    let mut pair = watching(Faults::default(), |config| config.keepalive = None);
    pair.run();
    assert_eq!(pair.log, []);
    // Nor where the link shows the end of the peer.
    let mut pair = watching(Faults::default(), |_| ());
    pair.hosts.iter_mut().for_each(|host| host.qp.set_lossless(true));
    pair.run();
    assert_eq!(pair.log, []);
}
