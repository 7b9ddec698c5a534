//! Random lives of two QPs: requests, lost packets, memory that takes time or is not readable, errors, drained send queues and
//! resets, in any order. Every request completes once, nothing of a QP is accessed after it has no unfinished accesses, and
//! what a QP says of itself is true: whether it has a packet, to whom, of which request, and whether it fits into the budget.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::vec;
use std::vec::Vec;

use ferroce_wire::ip::Ecn;
use ferroce_wire::number::{RKey, VirtualAddress};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;

use super::finish::finish_at;
use super::{SENDING, SRQ, Side, post, side};
use crate::endpoint::{Budget, Event, InFlight, Pending};
use crate::qp::{QueuePairAttributes, ServiceType, State};
use crate::rc::Message;
use crate::receive::ReceiveQueue;
use crate::testing::{BASE, KEY, Random, sge};
use crate::time::Instant;
use crate::transmit::EncodeError;
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
    /// No packet is lost, and messages take the fast paths where they can.
    lossless: bool,
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
        let lossless = random.chance(500);
        Self { random, sides, now: Instant::ZERO, next_id: 0, lossless, received: 0 }
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
            life.prepare(self.lossless);
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
        self.sides[at].prepare(self.lossless);
    }

    /// Sends up to eight packets.
    fn send(&mut self, at: usize) {
        for _ in 0..1 + self.random.below(8) {
            let random = &mut self.random;
            let limit = if random.chance(500) { usize::MAX } else { random.below(2000) as usize };
            let Some(bytes) = self.sides[at].poll(self.now, limit) else { return };
            if self.lossless || !random.chance(20) {
                self.sides[1 - at].arriving.push_back(bytes);
            }
        }
    }

    /// Tells a side what the links know.
    fn report(&mut self, at: usize) {
        let endpoint = &mut self.sides[at].side.endpoint;
        match self.random.below(4) {
            0 => endpoint.handle_delay(self.now),
            1 => endpoint.handle_link_down(self.now),
            2 => endpoint.handle_unreachable(self.now, endpoint.progress().send_psn),
            _ => endpoint.set_established(),
        }
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
            4 if self.random.chance(300) => self.report(at),
            4 => {
                self.now = self.now + Duration::from_micros(self.random.below(2000));
                self.sides[at].side.endpoint.handle_timeout(self.now);
            }
            5..20 => self.post_send(at),
            20..40 => self.post_receive(at),
            40..60 => self.finish(at),
            60..80 => self.send(at),
            _ => self.sides[at].receive(self.now, self.lossless),
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
    /// Says what link it has, after each change of state.
    fn prepare(&mut self, lossless: bool) {
        let endpoint = &mut self.side.endpoint;
        endpoint.set_lossless(lossless);
        endpoint.set_max_run(1);
        let service = endpoint.settings().service;
        let connected = !matches!(endpoint.state(), State::Reset | State::Init)
            && service != ServiceType::UnreliableDatagram;
        assert_eq!(endpoint.path_mtu(), if connected { 256 } else { 0 });
        // Only these slow down when the network marks packets.
        let reliable =
            !matches!(service, ServiceType::UnreliableConnection | ServiceType::UnreliableDatagram);
        assert_eq!(endpoint.ecn(), if reliable { Ecn::CAPABLE_0 } else { Ecn::NOT_CAPABLE });
    }

    /// The next packet, of which the request costs no more than `limit`.
    fn poll(&mut self, now: Instant, limit: usize) -> Option<Vec<u8>> {
        let Side { endpoint, memory, .. } = &mut self.side;
        let (pending, next) = (endpoint.pending(), endpoint.next_unacknowledged());
        // A larger budget, or a timer.
        let awaited = endpoint.is_blocked_by_budget()
            || endpoint.poll_timeout().is_some_and(|time| time <= now);
        let mut bytes = vec![0; 2048];
        let ack = if pending == Pending::Ack { endpoint.take_ack() } else { None };
        if let Some((ack, aeth)) = ack {
            bytes[..12].copy_from_slice(&ack.to_bytes());
            bytes[12..16].copy_from_slice(&aeth.to_bytes());
            bytes.truncate(20);
            return Some(bytes);
        }
        if limit == usize::MAX {
            if let Some(whole) = endpoint.take_whole(now, memory) {
                let (psn, length) = (whole.bth.psn, whole.headers_len() + whole.length);
                let end = length + usize::from(whole.bth.pad);
                let payload = &mut whole.encode_headers(&mut bytes).unwrap()[..whole.length];
                if whole.read(memory, payload).is_err() {
                    endpoint.handle_denied(psn, true, crate::testing::DENIED);
                    return None;
                }
                bytes.truncate(end + 4);
                return Some(bytes);
            }
        }
        let mut budget = Budget { peer: limit, own: limit };
        let Some(outgoing) = endpoint.poll_transmit(now, &mut budget, memory) else {
            let over = endpoint.over_budget();
            assert_eq!(endpoint.is_blocked_by_budget(), over.is_some());
            if let Some(cost) = over {
                // This much lets it go.
                let mut budget = Budget { peer: cost.peer, own: cost.own };
                assert!(endpoint.poll_transmit(now, &mut budget, memory).is_some());
                self.arriving.clear(); // The packet is lost, and so may be others.
            }
            return None;
        };
        let (route, transmit) = (outgoing.route, outgoing.transmit);
        let info = transmit.bth.opcode.info().unwrap();
        assert!(pending != Pending::Nothing || awaited, "{:?}", transmit.bth);
        if let Some((destination, to)) = next {
            assert_eq!((destination, to), (transmit.bth.destination, route));
        }
        let encoded = transmit.encode(memory, &mut bytes);
        let bth = transmit.bth;
        if info.request {
            let work = endpoint.work_of(&bth).expect("a request");
            assert!(self.sends.contains(&work.0), "{work:?} has completed or was never posted");
        }
        let acknowledged = endpoint.has_unacknowledged();
        assert!(next.is_none() || !acknowledged && endpoint.in_flight() == InFlight::NONE);
        match encoded {
            Ok(length) => bytes.truncate(length + 4),
            Err(error) => {
                let local = matches!(error, EncodeError::Local(_));
                endpoint.handle_denied(bth.psn, local, crate::testing::DENIED);
                return None;
            }
        }
        Some(bytes)
    }

    /// Handles the next packet; with `fast`, by a fast path if it can.
    fn receive(&mut self, now: Instant, fast: bool) {
        let Some(bytes) = self.arriving.pop_front() else { return };
        let Side { endpoint, memory, receives, .. } = &mut self.side;
        let packet = Packet::parse(&bytes).unwrap();
        let (bth, extensions) = (&packet.bth, &packet.extensions);
        if fast {
            let message = Message { bth, reth: extensions.reth.as_ref(), payload: packet.payload };
            if endpoint.handle_message(&message, 1, Some(receives), memory) {
                return;
            }
            if let (Opcode::RC_ACKNOWLEDGE, Some(aeth)) = (bth.opcode, extensions.aeth) {
                if endpoint.handle_ack(now, bth.psn, aeth, memory) {
                    return;
                }
            }
        }
        self.side.handle(&bytes, now);
    }

    /// Takes the completions, of which each is the only one of its request. Returns how many are of receives.
    fn check(&mut self) -> usize {
        let Side { endpoint, memory, sent, received, events, .. } = &mut self.side;
        assert_eq!(endpoint.unfinished(), memory.pending.open.len());
        sent.extend(core::iter::from_fn(|| endpoint.poll_send_completion()));
        received.extend(core::iter::from_fn(|| endpoint.poll_receive_completion()));
        events.extend(core::iter::from_fn(|| endpoint.poll_event()));
        assert!(self.shared || !events.contains(&Event::LastReceiveReached));
        assert_eq!(endpoint.progress().send_queue, endpoint.send_queue_len());
        assert!(!endpoint.has_only_send_completions(), "all are taken");
        assert!(!endpoint.awaits_ack() || endpoint.has_unacknowledged());
        let failed = matches!(endpoint.state(), State::SendQueueError | State::Error);
        assert!(failed || !endpoint.has_failed());
        endpoint.take_counters();
        endpoint.move_reasons_to(&mut Vec::new());
        assert!(!endpoint.has_counters());
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
