//! Draws connections, services and programs from the seed before the run.

use std::net::Ipv4Addr;

use ferroce_proto::congestion::Window;
use ferroce_proto::memory::AccessFlags;
use ferroce_proto::qp::ServiceType;
use ferroce_proto::receive::{XrcDomain, XrcProperties};
use ferroce_proto::time::Instant;
use ferroce_wire::number::{Psn, Qpn};

use super::host::{EndpointRq, PendingSetup, QpConfig, RdmaHost, Work};
use super::layout::{GUARD_BYTES, RC_SRQ, XRC_DOMAIN, address, qpn};
use super::management::{ConnectionSpec, Management, QpControl};
use super::memory::{OTHER_PD, PD, REMOTE, Regions};
use super::program::{self, DatagramProgram, EndpointId, PostedProgram, Program};
use super::workload::{Service, SetUp, Workload};
use crate::random::Random;

/// A connection, or a group of UD QPs.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) service: Service,
    /// How it is established.
    pub(super) set_up: SetUp,
    /// The active endpoint, and the passive one; UD may have several passive ones.
    pub(super) endpoints: Vec<EndpointId>,
    pub(super) programs: Vec<Program>,
    pub(super) datagrams: Option<DatagramProgram>,
    /// The multicast group that the passive endpoints are attached to.
    pub(super) group: Option<Ipv4Addr>,
}

/// Makes a host with the regions and SRQs of [`super::layout`].
pub(super) fn host(index: usize, seed: u64, workload: &Workload) -> RdmaHost {
    host_at(index, address(index), seed, workload)
}

/// As [`host`], with an address that it may share.
pub(super) fn host_at(index: usize, at: Ipv4Addr, seed: u64, workload: &Workload) -> RdmaHost {
    let keys = Random::new(seed).stream("keys").substream(index as u64).next_u64();
    // A connection has up to five regions and windows on a host, and a host may have more connections than others.
    let slots = 256 + 40 * workload.connections / workload.hosts.max(2);
    let mut host = RdmaHost::new(at, Regions::new(keys, slots));
    host.memory.add(GUARD_BYTES.to_vec(), PD, AccessFlags::LOCAL_WRITE);
    let all = REMOTE | AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
    host.memory.add(GUARD_BYTES.to_vec(), OTHER_PD, all);
    // Credit for two packets of the largest size, and for so many that it does not matter.
    let share = Random::new(seed).stream("credit").below(4);
    host.set_share([2 * Window::MIN_SIZE, 64 << 10, 512 << 10, 64 << 20][share as usize]);
    let extended = |xrc| Some(XrcProperties { xrc, pd: PD });
    let kinds = [None, extended(XRC_DOMAIN), extended(XRC_DOMAIN), extended(XrcDomain(9))];
    for kind in kinds {
        let region = host.memory.add(Vec::new(), PD, AccessFlags::LOCAL_WRITE);
        host.add_srq(region, kind);
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
    let mut draw = ConnectionPlanner { index, workload, hosts, random, service };
    match service {
        Service::Datagram => draw.datagrams(&order),
        _ => draw.connected([order[0], order[1 % order.len()]]),
    }
}

/// Completes a plan: maps the memory, arms the limits of SRQs, and opens the connections that are up from the start.
pub(super) fn begin(connections: &[Connection], hosts: &mut [RdmaHost]) {
    for host in hosts.iter_mut() {
        host.memory.map();
        for shared in &mut host.srqs {
            shared.arm_limit();
        }
    }
    let direct = || connections.iter().filter(|one| one.set_up == SetUp::Direct);
    for id in direct().flat_map(|one| &one.endpoints) {
        hosts[id.host].open(Instant::ZERO, id.index);
    }
    for id in direct().flat_map(|one| &one.endpoints) {
        hosts[id.host].start(Instant::ZERO, id.index);
    }
    for host in hosts {
        host.with_management(|management, host| management.begin(Instant::ZERO, host));
    }
}

struct ConnectionPlanner<'a> {
    index: usize,
    workload: &'a Workload,
    hosts: &'a mut [RdmaHost],
    random: &'a mut Random,
    service: Service,
}

