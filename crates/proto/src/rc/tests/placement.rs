//! Memory that takes time: nobody learns of a message before all of it is in memory, and messages are executed in order.

use core::time::Duration;
use std::vec::Vec;

use ferroce_wire::number::Immediate;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::syndrome::{NakCode, SyndromeKind};

use super::helpers::{
    REMOTE_OFFSET, clean, opcodes, read, remote, request, statuses, syndromes, write,
};
use super::pair::{Ended, Faults, Pair};
use super::programs::program_with_memory;
use crate::memory::{Finished, Outcome};
use crate::rc::Fault;
use crate::reason::KeyFault;
use crate::work::{Operation, SendRequest, Status};

const RECEIVED: u64 = 0x8_0000;

/// A pair of which the memory of `side` takes time until [`finish`].
fn slow(side: usize, mtu: u16) -> Pair {
    let mut pair = clean(mtu);
    // Longer than any test.
    pair.hosts[side].memory.pend(1, 1000, Duration::from_secs(3600));
    pair.hosts[side].memory.pending.shortest = Duration::from_secs(3600);
    pair
}

/// Runs until nothing happens for a while, which is shorter than the ACK timeout.
fn settle(pair: &mut Pair) {
    pair.run_for(Duration::from_micros(400));
}

/// Finishes the unfinished access with this index.
fn finish(pair: &mut Pair, side: usize, index: usize) {
    let ended = pair.hosts[side].memory.finish(index);
    pair.finish(side, ended);
    settle(pair);
}

fn fail(pair: &mut Pair, side: usize, index: usize) {
    let open = pair.hosts[side].memory.pending.open.remove(index);
    let (queue_pair, token) = (open.by.queue_pair, open.token);
    let outcome = Outcome::Failed;
    pair.finish(side, Ended::Access(Finished { queue_pair, token, outcome }));
    settle(pair);
}

fn open(pair: &Pair, side: usize) -> usize {
    let open = pair.hosts[side].memory.pending.open.len();
    assert_eq!(pair.hosts[side].qp.unfinished(), open);
    open
}

fn post(pair: &mut Pair, requests: impl IntoIterator<Item = SendRequest>) {
    requests.into_iter().for_each(|request| pair.hosts[0].qp.post_send(request).unwrap());
    settle(pair);
}

fn send(id: u64, length: u32) -> SendRequest {
    request(id, Operation::SEND, length)
}

fn add(id: u64) -> SendRequest {
    request(id, Operation::FetchAdd { remote: remote(REMOTE_OFFSET), add: 1 }, 8)
}

fn received(pair: &Pair) -> Vec<(u64, Status)> {
    pair.hosts[1].received.iter().map(|one| (one.id.0, one.status)).collect()
}

#[test]
fn the_ack_waits_for_the_payload() {
    let mut pair = slow(1, 256);
    post(&mut pair, [write(1, 100)]);
    assert_eq!((open(&pair, 1), statuses(&pair), opcodes(&pair, 1)), (1, [].into(), [].into()));
    finish(&mut pair, 1, 0);
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(opcodes(&pair, 1), [Opcode::RC_ACKNOWLEDGE]);
}

/// IBA o9-20: the packets of a message are written in any order. The message completes with the last of them.
#[test]
fn the_packets_of_a_message_are_placed_at_once() {
    let mut pair = slow(1, 256);
    pair.post_receive(1, 7, RECEIVED, 1000);
    post(&mut pair, [send(1, 1000)]);
    assert_eq!(open(&pair, 1), 4);
    for left in (1..4).rev() {
        finish(&mut pair, 1, left);
        assert_eq!((received(&pair), statuses(&pair)), ([].into(), [].into()));
    }
    finish(&mut pair, 1, 0);
    assert_eq!(received(&pair), [(7, Status::Success)]);
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    let [host, peer] = &pair.hosts;
    assert_eq!(host.memory.part(0, 1000), peer.memory.part(RECEIVED, 1000));
}

