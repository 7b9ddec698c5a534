//! Requests that a responder must refuse, each on a new connection, with each side as requester. The requester gets the
//! right status, and memory is unchanged.

use ferroce::*;

use super::end::{ALL, End, pattern, same};
use super::puppet::{FETCH_ADD, Post, Puppet, READ, ROOM, SEND, WRITE, Wish, at};
use super::{Task, wait_for_the_other};

/// Bytes of a message, which is longer than one packet.
const LENGTH: usize = 5000;

/// The error of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Key,
    Bounds,
    /// The memory does not allow it.
    Memory,
    /// The queue pair does not allow it.
    QueuePair,
    /// The receive is too short.
    TooLong,
    /// No receive is ever posted.
    NoReceive,
}

use Fault::{Bounds, Key, Memory, NoReceive, QueuePair as Pair, TooLong};

/// Requests that must fail.
const CASES: [(Fault, u8); 11] = [
    (Key, WRITE),
    (Key, READ),
    (Key, FETCH_ADD),
    (Bounds, WRITE),
    (Bounds, READ),
    (Memory, WRITE),
    (Memory, READ),
    (Pair, WRITE),
    (Pair, READ),
    (TooLong, SEND),
    (NoReceive, SEND),
];

/// The status with which our requests complete if `rdma_rxe` refuses them.
fn by_them(fault: Fault) -> Status {
    match fault {
        Key | Bounds | Memory => Status::RemoteAccess,
        Pair => Status::RemoteInvalidRequest,
        // The specification says invalid request: see docs/differences-from-rxe.md.
        TooLong => Status::RemoteOperation,
        NoReceive => Status::RnrRetryExceeded,
    }
}

/// The status with which its requests complete if we refuse them.
fn by_us(fault: Fault) -> Status {
    match fault {
        Key | Bounds | Memory => Status::RemoteAccess,
        Pair | TooLong => Status::RemoteInvalidRequest,
        NoReceive => Status::RnrRetryExceeded,
    }
}

/// Returns the remote address of a request.
fn place(fault: Fault, good: RemoteAddress) -> RemoteAddress {
    match fault {
        Key => RemoteAddress { key: RKey(good.key.0 ^ 0x0101), ..good },
        Bounds => at(good, ROOM - LENGTH + 1),
        _ => good,
    }
}

fn length(opcode: u8) -> usize {
    if opcode == FETCH_ADD { 8 } else { LENGTH }
}

/// Local write access only.
const CLOSED: AccessFlags = AccessFlags::LOCAL_WRITE;

fn we_ask(task: &Task, puppet: &mut Puppet, fault: Fault, opcode: u8) {
    let end = End::open(task, ROOM);
    let wish = Wish {
        their_pair: if fault == Pair { AccessFlags::empty() } else { ALL },
        their_memory: if fault == Memory { CLOSED } else { ALL },
        rnr_retry: if fault == NoReceive { 1 } else { 7 },
        ..Wish::default()
    };
    let pair = puppet.pair(&end, wish);
    puppet.fill(0, ROOM, 5);
    if fault == TooLong {
        puppet.receive(0, 100);
    }
    end.write(0, &pattern(6, LENGTH));
    let remote = place(fault, pair.theirs);
    let operation = match opcode {
        WRITE => Operation::Write { remote, immediate: None },
        READ => Operation::Read { remote },
        FETCH_ADD => Operation::FetchAdd { remote, add: 1 },
        _ => Operation::SEND,
    };
    end.post(&pair.ours, operation, 0, length(opcode));
    end.post(&pair.ours, Operation::SEND, 0, 1);
    assert_eq!(end.next().status, by_them(fault), "{fault:?} {operation:?}");
    assert_eq!(end.next().status, Status::Flushed, "behind {fault:?} {operation:?}");
    assert_eq!(pair.ours.state(), State::Error);
    same(&end.bytes(0, LENGTH), &pattern(6, LENGTH), "our memory");
    if fault == TooLong {
        // The receiver gets an error too, and its buffer may be partly written.
        assert_ne!(puppet.next().status, Status::Success);
    } else {
        puppet.check(0, ROOM, 5);
    }
}

fn they_ask(task: &Task, puppet: &mut Puppet, fault: Fault, opcode: u8) {
    let end = End::open(task, ROOM);
    let closed = end.pd.allocate(ROOM, CLOSED).expect("memory");
    let wish = Wish {
        our_pair: if fault == Pair { AccessFlags::empty() } else { ALL },
        rnr_retry: if fault == NoReceive { 1 } else { 7 },
        ..Wish::default()
    };
    let pair = puppet.pair(&end, wish);
    puppet.fill(0, LENGTH, 6);
    let before = pattern(5, ROOM);
    end.write(0, &before);
    if fault == TooLong {
        pair.ours.post_receive(end.receive(0, 100)).expect("a receive");
    }
    let good = if fault == Memory { closed.remote(0) } else { end.region.remote(0) };
    let remote = place(fault, good);
    puppet.post(Post { opcode, length: length(opcode), remote, first: 1, ..Post::default() });
    puppet.post(Post { opcode: SEND, length: 1, ..Post::default() });
    assert_eq!(puppet.next().status, by_us(fault), "{fault:?}, opcode {opcode}");
    assert_eq!(puppet.next().status, Status::Flushed, "behind {fault:?}, opcode {opcode}");
    puppet.check(0, LENGTH, 6);
    if fault == TooLong {
        assert_ne!(end.next().status, Status::Success);
    } else {
        same(&end.bytes(0, ROOM), &before, "our memory");
    }
}

pub(crate) fn run(task: &Task) {
    let mut puppet = Puppet::find();
    for (fault, opcode) in CASES {
        if task.serves {
            they_ask(task, &mut puppet, fault, opcode);
        } else {
            we_ask(task, &mut puppet, fault, opcode);
        }
    }
    drop(puppet);
    wait_for_the_other();
}