impl ConnectionPlanner<'_> {
    fn mtu(&mut self) -> u16 {
        [256, 512, 1024, 2048, 4096][self.random.below(5) as usize]
    }

    fn psn(&mut self) -> Psn {
        Psn::new(self.random.next_u64() as u32)
    }

    /// Plans an RC, UC or XRC connection between two hosts.
    fn connected(&mut self, pair: [usize; 2]) -> Connection {
        let mtu = self.mtu();
        let psns = [self.psn(), self.psn()];
        // An RC endpoint may receive from the host's SRQ.
        let ids = [0, 1].map(|side| {
            let receives = match self.service {
                Service::Extended => EndpointRq::Xrc,
                Service::Reliable if self.random.below(3) == 0 => EndpointRq::Shared(RC_SRQ),
                _ => EndpointRq::Own(self.workload.requests as usize),
            };
            let index = self.hosts[pair[side]].add_endpoint(address(pair[1 - side]), receives);
            EndpointId { host: pair[side], index }
        });
        let [active, passive] = ids;
        let duplex = self.service != Service::Extended && self.random.below(3) == 0;
        let mut posted = vec![self.program([active, passive])];
        if duplex {
            posted.push(self.program([passive, active]));
        }
        let mut work = [Vec::new(), Vec::new()];
        let mut window_binds = [Vec::new(), Vec::new()];
        let mut programs = Vec::new();
        for (from, one) in posted.into_iter().enumerate() {
            work[from] = one.work;
            window_binds[1 - from] = one.window_binds;
            programs.push(one.program);
        }
        let set_up = self.workload.set_up;
        // Low limits on READs and atomics in flight are as common as high ones, and exercise other code.
        let depth = 1 << self.random.below(4);
        for (side, (work, window_binds)) in work.into_iter().zip(window_binds).enumerate() {
            let peer = ids[1 - side];
            let mut config = self.config(side, qpn(ids[side].index), mtu, psns[side], depth);
            if set_up == SetUp::Direct {
                config.set_peer(qpn(peer.index), psns[1 - side], mtu);
            }
            let host = &mut self.hosts[ids[side].host];
            let work = Work::Connected(work);
            let waiting = Some(Box::new(PendingSetup { config, window_binds, work }));
            host.endpoints[ids[side].index].pending = waiting;
        }
        if set_up != SetUp::Direct {
            self.add_connection(ids, mtu, psns);
        }
        let endpoints = ids.to_vec();
        Connection {
            service: self.service,
            set_up,
            endpoints,
            programs,
            datagrams: None,
            group: None,
        }
    }

    fn program(&mut self, ends: [EndpointId; 2]) -> PostedProgram {
        program::connected(self.workload, self.service, ends, self.hosts, self.random)
    }

    /// Registers the connection with the management of both hosts.
    fn add_connection(&mut self, ids: [EndpointId; 2], mtu: u16, psns: [Psn; 2]) {
        let mut private = [[0; 32]; 2];
        private.iter_mut().for_each(|bytes| self.random.fill(bytes));
        for side in 0..2 {
            let host = ids[side].host;
            let spec = ConnectionSpec {
                connection: self.index,
                active: side == 0,
                service: self.service,
                endpoint: ids[side].index,
                peer: address(ids[1 - side].host),
                peer_qpn: qpn(ids[1 - side].index),
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
                .add_connection(spec);
        }
    }

    /// Plans UD sends to one host, or to a group of all others.
    fn datagrams(&mut self, order: &[usize]) -> Connection {
        let mtu = self.mtu();
        let group = (self.random.below(2) == 0)
            .then(|| Ipv4Addr::from_bits(0xef01_0000 + self.index as u32));
        let receivers = if group.is_some() { &order[1..] } else { &order[1..2] };
        let mut add = |host: usize, capacity: usize| {
            let receives = EndpointRq::Own(capacity);
            EndpointId {
                host,
                index: self.hosts[host].add_endpoint(Ipv4Addr::UNSPECIFIED, receives),
            }
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
        let endpoints: Vec<_> = std::iter::once(active).chain(passive).collect();
        let mut work = Some(work);
        for id in &endpoints {
            let service = ServiceType::UnreliableDatagram;
            let mut config = QpConfig::new(service, qpn(id.index), mtu, self.psn());
            config.attributes.queue_key = Some(program::QUEUE_KEY);
            config.settings.capabilities.max_send_wr = self.workload.requests;
            config.group = group.filter(|_| *id != active);
            // The first endpoint sends.
            let work = Work::Datagrams(work.take().unwrap_or_default());
            let waiting = PendingSetup { config, window_binds: Vec::new(), work };
            self.hosts[id.host].endpoints[id.index].pending = Some(Box::new(waiting));
        }
        Connection {
            service: self.service,
            set_up: SetUp::Direct,
            endpoints,
            programs: Vec::new(),
            datagrams: Some(datagrams),
            group,
        }
    }

    /// Returns the configuration of an endpoint whose peer is not known yet.
    fn config(&mut self, side: usize, number: Qpn, mtu: u16, send_psn: Psn, depth: u8) -> QpConfig {
        let service = match (self.service, side) {
            (Service::Unreliable, _) => ServiceType::UnreliableConnection,
            (Service::Extended, 0) => ServiceType::XrcInitiator,
            (Service::Extended, _) => ServiceType::XrcTarget,
            _ => ServiceType::ReliableConnection,
        };
        let mut config = QpConfig::new(service, number, mtu, send_psn);
        config.settings.capabilities.max_send_wr = self.workload.requests + 2;
        if self.service != Service::Unreliable {
            config.settings.congestion = self.workload.congestion.to_config();
            config.attributes.max_rd_atomic = Some(1 + self.random.below(u64::from(depth)) as u8);
            config.attributes.max_dest_rd_atomic = Some(depth);
        }
        config
    }
}
