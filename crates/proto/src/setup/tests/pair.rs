//! Clients and a server over a seeded link that loses, duplicates and reorders, in virtual time.

use std::collections::BTreeMap;
use std::vec::Vec;

use core::time::Duration;
use ferroce_wire::setup::{Phase, Status};

use super::*;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

const SERVER: u8 = 200;

/// Attempts of a client's first data packet before its QP fails.
const DATA_ATTEMPTS: u32 = 8;

#[derive(Clone)]
enum WorldEvent {
    ToServer(usize, Vec<u8>),
    ToClient(usize, Vec<u8>),
    Data(usize),
    DataAck(usize),
    /// Not a packet: the server's owner answers.
    Answer(ServerEvent),
    /// Not a packet: the client's QP retransmits its first packet.
    SendData(usize),
}

/// A client, its owner, and what the server's owner created for it.
struct Side {
    client: Client,
    qp_type: QpType,
    regions_wanted: u32,
    keys: Vec<RKey>,
    server_qp: Option<Qpn>,
    agreed: Option<Agreement>,
    error: Option<SetupError>,
    data_sent: u32,
    data_acked: bool,
    // On the server:
    exchange: Option<ExchangeHandle>,
    queue_pairs: u32,
    regions: u32,
    connected: Option<Agreement>,
    failure: Option<Failure>,
}

