//! Two ends of a connection that come and go, and their requests.

use std::time::Duration;

use ferroce_memory::WindowKind;
use ferroce_proto::memory::{AccessFlags, Bind};
use ferroce_proto::qp::{RnrRetry, ServiceType, State};
use ferroce_proto::work::{
    Completion, Data, Operation, RemoteAddress, SendRequest, SgList, WorkId,
};
use ferroce_wire::number::{Immediate, LKey, Psn, Qpn, RKey, VirtualAddress};

use super::attempts::LastAttempt;
use super::memory::{COUNTERS, Pool, SharedReceives};
use super::processes::Processes;
use super::queue_pair::{CAPACITY, QueuePair, Receives};
use super::{contents, read};
use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::host::HostId;
use crate::random::Random;
use crate::rdma::Summary;
use crate::rdma::host::{QpConfig, RdmaHost};
use crate::rdma::layout::{XRC_SRQS, srq_number};
use crate::rdma::memory::{BASE, FailureKind, PD, REMOTE, local};
use crate::rdma::workload::{Service, Workload};

/// A type 2 window of an end, and the region that it exposes.
#[derive(Clone, Copy, Debug)]
struct Window {
    key: RKey,
    region: usize,
}

/// What a request that succeeds has done.
#[derive(Clone, Copy, Debug)]
enum Effect {
    Nothing,
    Bound(Window),
    Filled(Fill),
}

/// The part of a sink that a WRITE or READ fills.
#[derive(Clone, Copy, Debug)]
struct Fill {
    sink: Sink,
    at: usize,
    length: usize,
}

/// A region for one request at a time, which is cleared before: it shows that the data is there when the request completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sink {
    host: usize,
    region: usize,
    key: LKey,
}

/// One end of a connection.
#[derive(Debug)]
struct End {
    queue_pair: QueuePair<Effect>,
    /// A window that is bound to its QP, and one that was bound to a QP that is destroyed.
    window: Option<Window>,
    stale: Option<Window>,
    /// Where its READs and WRITEs go, on its host and on the peer's.
    sinks: [Option<Sink>; 2],
}

/// A connection between two hosts.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: usize,
    service: Service,
    workload: Workload,
    ends: [End; 2],
    /// Both ends are connected to each other, in whatever state.
    pub(super) intact: bool,
    next_id: u64,
    /// Its packets go through transmit queues, if there are some.
    uses_queue: bool,
    /// The attempt to connect by messages, unless it was given up, and how many there were.
    pub(super) attempt: Option<LastAttempt>,
    pub(super) attempts: u64,
}

impl Connection {
    /// Draws a connection, unless all is UD, which has none.
    pub(super) fn new(
        number: usize,
        hosts: usize,
        workload: &Workload,
        random: &mut Random,
    ) -> Option<Self> {
        let services: Vec<_> =
            workload.services.iter().filter(|&one| one != Service::Datagram).collect();
        let service = random.choose(&services).copied()?;
        let mut order: Vec<usize> = (0..hosts).collect();
        random.shuffle(&mut order);
        let ends = [0, 1].map(|side| {
            let receives = match service {
                Service::Extended => Receives::Named,
                Service::Reliable if random.below(3) == 0 => Receives::Shared,
                _ => Receives::Own(workload.largest.max(8) as usize),
            };
            let queue_pair = QueuePair::new(order[side], receives);
            End { queue_pair, window: None, stale: None, sinks: [None; 2] }
        });
        let (workload, attempt) = (*workload, None);
        Some(Self {
            number,
            service,
            workload,
            ends,
            intact: false,
            next_id: 0,
            uses_queue: false,
            attempt,
            attempts: 0,
        })
    }

    /// Returns the hosts and QPNs.
    pub(super) fn identity<T: EventLog>(
        &self,
        fabric: &Fabric<RdmaHost, T>,
    ) -> (Vec<HostId>, Vec<Qpn>) {
        let one = |end: &End| {
            let (id, index) = (end.queue_pair.id(), end.queue_pair.index.unwrap_or(0));
            (id, fabric.host(id).map_or(Qpn(0), |host| host.qpn(index)))
        };
        self.ends.iter().map(one).unzip()
    }

