//! Many QPs share one pool of credit per receive buffer, as an engine would hand it out: round robin, in turns of 16
//! packets. A QP that the budget blocks keeps its place at the head.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};
use std::vec;
use std::vec::Vec;

use ferroce_wire::packet::Packet;

use super::helpers::{REMOTE_OFFSET, read, remote, request, write};
use super::pair::{Faults, Random, TestMemory, config};
use crate::budget::{Budget, InFlight, Pending};
use crate::congestion::{Congestion, cost};
use crate::rc::QueuePair;
use crate::receive::ReceiveQueue;
use crate::time::Instant;
use crate::work::{Operation, Status};

const TURN: usize = 16;
const PACKET: usize = cost(1024, 1);
const MESSAGES: u64 = 4;

/// Side and index of a QP.
type Address = (usize, usize);

/// A packet in flight: time of arrival, number, destination, bytes.
type Flying = (Instant, u64, Address, Vec<u8>);

struct Hosts {
    /// Requesters, and their responders.
    sides: [Vec<QueuePair>; 2],
    memories: [TestMemory; 2],
    /// Requesters that wait for their turn, and how many turns others had since.
    waiting: VecDeque<(usize, usize)>,
    pool: usize,
    now: Instant,
    flying: BinaryHeap<Reverse<Flying>>,
    number: u64,
    random: Random,
    faults: Faults,
    finished: Vec<u64>,
}

impl Hosts {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let count = 1 + random.below(100) as usize;
        let pool = 1 + random.below(64) as usize;
        // A READ chunk is half the window, and must fit into the pool and into a turn.
        let window = 2 * pool.min(TURN) * PACKET;
        let new = |_| {
            let mut config = config(1024, 5, 5);
            config.congestion = Congestion::Window(window);
            config.timeout = Some(Duration::from_millis(5));
            QueuePair::new(config)
        };
        let sides = [0, 1].map(|_| (0..count).map(new).collect::<Vec<_>>());
        let faults = Faults {
            loss: random.below(50),
            duplication: random.below(20),
            reordering: random.below(50),
        };
        let memories = [0, 1].map(|_| TestMemory::new(&mut random));
        let (waiting, flying, finished) = (VecDeque::new(), BinaryHeap::new(), vec![0; count]);
        let now = Instant::ZERO;
        let pool = pool * PACKET;
        let mut hosts = Self {
            sides,
            memories,
            waiting,
            pool,
            now,
            flying,
            number: 0,
            random,
            faults,
            finished,
        };
        for index in 0..count {
            for id in 0..MESSAGES {
                let length = hosts.random.below(40_000) as u32;
                let add = Operation::FetchAdd { remote: remote(REMOTE_OFFSET), add: 1 };
                let work = match hosts.random.below(4) {
                    0 => read(id, length),
                    1 => request(id, add, 8),
                    _ => write(id, length),
                };
                hosts.sides[0][index].post_send(work).unwrap();
            }
            hosts.wake((0, index));
        }
        hosts
    }

    /// Credit that is not in flight.
    fn available(&self) -> Budget {
        let mut used = InFlight::NONE;
        self.sides[0].iter().for_each(|qp| used.add(qp.in_flight()));
        assert!(used.peer <= self.pool && used.own <= self.pool, "{used:?} of {}", self.pool);
        Budget { peer: self.pool - used.peer, own: self.pool - used.own }
    }

    /// Schedules a requester that may have something to send, and sends what a responder has.
    fn wake(&mut self, (side, index): Address) {
        let qp = &self.sides[side][index];
        if side == 1 {
            while self.sides[1][index].pending() != Pending::Nothing {
                assert!(self.send((1, index), &mut { Budget::UNLIMITED }));
            }
        } else if qp.pending() != Pending::Nothing
            && !self.waiting.iter().any(|(other, _)| *other == index)
        {
            self.waiting.push_back((index, 0));
        }
    }

    /// Gives turns until the credit is used up.
    fn turns(&mut self) {
        while let Some(&(index, others)) = self.waiting.front() {
            let count = self.sides[0].len();
            assert!(others <= count, "QP {index} waited for {others} turns of {count} QPs");
            let available = self.available();
            let limit = TURN * PACKET;
            let mut budget =
                Budget { peer: available.peer.min(limit), own: available.own.min(limit) };
            let sent = (0..TURN).take_while(|_| self.send((0, index), &mut budget)).count();
            let qp = &self.sides[0][index];
            if qp.over_budget().is_some() && sent == 0 {
                return;
            }
            self.waiting.pop_front();
            self.waiting.iter_mut().for_each(|(_, others)| *others += 1);
            if qp.over_budget().is_some() || sent == TURN {
                self.waiting.push_back((index, 0));
            }
        }
    }

    fn send(&mut self, (side, index): Address, budget: &mut Budget) -> bool {
        let memory = &mut self.memories[side];
        let qp = &mut self.sides[side][index];
        let Some(transmit) = qp.poll_transmit(self.now, budget, memory) else { return false };
        let mut bytes = vec![0; 2048];
        let length = transmit.encode(memory, &mut bytes).unwrap();
        bytes.truncate(length);
        bytes.extend([0; 4]); // Space for the ICRC.
        let copies = if self.random.chance(self.faults.duplication) { 2 } else { 1 };
        for _ in 0..copies {
            if self.random.chance(self.faults.loss) {
                continue;
            }
            let reordered = self.random.chance(self.faults.reordering);
            let late = if reordered { self.random.below(100_000) } else { 0 };
            let arrival = self.now + Duration::from_nanos(10_000 + late);
            self.number += 1;
            self.flying.push(Reverse((arrival, self.number, (1 - side, index), bytes.clone())));
        }
        true
    }

    /// Processes the next packet or timer. Returns false when there is none.
    fn step(&mut self) -> bool {
        let arrival = self.flying.peek().map(|Reverse((time, ..))| *time);
        let timer = self.sides[0].iter().filter_map(QueuePair::poll_timeout).min();
        let Some(next) = arrival.into_iter().chain(timer).min() else { return false };
        self.now = self.now.max(next);
        if arrival == Some(next) {
            let Some(Reverse((.., to, bytes))) = self.flying.pop() else { return false };
            let packet = Packet::parse(&bytes).expect("what we send can be read");
            let memory = &mut self.memories[to.0];
            let receives = &mut ReceiveQueue::new(0);
            let qp = &mut self.sides[to.0][to.1];
            qp.handle_packet(self.now, &packet, false, Some(receives), memory);
            while let Some(completion) = qp.poll_send_completion() {
                assert_eq!(completion.status, Status::Success);
                self.finished[to.1] += 1;
            }
            self.wake(to);
        } else {
            for index in 0..self.sides[0].len() {
                let qp = &mut self.sides[0][index];
                if qp.poll_timeout().is_some_and(|time| time <= self.now) {
                    qp.handle_timeout(self.now);
                    self.wake((0, index));
                }
            }
        }
        true
    }
}

#[test]
fn every_queue_pair_finishes_with_credit_from_a_shared_pool() {
    for seed in 0..128 {
        let mut hosts = Hosts::new(seed);
        loop {
            hosts.turns();
            if !hosts.step() {
                break;
            }
            let qps = hosts.sides.iter().flatten();
            assert!(qps.clone().all(|qp| qp.fault().is_none()), "seed {seed}");
        }
        assert!(hosts.finished.iter().all(|count| *count == MESSAGES), "seed {seed}");
        let left = hosts.available();
        assert_eq!((left.peer, left.own), (hosts.pool, hosts.pool), "seed {seed}");
    }
}