struct World {
    random: Random,
    loss: u64,
    duplication: u64,
    jitter: u64,
    refuse: Option<(Phase, Status)>,
    /// Everything sent after this is lost.
    dies_at: Option<Instant>,
    now: Instant,
    server: Server,
    sides: Vec<Side>,
    agenda: BTreeMap<(Instant, u64), WorldEvent>,
    count: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let clients = 1 + random.below(4);
        let start = at(1000);
        let sides = (0..clients).map(|_| {
            let exchange = ExchangeId(random.next() as u32);
            let transaction = TransactionId(random.next() as u32);
            Side {
                client: Client::new(ClientConfig::new(exchange, transaction), peer(SERVER), start),
                qp_type: QpType(1 + random.below(4) as u8),
                regions_wanted: random.below(4) as u32,
                keys: Vec::new(),
                server_qp: None,
                agreed: None,
                error: None,
                data_sent: 0,
                data_acked: false,
                exchange: None,
                queue_pairs: 0,
                regions: 0,
                connected: None,
                failure: None,
            }
        });
        let sides = sides.collect();
        let refuse = random.percent(15).then(|| {
            let phases = [Phase::QueuePairs, Phase::Memory, Phase::Connection];
            let status = Status(1 + random.below(14) as u8);
            (phases[random.below(3) as usize], status)
        });
        Self {
            loss: random.below(4) * 15,
            duplication: random.below(4) * 10,
            jitter: 1 + random.below(400),
            refuse,
            dies_at: None,
            now: start,
            server: Server::new(ServerConfig::new(device())),
            sides,
            agenda: BTreeMap::new(),
            count: 0,
            random,
        }
    }

    fn later(&mut self, milliseconds: u64, arrival: WorldEvent) {
        self.count += 1;
        self.agenda.insert((self.now + Duration::from_millis(milliseconds), self.count), arrival);
    }

    fn send(&mut self, arrival: WorldEvent) {
        let copies =
            1 + u64::from(self.random.percent(self.duplication)) * (1 + self.random.below(3));
        for _ in 0..copies {
            let dead = self.dies_at.is_some_and(|end| self.now >= end);
            if !self.random.percent(self.loss) && !dead {
                let delay = 1 + self.random.below(self.jitter);
                self.later(delay, arrival.clone());
            }
        }
    }

    /// Runs until nothing is left to do.
    fn run(&mut self) {
        self.drain();
        loop {
            let arrival = self.agenda.keys().next().map(|&(at, _)| at);
            let timers = self.sides.iter().filter_map(|side| side.client.poll_timeout());
            let next = timers.chain(self.server.poll_timeout()).chain(arrival).min();
            let Some(next) = next else { break };
            assert!(next < at(1000) + Duration::from_secs(200), "it does not end");
            self.now = self.now.max(next);
            self.server.handle_timeout(self.now);
            for side in &mut self.sides {
                side.client.handle_timeout(self.now);
            }
            while let Some(entry) = self.agenda.first_entry().filter(|it| it.key().0 <= self.now) {
                let arrival = entry.remove();
                self.arrive(arrival);
            }
            self.drain();
        }
    }

    fn arrive(&mut self, arrival: WorldEvent) {
        match arrival {
            WorldEvent::ToServer(n, bytes) => {
                self.server.handle_datagram(self.now, peer(n as u8), &bytes);
            }
            WorldEvent::ToClient(n, bytes) => {
                self.sides[n].client.handle_datagram(self.now, peer(SERVER), &bytes);
            }
            WorldEvent::Data(n) => {
                if let Some(exchange) = self.sides[n].exchange {
                    self.server.handle_data_received(self.now, exchange);
                    self.drain();
                }
                let side = &self.sides[n];
                if side.connected.is_some() && side.failure.is_none() {
                    self.send(WorldEvent::DataAck(n));
                }
            }
            WorldEvent::DataAck(n) => self.sides[n].data_acked = true,
            WorldEvent::Answer(event) => self.respond(event),
            WorldEvent::SendData(n) => {
                let side = &mut self.sides[n];
                if !side.data_acked && side.error.is_none() && side.data_sent < DATA_ATTEMPTS {
                    side.data_sent += 1;
                    self.send(WorldEvent::Data(n));
                    self.later(1000, WorldEvent::SendData(n));
                }
            }
        }
    }

    fn drain(&mut self) {
        loop {
            let mut idle = true;
            while let Some(transmit) = self.server.poll_transmit() {
                let n = usize::from(transmit.to.address.0[0]);
                self.send(WorldEvent::ToClient(n, bytes(transmit.message)));
                idle = false;
            }
            while let Some(event) = self.server.poll_event() {
                self.server_event(event);
                idle = false;
            }
            for n in 0..self.sides.len() {
                while let Some(transmit) = self.sides[n].client.poll_transmit() {
                    assert_eq!(transmit.to, peer(SERVER));
                    self.send(WorldEvent::ToServer(n, bytes(transmit.message)));
                    idle = false;
                }
                while let Some(event) = self.sides[n].client.poll_event() {
                    self.client_event(n, event);
                    idle = false;
                }
            }
            if idle {
                break;
            }
        }
    }

    fn client_event(&mut self, n: usize, event: ClientEvent) {
        let (now, side) = (self.now, &mut self.sides[n]);
        match event {
            ClientEvent::Discovered(found) => {
                assert_eq!(found, device());
                let parameters = queue_pair(100 + n as u32, side.qp_type);
                side.client.create_queue_pair(now, parameters).unwrap();
                return;
            }
            ClientEvent::QueuePairCreated(server) => side.server_qp = Some(server.qp_number),
            ClientEvent::RegionRegistered(region) => side.keys.push(region.remote_key),
            ClientEvent::Accepted(agreed) => {
                side.agreed = Some(agreed);
                side.client.confirm(now).unwrap();
                self.later(5, WorldEvent::SendData(n));
                return;
            }
            ClientEvent::Failed(error) => {
                assert_eq!(side.error.replace(error), None);
                return;
            }
        }
        if side.qp_type == QpType::UD {
            assert_eq!(side.client.register_region(now, region(1)), Err(WrongStep));
        } else if (side.keys.len() as u32) < side.regions_wanted {
            side.client.register_region(now, region(side.keys.len() as u32)).unwrap();
        } else {
            let server_key = side.keys.last().copied().unwrap_or_default();
            let parameters = ConnectionParameters { server_key, ..Default::default() };
            side.client.connect(now, parameters).unwrap();
        }
    }

    fn server_event(&mut self, event: ServerEvent) {
        let exchange = event.exchange();
        match event {
            ServerEvent::CreateQueuePair { peer, .. } => {
                let side = &mut self.sides[usize::from(peer.address.0[0])];
                side.queue_pairs += 1;
                side.exchange = Some(exchange);
            }
            ServerEvent::RegisterRegion { peer, .. } => {
                self.sides[usize::from(peer.address.0[0])].regions += 1;
            }
            ServerEvent::Connect { .. } => {}
            ServerEvent::Connected { agreement, times, .. } => {
                assert_adds_up(&times);
                assert_eq!(self.side(exchange).connected.replace(agreement), None);
                return;
            }
            ServerEvent::Failed { failure, .. } => {
                assert_eq!(self.side(exchange).failure.replace(failure), None);
                return;
            }
        }
        let thinks = self.random.below(300);
        self.later(thinks, WorldEvent::Answer(event));
    }

    fn side(&mut self, exchange: ExchangeHandle) -> &mut Side {
        self.sides.iter_mut().find(|side| side.exchange == Some(exchange)).expect("its client")
    }

    fn respond(&mut self, event: ServerEvent) {
        let (now, number) = (self.now, self.random.below(1 << 20) as u32 + 3);
        let refused = |phase| self.refuse.filter(|it| it.0 == phase).map(|it| it.1);
        // The exchange may have ended; then there is nothing to answer.
        let _ = match event {
            ServerEvent::CreateQueuePair { request, parameters, .. } => {
                let answer = queue_pair(number, parameters.qp_type);
                let answer = refused(Phase::QueuePairs).map_or(Ok(answer), Err);
                self.server.respond_queue_pair(now, request, answer)
            }
            ServerEvent::RegisterRegion { request, .. } => {
                let answer = refused(Phase::Memory).map_or(Ok(registered(number)), Err);
                self.server.respond_region(now, request, answer)
            }
            ServerEvent::Connect { request, .. } => {
                let answer = refused(Phase::Connection).map_or(Ok(number), Err);
                self.server.respond_connection(now, request, answer)
            }
            _ => Ok(()),
        };
    }
}

