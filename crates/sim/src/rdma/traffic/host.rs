//! A host that posts the flows of its plan on RC queue pairs: the device core, with memory that has no contents.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ferroce_device::credit::Receiver;
use ferroce_device::credit::probe::ProbePacket;
use ferroce_device::memory_queue::MemoryQueue;
use ferroce_device::{Device, Object, ReceiveSource, Tables, TurnEnd};
use ferroce_proto::counters::Counters;
use ferroce_proto::endpoint::Event;
use ferroce_proto::memory::{NoContents, Sge};
use ferroce_proto::reason::Reason;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::work::{
    Completion, Data, Operation, ReceiveRequest, RemoteAddress, SendRequest, SgList, Status, WorkId,
};
use ferroce_sync::Mutex;
use ferroce_wire::address::Gid;
use ferroce_wire::ip::Ecn;
use ferroce_wire::number::{Immediate, LKey};

use super::plan::{Gate, PlannedFlow};
use crate::host::{Destination, Host};
use crate::rdma::frame::ReceivedPacket;
use crate::rdma::host::{Core, QpConfig, Receives, Served, SingleFrame, Wire};

/// Receive requests of each QP, for immediate data. Each is posted again as soon as it has completed.
const RECEIVES: usize = 16;

/// The frames that its wire takes before it is full: one, as QPs take turns packet by packet in an RNIC.
const WIRE_CAPACITY: usize = 1;

/// The credit towards a receiver: none is needed, the congestion control alone is measured.
const UNLIMITED_SHARE: usize = 1 << 40;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    core: Arc<Core>,
    /// The UDP source port, by which switches choose a path.
    port: u16,
}

impl Connection {
    pub(super) fn new(index: usize, config: &QpConfig, peer: Ipv4Addr, port: u16) -> Self {
        let mut queue = ReceiveQueue::new(RECEIVES);
        for id in 0..RECEIVES {
            // The capacity is that many.
            let _ = queue.post(ReceiveRequest { id: WorkId(id as u64), sg_list: SgList::NONE });
        }
        let core = Core::new(config.settings.number, index, Receives::new(None, queue));
        let mut served = core.state().lock();
        served.queue_pair.endpoint = config.build();
        served.set_peer(peer, config.attributes.destination);
        drop(served);
        Self { core, port }
    }
}

/// A flow and when it started and completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) plan: PlannedFlow,
    pub(super) started: Option<Instant>,
    pub(super) completed: Option<(Instant, Status)>,
}

/// The parts of a host that its device core uses.
#[derive(Debug)]
struct Shared {
    tables: Tables<Arc<Core>, Arc<Receives>>,
    /// The QPs that have completed something.
    published: Mutex<Vec<Arc<Core>>>,
    /// The counts of all QPs.
    counters: Mutex<Counters>,
}

#[derive(Debug)]
pub(super) struct TrafficHost {
    device: Device<Shared>,
    shared: Shared,
    wire: Wire,
    connections: Vec<Connection>,
    pub(super) flows: Vec<Flow>,
    gates: Vec<Gate>,
    /// Flows that start at a time.
    starts: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Flows that have completed.
    pub(super) completed: usize,
}

impl TrafficHost {
    pub(super) fn new(
        address: Ipv4Addr,
        ecn: Ecn,
        connections: Vec<Connection>,
        flows: Vec<PlannedFlow>,
        gates: Vec<Gate>,
        starts: impl IntoIterator<Item = (Instant, usize)>,
    ) -> Self {
        let flow = |plan| Flow { plan, started: None, completed: None };
        let tables = Tables::new(0, Arc::default());
        connections.iter().for_each(|connection| tables.add_queue_pair(&connection.core));
        let ports = connections.iter().map(|connection| connection.port).collect();
        Self {
            device: Device::new(UNLIMITED_SHARE, 0),
            shared: Shared { tables, published: Mutex::default(), counters: Mutex::default() },
            wire: Wire::with_ports(address, ecn, ports, WIRE_CAPACITY),
            connections,
            flows: flows.into_iter().map(flow).collect(),
            gates,
            starts: starts.into_iter().map(Reverse).collect(),
            completed: 0,
        }
    }

    /// Returns the counters of all QPs, and resets them.
    pub(super) fn take_counters(&mut self) -> Counters {
        let mut total = std::mem::take(&mut *self.shared.counters.lock());
        for Connection { core, .. } in &self.connections {
            total.add(&core.state().lock().queue_pair.endpoint.take_counters());
        }
        total
    }

