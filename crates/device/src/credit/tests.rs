//! Random programs: QPs of RC and UD, and QPs that send through transmit queues, are served; ACKs and losses arrive;
//! QPs are RESET, connected elsewhere and destroyed.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;
use std::vec::Vec;

use ferroce_wire::number::Qpn;
use proptest::prelude::*;

use super::*;
use crate::handle::Schedulable;
use crate::testing::{QueuePair, queue_pairs};

/// So few packets of the largest size fit into a pool: QPs wait for each other all the time.
const SHARE: usize = 4 * PACKET;

const QUEUE_PAIRS: usize = 10;

/// The first of the QPs whose packets are not acknowledged.
const DATAGRAMS: usize = 5;

/// The first of the QPs that send through transmit queues.
const QUEUED: usize = 7;

/// The number of packets for which a transmit queue has room.
const ROOM: usize = 8;

const RECEIVERS: u8 = 2;

/// A QP that is served sends this many packets at most.
const MOST_PACKETS: usize = 6;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Posts a request whose packets cost this much.
    Post(usize, InFlight, usize),
    /// The QP at the head of the schedule is served.
    Serve,
    /// Some of the packets in flight are acknowledged.
    Ack(usize, usize),
    Loss(usize, bool),
    /// The RESET is known to the flow control only when the QP is served.
    Reset(usize),
    /// Connects a QP, which may be connected already, to a receiver.
    Connect(usize, u8),
    Destroy(usize),
    /// A receiver acknowledges the last probe.
    ProbeAck(u8),
    /// A receiver reads from its transmit queue.
    Read(u8, usize),
    /// So many times, the interval passes in which probes are repeated.
    Expire(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pair = 0..QUEUE_PAIRS;
    let receiver = 0..RECEIVERS;
    let peer = (1..=PACKET).prop_map(|peer| InFlight { peer, own: 0 });
    // A READ may be larger than the pool.
    let own = (1..=6 * PACKET).prop_map(|own| InFlight { peer: 0, own });
    let post = (pair.clone(), prop_oneof![2 => peer, 1 => own], 1..20_usize);
    let step = prop_oneof![
        6 => post.prop_map(|(pair, cost, packets)| Step::Post(pair, cost, packets)),
        12 => Just(Step::Serve),
        6 => (pair.clone(), 1..20_usize).prop_map(|(pair, packets)| Step::Ack(pair, packets)),
        1 => (pair.clone(), any::<bool>()).prop_map(|(pair, own)| Step::Loss(pair, own)),
        2 => pair.clone().prop_map(Step::Reset),
        4 => (pair.clone(), receiver.clone()).prop_map(|(pair, to)| Step::Connect(pair, to)),
        1 => pair.prop_map(Step::Destroy),
        2 => receiver.clone().prop_map(Step::ProbeAck),
        2 => (receiver, 1..=ROOM).prop_map(|(from, packets)| Step::Read(from, packets)),
        1 => prop_oneof![Just(1), 1..30_usize].prop_map(Step::Expire),
    ];
    prop::collection::vec(step, 1..250)
}

/// A QP: what the engine and its transport know of it.
struct Pair {
    queue_pair: Rc<QueuePair>,
    member: Membership,
    receiver: Option<Receiver>,
    /// The costs of packets to send, and of those in flight.
    queued: VecDeque<InFlight>,
    sent: VecDeque<InFlight>,
    /// Packets to send that are not acknowledged, or through a transmit queue.
    datagrams: usize,
}

impl Pair {
    fn new(queue_pair: Rc<QueuePair>) -> Self {
        Self {
            queue_pair,
            member: Membership::default(),
            receiver: None,
            queued: VecDeque::new(),
            sent: VecDeque::new(),
            datagrams: 0,
        }
    }

    fn in_flight(&self) -> InFlight {
        let sum = |of: fn(&InFlight) -> usize| self.sent.iter().map(of).sum();
        InFlight { peer: sum(|cost| cost.peer), own: sum(|cost| cost.own) }
    }

    fn reset(&mut self) {
        self.receiver = None;
        self.queued.clear();
        self.sent.clear();
        self.datagrams = 0;
    }
}

/// A device: its credit, its QPs and their schedule.
struct Model {
    credit: Credit<Rc<QueuePair>, ()>,
    pairs: Vec<Pair>,
    schedule: Schedule<Rc<QueuePair>>,
    now: Instant,
    /// The number of the last probe to each receiver.
    probes: BTreeMap<Receiver, u32>,
    /// The packets in each transmit queue, by its number.
    queues: [usize; 1 + RECEIVERS as usize],
}

