//! The peer of `rping`: the client announces a buffer, the server reads it, the client announces another one, and the
//! server writes what it read there.

use ferroce::cm::{ConnectParameters, EventKind};
use ferroce::*;

use super::cma::{Connection, connect, event, listen};
use super::{Task, wait_for_the_other};

const PORT: u16 = 7174;
/// `struct rping_rdma_info`: address, key, size, big-endian.
const ADVICE: usize = 8 + 4 + 4;

/// Offsets in our memory: received message, sent message, first buffer, second buffer.
const HEARD: usize = 0;
const SAID: usize = 64;
const FIRST: usize = 4096;

fn second(task: &Task) -> usize {
    FIRST + task.size.next_multiple_of(4096)
}

/// Returns the text of a ping, as rping writes it: a header, letters, and a zero at the end.
fn text(number: usize, size: usize) -> Vec<u8> {
    let mut text = format!("rdma-ping-{number}: ").into_bytes();
    let letters = (b'A'..=b'z').cycle().skip(number % 58);
    let room = (size - 1).saturating_sub(text.len());
    text.extend(letters.take(room));
    text.truncate(size - 1);
    text.push(0);
    text
}

fn listen_for_advice(peer: &Connection) {
    peer.queue_pair.post_receive(peer.end.receive(HEARD, ADVICE)).expect("a receive");
}

/// Waits for the peer's next message, and returns the buffer that it announces.
fn heard(peer: &Connection) -> (RemoteAddress, usize) {
    loop {
        let done = peer.end.done();
        if done.kind != CompletionKind::Receive {
            continue;
        }
        assert_eq!(done.length as usize, ADVICE);
        let bytes = peer.end.bytes(HEARD, ADVICE);
        let number = |range: std::ops::Range<usize>| {
            bytes[range].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let address = VirtualAddress(number(0..8));
        let remote = RemoteAddress { address, key: RKey(number(8..12) as u32) };
        // Before we respond, because the peer continues then.
        listen_for_advice(peer);
        return (remote, number(12..16) as usize);
    }
}

/// Announces one of our buffers to the peer; a server's message only means that the client may continue.
fn say(peer: &Connection, offset: usize, size: usize) {
    let remote = peer.end.region.remote(offset as u64);
    let advice = [
        &remote.address.0.to_be_bytes()[..],
        &remote.key.0.to_be_bytes(),
        &(size as u32).to_be_bytes(),
    ];
    peer.end.write(SAID, &advice.concat());
    peer.end.post(&peer.queue_pair, Operation::SEND, SAID, ADVICE);
}

/// Executes one of our operations. Completions of messages may precede its own.
fn finish(peer: &Connection, operation: Operation, offset: usize, size: usize) {
    let wanted = CompletionKind::from(&operation);
    peer.end.post(&peer.queue_pair, operation, offset, size);
    while peer.end.done().kind != wanted {}
}

pub(crate) fn run(task: &Task) {
    let room = second(task) + task.size;
    let (wish, service) = (ConnectParameters::default(), ServiceType::ReliableConnection);
    if task.serves {
        let peer = listen(task, PORT, service, room, &wish, listen_for_advice);
        for number in 0..task.count {
            let (remote, size) = heard(&peer);
            assert_eq!(size, task.size);
            finish(&peer, Operation::Read { remote }, FIRST, size);
            let found = peer.end.bytes(FIRST, size);
            let head = format!("rdma-ping-{number}: ");
            assert!(found.starts_with(head.as_bytes()), "ping {number}");
            assert_eq!(found.last(), Some(&0));
            say(&peer, FIRST, size);
            let (remote, size) = heard(&peer);
            assert_eq!(size, task.size);
            finish(&peer, Operation::Write { remote, immediate: None }, FIRST, size);
            say(&peer, FIRST, size);
        }
        // The client disconnects. It exits at once, so its DREQ is not sent again if it was lost.
        if !task.lossy {
            assert!(matches!(event(&peer.events), EventKind::Disconnected(_)));
        }
        wait_for_the_other();
    } else {
        let peer = connect(task, PORT, service, room, &wish, listen_for_advice);
        for number in 0..task.count {
            let sent = text(number, task.size);
            peer.end.write(FIRST, &sent);
            say(&peer, FIRST, task.size);
            heard(&peer);
            say(&peer, second(task), task.size);
            heard(&peer);
            super::end::same(&peer.end.bytes(second(task), task.size), &sent, "a pong");
        }
        peer.id.disconnect().expect("a connection");
        assert!(matches!(event(&peer.events), EventKind::Disconnected(_)));
        wait_for_the_other();
    }
}