    /// Posts a flow.
    fn start(&mut self, now: Instant, index: usize) {
        let flow = &mut self.flows[index];
        flow.started = Some(now);
        let plan = flow.plan;
        let remote = RemoteAddress::default();
        let immediate = plan.notify.map(Immediate);
        let operation = match plan.read {
            true => Operation::Read { remote },
            false => Operation::Write { remote, immediate },
        };
        let sge = Sge { key: LKey(0), address: remote.address, length: plan.bytes };
        let data = Data::SgList(SgList::from(sge));
        let core = Arc::clone(&self.connections[plan.connection].core);
        let request = SendRequest::new(WorkId(index as u64), operation, data);
        let posted = core.state().lock().queue_pair.endpoint.post_send(request);
        match posted {
            Ok(()) => self.device.schedule.push(core),
            // The SQ has capacity for all flows: the QP is in the error state, as another flow failed.
            Err(_) => self.complete(now, index, Status::Flushed),
        }
    }

    fn complete(&mut self, now: Instant, index: usize, status: Status) {
        let flow = &mut self.flows[index];
        flow.completed = Some((now, status));
        self.completed += 1;
        if let Some(gate) = flow.plan.done {
            self.signal(now, gate);
        }
    }

    fn signal(&mut self, now: Instant, gate: u32) {
        let Some(gate) = self.gates.get_mut(gate as usize) else { return };
        gate.signals = gate.signals.saturating_sub(1);
        if gate.signals == 0 {
            let flows = std::mem::take(&mut gate.flows);
            flows.into_iter().for_each(|index| self.start(now, index));
        }
    }

    /// Processes the completions that the device has published.
    fn collect(&mut self, now: Instant) {
        let published = std::mem::take(&mut *self.shared.published.lock());
        for core in published {
            let mut served = core.state().lock();
            let sent = std::mem::take(&mut served.sent);
            let received = std::mem::take(&mut served.received);
            drop(served);
            for done in sent {
                self.complete(now, done.id.0 as usize, done.status);
            }
            for done in received {
                // A request completed, so there is space for it.
                let request = ReceiveRequest { id: done.id, sg_list: SgList::NONE };
                let _ = core.receives().queue().lock().post(request);
                if let (Status::Success, Some(immediate)) = (done.status, done.immediate) {
                    self.signal(now, immediate.0);
                }
            }
        }
    }
}

impl Host for TrafficHost {
    fn handle_frame(&mut self, now: Instant, bytes: &[u8]) {
        let Some(received) = ReceivedPacket::parse_trusted(bytes, now) else { return };
        self.device.receive(&self.shared, &mut SingleFrame(Some(&received)), now);
        self.collect(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(&Reverse((at, index))) = self.starts.peek() {
            if at > now {
                break;
            }
            self.starts.pop();
            self.start(now, index);
        }
        self.device.run_timers(&self.shared, now);
        self.collect(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Destination> {
        self.device.schedule.release_owed();
        loop {
            if self.wire.pop(out) {
                return Some(Destination::Header);
            }
            let core = self.device.schedule.pop()?;
            let mut served = core.state().lock();
            let (_, end) = self.device.turn(&mut self.wire, &self.shared, &core, &mut served, now);
            drop(served);
            if end != TurnEnd::Done {
                self.device.schedule.push(core);
            }
            self.collect(now);
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let start = self.starts.peek().map(|Reverse((at, _))| *at);
        [self.device.next_timer(), start].into_iter().flatten().min()
    }
}

impl ferroce_device::Host for Shared {
    type Handle = Arc<Core>;
    type State = Served;
    type Route = Ipv4Addr;
    type Queue = MemoryQueue;
    type ReceiveQueue = Arc<Receives>;
    type Memory<'a> = NoContents;
    type Arrival<'a> = ReceivedPacket<'a>;
    type Overrun = Infallible;

    fn memory(&self, _: Instant) -> NoContents {
        NoContents
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

    fn accepted(&self, _: &mut Served, _: &ReceivedPacket<'_>) {}

    fn handle_management(&self, _: &ReceivedPacket<'_>) -> bool {
        false
    }

    fn members(&self, _: Gid) -> Vec<Arc<Core>> {
        Vec::new()
    }

    fn route_back(&self, _: &ReceivedPacket<'_>) -> Option<Ipv4Addr> {
        None
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

    fn count(&self, _: &mut Served, counted: &Counters) {
        self.counters.lock().add(counted);
    }

    fn raise(&self, _: &Arc<Core>, _: Event) {}

    fn limit_reached(&self, _: &Arc<Receives>) {}

    fn published(&self, core: &Arc<Core>, served: &mut Served, _: Instant) {
        if !served.sent.is_empty() || !served.received.is_empty() {
            self.published.lock().push(Arc::clone(core));
        }
    }

    fn local_receiver(&self, _: &Served) -> Option<(Receiver, Ipv4Addr)> {
        None
    }

    fn datagram_queue(
        &self,
        _: &Served,
        _: (Receiver, Ipv4Addr),
        _: Option<MemoryQueue>,
    ) -> Option<MemoryQueue> {
        None
    }

    fn next_own(&self, _: u64) -> Option<(Ipv4Addr, Box<[u8]>)> {
        None
    }

    fn push_probe(&self, _: ProbePacket<Ipv4Addr>) {}

    fn resume_queues(&self, _: impl FnMut(u64, usize) -> bool) {}
}
