//! UD queue pairs that come and go, and their datagrams to each other and to multicast groups.
//!
//! The immediate data of a datagram is its number, by which a receiver finds who sent it, where to, and what.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use ferroce_proto::qp::{ServiceType, State};
use ferroce_proto::time::Instant;
use ferroce_proto::ud::{AddressHandle, GRH_LEN, SendRequest};
use ferroce_proto::work::{Completion, Data, SgList, WorkId};
use ferroce_wire::address::Gid;
use ferroce_wire::number::{Immediate, LKey, Psn, QKey, Qpn};

use super::contents;
use super::memory::{Pool, SharedReceives};
use super::processes::Processes;
use super::queue_pair::{CAPACITY, QueuePair, Receives};
use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::host::HostId;
use crate::random::Random;
use crate::rdma::Summary;
use crate::rdma::host::{QpConfig, RdmaHost};
use crate::rdma::memory::local;
use crate::rdma::program::QUEUE_KEY;
use crate::rdma::workload::{Service, Workload};

/// The multicast groups.
const GROUPS: [Ipv4Addr; 2] = [Ipv4Addr::new(239, 2, 0, 0), Ipv4Addr::new(239, 2, 0, 1)];

/// Where a datagram is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// A QP.
    One(Ipv4Addr, Qpn),
    /// A group, by its number.
    Group(usize),
}

/// A datagram that was posted.
#[derive(Clone, Copy, Debug)]
struct Datagram {
    at: Instant,
    /// Its sender.
    source: (Ipv4Addr, Qpn),
    target: Target,
    /// It has the right Q_Key.
    deliverable: bool,
    offset: usize,
    length: usize,
}

/// A UD QP, and those that were destroyed before it.
#[derive(Debug)]
struct Member {
    queue_pair: QueuePair<()>,
    mtu: u16,
    /// The endpoint and its QPN, also when it is destroyed.
    last: Option<(usize, Qpn)>,
    /// The address of its host.
    address: Ipv4Addr,
    /// Its host may share the machine with others.
    shares: bool,
    groups: [Attachment; GROUPS.len()],
    /// How often it received each datagram.
    received: BTreeMap<u32, u32>,
}

/// Whether a QP is attached to a group.
#[derive(Clone, Copy, Debug, Default)]
struct Attachment {
    attached: bool,
    /// When it was detached last.
    since: Instant,
}

/// The UD QPs of all hosts.
#[derive(Debug)]
pub(super) struct Datagrams {
    members: Vec<Member>,
    /// By their numbers.
    posted: Vec<Datagram>,
    largest: usize,
    random: Random,
}

impl Datagrams {
    pub(super) fn new(workload: &Workload, processes: &Processes, mut random: Random) -> Self {
        let used = workload.services.iter().any(|one| one == Service::Datagram);
        let count = if used { workload.connections.max(2) as usize } else { 0 };
        let largest = workload.largest.max(8) as usize;
        let draw = |number| {
            let mtu: u16 = [256, 1024, 4096][number % 3];
            let size = GRH_LEN + largest.min(mtu.into());
            let shared = random.below(3) == 0;
            let receives = if shared { Receives::Shared } else { Receives::Own(size) };
            let host = random.below(processes.len() as u64) as usize;
            Member {
                queue_pair: QueuePair::new(host, receives),
                mtu,
                last: None,
                address: processes.address(host),
                shares: processes.share(),
                groups: Default::default(),
                received: BTreeMap::new(),
            }
        };
        let members = (0..count).map(draw).collect();
        Self { members, posted: Vec::new(), largest, random }
    }

    /// Acts on one of the QPs. Returns how many requests were posted.
    pub(super) fn act<T: EventLog>(
        &mut self,
        fabric: &mut Fabric<RdmaHost, T>,
        pools: &[Pool],
    ) -> usize {
        let Self { members, random, .. } = self;
        if members.is_empty() || random.below(3) > 0 {
            return 0;
        }
        let number = random.below(members.len() as u64) as usize;
        let one = &mut members[number];
        // What failed stays so for a while.
        let failed = one.queue_pair.requests.failed;
        let kind =
            if failed && random.below(4) == 0 { 4 + random.below(4) } else { random.below(100) };
        match kind {
            0 => one.destroy(fabric),
            1 | 2 => one.queue_pair.change(State::Reset, fabric),
            3 => one.queue_pair.change(State::Error, fabric),
            4 | 5 => one.queue_pair.resume(fabric),
            6..=19 => one.connect(fabric, random),
            20..=27 => one.toggle(random.below(GROUPS.len() as u64) as usize, fabric),
            28..=49 => one.queue_pair.post_receives(fabric, random),
            _ => return self.post(number, fabric, pools),
        }
        0
    }

