//! A host that posts the flows of its plan on RC queue pairs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ferroce_device::schedule::Schedule;
use ferroce_device::{Marks, Membership, Schedulable};
use ferroce_proto::budget::Budget;
use ferroce_proto::counters::Counters;
use ferroce_proto::endpoint::InboundPacket;
use ferroce_proto::memory::{NoContents, Sge};
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::ud::Envelope;
use ferroce_proto::work::{
    Data, Operation, ReceiveRequest, RemoteAddress, SendRequest, SgList, Status, WorkId,
};
use ferroce_wire::ip::Ecn;
use ferroce_wire::number::{Immediate, LKey, Qpn};
use ferroce_wire::packet::Packet;

use super::plan::{Gate, PlannedFlow};
use crate::host::{Destination, Host};
use crate::rdma::frame::{ReceivedPacket, emit_with_ecn};
use crate::rdma::host::{QpConfig, Transport};
use crate::rdma::layout::FIRST_QPN;

/// Receive requests of each QP, for immediate data. Each is posted again as soon as it has completed.
const RECEIVES: usize = 16;

/// The payload of every packet, shared by all hosts so that it stays in the cache.
static ZEROS: [u8; 4096] = [0; 4096];

/// A QP in the schedule.
#[derive(Debug)]
struct Served {
    number: Qpn,
    marks: Marks,
}

impl Schedulable for Served {
    fn number(&self) -> Qpn {
        self.number
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    qp: Transport,
    rq: ReceiveQueue,
    peer: Ipv4Addr,
    /// The UDP source port, by which switches choose a path.
    port: u16,
    core: Arc<Served>,
    membership: Membership,
}

impl Connection {
    pub(super) fn new(config: &QpConfig, peer: Ipv4Addr, port: u16) -> Self {
        let mut rq = ReceiveQueue::new(RECEIVES);
        for id in 0..RECEIVES {
            // The capacity is that many.
            let _ = rq.post(ReceiveRequest { id: WorkId(id as u64), sg_list: SgList::NONE });
        }
        let core = Arc::new(Served { number: config.settings.number, marks: Marks::default() });
        let membership = Membership::default();
        Self { qp: config.build(), rq, peer, port, core, membership }
    }
}

/// A flow and when it started and completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) plan: PlannedFlow,
    pub(super) started: Option<Instant>,
    pub(super) completed: Option<(Instant, Status)>,
}

#[derive(Debug)]
pub(super) struct TrafficHost {
    address: Ipv4Addr,
    ecn: Ecn,
    connections: Vec<Connection>,
    pub(super) flows: Vec<Flow>,
    gates: Vec<Gate>,
    /// Flows that start at a time.
    starts: BinaryHeap<Reverse<(Instant, usize)>>,
    schedule: Schedule<Arc<Served>>,
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
        Self {
            address,
            ecn,
            connections,
            flows: flows.into_iter().map(flow).collect(),
            gates,
            starts: starts.into_iter().map(Reverse).collect(),
            schedule: Schedule::default(),
            completed: 0,
        }
    }

    /// Returns the counters of all QPs, and resets them.
    pub(super) fn take_counters(&mut self) -> Counters {
        let mut total = Counters::default();
        self.connections.iter_mut().for_each(|one| total.add(&one.qp.take_counters()));
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
        let connection = &mut self.connections[plan.connection];
        let request = SendRequest::new(WorkId(index as u64), operation, data);
        match connection.qp.post_send(request) {
            Ok(()) => self.schedule.push(Arc::clone(&connection.core)),
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

    /// Processes the completions of a connection.
    fn collect(&mut self, now: Instant, index: usize) {
        while let Some(done) = self.connections[index].qp.poll_send_completion() {
            self.complete(now, done.id.0 as usize, done.status);
        }
        while let Some(done) = self.connections[index].qp.poll_receive_completion() {
            // A request completed, so there is space for it.
            let request = ReceiveRequest { id: done.id, sg_list: SgList::NONE };
            let _ = self.connections[index].rq.post(request);
            if let (Status::Success, Some(immediate)) = (done.status, done.immediate) {
                self.signal(now, immediate.0);
            }
        }
    }
}

impl Host for TrafficHost {
    fn handle_frame(&mut self, now: Instant, bytes: &[u8]) {
        let Some(received) = ReceivedPacket::parse_trusted(bytes, now) else { return };
        let index = received.packet.bth.destination.0.wrapping_sub(FIRST_QPN) as usize;
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Connection { qp, rq, core, .. } = connection;
        let inbound = InboundPacket {
            time: now,
            packet: &received.packet,
            packets: 1,
            marked: received.is_marked(),
            envelope: &Envelope::default(),
        };
        qp.handle_packet(&inbound, Some(rq), &mut NoContents);
        self.schedule.push(Arc::clone(core));
        self.collect(now, index);
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(&Reverse((at, index))) = self.starts.peek() {
            if at > now {
                break;
            }
            self.starts.pop();
            self.start(now, index);
        }
        while let Some((at, number)) = self.schedule.pop_timer(now) {
            let index = number.0.wrapping_sub(FIRST_QPN) as usize;
            let Some(connection) = self.connections.get_mut(index) else { continue };
            if !connection.membership.take_timer(at) {
                continue;
            }
            match connection.qp.poll_timeout() {
                Some(deadline) if deadline <= now => {
                    connection.qp.handle_timeout(now);
                    self.schedule.push(Arc::clone(&connection.core));
                }
                later => {
                    let Connection { core, membership, .. } = connection;
                    self.schedule.set_timer(core, membership, later);
                }
            }
            self.collect(now, index);
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Destination> {
        while let Some(core) = self.schedule.pop() {
            let index = core.number().0.wrapping_sub(FIRST_QPN) as usize;
            let connection = &mut self.connections[index];
            let budget = &mut { Budget::UNLIMITED };
            let Some(outbound) = connection.qp.poll_transmit(now, budget, &mut NoContents) else {
                let deadline = connection.qp.poll_timeout();
                self.schedule.set_timer(&core, &mut connection.membership, deadline);
                continue;
            };
            let transmit = outbound.transmit;
            let (bth, extensions) = (transmit.bth, transmit.extensions);
            let payload_len = transmit.payload.len();
            self.schedule.push(core);
            let packet = Packet {
                bth,
                extensions,
                payload: &ZEROS[..payload_len],
                payload_len,
                pad: &[0; 3][..usize::from(bth.pad)],
                icrc: None,
            };
            emit_with_ecn(&packet, self.address, connection.peer, connection.port, self.ecn, out);
            return Some(Destination::Header);
        }
        None
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let start = self.starts.peek().map(|Reverse((at, _))| *at);
        [self.schedule.next_timer(), start].into_iter().flatten().min()
    }
}