fn receiver(slot: u8) -> Receiver {
    Receiver::new(Ipv4Addr::LOCALHOST.into(), Qpn(u32::from(slot) << 16 | 0x42))
}

fn number_of((_, packet): &ProbePacket<()>) -> u32 {
    u32::from_be_bytes(*packet.last_chunk().unwrap())
}

impl Model {
    fn new(steps: &[Step]) -> Self {
        let mut model = Self {
            credit: Credit::new(SHARE, 0),
            pairs: queue_pairs(QUEUE_PAIRS).into_iter().map(Pair::new).collect(),
            schedule: Schedule::default(),
            now: Instant::ZERO,
            probes: BTreeMap::new(),
            queues: [0; 1 + RECEIVERS as usize],
        };
        steps.iter().for_each(|&step| model.step(step));
        model
    }

    fn step(&mut self, step: Step) {
        let Self { credit, pairs, schedule, now, probes, queues } = self;
        match step {
            Step::Post(index, cost, packets) => {
                let pair = &mut pairs[index];
                if pair.receiver.is_some() && index >= DATAGRAMS {
                    pair.datagrams += packets;
                    schedule.push(pair.queue_pair.clone());
                } else if pair.receiver.is_some() {
                    pair.queued.extend(std::iter::repeat_n(cost, packets));
                    schedule.push(pair.queue_pair.clone());
                }
            }
            Step::Serve => {
                self.serve();
            }
            Step::Ack(index, packets) => {
                let pair = &mut pairs[index];
                pair.sent.drain(..packets.min(pair.sent.len()));
                let in_flight = pair.in_flight();
                credit.update(&pair.queue_pair, &mut pair.member, in_flight, schedule);
            }
            Step::Loss(index, response) => credit.on_loss(&pairs[index].member, response),
            Step::Reset(index) => {
                pairs[index].reset();
                schedule.push(pairs[index].queue_pair.clone());
            }
            Step::Connect(index, to) => {
                let pair = &mut pairs[index];
                if pair.receiver != Some(receiver(to)) {
                    pair.reset();
                    pair.receiver = Some(receiver(to));
                    schedule.push(pair.queue_pair.clone());
                }
            }
            Step::Destroy(index) => {
                let pair = &mut pairs[index];
                credit.leave(&pair.queue_pair, &mut pair.member, schedule);
                pair.reset();
            }
            Step::ProbeAck(from) => {
                let from = receiver(from);
                let Some(number) = probes.remove(&from) else { return };
                let next = credit.handle_probe_ack(from, number, *now, schedule);
                probes.extend(next.map(|probe| (from, number_of(&probe))));
            }
            Step::Read(from, packets) => {
                let queue = 1 + usize::from(from);
                queues[queue] = queues[queue].saturating_sub(packets);
                credit.resume(queue as u64, ROOM - queues[queue], schedule);
            }
            Step::Expire(times) => {
                for _ in 0..times {
                    *now = *now + Duration::from_millis(5);
                    // Those that are repeated were lost.
                    credit.expire(*now, schedule, |_| ());
                }
            }
        }
        self.credit.check_invariants();
        self.schedule.check_invariants();
    }

    /// As the engine serves a QP of UD.
    fn serve_datagrams(&mut self, queue_pair: Rc<QueuePair>) {
        let Self { credit, pairs, schedule, now, probes, .. } = self;
        let pair = &mut pairs[queue_pair.number().0 as usize];
        let (Some(to), mut packets) = (pair.receiver, 0) else { return };
        while pair.datagrams > 0 {
            if packets == MOST_PACKETS {
                schedule.push(queue_pair);
                return;
            }
            if credit.must_wait(&queue_pair, &mut pair.member, to, packets > 0) {
                return;
            }
            packets += 1;
            pair.datagrams -= 1;
            let probe = credit.sent(to, (), 4096, *now, schedule);
            probes.extend(probe.map(|probe| (to, number_of(&probe))));
        }
    }

    /// As the engine serves a QP that sends through a transmit queue. Datagrams are dropped if it stays full.
    fn serve_queued(&mut self, queue_pair: Rc<QueuePair>) {
        let pair = &mut self.pairs[queue_pair.number().0 as usize];
        let Some(to) = pair.receiver else { return };
        let queue = 1 + usize::from(to.slot);
        let stalls = queue_pair.number().0 as usize == QUEUED;
        while pair.datagrams > 0 {
            if self.queues[queue] < ROOM {
                self.queues[queue] += 1;
                self.credit.found_room(queue as u64);
            } else if !stalls || !self.credit.is_stalled(queue as u64, self.now) {
                return self.credit.wait_for_room(&queue_pair, queue as u64);
            }
            pair.datagrams -= 1;
        }
    }

