//! Who is connected to whom, by which service, and what they do: drawn from the seed before anything runs.

use std::net::Ipv4Addr;
use std::time::Duration;

use ferroce_proto::memory::AccessFlags;
use ferroce_proto::rc::Role;
use ferroce_proto::receive::{Extended, ReceiveQueue, XrcDomain};
use ferroce_proto::time::Instant;
use ferroce_proto::{rc, uc, ud};
use ferroce_wire::number::{PKey, Psn, Qpn};
use ferroce_wire::syndrome::RnrTimer;

use super::host::{Blueprint, End, RdmaHost, Receives, SharedQueue, Waiting, Work, number};
use super::manage::{Introduction, Management};
use super::memory::{DOMAIN, OTHER_DOMAIN, REMOTE};
use super::program::{self, Datagrams, Place, Posted, Program};
use super::workload::{Service, SetUp, Workload};
use crate::Random;

/// Regions that every host has: one that is not for peers, and one of another protection domain.
pub(super) const LOCAL_ONLY: usize = 0;
pub(super) const OTHERS: usize = 1;

/// Shared receive queues that every host has: one for RC, two for XRC, and one of another XRC domain.
const SHARED_QUEUE: usize = 0;
pub(super) const EXTENDED_QUEUES: [usize; 2] = [1, 2];
pub(super) const FOREIGN_QUEUE: usize = 3;

/// The XRC domain of all targets.
const XRC_DOMAIN: XrcDomain = XrcDomain(1);

/// What these regions hold.
pub(super) const GUARDED: [u8; 4096] = [0x5a; 4096];

/// The address of a host.
pub(super) const fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0001 + host as u32)
}

/// A connection, or a group of datagram queue pairs.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) service: Service,
    /// How it comes up.
    pub(super) set_up: SetUp,
    /// The active end, and the passive one; datagrams may have more of these.
    pub(super) ends: Vec<Place>,
    pub(super) programs: Vec<Program>,
    pub(super) datagrams: Option<Datagrams>,
    /// The group that the passive ends are attached to.
    pub(super) group: Option<Ipv4Addr>,
}

/// A host with what all have.
pub(super) fn host(index: usize) -> RdmaHost {
    let mut host = RdmaHost::new(address(index));
    host.memory.add(GUARDED.to_vec(), DOMAIN, AccessFlags::LOCAL_WRITE);
    let all = REMOTE | AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
    host.memory.add(GUARDED.to_vec(), OTHER_DOMAIN, all);
    let extended = |xrc| Some(Extended { xrc, pd: DOMAIN });
    let kinds = [None, extended(XRC_DOMAIN), extended(XRC_DOMAIN), extended(XrcDomain(9))];
    for kind in kinds {
        let region = host.memory.add(Vec::new(), DOMAIN, AccessFlags::LOCAL_WRITE);
        host.queues.push(SharedQueue::new(region, kind));
    }
    host
}

/// Draws connection `index`, with its programs and memory.
pub(super) fn connect(
    index: usize,
    workload: &Workload,
    hosts: &mut [RdmaHost],
    random: &mut Random,
) -> Connection {
    let services: Vec<_> = workload.services.iter().collect();
    let service = random.choose(&services).copied().unwrap_or(Service::Reliable);
    let mut order: Vec<usize> = (0..hosts.len()).collect();
    random.shuffle(&mut order);
    let mut draw = Draw { index, workload, hosts, random, service };
    match service {
        Service::Datagram => draw.datagrams(&order),
        _ => draw.connected([order[0], order[1 % order.len()]]),
    }
}

/// Ends a plan: limits of shared queues are armed, and connections that are up from the start are.
pub(super) fn begin(connections: &[Connection], hosts: &mut [RdmaHost]) {
    for host in hosts.iter_mut() {
        for shared in &mut host.queues {
            shared.limit = shared.queue.len() / 2;
            shared.queue.arm_limit(shared.limit);
        }
    }
    let direct = || connections.iter().filter(|one| one.set_up == SetUp::Direct);
    for place in direct().flat_map(|one| &one.ends) {
        hosts[place.host].open(Instant::ZERO, place.end);
    }
    for place in direct().flat_map(|one| &one.ends) {
        hosts[place.host].start(place.end);
    }
    for host in hosts {
        host.manage(|management, host| management.begin(Instant::ZERO, host));
    }
}