    pub(super) fn service(&self) -> Service {
        self.service
    }

    /// The number of the host of an end.
    pub(super) fn host(&self, end: usize) -> usize {
        self.ends[end].queue_pair.host
    }

    pub(super) fn id(&self, end: usize) -> HostId {
        self.ends[end].queue_pair.id()
    }

    fn config(&self, end: usize, random: &mut Random) -> QpConfig {
        let service = match (self.service, end) {
            (Service::Unreliable, _) => ServiceType::UnreliableConnection,
            (Service::Extended, 0) => ServiceType::XrcInitiator,
            (Service::Extended, _) => ServiceType::XrcTarget,
            _ => ServiceType::ReliableConnection,
        };
        let mtu = [256, 1024, 4096][self.number % 3];
        let psn = Psn::new(random.next_u64() as u32);
        let mut config = QpConfig::new(service, Qpn(0), mtu, psn);
        config.settings.shared_receives =
            !matches!(self.ends[end].queue_pair.receives(), Receives::Own(_));
        config.settings.congestion = self.workload.congestion.to_config();
        config.settings.capabilities.max_send_wr = CAPACITY as u32;
        // A receiver without receive requests must not hold up the sender for ever.
        config.attributes.rnr_retry = Some(RnrRetry(6));
        config.attributes.max_rd_atomic = Some(1 << random.below(4));
        config
    }

    /// Resets the ends that are connected, and creates those that do not exist. Returns their endpoints and how to connect
    /// them, unless one has to wait.
    pub(super) fn renew<T: EventLog>(
        &mut self,
        fabric: &mut Fabric<RdmaHost, T>,
        processes: &Processes,
        random: &mut Random,
    ) -> Option<[(usize, QpConfig); 2]> {
        let mut configs = [0, 1].map(|end| self.config(end, random));
        // Both directions take the same way, as in the library.
        let uses_queue = processes.share() && random.below(4) > 0;
        configs.iter_mut().for_each(|config| config.uses_queue = uses_queue);
        self.uses_queue = uses_queue;
        self.abandon(fabric);
        self.separate();
        let indices = [0, 1].map(|end| self.ends[end].queue_pair.renew(&configs[end], fabric));
        let [one, other] = configs;
        Some([(indices[0]?, one), (indices[1]?, other)])
    }

    /// Connects both ends directly.
    pub(super) fn reconnect<T: EventLog>(
        &mut self,
        fabric: &mut Fabric<RdmaHost, T>,
        processes: &Processes,
        random: &mut Random,
    ) {
        let Some(configs) = self.renew(fabric, processes, random) else { return };
        let first = |(_, config): &(usize, QpConfig)| config.attributes.send_psn;
        let psns = [0, 1].map(|end: usize| first(&configs[end]).unwrap_or_default());
        let numbers = [0, 1].map(|end: usize| {
            let host = fabric.host(self.id(end));
            host.map_or(Qpn(0), |host| host.qpn(configs[end].0))
        });
        self.intact = true;
        for (end, (index, mut config)) in configs.into_iter().enumerate() {
            let mtu = config.settings.port_mtu;
            config.set_peer(numbers[1 - end], psns[1 - end], mtu);
            let peer = processes.address(self.host(1 - end));
            let connected =
                fabric.with_host(self.id(end), |host, _| host.connect(index, peer, &config));
            debug_assert!(matches!(connected, Some(Ok(()))), "{connected:?}");
        }
    }

    /// Changes the state of an end.
    pub(super) fn change<T: EventLog>(
        &mut self,
        end: usize,
        to: State,
        fabric: &mut Fabric<RdmaHost, T>,
    ) {
        if to == State::Reset {
            self.abandon(fabric);
            self.separate();
        }
        self.ends[end].queue_pair.change(to, fabric);
    }

    /// An end is reset or destroyed: a copy that fails is of no consequence for the other.
    pub(super) fn separate(&mut self) {
        self.intact = false;
        self.ends.iter_mut().for_each(|end| end.queue_pair.forgive());
    }

