//! The flow control by itself: real QPs of an open device, which the engine does not drive, and random sequences of turns,
//! ACKs, losses, RESETs and destructions.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::engine::adapter::now;
use crate::engine::support::{Side, connect, gid_index, open_alone, side};
use crate::{Local, Operation, Options, ServiceType};

/// So few packets of the largest size fit into a pool: QPs wait for each other all the time.
const SHARE: usize = 4 * PACKET;

pub(in crate::engine) const QUEUE_PAIRS: usize = 5;

/// Sends this many packets at most in one turn.
const TURN: usize = 6;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Posts a request whose packets cost this much.
    Post(usize, InFlight, usize),
    /// The QP at the head of the schedule has its turn.
    Turn,
    /// Some of the packets in flight are acknowledged.
    Ack(usize, usize),
    Loss(usize, bool),
    /// The RESET is known to the flow control only in the next turn.
    Reset(usize),
    /// Connects a QP, which may be connected already, to a receiver.
    Connect(usize, u8),
    Destroy(usize),
    /// So much of UC and UD is in flight to a receiver.
    Unacknowledged(u8, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pair = 0..QUEUE_PAIRS;
    let receiver = 0..2_u8;
    let peer = (1..=PACKET).prop_map(|peer| InFlight { peer, own: 0 });
    // A READ may be larger than the pool.
    let own = (1..=6 * PACKET).prop_map(|own| InFlight { peer: 0, own });
    let post = (pair.clone(), prop_oneof![2 => peer, 1 => own], 1..20_usize);
    let step = prop_oneof![
        6 => post.prop_map(|(pair, cost, packets)| Step::Post(pair, cost, packets)),
        12 => Just(Step::Turn),
        6 => (pair.clone(), 1..20_usize).prop_map(|(pair, packets)| Step::Ack(pair, packets)),
        1 => (pair.clone(), any::<bool>()).prop_map(|(pair, own)| Step::Loss(pair, own)),
        2 => pair.clone().prop_map(Step::Reset),
        4 => (pair.clone(), receiver.clone()).prop_map(|(pair, to)| Step::Connect(pair, to)),
        1 => pair.prop_map(Step::Destroy),
        1 => (receiver, 0..2 * SHARE).prop_map(|(to, bytes)| Step::Unacknowledged(to, bytes)),
    ];
    prop::collection::vec(step, 1..250)
}

/// A QP: what the engine and its transport know of it.
struct Pair {
    core: Arc<Core>,
    member: Member,
    receiver: Option<Receiver>,
    /// The costs of packets to send, and of those in flight.
    queued: VecDeque<InFlight>,
    sent: VecDeque<InFlight>,
}

impl Pair {
    fn in_flight(&self) -> InFlight {
        let sum = |of: fn(&InFlight) -> usize| self.sent.iter().map(of).sum();
        InFlight { peer: sum(|cost| cost.peer), own: sum(|cost| cost.own) }
    }

    fn reset(&mut self) {
        self.receiver = None;
        self.queued.clear();
        self.sent.clear();
    }
}

/// A device: its flow control, its QPs and the schedule of turns.
struct Model {
    flow: Flow,
    pairs: Vec<Pair>,
    ready: VecDeque<Qpn>,
}

fn receiver(slot: u8) -> Receiver {
    Receiver { host: Ipv4Addr::LOCALHOST.into(), slot }
}

fn push(ready: &mut VecDeque<Qpn>, number: Qpn) {
    if !ready.contains(&number) {
        ready.push_back(number);
    }
}