    fn post<T: EventLog>(
        &mut self,
        number: usize,
        fabric: &mut Fabric<RdmaHost, T>,
        pools: &[Pool],
    ) -> usize {
        let Self { members, posted, largest, random } = self;
        let host = members[number].queue_pair.host;
        let Some(index) = members[number].queue_pair.index() else { return 0 };
        let Some((_, own)) = members[number].last else { return 0 };
        let peers = members.iter().filter_map(|one| Some((one.address, one.last?.1)));
        let peers: Vec<_> = peers.collect();
        let Member { mtu, address: sender, shares, .. } = members[number];
        let at = fabric.now();
        let (first, mut work, mut must_fail) = (posted.len(), Vec::new(), Vec::new());
        for number in first..first + random.between(1..=4) as usize {
            let target = match random.choose(&peers) {
                Some(&(host, one)) if random.below(3) > 0 => Target::One(host, one),
                _ => Target::Group(random.below(GROUPS.len() as u64) as usize),
            };
            let area = pools[host].choose(random);
            // It may be longer than the MTU of its receiver.
            let length = random.below(1 + (*largest).min(mtu.into()) as u64) as usize;
            let offset = random.below((*largest - length) as u64 + 1) as usize;
            let deliverable = random.below(12) > 0;
            let source = (sender, own);
            let datagram = Datagram { at, source, target, deliverable, offset, length };
            work.push(datagram.request(number, area.lkey));
            // Those that find a transmit queue full for long are dropped before their payload is read.
            must_fail.push(!shares && length > 0 && area.is_dead(offset, length));
            posted.push(datagram);
        }
        let one = &mut members[number].queue_pair;
        let accepted = fabric.with_host(one.id(), |host, _| host.post_datagrams(index, work));
        posted.truncate(first + accepted.unwrap_or(0));
        for (number, must_fail) in (first..posted.len()).zip(must_fail) {
            one.requests.push(number as u64, at, must_fail, ());
        }
        posted.len() - first
    }

    /// Takes all completions and verifies them.
    pub(super) fn collect<T: EventLog>(
        &mut self,
        fabric: &mut Fabric<RdmaHost, T>,
        shared: &mut [SharedReceives],
        summary: &mut Summary,
        bound: Duration,
    ) -> Result<(), String> {
        let Self { members, posted, .. } = self;
        members.iter_mut().try_for_each(|one| {
            one.collect(fabric, shared, posted, summary)?;
            one.verify_failure(fabric, bound)
        })
    }

    /// The process of a host has ended.
    pub(super) fn process_ended<T: EventLog>(
        &mut self,
        host: usize,
        fabric: &mut Fabric<RdmaHost, T>,
    ) {
        let now = fabric.now();
        for one in self.members.iter_mut().filter(|one| one.queue_pair.host == host) {
            one.queue_pair.process_ended();
            one.received.clear();
            one.groups = [Attachment { attached: false, since: now }; GROUPS.len()];
            GROUPS.iter().for_each(|group| fabric.leave((*group).into(), HostId(host as u32)));
        }
    }

    /// Destroys all. Describes requests that have not completed.
    pub(super) fn end<T: EventLog>(&mut self, fabric: &mut Fabric<RdmaHost, T>) -> Option<String> {
        let left: usize = self.members.iter().map(|one| one.queue_pair.requests.len()).sum();
        self.members.iter_mut().for_each(|one| one.destroy(fabric));
        (left > 0).then(|| format!("{left} UD requests have not completed at the end"))
    }
}

impl Member {
    fn config(&self, random: &mut Random) -> QpConfig {
        let psn = Psn::new(random.next_u64() as u32);
        let service = ServiceType::UnreliableDatagram;
        let mut config = QpConfig::new(service, Qpn(0), self.mtu, psn);
        config.attributes.queue_key = Some(QUEUE_KEY);
        config.settings.capabilities.max_send_wr = CAPACITY as u32;
        config.settings.groups = GROUPS.len();
        config.uses_queue = self.shares && random.below(2) == 0;
        config.settings.shared_receives = self.queue_pair.receives() == Receives::Shared;
        config
    }

    /// Changes it to RTS, from whatever state it is in.
    fn connect<T: EventLog>(&mut self, fabric: &mut Fabric<RdmaHost, T>, random: &mut Random) {
        let config = self.config(random);
        let Some(index) = self.queue_pair.renew(&config, fabric) else { return };
        let number = fabric.host(self.queue_pair.id()).map(|host| host.qpn(index));
        let last = number.map(|number| (index, number));
        if std::mem::replace(&mut self.last, last) != last {
            self.received.clear();
        }
        let connected = fabric.with_host(self.queue_pair.id(), |host, _| {
            host.connect(index, Ipv4Addr::UNSPECIFIED, &config)
        });
        debug_assert!(matches!(connected, Some(Ok(()))), "{connected:?}");
    }