/// IBA C9-28: a WRITE is in memory before the SEND behind it is executed, also where host memory would be written at once.
#[test]
fn the_next_message_waits_for_the_one_before() {
    let mut pair = slow(1, 256);
    pair.post_receive(1, 7, RECEIVED, 1000);
    let immediate = Some(Immediate(5));
    let signal = request(3, Operation::Write { remote: remote(REMOTE_OFFSET), immediate }, 50);
    post(&mut pair, [write(1, 600), send(2, 400), signal]);
    assert_eq!(
        (open(&pair, 1), pair.hosts[1].receives.len()),
        (3, 1),
        "the receive is not consumed"
    );
    pair.hosts[1].memory.pending.chance = 0;
    pair.post_receive(1, 8, 0, 0);
    for _ in 0..3 {
        assert_eq!((received(&pair), statuses(&pair)), ([].into(), [].into()));
        finish(&mut pair, 1, 0);
    }
    assert_eq!(received(&pair), [(7, Status::Success), (8, Status::Success)]);
    assert_eq!(statuses(&pair), [1, 2, 3].map(|id| (id, Status::Success)));
}

/// A READ returns what the WRITE before it has written, and an atomic operation is executed behind it.
#[test]
fn reads_and_atomics_wait_for_earlier_writes() {
    let mut pair = slow(1, 256);
    pair.hosts[0].memory.bytes[..8].copy_from_slice(&41u64.to_ne_bytes());
    let mut back = read(3, 8);
    back.data = crate::work::Data::SgList(super::pair::sge(0x3000, 8).into());
    let mut original = add(2);
    original.data = crate::work::Data::SgList(super::pair::sge(0x2000, 8).into());
    post(&mut pair, [write(1, 8), original, back]);
    assert_eq!((open(&pair, 1), pair.hosts[1].memory.atomics), (1, 0));
    finish(&mut pair, 1, 0);
    assert_eq!((open(&pair, 1), statuses(&pair)), (1, [(1, Status::Success)].into()));
    finish(&mut pair, 1, 0);
    assert_eq!(statuses(&pair), [1, 2, 3].map(|id| (id, Status::Success)));
    let memory = &pair.hosts[0].memory;
    assert_eq!(memory.part(0x2000, 8), 41u64.to_ne_bytes());
    assert_eq!(memory.part(0x3000, 8), 42u64.to_ne_bytes());
}

/// The requester's timer expires while its WRITE is placed: the packets before are acknowledged at once, the WRITE is neither
/// placed again nor acknowledged, and one ACK answers it in the end.
#[test]
fn retransmissions_are_answered_as_far_as_memory_is() {
    let mut pair = slow(1, 256);
    pair.hosts[1].memory.pending.chance = 0;
    pair.lost = [1].into();
    post(&mut pair, [write(1, 8)]);
    assert_eq!((opcodes(&pair, 1).len(), statuses(&pair).len()), (1, 0), "its ACK is lost");
    pair.hosts[1].memory.pending.chance = 1000;
    post(&mut pair, [write(2, 8)]);
    pair.run_for(Duration::from_micros(700));
    assert_eq!(pair.hosts[1].memory.pending.begun, 1, "placed once");
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    finish(&mut pair, 1, 0);
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)]);
}

/// While a placement takes longer than all its retries, the requester gives up, as with any responder that is too slow.
#[test]
fn the_requester_gives_up_on_memory_that_never_finishes() {
    let mut pair = slow(1, 256);
    post(&mut pair, [write(1, 8)]);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(statuses(&pair), [(1, Status::RetryExceeded)]);
    assert_eq!(pair.hosts[1].memory.pending.begun, 1);
    finish(&mut pair, 1, 0);
    assert_eq!(pair.hosts[1].qp.unfinished(), 0);
}