impl Model {
    fn new() -> Self {
        let pair = |core| Pair {
            core,
            member: Member::default(),
            receiver: None,
            queued: VecDeque::new(),
            sent: VecDeque::new(),
        };
        Self {
            flow: Flow::new(SHARE),
            pairs: cores().into_iter().map(pair).collect(),
            ready: VecDeque::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let Self { flow, pairs, ready } = self;
        let mut resume = |core: Arc<Core>| push(ready, core.number);
        match step {
            Step::Post(index, cost, packets) => {
                let pair = &mut pairs[index];
                if pair.receiver.is_some() {
                    pair.queued.extend(std::iter::repeat_n(cost, packets));
                    push(ready, pair.core.number);
                }
            }
            Step::Turn => self.turn(),
            Step::Ack(index, packets) => {
                let pair = &mut pairs[index];
                pair.sent.drain(..packets.min(pair.sent.len()));
                let in_flight = pair.in_flight();
                flow.update(&mut pair.member, in_flight, &mut resume);
            }
            Step::Loss(index, response) => flow.on_loss(&pairs[index].member, response),
            Step::Reset(index) => {
                pairs[index].reset();
                push(ready, pairs[index].core.number);
            }
            Step::Connect(index, to) => {
                let pair = &mut pairs[index];
                if pair.receiver != Some(receiver(to)) {
                    pair.reset();
                    pair.receiver = Some(receiver(to));
                    push(ready, pair.core.number);
                }
            }
            Step::Destroy(index) => {
                let pair = &mut pairs[index];
                flow.leave(&pair.core, &mut pair.member, &mut resume);
                pair.reset();
            }
            Step::Unacknowledged(to, bytes) => {
                flow.set_unacknowledged(receiver(to), bytes, &mut resume);
            }
        }
    }

    /// As [`Driver::turn`](crate::engine::driver::Driver::turn).
    fn turn(&mut self) {
        let Self { flow, pairs, ready } = self;
        let Some(number) = ready.pop_front() else { return };
        let Some(pair) = pairs.iter_mut().find(|pair| pair.core.number == number) else { return };
        let mut resume = |core: Arc<Core>| push(ready, core.number);
        let mut budget = flow.budget(&pair.core, &mut pair.member, pair.receiver, &mut resume);
        let mut packets = 0;
        let fits =
            |budget: &Budget, cost: &InFlight| cost.peer <= budget.peer && cost.own <= budget.own;
        while let Some(cost) = pair.queued.front().copied().filter(|cost| fits(&budget, cost)) {
            if packets == TURN {
                break;
            }
            packets += 1;
            budget.peer = budget.peer.saturating_sub(cost.peer);
            budget.own = budget.own.saturating_sub(cost.own);
            pair.queued.pop_front();
            pair.sent.push_back(cost);
        }
        let in_flight = pair.in_flight();
        flow.update(&mut pair.member, in_flight, &mut resume);
        let Some(&needs) = pair.queued.front() else { return };
        let again = packets == TURN || !flow.wait(&pair.core, &pair.member, needs, &mut resume);
        if again {
            push(ready, number);
        }
    }

    /// Every QP in the schedule has its turns.
    fn run(&mut self) {
        let mut turns = 0;
        while !self.ready.is_empty() {
            self.turn();
            turns += 1;
            assert!(turns < 100_000, "turns without progress: {:?}", self.flow);
        }
    }

    /// Acknowledges everything until there is nothing left to send.
    fn finish(&mut self) {
        loop {
            self.run();
            let in_flight = self.pairs.iter().any(|pair| !pair.sent.is_empty());
            (0..QUEUE_PAIRS).for_each(|index| self.step(Step::Ack(index, usize::MAX)));
            if !in_flight {
                break;
            }
        }
        let queued = self.pairs.iter().map(|pair| pair.queued.len()).sum::<usize>();
        assert_eq!(queued, 0, "packets are never sent: {:?}", self.flow);
    }

    fn assert_no_credit(&self) {
        for pool in &self.flow.pools {
            let waiting = pool.waiting.len();
            assert_eq!((pool.used, pool.reserved, waiting), (0, 0, 0), "{:?}", self.flow);
        }
        for pair in &self.pairs {
            assert_eq!(pair.core.waiting.state(), NOT_WAITING);
        }
    }
}

thread_local! {
    /// Opened once for all cases.
    static SIDES: Vec<Side> = {
        let context = open_alone(&Options::default().with_local(Local::Sockets));
        let side = |_| side(&context, ServiceType::ReliableConnection, 64);
        (0..QUEUE_PAIRS).map(side).collect()
    };
}

/// QPs that the engine does not drive.
pub(in crate::engine) fn cores() -> Vec<Arc<Core>> {
    let core =
        |side: &Side| side.context.adapter().tables.queue_pair(side.queue_pair.number()).unwrap();
    SIDES.with(|sides| sides.iter().map(core).collect())
}

/// Runs the steps on a fresh flow control.
fn after(steps: &[Step], check: impl FnOnce(&mut Model)) {
    let mut model = Model::new();
    steps.iter().for_each(|&step| model.step(step));
    check(&mut model);
    // The next case begins with the same QPs.
    (0..QUEUE_PAIRS).for_each(|index| model.step(Step::Destroy(index)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn queue_pairs_that_are_reset_or_destroyed_hold_no_credit(
        steps in steps(),
        destroyed in 0..=QUEUE_PAIRS,
    ) {
        after(&steps, |model| {
            for index in 0..QUEUE_PAIRS {
                model.step(if index < destroyed { Step::Destroy(index) } else { Step::Reset(index) });
            }
            model.run();
            model.assert_no_credit();
        });
    }

    #[test]
    fn everything_queued_is_sent_in_the_end(steps in steps()) {
        after(&steps, Model::finish);
    }
}

#[test]
fn a_pool_shrinks_once_for_the_bytes_in_flight_and_grows_back() {
    let mut pool = Pool::new(4 << 20, RESUMED);
    pool.charge(0, 1 << 20);
    pool.cut();
    assert_eq!(pool.limit, 2 << 20);
    pool.cut();
    assert_eq!(pool.limit, 2 << 20, "these bytes were in flight at the first loss as well");
    pool.charge(1 << 20, 0);
    for _ in 0..10 {
        pool.cut();
    }
    assert_eq!(pool.limit, MIN_LIMIT);
    let mut acknowledged = 0;
    while pool.limit < pool.full {
        pool.charge(0, PACKET);
        pool.charge(PACKET, 0);
        acknowledged += PACKET;
        assert!(acknowledged < 200 << 20, "it does not grow: {}", pool.limit);
    }
    assert_eq!(pool.used, 0);
}

#[test]
fn a_small_pool_is_not_cut_below_its_size() {
    let mut pool = Pool::new(2 * PACKET, RESUMED);
    pool.cut();
    assert_eq!((pool.limit, pool.turn_size()), (2 * PACKET, PACKET));
}

#[test]
fn bytes_without_acks_count_and_leave_a_half() {
    let mut pool = Pool::new(8 * PACKET, RESUMED);
    pool.unacknowledged = 3 * PACKET;
    assert_eq!(pool.free(), 5 * PACKET);
    pool.charge(0, PACKET);
    assert_eq!(pool.free(), 4 * PACKET);
    pool.unacknowledged = 20 * PACKET;
    assert_eq!(pool.free(), 3 * PACKET);
    // Also of the smallest pool: a QP that waits can always have a turn.
    let mut pool = Pool::new(2 * PACKET, RESUMED);
    pool.unacknowledged = 20 * PACKET;
    assert!(pool.free() >= pool.turn_size());
}

#[test]
fn an_idle_pool_takes_a_request_larger_than_itself() {
    let mut pool = Pool::new(2 * PACKET, RESUMED_OWN);
    assert_eq!(pool.free(), usize::MAX);
    pool.charge(0, 1);
    assert_eq!(pool.free(), 2 * PACKET - 1);
    pool.charge(1, 5 * PACKET);
    assert_eq!(pool.free(), 0);
}

/// Until the call that destroys it returns, its number is in the tables, and passes of other threads find it.
#[test]
fn a_late_packet_for_a_destroyed_queue_pair_takes_no_credit() {
    let context = open_alone(&Options::default().with_local(Local::Sockets));
    let [one, other] = [(); 2].map(|()| side(&context, ServiceType::ReliableConnection, 64));
    connect(&one, &other, gid_index(&context, false).unwrap(), 1024);
    let adapter = context.adapter();
    let mut driver = loop {
        match adapter.driver.try_own() {
            Some(guard) => break guard,
            None => std::thread::yield_now(),
        }
    };
    one.post(0, Operation::Read { remote: other.region.remote(0) }, 0, 64);
    driver.transmit_all(adapter, now(), usize::MAX);
    assert!(driver.flow.pools[OWN.0].used > 0, "{:?}", driver.flow);
    let core = adapter.tables.queue_pair(one.queue_pair.number()).unwrap();
    driver.forget(adapter, &core);
    driver.received(adapter, &core, &mut core.inner.lock(), now());
    assert!(driver.flow.pools.iter().all(|pool| pool.used == 0), "{:?}", driver.flow);
    let _ = driver.give_up();
}
