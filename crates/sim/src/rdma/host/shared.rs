//! What the device core of a simulated host needs: its QPs, its memory, and its wire.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ferroce_device::credit::Receiver;
use ferroce_device::credit::probe::ProbePacket;
use ferroce_device::memory_queue::MemoryQueue;
use ferroce_device::{Host, Marks, Object, QueuePair, Schedulable, Tables};
use ferroce_proto::endpoint::Event;
use ferroce_proto::qp::ServiceType;
use ferroce_proto::reason::Reason;
use ferroce_proto::time::Instant;
use ferroce_proto::work::Completion;
use ferroce_sync::{Mutex, MutexGuard};
use ferroce_wire::address::Gid;
use ferroce_wire::number::{Psn, Qpn};

use super::QpConfig;
use super::machine::{Member, slot_of};
use super::receives::Receives;
use crate::rdma::frame::ReceivedPacket;
use crate::rdma::layout::FIRST_QPN;
use crate::rdma::memory::{HostMemory, Registered};

/// The shared object of a QP.
#[derive(Debug)]
pub(in crate::rdma) struct Core {
    number: Qpn,
    pub(in crate::rdma) index: usize,
    marks: Marks,
    state: Mutex<Served>,
    receives: Arc<Receives>,
}

/// A QP, and what it published since this was last collected.
#[derive(Debug)]
pub(in crate::rdma) struct Served {
    pub(in crate::rdma) queue_pair: QueuePair<Ipv4Addr, MemoryQueue>,
    /// The program has created it.
    pub(super) is_open: bool,
    /// A packet has arrived.
    pub(super) packet_received: bool,
    /// Its datagrams to other processes of its machine go through transmit queues.
    pub(super) queues_datagrams: bool,
    pub(in crate::rdma) sent: Vec<Completion>,
    pub(in crate::rdma) received: Vec<Completion>,
}

impl Core {
    pub(in crate::rdma) fn new(number: Qpn, index: usize, receives: Arc<Receives>) -> Arc<Self> {
        let config = QpConfig::new(ServiceType::ReliableConnection, number, 1024, Psn(0));
        let state = Served {
            queue_pair: QueuePair::new(config.settings),
            is_open: false,
            packet_received: false,
            queues_datagrams: false,
            sent: Vec::new(),
            received: Vec::new(),
        };
        let (marks, state) = (Marks::default(), Mutex::new(state));
        Arc::new(Self { number, index, marks, state, receives })
    }
}

impl Served {
    /// Connects it to a QP of a host.
    pub(in crate::rdma) fn set_peer(&mut self, peer: Ipv4Addr, number: Option<Qpn>) {
        let qp = &mut self.queue_pair;
        let acknowledged = !matches!(
            qp.endpoint.settings().service,
            ServiceType::UnreliableConnection | ServiceType::UnreliableDatagram
        );
        qp.route = Some(peer);
        let receiver = |number| Receiver::new(peer.into(), number);
        qp.receiver = number.filter(|_| acknowledged).map(receiver);
    }
}

impl Schedulable for Core {
    fn number(&self) -> Qpn {
        self.number
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }
}

impl Object for Core {
    type State = Served;
    type ReceiveQueue = Arc<Receives>;

    fn state(&self) -> &Mutex<Served> {
        &self.state
    }

    fn receives(&self) -> &Arc<Receives> {
        &self.receives
    }
}

impl Deref for Served {
    type Target = QueuePair<Ipv4Addr, MemoryQueue>;

    fn deref(&self) -> &Self::Target {
        &self.queue_pair
    }
}

impl DerefMut for Served {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.queue_pair
    }
}

/// The parts of a host that its device core uses.
#[derive(Debug)]
pub(in crate::rdma) struct Shared {
    pub(super) address: Ipv4Addr,
    /// The QPN of the first endpoint.
    pub(super) first: u32,
    /// The process's part of its machine, if it shares one.
    member: Option<Mutex<Box<Member>>>,
    pub(super) memory: Arc<Registered>,
    pub(super) tables: Tables<Arc<Core>, Arc<Receives>>,
    /// Endpoints by the multicast group that they are attached to.
    pub(super) groups: Mutex<BTreeMap<Ipv4Addr, Vec<usize>>>,
    /// Probes that are not sent yet.
    probes: Mutex<VecDeque<ProbePacket<Ipv4Addr>>>,
    /// Packets without ACKs need room in the window of their receiver, as between processes of one host.
    pub(super) has_windows: bool,
    /// The QPs that have published something.
    pub(super) published: Mutex<Vec<usize>>,
    /// The QPs whose first packet has arrived.
    pub(super) reached: Mutex<Vec<usize>>,
}

impl Shared {
    pub(super) fn new(address: Ipv4Addr, memory: Arc<Registered>) -> Self {
        Self {
            address,
            first: FIRST_QPN,
            member: None,
            memory,
            tables: Tables::new(0, Arc::default()),
            groups: Mutex::default(),
            probes: Mutex::default(),
            has_windows: false,
            published: Mutex::default(),
            reached: Mutex::default(),
        }
    }

    /// Makes it a process of a machine, whose QPNs begin at `first` in its slot.
    pub(super) fn join(&mut self, member: Member, first: u32) {
        self.first = u32::from(member.slot) << 16 | first;
        self.tables = Tables::new(member.slot, Arc::clone(self.tables.objects()));
        self.member = Some(Mutex::new(Box::new(member)));
    }

