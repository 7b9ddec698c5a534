//! Every wire operation, with all boundary lengths, with each side as requester.

use ferroce::*;

use super::end::{End, pattern, same};
use super::puppet::{
    COMPARE_SWAP, FETCH_ADD, Pair, Post, Puppet, READ, ROOM, SEND, SEND_IMMEDIATE, WRITE,
    WRITE_IMMEDIATE, Wish, at,
};
use super::{Task, wait_for_the_other};

/// Offsets of messages and of atomics.
const TARGET: usize = 1 << 20;
const ATOMIC: usize = TARGET - 64;

/// Around packet boundaries, and more than a window. With packet loss, a few are enough.
fn lengths(task: &Task) -> Vec<usize> {
    let mtu = task.mtu;
    let all = [0, 1, 3, mtu - 1, mtu, mtu + 1, 3 * mtu + 2, 65_539, task.size];
    if task.lossy { vec![mtu, 3 * mtu + 2, 65_539] } else { all.to_vec() }
}

struct Scene<'a> {
    end: End,
    puppet: Puppet,
    pair: Pair,
    task: &'a Task,
    seed: u32,
}

impl<'a> Scene<'a> {
    fn new(task: &'a Task, service: ServiceType) -> Self {
        let end = End::open(task, ROOM);
        let mut puppet = Puppet::find();
        let pair = puppet.pair(&end, Wish { service, ..Wish::default() });
        Self { end, puppet, pair, task, seed: 1 }
    }

    /// Returns a new seed for the next message.
    fn seed(&mut self) -> u32 {
        self.seed += 1;
        self.seed
    }

    /// Runs one of our operations to its completion.
    fn ours(&self, operation: Operation, length: usize) {
        self.end.post(&self.pair.ours, operation, 0, length);
        let done = self.end.done();
        assert_eq!(done.kind, CompletionKind::from(&operation));
    }

    /// Runs one of their operations to its completion.
    fn theirs(&mut self, opcode: u8, length: usize, remote: RemoteAddress, first: u64) {
        self.puppet.post(Post { opcode, length, remote, first, ..Post::default() });
        self.puppet.done();
    }

    fn holds(&self, offset: usize, length: usize, seed: u32, what: &str) {
        let what = format!("{what} of {length} bytes");
        same(&self.end.bytes(offset, length), &pattern(seed, length), &what);
    }

    /// Our SENDs and WRITEs, with and without immediate data.
    fn we_send(&mut self, length: usize) {
        for (write, immediate) in [(true, None), (true, Some(7)), (false, None), (false, Some(9))] {
            let seed = self.seed();
            self.end.write(0, &pattern(seed, length));
            let receives = !write || immediate.is_some();
            if receives {
                self.puppet.receive(TARGET, length);
            }
            let remote = at(self.pair.theirs, TARGET);
            let number = immediate.map(Immediate);
            self.ours(
                match write {
                    true => Operation::Write { remote, immediate: number },
                    false => Operation::Send { immediate: number, invalidate: None },
                },
                length,
            );
            if receives {
                let done = self.puppet.done();
                assert_eq!((done.length, done.immediate), (length, immediate.unwrap_or(0)));
            } else if self.pair.ours.service() == ServiceType::UnreliableConnection {
                // Our completion means that it was sent. A message after it shows that it arrived.
                self.puppet.receive(0, 0);
                self.ours(Operation::SEND, 0);
                self.puppet.done();
            }
            self.puppet.check(TARGET, length, seed);
        }
    }

    /// Their SENDs and WRITEs, with and without immediate data.
    fn they_send(&mut self, length: usize) {
        for (opcode, receives) in
            [(WRITE, false), (WRITE_IMMEDIATE, true), (SEND, true), (SEND_IMMEDIATE, true)]
        {
            let seed = self.seed();
            self.puppet.fill(0, length, seed);
            if receives {
                self.pair.ours.post_receive(self.end.receive(TARGET, length)).expect("a receive");
            }
            let immediate = [WRITE_IMMEDIATE, SEND_IMMEDIATE].contains(&opcode).then_some(seed);
            let remote = self.end.region.remote(TARGET as u64);
            self.theirs(opcode, length, remote, u64::from(seed));
            if receives {
                let done = self.end.done();
                assert_eq!(done.length as usize, length);
                assert_eq!(done.immediate, immediate.map(Immediate));
            } else if self.pair.ours.service() == ServiceType::UnreliableConnection {
                self.pair.ours.post_receive(self.end.receive(0, 0)).expect("a receive");
                self.theirs(SEND, 0, RemoteAddress::default(), 0);
                self.end.done();
            }
            self.holds(TARGET, length, seed, "their message");
        }
    }

    fn we_read(&mut self, length: usize) {
        let seed = self.seed();
        self.puppet.fill(TARGET, length, seed);
        self.ours(Operation::Read { remote: at(self.pair.theirs, TARGET) }, length);
        self.holds(0, length, seed, "our READ");
    }