    /// Attaches it to a group, or detaches it.
    fn toggle<T: EventLog>(&mut self, group: usize, fabric: &mut Fabric<RdmaHost, T>) {
        let Some(index) = self.queue_pair.index() else { return };
        let (id, address) = (self.queue_pair.id(), GROUPS[group]);
        let (now, one) = (fabric.now(), &mut self.groups[group]);
        one.attached = !one.attached;
        one.since = now;
        let attach = one.attached;
        let members = fabric.with_host(id, |host, _| {
            let gid = Gid::from_ip(address.into());
            let changed = host.endpoints[index].set_member(gid, attach);
            debug_assert!(changed, "{address} of endpoint {index}");
            let mut groups = host.groups();
            let members = groups.entry(address).or_default();
            members.retain(|&one| one != index);
            members.extend(attach.then_some(index));
            members.len()
        });
        match members {
            Some(1..) => fabric.join(address.into(), id),
            _ => fabric.leave(address.into(), id),
        }
    }

    /// Detaches it from all groups, as destruction requires (IBA 11.2.5.4), and destroys it.
    fn destroy<T: EventLog>(&mut self, fabric: &mut Fabric<RdmaHost, T>) {
        if self.queue_pair.index().is_none() {
            return;
        }
        for group in 0..GROUPS.len() {
            if self.groups[group].attached {
                self.toggle(group, fabric);
            }
        }
        self.queue_pair.destroy(fabric);
    }

    fn collect<T: EventLog>(
        &mut self,
        fabric: &mut Fabric<RdmaHost, T>,
        shared: &mut [SharedReceives],
        posted: &[Datagram],
        summary: &mut Summary,
    ) -> Result<(), String> {
        self.queue_pair.settle(fabric);
        // The network duplicates a frame once at most.
        let copies = 1 + u32::from(fabric.totals().duplicated > 0);
        let Self { queue_pair, groups, received, last, address, .. } = self;
        let Some(_) = queue_pair.index else { return Ok(()) };
        let this = (*address, last.map_or(Qpn(0), |(_, number)| number));
        let verify = |done: &Completion, message: &[u8]| {
            let number = done.immediate.map_or(u32::MAX, |immediate| immediate.0);
            let Some(datagram) = posted.get(number as usize) else {
                return Err(format!("{done:?} of no datagram"));
            };
            let times = received.entry(number).or_default();
            *times += 1;
            if *times > copies {
                return Err(format!("{datagram:?} was received {times} times"));
            }
            datagram.verify(this, groups, done, message)
        };
        queue_pair.collect(fabric, shared, summary, |()| (), verify)
    }

    fn verify_failure<T: EventLog>(
        &self,
        fabric: &Fabric<RdmaHost, T>,
        bound: Duration,
    ) -> Result<(), String> {
        let one = &self.queue_pair;
        let Some(kind) = one.failure(fabric.now(), bound) else { return Ok(()) };
        let endpoint =
            fabric.host(one.id()).zip(one.index).map(|(host, index)| &host.endpoints[index]);
        match endpoint.is_none_or(|endpoint| endpoint.send_stopped()) {
            true => Ok(()),
            false => Err(format!("{kind:?} failed, but it is not in an error state")),
        }
    }
}

impl Datagram {
    fn request(&self, number: usize, lkey: LKey) -> SendRequest<Ipv4Addr> {
        let (route, destination) = match self.target {
            Target::One(host, number) => (host, number),
            Target::Group(group) => (GROUPS[group], Qpn::MULTICAST),
        };
        let queue_key = if self.deliverable { QUEUE_KEY } else { QKey(QUEUE_KEY.0 ^ 1) };
        SendRequest {
            id: WorkId(number as u64),
            address: AddressHandle { route, destination, queue_key },
            immediate: Some(Immediate(number as u32)),
            data: Data::SgList(SgList::from(local(lkey, self.offset, self.length))),
            signaled: true,
            solicited: false,
        }
    }

    /// Verifies that a QP may have received it, and that it received all of it.
    fn verify(
        &self,
        this: (Ipv4Addr, Qpn),
        groups: &[Attachment],
        done: &Completion,
        message: &[u8],
    ) -> Result<(), String> {
        let (host, number) = self.source;
        let Some((header, body)) = message.split_at_checked(GRH_LEN) else {
            return Err(format!("{done:?} without a GRH"));
        };
        // The source address of the IPv4 header, which is in the last 20 bytes.
        let from = header[32..36] == host.octets() && done.source == Some(number);
        let to = match self.target {
            Target::One(host, number) => (host, number) == this,
            // It may have been on the way when the QP was detached.
            Target::Group(group) => groups[group].attached || self.at <= groups[group].since,
        };
        let whole = body == contents(self.offset, self.length);
        match from && to && whole && self.deliverable {
            true => Ok(()),
            false => Err(format!("{self:?} was received by {this:?} as {done:?}")),
        }
    }
}