/// An atomic operation is executed once, even if its request arrives again while it is executed.
#[test]
fn a_repeated_atomic_operation_is_executed_once() {
    let mut pair = slow(1, 256);
    post(&mut pair, [add(1)]);
    pair.run_for(Duration::from_millis(2));
    assert_eq!((open(&pair, 1), pair.hosts[1].memory.atomics), (1, 0));
    finish(&mut pair, 1, 0);
    assert_eq!((pair.hosts[1].memory.atomics, statuses(&pair)), (1, [(1, Status::Success)].into()));
}

/// More packets than are held: the rest is asked for when those before have been executed, without a timeout.
#[test]
fn packets_beyond_the_limit_are_asked_for() {
    let mut pair = Pair::with(1, Faults::default(), 4096, |config| {
        config.congestion = crate::congestion::Congestion::Unlimited;
        config.timeout = None;
    });
    pair.hosts[1].memory.pend(1, 1000, Duration::from_secs(3600));
    pair.hosts[1].memory.pending.shortest = Duration::from_secs(3600);
    post(&mut pair, (0..300).map(|id| write(id, 4096)));
    assert_eq!(open(&pair, 1), 1);
    pair.hosts[1].memory.pending.chance = 0;
    finish(&mut pair, 1, 0);
    assert_eq!(statuses(&pair), Vec::from_iter((0..300).map(|id| (id, Status::Success))));
    let naks = syndromes(&pair).into_iter().filter(|kind| matches!(kind, SyndromeKind::Nak(_)));
    assert_eq!(naks.collect::<Vec<_>>(), [SyndromeKind::Nak(NakCode::PsnSequenceError)]);
}

/// A copy that fails: the packets before it are acknowledged, its message fails on both sides, and what follows is not
/// executed.
#[test]
fn a_failed_copy_is_a_remote_operational_error() {
    let mut pair = slow(1, 256);
    pair.post_receive(1, 7, RECEIVED, 1000);
    pair.post_receive(1, 8, RECEIVED, 1000);
    post(&mut pair, [write(1, 8), send(2, 600), write(3, 8)]);
    finish(&mut pair, 1, 0);
    assert_eq!(open(&pair, 1), 3);
    fail(&mut pair, 1, 1);
    assert_eq!((pair.hosts[1].qp.fault(), received(&pair)), (None, [].into()), "the first is open");
    finish(&mut pair, 1, 0);
    assert_eq!(pair.hosts[1].qp.fault(), Some(Fault::Responder));
    assert_eq!(received(&pair), [], "the last packet is still written");
    finish(&mut pair, 1, 0);
    assert_eq!(received(&pair), [(7, Status::LocalProtection)]);
    assert_eq!(pair.hosts[1].received[0].vendor_error, KeyFault::CopyFailed.number());
    assert_eq!((pair.hosts[1].receives.len(), open(&pair, 1)), (1, 0));
    let flushed = [(1, Status::Success), (2, Status::RemoteOperation), (3, Status::Flushed)];
    assert_eq!(statuses(&pair), flushed);
}

/// The receive request of a message in progress is flushed only when nothing writes to its buffer any more.
#[test]
fn flushing_waits_for_memory() {
    let mut pair = slow(1, 256);
    pair.post_receive(1, 7, RECEIVED, 1000);
    pair.lost = [2].into();
    post(&mut pair, [send(1, 600)]);
    assert_eq!(open(&pair, 1), 2);
    pair.hosts[1].qp.handle_error();
    settle(&mut pair);
    assert_eq!(received(&pair), []);
    finish(&mut pair, 1, 0);
    finish(&mut pair, 1, 0);
    assert_eq!(received(&pair), [(7, Status::Flushed)]);
}