    fn they_read(&mut self, length: usize) {
        let seed = self.seed();
        self.end.write(TARGET, &pattern(seed, length));
        self.theirs(READ, length, self.end.region.remote(TARGET as u64), 0);
        self.puppet.check(0, length, seed);
    }

    /// Our atomics: what they return, and what a READ finds afterwards.
    fn we_do_atomics(&mut self) {
        self.puppet.fill(ATOMIC, 8, 3);
        let remote = at(self.pair.theirs, ATOMIC);
        let mut value = number(&pattern(3, 8));
        for (compare, operand) in [(None, 5), (Some(true), 77), (Some(false), 1), (None, u64::MAX)]
        {
            let before = value;
            let operation = match compare {
                None => Operation::FetchAdd { remote, add: operand },
                Some(fits) => {
                    let compare = if fits { value } else { !value };
                    Operation::CompareSwap { remote, compare, swap: operand }
                }
            };
            value = match compare {
                None => value.wrapping_add(operand),
                Some(true) => operand,
                Some(false) => value,
            };
            self.ours(operation, 8);
            assert_eq!(number(&self.end.bytes(0, 8)), before, "{operation:?}");
            self.ours(Operation::Read { remote }, 8);
            assert_eq!(number(&self.end.bytes(0, 8)), value, "after {operation:?}");
        }
    }

    /// Their atomics on our memory.
    fn they_do_atomics(&mut self) {
        let remote = self.end.region.remote(ATOMIC as u64);
        let mut seed = self.seed();
        let mut value = number(&pattern(seed, 8));
        self.end.write(ATOMIC, &value.to_ne_bytes());
        let post = Post { remote, length: 8, ..Post::default() };
        for (opcode, first, second, after) in [
            (FETCH_ADD, 5, 0, value.wrapping_add(5)),
            (COMPARE_SWAP, value.wrapping_add(5), 77, 77),
            (COMPARE_SWAP, 78, 1, 77),
        ] {
            self.puppet.post(Post { opcode, first, second, ..post });
            self.puppet.done();
            // It can check patterns only, and only the first value is one.
            if opcode == FETCH_ADD {
                self.puppet.check(0, 8, seed);
            }
            value = after;
            assert_eq!(number(&self.end.bytes(ATOMIC, 8)), value);
        }
        // A swap returns a pattern that we wrote there.
        seed = self.seed();
        self.end.write(ATOMIC, &pattern(seed, 8));
        self.puppet.post(Post { opcode: COMPARE_SWAP, first: 1, second: 2, ..post });
        self.puppet.done();
        self.puppet.check(0, 8, seed);
        self.holds(ATOMIC, 8, seed, "a swap that did not fit");
    }

    /// A message that arrives before its receive is posted: the sender gets an RNR NAK, and retransmits.
    fn receives_come_late(&mut self) {
        let length = 2 * self.task.mtu + 1;
        let seed = self.seed();
        self.end.write(0, &pattern(seed, length));
        let heard = self.end.context.statistics().packets_in;
        self.end.post(&self.pair.ours, Operation::SEND, 0, length);
        self.hear_after(heard);
        self.puppet.receive(TARGET, length);
        self.end.done();
        assert_eq!(self.puppet.done().length, length);
        self.puppet.check(TARGET, length, seed);

        let seed = self.seed();
        self.puppet.fill(0, length, seed);
        let heard = self.end.context.statistics().packets_in;
        self.puppet.post(Post { opcode: SEND, length, ..Post::default() });
        self.hear_after(heard);
        self.pair.ours.post_receive(self.end.receive(TARGET, length)).expect("a receive");
        assert_eq!(self.end.done().length as usize, length);
        self.puppet.done();
        self.holds(TARGET, length, seed, "a message before its receive");
    }

    /// Waits for a packet of the peer.
    fn hear_after(&self, count: u64) {
        while self.end.context.statistics().packets_in == count {
            assert_eq!(self.end.completions.poll_one(), None);
            std::thread::yield_now();
        }
    }
}

/// Atomics are in host byte order, which is the same on both machines.
fn number(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
}

pub(crate) fn reliable(task: &Task) {
    let mut scene = Scene::new(task, ServiceType::ReliableConnection);
    for length in lengths(task) {
        if task.serves {
            scene.they_send(length);
            scene.they_read(length);
        } else {
            scene.we_send(length);
            scene.we_read(length);
        }
    }
    if task.serves {
        scene.they_do_atomics();
    } else {
        scene.we_do_atomics();
    }
    scene.receives_come_late();
    drop(scene);
    wait_for_the_other();
}

pub(crate) fn unreliable(task: &Task) {
    let mut scene = Scene::new(task, ServiceType::UnreliableConnection);
    for length in lengths(task) {
        if task.serves {
            scene.they_send(length);
        } else {
            scene.we_send(length);
        }
    }
    drop(scene);
    wait_for_the_other();
}
