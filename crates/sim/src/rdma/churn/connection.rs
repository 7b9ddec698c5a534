//! Two ends of a connection that come and go, and their requests.

use ferroce_memory::WindowKind;
use ferroce_proto::memory::Bind;
use ferroce_proto::qp::{RnrRetry, ServiceType, State};
use ferroce_proto::work::{
    Completion, Data, Operation, RemoteAddress, SendRequest, SgList, WorkId,
};
use ferroce_wire::number::{Immediate, Psn, Qpn, RKey, VirtualAddress};

use super::contents;
use super::memory::{COUNTERS, Pool, SharedReceives};
use super::queue_pair::{CAPACITY, QueuePair, Receives};
use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::host::HostId;
use crate::random::Random;
use crate::rdma::Summary;
use crate::rdma::host::{QpConfig, RdmaHost};
use crate::rdma::layout::{XRC_SRQS, address, qpn, srq_number};
use crate::rdma::memory::{BASE, REMOTE, local};
use crate::rdma::workload::{Service, Workload};

/// A type 2 window of an end, and the region that it exposes.
#[derive(Clone, Copy, Debug)]
struct Window {
    key: RKey,
    region: usize,
}

/// One end of a connection. A request that succeeds may have bound a window.
#[derive(Debug)]
struct End {
    queue_pair: QueuePair<Option<Window>>,
    /// A window that is bound to its QP, and one that was bound to a QP that is destroyed.
    window: Option<Window>,
    stale: Option<Window>,
}

/// A connection between two hosts.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: usize,
    service: Service,
    workload: Workload,
    ends: [End; 2],
    next_id: u64,
}

impl Connection {
    /// Draws a connection, unless all is UD, which has none.
    pub(super) fn new(number: usize, workload: &Workload, random: &mut Random) -> Option<Self> {
        let services: Vec<_> =
            workload.services.iter().filter(|&one| one != Service::Datagram).collect();
        let service = random.choose(&services).copied()?;
        let mut order: Vec<usize> = (0..workload.hosts.max(2) as usize).collect();
        random.shuffle(&mut order);
        let ends = [0, 1].map(|side| {
            let receives = match service {
                Service::Extended => Receives::Named,
                Service::Reliable if random.below(3) == 0 => Receives::Shared,
                _ => Receives::Own(workload.largest.max(8) as usize),
            };
            End { queue_pair: QueuePair::new(order[side], receives), window: None, stale: None }
        });
        Some(Self { number, service, workload: *workload, ends, next_id: 0 })
    }

    /// Returns the hosts and QPNs.
    pub(super) fn identity(&self) -> (Vec<HostId>, Vec<Qpn>) {
        let one = |end: &End| (end.queue_pair.id(), qpn(end.queue_pair.index.unwrap_or(0)));
        self.ends.iter().map(one).unzip()
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

    /// Resets the ends that are connected, creates those that do not exist, and connects both.
    pub(super) fn reconnect<T: EventLog>(
        &mut self,
        fabric: &mut Fabric<RdmaHost, T>,
        random: &mut Random,
    ) {
        let mut configs = [0, 1].map(|end| self.config(end, random));
        let psns = [0, 1].map(|end: usize| configs[end].attributes.send_psn.unwrap_or_default());
        let indices = [0, 1].map(|end| self.ends[end].queue_pair.renew(&configs[end], fabric));
        for end in 0..2 {
            let mtu = configs[end].settings.port_mtu;
            configs[end].set_peer(qpn(indices[1 - end]), psns[1 - end], mtu);
            let peer = address(self.ends[1 - end].queue_pair.host);
            let connected = fabric.with_host(self.ends[end].queue_pair.id(), |host, _| {
                host.connect(indices[end], peer, &configs[end])
            });
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
        self.ends[end].queue_pair.change(to, fabric);
    }

    pub(super) fn destroy<T: EventLog>(&mut self, end: usize, fabric: &mut Fabric<RdmaHost, T>) {
        let one = &mut self.ends[end];
        if one.queue_pair.destroy(fabric) {
            // Destroying a QP unbinds its windows.
            one.stale = one.window.take().or(one.stale);
        }
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
        let count = random.between(1..=4) as usize;
        let (mut work, mut must_fail) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let pools = [&pools[hosts[0]], &pools[hosts[1]]];
            let (request, fails) = self.request(end, pools, random);
            work.push(request);
            must_fail.push(fails);
        }
        let one = &mut self.ends[end].queue_pair;
        let Some(index) = one.index else { return 0 };
        let at = fabric.now();
        let ids: Vec<_> = work.iter().map(|request| request.id.0).collect();
        let posted = fabric.with_host(one.id(), |host, _| host.post(index, work)).unwrap_or(0);
        for (id, must_fail) in ids.into_iter().zip(must_fail).take(posted) {
            one.requests.push(id, at, must_fail, None);
        }
        posted
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
        let (Some(index), Service::Reliable) = (one.index, self.service) else { return };
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
        one.requests.push(id, at, area.revoked, Some(window));
    }

    /// Draws a request, and whether its memory is gone already.
    fn request(
        &mut self,
        end: usize,
        pools: [&Pool; 2],
        random: &mut Random,
    ) -> (SendRequest, bool) {
        let [ours, mut theirs] = pools.map(|pool| pool.choose(random));
        let (mut key, mut unbound) = (theirs.rkey(), false);
        let End { window, stale, .. } = self.ends[1 - end];
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
        let remote = |at: usize| RemoteAddress { address: VirtualAddress(BASE + at as u64), key };
        let immediate = Some(Immediate(at as u32));
        let kinds = if self.service == Service::Unreliable { 6 } else { 9 };
        let is_atomic = |kind| kind == 8;
        let kind = random.below(kinds);
        let operation = match kind {
            0..=2 => Operation::Send { immediate, invalidate: None },
            3 | 4 => Operation::Write { remote: remote(at), immediate: None },
            5 => Operation::Write { remote: remote(at), immediate },
            6 | 7 => Operation::Read { remote: remote(at) },
            _ => Operation::FetchAdd { remote: remote(slot), add: 1 },
        };
        let (at, length) = if is_atomic(kind) { (slot, 8) } else { (at, length) };
        let sge = local(ours.lkey, at, length);
        let id = self.next_id;
        self.next_id += 1;
        let data = Data::SgList(SgList::from(sge));
        let mut request = SendRequest::new(WorkId(id), operation, data);
        request.fence = random.below(8) == 0;
        if self.service == Service::Extended {
            request.receive_queue = Some(srq_number(XRC_SRQS[random.below(2) as usize]));
        }
        let uses_remote = kind >= 3 && self.service != Service::Unreliable;
        let fails =
            ours.is_dead(at, length) || uses_remote && (unbound || theirs.is_dead(at, length));
        (request, fails)
    }

    /// Takes the completions of an end and verifies them.
    pub(super) fn collect<T: EventLog>(
        &mut self,
        end: usize,
        fabric: &mut Fabric<RdmaHost, T>,
        shared: &mut [SharedReceives],
        summary: &mut Summary,
    ) -> Result<(), String> {
        let End { queue_pair, window, .. } = &mut self.ends[end];
        let succeeded = |binds: Option<Window>| *window = binds.or(*window);
        let received = |done: &Completion, message: &[u8]| {
            let Some(offset) = done.immediate else {
                return Err(format!("{done:?} of no message"));
            };
            match message == contents(offset.0 as usize, message.len()) {
                true => Ok(()),
                false => Err(format!("wrong bytes were received: {done:?}")),
            }
        };
        queue_pair.collect(fabric, shared, summary, succeeded, received)
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