/// READ and atomic responses: the request and all behind it complete when the payload is in memory, and a fence waits.
#[test]
fn completions_wait_for_the_response() {
    let mut pair = slow(0, 256);
    let mut fenced = write(3, 8);
    fenced.fence = true;
    post(&mut pair, [read(1, 600), write(2, 8), fenced]);
    assert_eq!((open(&pair, 0), statuses(&pair)), (3, [].into()));
    let requests = opcodes(&pair, 0).len();
    assert_eq!(requests, 2, "the fenced request waits");
    finish(&mut pair, 0, 2);
    finish(&mut pair, 0, 0);
    assert_eq!(statuses(&pair), []);
    finish(&mut pair, 0, 0);
    assert_eq!(statuses(&pair), [1, 2, 3].map(|id| (id, Status::Success)));
    post(&mut pair, [add(4), write(5, 8)]);
    assert_eq!(statuses(&pair).len(), 3);
    finish(&mut pair, 0, 0);
    assert_eq!(statuses(&pair)[3..], [(4, Status::Success), (5, Status::Success)]);
}

/// A response that cannot be written fails its request once, and flushes what follows, though the peer has executed it.
#[test]
fn a_failed_copy_of_a_response_fails_its_request() {
    for signaled in [true, false] {
        let mut pair = slow(0, 256);
        let first = SendRequest { signaled, ..read(2, 600) };
        post(&mut pair, [write(1, 8), first, write(3, 8), read(4, 8)]);
        assert_eq!((open(&pair, 0), statuses(&pair)), (4, [(1, Status::Success)].into()));
        fail(&mut pair, 0, 1);
        finish(&mut pair, 0, 0);
        assert_eq!(pair.hosts[0].qp.fault(), Some(Fault::Requester));
        let failed = [(1, Status::Success), (2, Status::LocalProtection)];
        assert_eq!(statuses(&pair), failed, "the rest of its buffer is open");
        finish(&mut pair, 0, 0);
        finish(&mut pair, 0, 0);
        assert_eq!(statuses(&pair)[2..], [3, 4].map(|id| (id, Status::Flushed)), "{signaled}");
    }
}

/// In ERR, requests are flushed when their responses are no longer written.
#[test]
fn flushing_sends_waits_for_memory() {
    let mut pair = slow(0, 256);
    post(&mut pair, [read(1, 600), write(2, 8)]);
    pair.hosts[0].qp.handle_error();
    pair.hosts[0].qp.post_send(write(3, 8)).unwrap();
    settle(&mut pair);
    assert_eq!(statuses(&pair), []);
    (0..3).for_each(|_| finish(&mut pair, 0, 0));
    let [first, second, third] = statuses(&pair)[..] else { panic!("{:?}", statuses(&pair)) };
    assert_eq!([first, second], [1, 2].map(|id| (id, Status::Success)), "they had completed");
    assert_eq!(third, (3, Status::Flushed));
}

/// The same program gives the same bytes and the same completions in the same order, whether memory takes time or not.
#[test]
fn programs_do_not_depend_on_the_time_of_memory() {
    let mut begun = 0;
    for seed in 5000..5200 {
        let (max_run, whole) = (1 + (seed % 40) as u32, seed % 2 == 0);
        let run = |pending| program_with_memory(seed, Faults::default(), max_run, whole, pending);
        let [fast, slow] = [0, 200 + seed % 800].map(|pending| run(pending).expect("no fault"));
        begun += slow.iter().map(|host| host.memory.pending.begun).sum::<u64>();
        for (fast, slow) in fast.iter().zip(&slow) {
            assert_eq!(fast.sent, slow.sent, "seed {seed}");
            assert_eq!(fast.received, slow.received, "seed {seed}");
            assert!(fast.memory.bytes == slow.memory.bytes, "seed {seed}");
        }
    }
    assert!(begun > 2_000, "{begun}");
}

#[test]
fn slow_memory_on_faulty_links() {
    let ended = (6000..6400).filter(|&seed| {
        let (max_run, whole) = (1 + (seed % 40) as u32, seed % 2 == 0);
        let pending = 100 + seed % 900;
        program_with_memory(seed, Faults::of(seed), max_run, whole, pending).is_some()
    });
    let ended = ended.count();
    assert!(ended > 300, "{ended}");
}