    pub(super) fn destroy<T: EventLog>(&mut self, end: usize, fabric: &mut Fabric<RdmaHost, T>) {
        self.abandon(fabric);
        self.separate();
        let one = &mut self.ends[end];
        let destroyed = one.queue_pair.destroy(fabric);
        one.unbind(destroyed);
    }

    pub(super) fn post_receives<T: EventLog>(
        &mut self,
        end: usize,
        fabric: &mut Fabric<RdmaHost, T>,
        random: &mut Random,
    ) {
        self.ends[end].queue_pair.post_receives(fabric, random);
    }

    /// Posts requests at an end. Returns how many.
    pub(super) fn post<T: EventLog>(
        &mut self,
        end: usize,
        fabric: &mut Fabric<RdmaHost, T>,
        pools: &[Pool],
        random: &mut Random,
    ) -> usize {
        if self.service == Service::Extended && end == 1 {
            return 0;
        }
        let hosts = [end, 1 - end].map(|end| self.ends[end].queue_pair.host);
        self.add_sinks(end, fabric);
        let count = random.between(1..=4) as usize;
        let (mut work, mut others) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let pools = [&pools[hosts[0]], &pools[hosts[1]]];
            let free = self.free_sinks(end, &others);
            let (request, fails, effect) = self.request(end, pools, free, random);
            others.push((request.id.0, fails, effect));
            work.push(request);
        }
        let one = &mut self.ends[end].queue_pair;
        let Some(index) = one.index() else { return 0 };
        for (.., effect) in &others {
            let Effect::Filled(Fill { sink, at, length }) = *effect else { continue };
            fabric.with_host(HostId(sink.host as u32), |host, _| {
                host.memory.write(sink.region, at, &vec![0; length]);
            });
        }
        let at = fabric.now();
        let posted = fabric.with_host(one.id(), |host, _| host.post(index, work)).unwrap_or(0);
        // Packets of UC for a process that has ended are dropped before their payload is read.
        let is_read = self.service != Service::Unreliable || !self.uses_queue;
        for (id, must_fail, effect) in others.into_iter().take(posted) {
            one.requests.push(id, at, must_fail && is_read, effect);
        }
        posted
    }

    /// Returns the sinks of an end that no request uses.
    fn free_sinks(&self, end: usize, others: &[(u64, bool, Effect)]) -> [Option<Sink>; 2] {
        let End { queue_pair, sinks, .. } = &self.ends[end];
        let new = others.iter().map(|(.., effect)| effect);
        let used: Vec<_> = queue_pair.requests.effects().chain(new).collect();
        let uses =
            |effect: &Effect, wanted| matches!(effect, Effect::Filled(fill) if fill.sink == wanted);
        sinks.map(|sink| sink.filter(|&sink| !used.iter().any(|effect| uses(effect, sink))))
    }

    /// Registers the sinks of an end.
    fn add_sinks<T: EventLog>(&mut self, end: usize, fabric: &mut Fabric<RdmaHost, T>) {
        if self.service == Service::Unreliable || self.ends[end].sinks[0].is_some() {
            return;
        }
        let hosts = [end, 1 - end].map(|end| self.ends[end].queue_pair.host);
        let bytes = vec![0; self.workload.largest.max(8) as usize];
        self.ends[end].sinks = hosts.map(|number| {
            fabric.with_host(HostId(number as u32), |host, _| {
                let access = REMOTE | AccessFlags::LOCAL_WRITE;
                let region = host.memory.register(&bytes, PD, access);
                Sink { host: number, region, key: host.memory.lkey(region) }
            })
        });
    }

    /// Binds a new window of an end.
    pub(super) fn bind<T: EventLog>(
        &mut self,
        end: usize,
        fabric: &mut Fabric<RdmaHost, T>,
        pools: &[Pool],
        random: &mut Random,
    ) {
        let one = &mut self.ends[end].queue_pair;
        let (Some(index), Service::Reliable) = (one.index(), self.service) else { return };
        let area = pools[one.host].choose(random);
        let (id, at) = (self.next_id, fabric.now());
        self.next_id += 1;
        let posted = fabric.with_host(one.id(), |host, _| {
            let window = host.memory.add_window(WindowKind::Type2);
            let window = Window { key: window, region: area.region };
            let bind = Bind {
                window: window.key,
                key: RKey(window.key.0 ^ 1),
                region: area.lkey,
                address: VirtualAddress(BASE),
                length: pools[one.host].length() as u64,
                access: REMOTE,
            };
            let operation = Operation::Bind(bind);
            let request = SendRequest::new(WorkId(id), operation, Data::NONE);
            let bound = Window { key: bind.key, ..window };
            (host.post(index, vec![request]) == 1).then_some(bound)
        });
        let Some(Some(window)) = posted else { return };
        // A region that is unmapped can still be bound.
        one.requests.push(id, at, area.revoked, Effect::Bound(window));
    }

    /// Draws a request, whether its memory is gone already, and its effect. `free`: the sinks that it may use.
    fn request(
        &mut self,
        end: usize,
        pools: [&Pool; 2],
        free: [Option<Sink>; 2],
        random: &mut Random,
    ) -> (SendRequest, bool, Effect) {
        let [ours, mut theirs] = pools.map(|pool| pool.choose(random));
        let (mut key, mut unbound) = (theirs.rkey(), false);
        let End { window, stale, .. } = &self.ends[1 - end];
        let (window, stale) = (*window, *stale);
        let through = if random.below(8) == 0 { stale } else { window };
        if let (Some(through), true) = (through, random.below(2) == 0) {
            (key, unbound) = (through.key, Some(through.key) != window.map(|window| window.key));
            theirs = pools[1].find(through.region).unwrap_or(theirs);
        }
        let largest = pools[0].largest;
        let most = if random.below(3) == 0 { largest } else { largest.min(500) };
        let length = random.between(1..=most as u64) as usize;
        let at = random.below((largest - length) as u64 + 1) as usize;
        let counters = largest.next_multiple_of(8);
        let slot = counters + 8 * random.below(COUNTERS as u64 / 8) as usize;
        let kinds = if self.service == Service::Unreliable { 6 } else { 9 };
        let is_atomic = |kind| kind == 8;
        let kind = random.below(kinds);
        let sink = match kind {
            3 => free[1],
            6 => free[0],
            _ => None,
        };
        let mut lkey = ours.lkey;
        let (mut ours_dead, mut theirs_dead) = (true, true);
        if let Some(sink) = sink {
            if kind == 3 {
                (key, unbound, theirs_dead) = (RKey(sink.key.0), false, false);
            } else {
                (lkey, ours_dead) = (sink.key, false);
            }
        }
        let remote = |at: usize| RemoteAddress { address: VirtualAddress(BASE + at as u64), key };
        let immediate = Some(Immediate(at as u32));
        let operation = match kind {
            0..=2 => Operation::Send { immediate, invalidate: None },
            3 | 4 => Operation::Write { remote: remote(at), immediate: None },
            5 => Operation::Write { remote: remote(at), immediate },
            6 | 7 => Operation::Read { remote: remote(at) },
            _ => Operation::FetchAdd { remote: remote(slot), add: 1 },
        };
        let (at, length) = if is_atomic(kind) { (slot, 8) } else { (at, length) };
        let sge = local(lkey, at, length);
        let id = self.next_id;
        self.next_id += 1;
        let data = Data::SgList(SgList::from(sge));
        let mut request = SendRequest::new(WorkId(id), operation, data);
        request.fence = random.below(8) == 0;
        if self.service == Service::Extended {
            request.receive_queue = Some(srq_number(XRC_SRQS[random.below(2) as usize]));
        }
        let uses_remote = kind >= 3 && self.service != Service::Unreliable;
        ours_dead &= ours.is_dead(at, length);
        theirs_dead &= theirs.is_dead(at, length);
        let fails = ours_dead || uses_remote && (unbound || theirs_dead);
        let effect = sink.map_or(Effect::Nothing, |sink| Effect::Filled(Fill { sink, at, length }));
        (request, fails, effect)
    }

    /// Takes the completions of an end and verifies them.
    pub(super) fn collect<T: EventLog>(
        &mut self,
        end: usize,
        fabric: &mut Fabric<RdmaHost, T>,
        shared: &mut [SharedReceives],
        summary: &mut Summary,
    ) -> Result<(), String> {
        let one = &mut self.ends[end];
        let destroyed = one.queue_pair.settle(fabric);
        one.unbind(destroyed);
        let End { queue_pair, window, .. } = one;
        let mut fills = Vec::new();
        let succeeded = |effect| match effect {
            Effect::Nothing => {}
            Effect::Bound(new) => *window = Some(new),
            Effect::Filled(fill) => fills.push(fill),
        };
        let received = |done: &Completion, message: &[u8]| {
            let Some(offset) = done.immediate else {
                return Err(format!("{done:?} of no message"));
            };
            match message == contents(offset.0 as usize, message.len()) {
                true => Ok(()),
                false => Err(format!("wrong bytes were received: {done:?}")),
            }
        };
        queue_pair.collect(fabric, shared, summary, succeeded, received)?;
        for Fill { sink, at, length } in fills {
            let host = fabric.host(HostId(sink.host as u32));
            let found = host.map(|host| read(&host.memory, sink.region, at, length));
            if found.is_some_and(|found| found != contents(at, length)) {
                return Err(format!("{length} bytes at {at:#x} of {sink:?} are not there"));
            }
        }
        Ok(())
    }

    /// Verifies the consequences of a copy that failed: the QP is in an error state, and the requester sees an error.
    pub(super) fn verify_failure<T: EventLog>(
        &mut self,
        end: usize,
        fabric: &Fabric<RdmaHost, T>,
        bound: Duration,
    ) -> Result<(), String> {
        let failed = [end, 1 - end].map(|end| self.ends[end].queue_pair.requests.failed);
        let one = &mut self.ends[end].queue_pair;
        if !self.intact {
            one.forgive();
        }
        let (Some(kind), Some(index)) = (one.failure(fabric.now(), bound), one.index) else {
            return Ok(());
        };
        let stopped = fabric.host(one.id()).is_none_or(|host| host.endpoints[index].send_stopped());
        let reliable = self.service != Service::Unreliable;
        let seen = match kind {
            FailureKind::ReadLocal => stopped && failed[0],
            FailureKind::WriteRemote if reliable => stopped && failed[1],
            FailureKind::WriteLocal if reliable => stopped && (failed[0] || failed[1]),
            FailureKind::WriteRemote | FailureKind::WriteLocal => stopped,
            // Of a response to a duplicate READ, nobody may need it.
            FailureKind::ReadRemote => true,
        };
        match seen {
            true => Ok(()),
            false => Err(format!("{kind:?} failed: stopped {stopped}, requests failed {failed:?}")),
        }
    }

    /// The process of a host has ended, with its QPs, regions and windows.
    pub(super) fn process_ended(&mut self, host: usize) {
        if self.ends.iter().all(|end| end.queue_pair.host != host) {
            return;
        }
        self.lose_attempt();
        self.separate();
        for end in &mut self.ends {
            end.sinks = [None; 2];
            if end.queue_pair.host == host {
                end.queue_pair.process_ended();
                (end.window, end.stale) = (None, None);
            }
            // What it has filled cannot be seen any more.
            for effect in end.queue_pair.requests.effects_mut() {
                let is_lost = matches!(effect, Effect::Filled(fill) if fill.sink.host == host);
                if is_lost {
                    *effect = Effect::Nothing;
                }
            }
        }
    }

    /// Whether a request failed since the last reset.
    pub(super) fn has_failed(&self) -> bool {
        self.ends.iter().any(|end| end.queue_pair.requests.failed)
    }

    /// Describes the requests that have not completed.
    pub(super) fn unfinished(&self) -> Option<String> {
        let left: usize = self.ends.iter().map(|end| end.queue_pair.requests.len()).sum();
        (left > 0).then(|| format!("{left} requests have not completed"))
    }
}

impl End {
    /// Destroying a QP unbinds its windows.
    fn unbind(&mut self, destroyed: bool) {
        if destroyed {
            self.stale = self.window.take().or(self.stale);
        }
    }
}