fn assert_adds_up(times: &PhaseTimes) {
    let phases = [Phase::Discovery, Phase::QueuePairs, Phase::Memory, Phase::Connection];
    let sum: Duration = phases.iter().filter_map(|&phase| times.duration(phase)).sum();
    assert_eq!(sum, times.total());
    for time in phases.iter().filter_map(|&phase| times.phase(phase)) {
        assert!(time.round_trip.is_none_or(|trip| trip <= time.duration()));
    }
}

/// Checks the result of one client; returns whether it is connected.
fn check_side(seed: u64, side: &Side, refuse: Option<(Phase, Status)>) -> bool {
    assert_adds_up(side.client.times());
    assert!(side.queue_pairs <= 1, "seed {seed}: {} queue pairs", side.queue_pairs);
    assert!(side.regions <= side.regions_wanted, "seed {seed}: {} regions", side.regions);
    if let Some(SetupError::Refused(refused)) = side.error {
        let timed_out = refused.phase == Phase::Connection && refused.status == Status::TIMEOUT;
        let expected = refuse.is_some_and(|it| it == (refused.phase, refused.status));
        assert!(expected || timed_out, "seed {seed}: {refused:?}");
    }
    if side.qp_type == QpType::UD {
        assert_eq!(side.error.is_none(), side.server_qp.is_some(), "seed {seed}");
        return side.error.is_none();
    }
    if side.connected.is_some() {
        assert_eq!(side.failure, None, "seed {seed}");
        assert_eq!((side.agreed, side.error), (side.connected, None), "seed {seed}");
        assert!(side.client.is_connected() && side.client.is_drained(), "seed {seed}");
        assert_eq!(side.agreed.map(|it| it.server_qp), side.server_qp, "seed {seed}");
        assert_eq!(side.regions, side.regions_wanted, "seed {seed}");
        true
    } else {
        // The client gets an error from the exchange, or from its QP whose data is never acknowledged.
        let data_failed = side.data_sent == DATA_ATTEMPTS && !side.data_acked;
        assert!(side.error.is_some() || data_failed, "seed {seed}");
        // The server's owner was asked to release its resources.
        assert_eq!(side.failure.is_some(), side.queue_pairs == 1, "seed {seed}");
        false
    }
}

#[test]
fn both_sides_connect_with_the_same_parameters_or_both_fail() {
    let (mut all, mut connected, mut clean_failures) = (0, 0, 0);
    for seed in 0..2000 {
        let mut world = World::new(seed);
        world.run();
        assert_eq!(world.server.exchanges(), 0, "seed {seed}");
        for side in &world.sides {
            let success = check_side(seed, side, world.refuse);
            all += 1;
            connected += u32::from(success);
            clean_failures += u32::from(!success && world.loss == 0 && world.refuse.is_none());
        }
    }
    assert_eq!(clean_failures, 0, "an exchange failed that lost nothing");
    // The others met a refusal, or a link that loses 45 % in both directions.
    assert!(connected * 100 > all * 80, "{connected} of {all} connected");
    assert!(connected < all);
}

#[test]
fn a_dead_link_fails_on_both_sides() {
    let mut connected = 0;
    // Covers each phase.
    for milliseconds in 0..3000 {
        let mut world = World::new(milliseconds);
        (world.loss, world.refuse) = (0, None);
        world.dies_at = Some(world.now + Duration::from_millis(milliseconds));
        world.run();
        assert_eq!(world.server.exchanges(), 0, "seed {milliseconds}");
        for side in &world.sides {
            connected += u32::from(check_side(milliseconds, side, None));
        }
    }
    assert!(connected > 0);
}