struct Draw<'a> {
    index: usize,
    workload: &'a Workload,
    hosts: &'a mut [RdmaHost],
    random: &'a mut Random,
    service: Service,
}

impl Draw<'_> {
    fn mtu(&mut self) -> u16 {
        [256, 512, 1024, 2048, 4096][self.random.below(5) as usize]
    }

    fn psn(&mut self) -> Psn {
        Psn::new(self.random.next_u64() as u32)
    }

    /// RC, UC or XRC between two hosts.
    fn connected(&mut self, pair: [usize; 2]) -> Connection {
        let mtu = self.mtu();
        let psns = [self.psn(), self.psn()];
        // An end of RC may receive from the host's shared queue.
        let places = [0, 1].map(|side| {
            let receives = match self.service {
                Service::Extended => Receives::Named,
                Service::Reliable if self.random.below(3) == 0 => Receives::Shared(SHARED_QUEUE),
                _ => Receives::Own(ReceiveQueue::new(self.workload.requests as usize)),
            };
            let end = End::new(address(pair[1 - side]), receives);
            Place { host: pair[side], end: self.hosts[pair[side]].add_end(end) }
        });
        let [active, passive] = places;
        let duplex = self.service != Service::Extended && self.random.below(3) == 0;
        let mut posted = vec![self.program([active, passive])];
        if duplex {
            posted.push(self.program([passive, active]));
        }
        let mut work = [Vec::new(), Vec::new()];
        let mut prelude = [Vec::new(), Vec::new()];
        let mut programs = Vec::new();
        for (from, one) in posted.into_iter().enumerate() {
            work[from] = one.work;
            prelude[1 - from] = one.prelude;
            programs.push(one.program);
        }
        let set_up = self.workload.set_up;
        // Few READs and atomics in flight are as common as many, and have bugs of their own.
        let depth = 1 << self.random.below(4);
        for (side, (work, prelude)) in work.into_iter().zip(prelude).enumerate() {
            let peer = places[1 - side];
            let mut blueprint =
                self.blueprint(side, number(places[side].end), mtu, psns[side], depth);
            if set_up == SetUp::Direct {
                blueprint.learn(number(peer.end), psns[1 - side], mtu);
            }
            let host = &mut self.hosts[places[side].host];
            let work = Work::Connected(work);
            let waiting = Some(Box::new(Waiting { blueprint, prelude, work }));
            host.ends[places[side].end].waiting = waiting;
        }
        if set_up != SetUp::Direct {
            self.introduce(places, mtu, psns);
        }
        let ends = places.to_vec();
        Connection { service: self.service, set_up, ends, programs, datagrams: None, group: None }
    }

    fn program(&mut self, ends: [Place; 2]) -> Posted {
        program::connected(self.workload, self.service, ends, self.hosts, self.random)
    }

    /// Lets the two hosts' management set the connection up.
    fn introduce(&mut self, places: [Place; 2], mtu: u16, psns: [Psn; 2]) {
        let mut private = [[0; 32]; 2];
        private.iter_mut().for_each(|bytes| self.random.fill(bytes));
        for side in 0..2 {
            let host = places[side].host;
            let introduction = Introduction {
                connection: self.index,
                active: side == 0,
                service: self.service,
                end: places[side].end,
                peer: address(places[1 - side].host),
                peer_qpn: number(places[1 - side].end),
                mtu,
                psn: psns[side],
                private: private[side],
                expected: private[1 - side],
            };
            let set_up = self.workload.set_up;
            let seed = self.random.next_u64();
            let management = &mut self.hosts[host].management;
            management
                .get_or_insert_with(|| Box::new(Management::new(set_up, host as u64, seed)))
                .introduce(introduction);
        }
    }

    /// Datagrams to one host, or to a group of all others.
    fn datagrams(&mut self, order: &[usize]) -> Connection {
        let mtu = self.mtu();
        let group = (self.random.below(2) == 0)
            .then(|| Ipv4Addr::from_bits(0xef01_0000 + self.index as u32));
        let receivers = if group.is_some() { &order[1..] } else { &order[1..2] };
        let mut add = |host: usize, capacity: usize| {
            let receives = Receives::Own(ReceiveQueue::new(capacity));
            let end = End::new(Ipv4Addr::UNSPECIFIED, receives);
            Place { host, end: self.hosts[host].add_end(end) }
        };
        let active = add(order[0], 0);
        let capacity = 2 * self.workload.requests as usize;
        let passive: Vec<_> = receivers.iter().map(|&host| add(host, capacity)).collect();
        let (datagrams, work) = program::datagrams(
            self.workload,
            mtu,
            active,
            passive.clone(),
            group,
            self.hosts,
            self.random,
        );
        let ends: Vec<_> = std::iter::once(active).chain(passive).collect();
        let mut work = Some(work);
        for place in &ends {
            let config = ud::Config {
                number: number(place.end),
                queue_key: program::QUEUE_KEY,
                partition: PKey(0xffff),
                pd: DOMAIN,
                mtu,
                send_psn: self.psn(),
                send_capacity: self.workload.requests as usize,
                group_capacity: 1,
            };
            let blueprint = Blueprint::Datagram(config, group.filter(|_| *place != active));
            // The first is the one that sends.
            let work = Work::Datagrams(work.take().unwrap_or_default());
            let waiting = Waiting { blueprint, prelude: Vec::new(), work };
            self.hosts[place.host].ends[place.end].waiting = Some(Box::new(waiting));
        }
        Connection {
            service: self.service,
            set_up: SetUp::Direct,
            ends,
            programs: Vec::new(),
            datagrams: Some(datagrams),
            group,
        }
    }

    /// What an end knows before it knows its peer.
    fn blueprint(
        &mut self,
        side: usize,
        number: Qpn,
        mtu: u16,
        send_psn: Psn,
        depth: u8,
    ) -> Blueprint {
        let partition = PKey(0xffff);
        let send_capacity = self.workload.requests as usize + 2;
        if self.service == Service::Unreliable {
            return Blueprint::Unreliable(uc::Config {
                number,
                destination: Qpn(0),
                partition,
                pd: DOMAIN,
                mtu,
                send_psn,
                receive_psn: Psn(0),
                access: REMOTE,
                send_capacity,
            });
        }
        let role = match (self.service, side) {
            (Service::Extended, 0) => Role::Initiator,
            (Service::Extended, _) => Role::Target(XRC_DOMAIN),
            _ => Role::Both,
        };
        let config = reliable(number, mtu, send_psn);
        Blueprint::Reliable(rc::Config {
            role,
            max_rd_atomic: 1 + self.random.below(u64::from(depth)) as u8,
            max_dest_rd_atomic: depth,
            congestion: self.workload.congestion.to_config(),
            send_capacity,
            ..config
        })
    }
}

impl Blueprint {
    /// What the peer said of itself.
    pub(super) fn learn(&mut self, qpn: Qpn, psn: Psn, path_mtu: u16) {
        match self {
            Self::Reliable(rc::Config { destination, receive_psn, mtu, .. })
            | Self::Unreliable(uc::Config { destination, receive_psn, mtu, .. }) => {
                (*destination, *receive_psn, *mtu) = (qpn, psn, path_mtu);
            }
            Self::Datagram(..) => {}
        }
    }
}

/// A reliable connection with the usual attributes, whose peer is not known yet.
pub(super) fn reliable(number: Qpn, mtu: u16, send_psn: Psn) -> rc::Config {
    rc::Config {
        role: Role::Both,
        number,
        destination: Qpn(0),
        partition: PKey(0xffff),
        pd: DOMAIN,
        mtu,
        send_psn,
        receive_psn: Psn(0),
        timeout: Some(Duration::from_millis(1)),
        retry_count: 7,
        rnr_retry: 7,
        rnr_timer: RnrTimer::at_least(Duration::from_micros(20)),
        max_rd_atomic: 8,
        max_dest_rd_atomic: 8,
        access: REMOTE,
        congestion: Default::default(),
        send_capacity: 16,
    }
}