    /// As the engine serves a QP. Returns false if none is to be served.
    fn serve(&mut self) -> bool {
        let Some(queue_pair) = self.schedule.pop() else { return false };
        match queue_pair.number().0 as usize {
            QUEUED.. => {
                self.serve_queued(queue_pair);
                return true;
            }
            DATAGRAMS.. => {
                self.serve_datagrams(queue_pair);
                return true;
            }
            _ => {}
        }
        let Self { credit, pairs, schedule, .. } = self;
        let pair = &mut pairs[queue_pair.number().0 as usize];
        let mut budget = credit.budget(&queue_pair, &mut pair.member, pair.receiver, schedule);
        let mut packets = 0;
        let fits =
            |budget: &Budget, cost: &InFlight| cost.peer <= budget.peer && cost.own <= budget.own;
        while let Some(cost) = pair.queued.front().copied().filter(|cost| fits(&budget, cost)) {
            if packets == MOST_PACKETS {
                break;
            }
            packets += 1;
            budget.peer = budget.peer.saturating_sub(cost.peer);
            budget.own = budget.own.saturating_sub(cost.own);
            pair.queued.pop_front();
            pair.sent.push_back(cost);
        }
        let in_flight = pair.in_flight();
        credit.update(&queue_pair, &mut pair.member, in_flight, schedule);
        let Some(&needs) = pair.queued.front() else { return true };
        if packets == MOST_PACKETS || !credit.wait(&queue_pair, &pair.member, needs, schedule) {
            schedule.push(queue_pair);
        }
        true
    }

    /// Serves QPs until none is scheduled.
    fn run(&mut self) {
        let served = (0..100_000).find(|_| !self.serve());
        assert!(served.is_some(), "QPs are served without progress: {:?}", self.credit);
        self.credit.check_invariants();
    }

    /// Acknowledges everything until there is nothing left to send.
    fn finish(&mut self) {
        loop {
            self.run();
            let in_flight = self.pairs.iter().any(|pair| !pair.sent.is_empty());
            let waiting = self.credit.waiting() > 0;
            (0..QUEUE_PAIRS).for_each(|index| self.step(Step::Ack(index, usize::MAX)));
            (0..RECEIVERS).for_each(|from| self.step(Step::ProbeAck(from)));
            (0..RECEIVERS).for_each(|from| self.step(Step::Read(from, ROOM)));
            self.step(Step::Expire(usize::from(self.credit.next_timer().is_some())));
            if !in_flight && !waiting {
                break;
            }
        }
        let queued = |pair: &Pair| pair.queued.len() + pair.datagrams;
        let queued = self.pairs.iter().map(queued).sum::<usize>();
        assert_eq!(queued, 0, "packets are never sent: {:?}", self.credit);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn queue_pairs_that_are_reset_or_destroyed_hold_no_credit(
        steps in steps(),
        destroyed in 0..=DATAGRAMS,
    ) {
        let mut model = Model::new(&steps);
        for index in 0..QUEUE_PAIRS {
            // Others that are reset may still be in the queue of a window, or wait for room.
            let destroyed = index < destroyed || index >= DATAGRAMS;
            model.step(if destroyed { Step::Destroy(index) } else { Step::Reset(index) });
        }
        model.run();
        prop_assert_eq!((model.credit.in_use(), model.credit.waiting()), (0, 0));
        for pair in &model.pairs {
            prop_assert!(!pair.member.holds_credit(), "{:?}", pair.member);
            prop_assert!(!pair.queue_pair.marks().credit.is_waiting());
        }
    }

    #[test]
    fn everything_queued_is_sent_in_the_end(steps in steps()) {
        Model::new(&steps).finish();
    }
}

#[test]
fn a_queue_pair_that_has_left_is_not_charged() {
    let mut model = Model::new(&[Step::Connect(0, 0), Step::Serve]);
    let Model { credit, pairs, schedule, .. } = &mut model;
    let Pair { queue_pair, member, .. } = &mut pairs[0];
    let in_flight = InFlight { peer: PACKET, own: PACKET };
    credit.update(queue_pair, member, in_flight, schedule);
    assert_eq!(credit.in_use(), 2 * PACKET);
    credit.leave(queue_pair, member, schedule);
    credit.update(queue_pair, member, in_flight, schedule);
    assert_eq!(credit.in_use(), 0);
}
