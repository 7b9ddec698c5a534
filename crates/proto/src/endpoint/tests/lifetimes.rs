//! Random lives of two QPs: requests, lost packets, memory that takes time or is not readable, errors, drained send queues and
//! resets, in any order. Every request completes once, and nothing of a QP is accessed after it has no unfinished accesses.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::vec::Vec;

use ferroce_wire::number::{RKey, VirtualAddress};
use ferroce_wire::opcode::Opcode;

use super::finish::finish_at;
use super::{SENDING, SRQ, Side, post, side};
use crate::endpoint::Event;
use crate::qp::{QueuePairAttributes, ServiceType, State};
use crate::receive::ReceiveQueue;
use crate::testing::{BASE, KEY, Random, sge};
use crate::time::Instant;
use crate::work::{Data, Operation, RemoteAddress, SendRequest, SgList, WorkId};

struct Life {
    side: Side,
    shared: bool,
    /// Packets on the way to it.
    arriving: VecDeque<Vec<u8>>,
    sends: BTreeSet<u64>,
    receives: BTreeSet<u64>,
}

struct Lives {
    random: Random,
    sides: [Life; 2],
    now: Instant,
    next_id: u64,
    /// How many receives completed before the end.
    received: usize,
}

impl Lives {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let service = SENDING[random.below(4) as usize];
        let peer = match service {
            ServiceType::XrcInitiator => ServiceType::XrcTarget,
            other => other,
        };
        let pending = [0, 100, 500, 1000][random.below(4) as usize];
        let failing = [0, 0, 50][random.below(3) as usize];
        let sides = [(service, 1), (peer, 2)].map(|(service, number)| {
            let shared = service == ServiceType::XrcTarget || random.chance(300);
            let mut side = side(service, number, shared);
            side.memory.pend(seed ^ u64::from(number), pending, Duration::ZERO);
            (side.memory.pending.reads, side.memory.pending.failing) = (true, failing);
            let (sends, receives) = (BTreeSet::new(), BTreeSet::new());
            Life { side, shared, arriving: VecDeque::new(), sends, receives }
        });
        Self { random, sides, now: Instant::ZERO, next_id: 0, received: 0 }
    }

    /// Resets both, and brings them up as far as it goes.
    fn connect(&mut self) {
        for (at, life) in self.sides.iter_mut().enumerate() {
            let reset = QueuePairAttributes { state: Some(State::Reset), ..Default::default() };
            let unfinished = life.side.endpoint.unfinished();
            life.side.endpoint.modify(&reset).unwrap();
            assert_eq!(life.side.endpoint.unfinished(), unfinished);
            // IBA 10.3.1.1: its requests are discarded.
            let queue = &mut life.side.receives;
            *queue = match queue.xrc() {
                Some(xrc) => ReceiveQueue::with_xrc(16, xrc),
                None => ReceiveQueue::new(16),
            };
            (life.sends, life.receives) = (BTreeSet::new(), BTreeSet::new());
            life.arriving.clear();
            let to = match self.random.below(10) {
                0 => State::Init,
                1 => State::ReadyToReceive,
                _ => State::ReadyToSend,
            };
            life.side.bring(to, 2 - at as u32);
        }
    }

    fn post_send(&mut self, at: usize) {
        let (id, length) = (self.next_id, self.random.below(900) as u32);
        self.next_id += 1;
        let life = &mut self.sides[at];
        let service = life.side.endpoint.settings().service;
        let remote = RemoteAddress {
            address: VirtualAddress(BASE + 0x8_0000 + self.random.below(0x1000)),
            key: RKey(KEY + u32::from(self.random.chance(20))),
        };
        let kinds = match service {
            ServiceType::UnreliableDatagram => 1,
            ServiceType::UnreliableConnection => 2,
            _ => 3,
        };
        let operation = match self.random.below(kinds) {
            0 => None,
            1 => Some(Operation::Write { remote, immediate: None }),
            _ => Some(Operation::Read { remote }),
        };
        let posted = match operation {
            None => post(&mut life.side, id, length),
            Some(operation) => {
                let data = Data::SgList(SgList::from(sge(self.random.below(0x1000), length)));
                let receive_queue = Some(SRQ).filter(|_| service == ServiceType::XrcInitiator);
                let request = SendRequest::new(WorkId(id), operation, data);
                life.side.endpoint.post_send(SendRequest { receive_queue, ..request })
            }
        };
        if posted.is_ok() {
            life.sends.insert(id);
        }
    }

    fn post_receive(&mut self, at: usize) {
        let (id, life) = (self.next_id, &mut self.sides[at]);
        self.next_id += 1;
        if life.side.receives.len() < 16 && life.side.endpoint.state() != State::Reset {
            let place = 0x4_0000 + self.random.below(0x1_0000);
            life.side.post_receive(id, place, 100 + self.random.below(1200) as u32);
            life.receives.insert(id);
        }
    }

    /// Changes the state, if it can be changed like this.
    fn modify(&mut self, at: usize) {
        let endpoint = &mut self.sides[at].side.endpoint;
        let to = match (endpoint.state(), self.random.below(12)) {
            (_, 0) if self.random.chance(300) => return endpoint.handle_fatal(),
            (_, 0) => State::Error,
            (State::ReadyToSend, _) if endpoint.settings().service != ServiceType::XrcTarget => {
                State::SendQueueDrain
            }
            (State::SendQueueDrain, _) if !endpoint.is_draining() => State::ReadyToSend,
            (State::SendQueueError, _) => State::ReadyToSend,
            _ => return,
        };
        endpoint.modify(&QueuePairAttributes { state: Some(to), ..Default::default() }).unwrap();
    }

    fn finish(&mut self, at: usize) {
        let side = &mut self.sides[at].side;
        let open = side.memory.pending.open.len() as u64;
        if open > 0 {
            finish_at(side, self.random.below(open) as usize);
        }
    }

    fn step(&mut self) {
        let at = self.random.below(2) as usize;
        match self.random.below(100) {
            0 if self.random.chance(300) => return self.connect(),
            0..3 => self.modify(at),
            3 => self.sides[at].side.memory.valid = self.random.chance(950),
            4 => {
                self.now = self.now + Duration::from_micros(self.random.below(2000));
                self.sides[at].side.endpoint.handle_timeout(self.now);
            }
            5..20 => self.post_send(at),
            20..40 => self.post_receive(at),
            40..60 => self.finish(at),
            60..80 => {
                let packets = self.sides[at].side.poll(self.now);
                let random = &mut self.random;
                let kept = packets.into_iter().filter(|_| !random.chance(20));
                self.sides[1 - at].arriving.extend(kept);
            }
            _ => {
                let life = &mut self.sides[at];
                if let Some(bytes) = life.arriving.pop_front() {
                    life.side.handle(&bytes, self.now);
                }
            }
        }
        self.sides.iter_mut().for_each(|life| self.received += life.check());
    }

    /// Ends both: everything is flushed.
    fn end(mut self) -> usize {
        for life in &mut self.sides {
            let error = QueuePairAttributes { state: Some(State::Error), ..Default::default() };
            life.side.endpoint.modify(&error).unwrap();
            while life.side.endpoint.unfinished() > 0 {
                finish_at(&mut life.side, 0);
                life.check();
            }
            // ACKs may be left to send, and no more.
            let packets = life.side.poll(self.now);
            let is_request =
                |bytes: &Vec<u8>| Opcode(bytes[0]).info().is_some_and(|info| info.request);
            assert!(!packets.iter().any(is_request));
            let Side { endpoint, receives, received, .. } = &mut life.side;
            received.extend(core::iter::from_fn(|| endpoint.flush_receive(receives)));
            life.check();
            // What is in an SRQ belongs to no QP (IBA 10.2.9).
            let left = if life.shared { life.side.receives.len() } else { 0 };
            assert_eq!((life.sends.len(), life.receives.len()), (0, left));
        }
        self.received
    }
}

impl Life {
    /// Takes the completions, of which each is the only one of its request. Returns how many are of receives.
    fn check(&mut self) -> usize {
        let Side { endpoint, memory, sent, received, events, .. } = &mut self.side;
        assert_eq!(endpoint.unfinished(), memory.pending.open.len());
        sent.extend(core::iter::from_fn(|| endpoint.poll_send_completion()));
        received.extend(core::iter::from_fn(|| endpoint.poll_receive_completion()));
        events.extend(core::iter::from_fn(|| endpoint.poll_event()));
        assert!(self.shared || !events.contains(&Event::LastReceiveReached));
        let count = received.len();
        sent.drain(..).for_each(|one| assert!(self.sends.remove(&one.id.0), "{one:?}"));
        received.drain(..).for_each(|one| assert!(self.receives.remove(&one.id.0), "{one:?}"));
        count
    }
}

#[test]
fn every_request_completes_once_and_nothing_outlives_the_queue_pair() {
    let mut received = 0;
    for seed in 0..1000 {
        let mut lives = Lives::new(seed);
        lives.connect();
        (0..500).for_each(|_| lives.step());
        received += lives.end();
    }
    assert!(received > 3_000, "{received}");
}