    /// The process's part of its machine.
    pub(super) fn member(&self) -> Option<MutexGuard<'_, Box<Member>>> {
        self.member.as_ref().map(Mutex::lock)
    }

    /// Draws whether something happens that does in `part` of `all` cases, in a process of a machine.
    pub(super) fn happens_in(&self, part: u64, all: u64) -> bool {
        self.member().is_some_and(|mut member| member.random.below(all) < part)
    }

    /// The index of the endpoint with this QPN.
    pub(super) fn index_of(&self, number: Qpn) -> usize {
        number.0.wrapping_sub(self.first) as usize
    }

    /// The transmit queue to a QP of another process of this machine.
    pub(super) fn queue_to(&self, peer: Ipv4Addr, number: Qpn) -> Option<MemoryQueue> {
        if peer != self.address || number == Qpn::MULTICAST {
            return None;
        }
        self.member()?.connect(slot_of(number))
    }

    /// The program has created this QP: packets reach it.
    pub(super) fn open(&self, core: &Arc<Core>) {
        core.state.lock().is_open = true;
        self.tables.add_queue_pair(core);
    }
}

impl Host for Shared {
    type Handle = Arc<Core>;
    type State = Served;
    type Route = Ipv4Addr;
    type Queue = MemoryQueue;
    type ReceiveQueue = Arc<Receives>;
    type Memory<'a> = HostMemory<'a>;
    type Arrival<'a> = ReceivedPacket<'a>;
    /// The CQs of programs hold all completions.
    type Overrun = Infallible;

    fn memory(&self, now: Instant) -> HostMemory<'_> {
        self.memory.access(now)
    }

    fn tables(&self) -> &Tables<Arc<Core>, Arc<Receives>> {
        &self.tables
    }

    fn is_awaited(&self) -> bool {
        false
    }

    fn is_peer(&self, served: &Served, source: IpAddr) -> bool {
        served.queue_pair.route.is_some_and(|peer| peer == source)
    }

    fn accepted(&self, served: &mut Served, arrival: &ReceivedPacket<'_>) {
        if !served.packet_received {
            served.packet_received = true;
            self.reached.lock().push(self.index_of(arrival.packet.bth.destination));
        }
    }

    /// The host passes them to its management before.
    fn handle_management(&self, _: &ReceivedPacket<'_>) -> bool {
        false
    }

    fn members(&self, group: Gid) -> Vec<Arc<Core>> {
        let IpAddr::V4(group) = group.to_ip() else { return Vec::new() };
        let groups = self.groups.lock();
        let members = groups.get(&group).into_iter().flatten();
        members
            .filter_map(|&index| self.tables.queue_pair(Qpn(self.first + index as u32)))
            .collect()
    }

    fn route_back(&self, arrival: &ReceivedPacket<'_>) -> Option<Ipv4Addr> {
        Some(Ipv4Addr::from(arrival.ip.source.0))
    }

    fn complete_send(
        &self,
        _: &Arc<Core>,
        served: &mut Served,
        completion: Completion,
        _: Instant,
    ) -> Result<(), Infallible> {
        served.sent.push(completion);
        Ok(())
    }

    fn complete_receive(
        &self,
        _: &Arc<Core>,
        served: &mut Served,
        _: Option<&Arc<Receives>>,
        completion: Completion,
        _: Instant,
    ) -> Result<(), Infallible> {
        served.received.push(completion);
        Ok(())
    }

    fn overrun(&self, _: &mut Served, overrun: Infallible) -> Reason {
        match overrun {}
    }

    fn raise(&self, _: &Arc<Core>, _: Event) {}

    fn limit_reached(&self, receives: &Arc<Receives>) {
        receives.raise_limit();
    }

    fn published(&self, core: &Arc<Core>, served: &mut Served, _: Instant) {
        if served.sent.is_empty() && served.received.is_empty() {
            return;
        }
        let mut list = self.published.lock();
        let index = core.index;
        if list.last() != Some(&index) {
            list.push(index);
        }
    }

    fn local_receiver(&self, served: &Served) -> Option<(Receiver, Ipv4Addr)> {
        if !self.has_windows {
            return None;
        }
        let (destination, route) = served.queue_pair.endpoint.next_unacknowledged()?;
        let host = route.or(served.queue_pair.route)?;
        (destination != Qpn::MULTICAST).then(|| (Receiver::new(host.into(), destination), host))
    }

    fn datagram_queue(
        &self,
        served: &Served,
        (to, path): (Receiver, Ipv4Addr),
        last: Option<MemoryQueue>,
    ) -> Option<MemoryQueue> {
        if !served.queues_datagrams || path != self.address {
            return None;
        }
        let member = self.member()?;
        // UC has a queue from the start, or none.
        served.queue_pair.endpoint.next_unacknowledged()?.1?;
        last.filter(|last| !last.has_ended()).or_else(|| member.existing(to.slot))
    }

    fn next_own(&self, _: u64) -> Option<(Ipv4Addr, Box<[u8]>)> {
        self.probes.lock().pop_front().map(|(route, packet)| (route, packet.into()))
    }

    fn push_probe(&self, probe: ProbePacket<Ipv4Addr>) {
        self.probes.lock().push_back(probe);
    }

    fn resume_queues(&self, resume: impl FnMut(u64, usize) -> bool) {
        if let Some(member) = self.member() {
            member.resume(resume);
        }
    }
}
