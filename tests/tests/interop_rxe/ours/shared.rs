//! The peer of `ibv_srq_pingpong`: many queue pairs, one SRQ.
//!
//! It receives into one buffer for all, and sends from it. So we always send the same bytes, which come back.

use std::collections::HashMap;

use ferroce::*;

use super::end::{End, Partner, same};
use super::pingpong::{FIRST_PSN, exchange, message};
use super::{Task, wait_for_the_other};

/// The number of queue pairs that the program creates.
const PAIRS: usize = 16;
/// The number of lines that it always exchanges: the remaining ones are unused.
const LINES: usize = 256;
/// Posted receives: more than can arrive at a time.
const DEPTH: usize = 64;

/// What a queue pair waits for before its next send.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Pending {
    send: bool,
    receive: bool,
}

pub(crate) fn run(task: &Task) {
    let size = task.size;
    let end = End::open(task, size * (DEPTH + 1));
    let sent_bytes = message(0, size);
    end.write(DEPTH * size, &sent_bytes);
    let receives = end.pd.shared_receive_queue(DEPTH).expect("a shared receive queue");
    let post_receive = |slot: usize| {
        let sg_list = end.sg_list(slot * size, size);
        receives.post(ReceiveRequest { id: WorkId(slot as u64), sg_list }).expect("room");
    };
    (0..DEPTH).for_each(post_receive);
    let options = QueuePairOptions::new(ServiceType::ReliableConnection, &end.completions);
    let options = QueuePairOptions { srq: Some(&receives), ..options };
    let make = || end.pd.queue_pair(&options).expect("a queue pair");
    let pairs: Vec<QueuePair> = (0..PAIRS).map(|_| make()).collect();
    // Far apart, so that they are easy to distinguish in a capture.
    let psn = |index: usize| FIRST_PSN.add(index as u32 * 0x10_0000);
    let own = |(index, pair): (usize, &QueuePair)| Partner {
        number: pair.number(),
        psn: psn(index),
        gid: end.gid,
    };
    let mut lines: Vec<Partner> = pairs.iter().enumerate().map(own).collect();
    lines.resize(LINES, Partner { number: Qpn(0), psn: Psn(0), gid: end.gid });
    exchange(task, &lines, |partners| {
        for (index, (pair, partner)) in pairs.iter().zip(partners).enumerate() {
            end.connect(pair, &end.attributes(psn(index), partner));
        }
    });

    let by_number: HashMap<Qpn, &QueuePair> =
        pairs.iter().map(|pair| (pair.number(), pair)).collect();
    let waiting = Pending { send: true, receive: true };
    // The server sends nothing before the first message arrives.
    let first = if task.serves { Pending { send: false, receive: true } } else { waiting };
    let mut pending: HashMap<Qpn, Pending> =
        pairs.iter().map(|pair| (pair.number(), first)).collect();
    let send = |pair: &QueuePair| end.post(pair, Operation::SEND, DEPTH * size, size);
    if !task.serves {
        pairs.iter().for_each(send);
    }
    let (mut sent, mut received) = (0, 0);
    let mut posted = if task.serves { 0 } else { PAIRS };
    // A peer that is done may exit before its last acknowledgements arrive, and these may be lost.
    while received < task.count || (if task.lossy { posted } else { sent }) < task.count {
        let done = end.done();
        let wait = pending.get_mut(&done.queue_pair).expect("a queue pair of ours");
        if done.kind == CompletionKind::Receive {
            let slot = done.id.0 as usize;
            assert_eq!(done.length as usize, size);
            let found = end.bytes(slot * size, size);
            if task.serves {
                // A client's buffer is overwritten by our responses while it still sends its initial contents.
                let fits = |(byte, ours): (&u8, &u8)| byte == ours || *byte == 0;
                assert!(found.iter().zip(&sent_bytes).all(fits), "message {received}");
            } else {
                same(&found, &sent_bytes, "what came back");
            }
            post_receive(slot);
            received += 1;
            wait.receive = false;
        } else {
            sent += 1;
            wait.send = false;
        }
        if sent < task.count && *wait == Pending::default() {
            *wait = waiting;
            posted += 1;
            send(by_number[&done.queue_pair]);
        }
    }
    wait_for_the_other();
}
