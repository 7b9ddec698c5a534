//! A simulated host with QPs of all services, which takes and returns whole frames.

mod buffer;
mod control;
mod endpoint;
mod poster;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_device::Schedulable;
use ferroce_device::credit::Credit;
use ferroce_device::schedule::Schedule;
use ferroce_proto::budget::Budget;
use ferroce_proto::endpoint::InboundPacket;
use ferroce_proto::held::HeldPacket;
use ferroce_proto::memory::{Finished, PayloadRead};
use ferroce_proto::receive::{ReceiveQueue, XrcProperties};
use ferroce_proto::time::Instant;
use ferroce_proto::transmit::EncodeError;
use ferroce_proto::ud;
use ferroce_wire::address::Gid;
use ferroce_wire::number::{Psn, Qpn, RKey};
use ferroce_wire::packet::Packet;

use buffer::ReceiveBuffer;
pub(super) use endpoint::{Core, Endpoint, EndpointRq, PendingSetup, QpConfig, QueuePair, Work};
use poster::Poster;

use super::frame::{ReceivedPacket, emit};
use super::layout::{FIRST_QPN, FIRST_SRQN, qpn};
use super::management::{Management, QpControl};
use super::memory::{Ended, Regions};
use crate::host::{Destination, Host};
use crate::random::Random;

/// An SRQ, with the buffers of its receive requests by their id: offset in `region`, and length.
#[derive(Debug)]
pub(super) struct Srq {
    pub(super) queue: ReceiveQueue,
    pub(super) region: usize,
    pub(super) buffers: Vec<(usize, usize)>,
    pub(super) limit: usize,
    pub(super) limit_events: u32,
}

impl Srq {
    pub(super) fn new(region: usize, extended: Option<XrcProperties>) -> Self {
        const CAPACITY: usize = 1 << 16;
        let queue = match extended {
            Some(extended) => ReceiveQueue::with_xrc(CAPACITY, extended),
            None => ReceiveQueue::new(CAPACITY),
        };
        Self { queue, region, buffers: Vec::new(), limit: 0, limit_events: 0 }
    }
}

/// A host with its memory and QPs.
#[derive(Debug)]
pub(super) struct RdmaHost {
    pub(super) address: Ipv4Addr,
    pub(super) memory: Regions,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) srqs: Vec<Srq>,
    /// Endpoints by the multicast group that they are attached to.
    pub(super) groups: BTreeMap<Ipv4Addr, Vec<usize>>,
    /// A type 2 window that a QP of this host has bound: no other QP may use it.
    pub(super) window: Option<RKey>,
    /// Establishes connections, unless they are up from the start.
    pub(super) management: Option<Box<Management>>,
    /// Frames that were dropped because of a bad ICRC or header.
    pub(super) damaged: u64,
    /// It replaced a host that crashed.
    pub(super) restarted: bool,
    /// How long frames are received before they are handled, as by a thread that receives in batches.
    pub(super) batch: Duration,
    /// Requests are posted over time, and when is drawn from it; otherwise all at once.
    pub(super) posting: Option<Random>,
    /// The frames that arrived in the current batch.
    pub(super) received: ReceiveBuffer,
    /// Bytes that may be in flight to one receiver.
    pub(super) share: usize,
    /// The end of the current batch.
    batch_ends: Option<Instant>,
    schedule: Schedule<Arc<Core>>,
    credit: Credit<Arc<Core>, ()>,
    /// The QP that is served.
    turn: Option<Turn>,
    buffer: Vec<u8>,
}

/// The packets that a QP sends before others are served.
#[derive(Debug)]
struct Turn {
    index: usize,
    budget: Budget,
    packets: usize,
}

/// The credit towards one receiver, if it does not matter.
const UNLIMITED_SHARE: usize = 1 << 40;

/// The most packets of a turn, as in the engine.
const TURN: usize = 16;

/// The QPs of a host that are checked after each event.
const MAX_CHECKED: usize = 16;

impl RdmaHost {
    pub(super) fn new(address: Ipv4Addr, memory: Regions) -> Self {
        Self {
            address,
            memory,
            endpoints: Vec::new(),
            srqs: Vec::new(),
            groups: BTreeMap::new(),
            window: None,
            management: None,
            damaged: 0,
            restarted: false,
            batch: Duration::ZERO,
            posting: None,
            received: ReceiveBuffer::default(),
            share: UNLIMITED_SHARE,
            batch_ends: None,
            schedule: Schedule::default(),
            credit: Credit::new(UNLIMITED_SHARE, 0),
            turn: None,
            buffer: vec![0; 8192],
        }
    }

    /// Adds an endpoint and returns its index, from which [`super::layout::qpn`] derives its QPN.
    pub(super) fn add_endpoint(&mut self, peer: Ipv4Addr, rq: EndpointRq) -> usize {
        self.endpoints.push(Endpoint::new(qpn(self.endpoints.len()), peer, rq));
        self.endpoints.len() - 1
    }

    /// Passes a packet to the QP of an endpoint.
    fn deliver(&mut self, now: Instant, index: usize, received: &ReceivedPacket<'_>) {
        let Some(endpoint) = self.endpoints.get_mut(index) else { return };
        if endpoint.destroyed {
            // As in the engine, which finds a QP by its number until the call that destroys it returns.
            return self.update(index);
        }
        let packet = &received.packet;
        let envelope = ud::Envelope {
            destination: Gid::from_ip(Ipv4Addr::from(received.ip.destination.0).into()),
            header: Some(received.route_header()),
        };
        let inbound = InboundPacket {
            time: now,
            packet,
            packets: 1,
            marked: received.marked,
            envelope: &envelope,
        };
        endpoint.packet_received |= endpoint.qp.is_some();
        self.deliver_packet(index, &inbound);
    }

    /// Passes a packet to the QP of an endpoint, with the receive queue that it names.
    fn deliver_packet(&mut self, index: usize, inbound: &InboundPacket<'_>) {
        let endpoint = &mut self.endpoints[index];
        let queue = match (&mut endpoint.rq, inbound.packet.extensions.xrceth) {
            (EndpointRq::Own(queue), _) => Some(queue),
            (EndpointRq::Shared(index), _) => {
                self.srqs.get_mut(*index).map(|shared| &mut shared.queue)
            }
            (EndpointRq::Xrc, Some(header)) => {
                let named = header.receive_queue.0.wrapping_sub(FIRST_SRQN) as usize;
                self.srqs.get_mut(named).map(|shared| &mut shared.queue)
            }
            (EndpointRq::Xrc, None) => None,
        };
        let Some(qp) = &mut endpoint.qp else { return };
        qp.handle_packet(inbound, queue, &mut self.memory.access(inbound.time));
        let (core, pending) = (&endpoint.core, qp.pending());
        self.schedule.received(core, pending);
        self.schedule.set_timer(core, &mut endpoint.membership, qp.poll_timeout());
        self.update(index);
        for shared in &mut self.srqs {
            shared.limit_events += u32::from(shared.queue.poll_limit());
        }
    }

    /// Finishes the accesses to memory that are due, and handles the packets that waited for them.
    fn finish_accesses(&mut self, now: Instant) {
        while let Some(ended) = self.memory.finish(now) {
            let (Ended::Access(Finished { queue_pair, .. })
            | Ended::Read(PayloadRead { queue_pair, .. })) = ended;
            let index = queue_pair.0.wrapping_sub(FIRST_QPN) as usize;
            let Some(endpoint) = self.endpoints.get_mut(index) else { continue };
            let Some(qp) = endpoint.qp.as_mut().filter(|_| !endpoint.destroyed) else { continue };
            match ended {
                Ended::Access(finished) => {
                    let queue = match &mut endpoint.rq {
                        EndpointRq::Own(queue) => Some(queue),
                        EndpointRq::Shared(at) => self.srqs.get_mut(*at).map(|one| &mut one.queue),
                        EndpointRq::Xrc => None,
                    };
                    qp.handle_finished(&finished, queue);
                }
                Ended::Read(read) => qp.handle_read(read),
            }
            self.schedule.push(Arc::clone(&endpoint.core));
            self.update(index);
            while let Some(held) = self.take_held(now, index) {
                let inbound = InboundPacket {
                    time: now,
                    packet: &held.packet(),
                    packets: held.packets,
                    marked: false,
                    envelope: &ud::Envelope::default(),
                };
                self.deliver_packet(index, &inbound);
            }
        }
    }

    fn take_held(&mut self, now: Instant, index: usize) -> Option<HeldPacket> {
        let qp = self.endpoints[index].qp.as_mut()?;
        qp.take_held(&self.memory.access(now))
    }

    /// Returns how many requests an endpoint holds back although nothing will send them.
    pub(super) fn stranded(&self, index: usize) -> Option<usize> {
        // A restarted host has none of its endpoints; a QP that is served is polled again.
        let served = self.turn.as_ref().is_some_and(|turn| turn.index == index);
        self.endpoints.get(index).filter(|_| !served)?.stranded()
    }

    /// Collects completions and updates the credit after anything happened to a QP.
    fn update(&mut self, index: usize) {
        let Self { endpoints, credit, schedule, .. } = self;
        let endpoint = &mut endpoints[index];
        endpoint.collect();
        let Some(qp) = &mut endpoint.qp else { return };
        let member = &mut endpoint.membership;
        credit.update(&endpoint.core, member, qp.in_flight(), schedule);
        if qp.has_counters() {
            let counted = qp.take_counters();
            qp.move_reasons_to(&mut Vec::new());
            if counted.packet_seq_err + counted.local_ack_timeout_err > 0 {
                credit.on_loss(member, false);
            }
            if counted.implied_nak_seq_err > 0 {
                credit.on_loss(member, true);
            }
        }
    }

    /// Handles a frame.
    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        let Some(received) = ReceivedPacket::parse(bytes) else {
            self.damaged += 1;
            return;
        };
        match received.packet.bth.destination {
            Qpn::MULTICAST => {
                let group = Ipv4Addr::from(received.ip.destination.0);
                let members = self.groups.get(&group).cloned().unwrap_or_default();
                members.into_iter().for_each(|index| self.deliver(now, index, &received));
            }
            destination if Management::owns(destination) => {
                self.with_management(|management, host| management.handle(now, &received, host));
            }
            destination => {
                let index = destination.0.wrapping_sub(FIRST_QPN) as usize;
                let first =
                    self.endpoints.get(index).is_some_and(|endpoint| !endpoint.packet_received);
                self.deliver(now, index, &received);
                // Data shows that the peer is ready, even if its RTU was lost (IBA 12.9.8.1).
                if first
                    && self.endpoints.get(index).is_some_and(|endpoint| endpoint.packet_received)
                {
                    self.with_management(|management, host| {
                        management.data_received(now, index, host)
                    });
                }
            }
        }
    }

    /// Begins to serve the next QP.
    fn begin_turn(&mut self) -> Option<Turn> {
        let index_of = |core: &Core| core.number().0.wrapping_sub(FIRST_QPN) as usize;
        let core = loop {
            let core = self.schedule.pop()?;
            if !self.endpoints[index_of(&core)].destroyed {
                break core;
            }
        };
        let index = index_of(&core);
        let endpoint = &mut self.endpoints[index];
        endpoint.release();
        endpoint.awaits_credit = false;
        let receiver = endpoint.receiver();
        let member = &mut endpoint.membership;
        let budget = self.credit.budget(&core, member, receiver, &mut self.schedule);
        Some(Turn { index, budget, packets: 0 })
    }

    /// Ends a turn: `done` if the QP has no more packets that it may send.
    fn end_turn(&mut self, turn: &Turn, done: bool) {
        self.update(turn.index);
        let Self { endpoints, credit, schedule, .. } = self;
        let endpoint = &mut endpoints[turn.index];
        let (core, member) = (&endpoint.core, &endpoint.membership);
        let needs = endpoint.qp.as_ref().and_then(QueuePair::over_budget).filter(|_| done);
        // One that does not wait may try again.
        let again = needs.map_or(!done, |needs| !credit.wait(core, member, needs, schedule));
        endpoint.awaits_credit = needs.is_some() && !again;
        if again {
            schedule.push(Arc::clone(core));
        }
        let deadline = endpoint.poll_timeout();
        schedule.set_timer(&endpoint.core, &mut endpoint.membership, deadline);
    }

    /// Ends the turn that an event interrupts: the engine handles events between turns.
    fn interrupt_turn(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.end_turn(&turn, false);
        }
    }

    /// Calls `act` with the management and the host, which owns it.
    pub(super) fn with_management(&mut self, act: impl FnOnce(&mut Management, &mut Self)) {
        if let Some(mut management) = self.management.take() {
            act(&mut management, self);
            self.management = Some(management);
        }
    }
}

impl QpControl for RdmaHost {
    fn address(&self) -> Ipv4Addr {
        self.address
    }

    fn set_peer(&mut self, index: usize, qpn: Qpn, psn: Psn, mtu: u16) {
        if let Some(pending) = &mut self.endpoints[index].pending {
            pending.config.set_peer(qpn, psn, mtu);
        }
    }

    fn open(&mut self, now: Instant, index: usize) {
        let Some(endpoint) = self.endpoints.get_mut(index) else { return };
        let Some(pending) = &mut endpoint.pending else { return };
        if endpoint.qp.is_some() {
            return;
        }
        let qp = endpoint.qp.insert(pending.config.build());
        if let Some(group) = pending.config.group {
            self.groups.entry(group).or_default().push(index);
        }
        let window_binds = std::mem::take(&mut pending.window_binds);
        if !window_binds.is_empty() {
            for request in window_binds {
                // The SQ has capacity for all of the program.
                let _ = qp.post_send(request);
            }
            // Binding is local: no packet is sent.
            let nothing = qp
                .poll_transmit(now, &mut { Budget::UNLIMITED }, &mut self.memory.access(now))
                .is_none();
            debug_assert!(nothing);
            endpoint.bind_completions.extend(std::iter::from_fn(|| qp.poll_send_completion()));
        }
    }

    fn start(&mut self, now: Instant, index: usize) {
        let Some(endpoint) = self.endpoints.get_mut(index) else { return };
        let Some(mut pending) = endpoint.pending.take() else { return };
        let Some(qp) = &mut endpoint.qp else { return };
        if let (Some(random), Work::Connected(work)) = (&self.posting, &mut pending.work) {
            let mut random = random.substream(index as u64);
            let poster = Poster::new(std::mem::take(work), now, &mut random);
            endpoint.poster.insert(Box::new(poster)).post_due(now, qp);
        }
        // The SQ has capacity for all of the program, and all lengths are valid.
        match pending.work {
            Work::Connected(work) => {
                work.into_iter().for_each(|request| _ = qp.post_send(request));
            }
            Work::Datagrams(work) => {
                work.into_iter().for_each(|request| _ = qp.post_datagram(request));
            }
        }
        self.schedule.push(Arc::clone(&endpoint.core));
    }

    fn close(&mut self, index: usize) {
        if let Some(endpoint) = self.endpoints.get_mut(index) {
            endpoint.close();
            self.update(index);
        }
    }
}

impl Host for RdmaHost {
    fn handle_frame(&mut self, now: Instant, bytes: &[u8]) {
        self.interrupt_turn();
        if !self.batch.is_zero() {
            self.batch_ends.get_or_insert(now + self.batch);
            return self.received.push(bytes);
        }
        self.receive(now, bytes);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.interrupt_turn();
        self.batch_ends = self.batch_ends.filter(|&end| now < end);
        if self.batch_ends.is_none() {
            for frame in self.received.take() {
                self.receive(now, &frame);
            }
        }
        self.finish_accesses(now);
        while let Some((at, number)) = self.schedule.pop_timer(now) {
            let index = number.0.wrapping_sub(FIRST_QPN) as usize;
            let Some(endpoint) = self.endpoints.get_mut(index) else { continue };
            if endpoint.destroyed || !endpoint.membership.take_timer(at) {
                continue;
            }
            if endpoint.handle_timeout(now) {
                // Its next timer is set after it has transmitted.
                self.schedule.push(Arc::clone(&endpoint.core));
                self.update(index);
            } else {
                let deadline = endpoint.poll_timeout();
                self.schedule.set_timer(&endpoint.core, &mut endpoint.membership, deadline);
            }
        }
        self.with_management(|management, host| management.handle_timeout(now, host));
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Destination> {
        if self.batch_ends.is_some() {
            return None;
        }
        if let Some(management) = &mut self.management {
            if management.poll_transmit(self.address, out) {
                return Some(Destination::Header);
            }
        }
        self.schedule.release_owed();
        while let Some(mut turn) = self.turn.take().or_else(|| self.begin_turn()) {
            let endpoint = &mut self.endpoints[turn.index];
            let (peer, memory) = (endpoint.peer, &mut self.memory.access(now));
            let Some(outbound) = endpoint.poll_transmit(now, &mut turn.budget, memory) else {
                self.end_turn(&turn, true);
                continue;
            };
            let (to, transmit) = (outbound.route.unwrap_or(peer), outbound.transmit);
            let (bth, extensions) = (transmit.bth, transmit.extensions);
            let memory = self.memory.access(now);
            let encoded = transmit.encode(&memory, &mut self.buffer);
            let encoded = encoded.map_err(|error| (error, transmit.explain(error, &memory)));
            let length = match encoded {
                Ok(length) => length,
                Err((error, reason)) => {
                    if let (Some(qp), false) =
                        (&mut endpoint.qp, matches!(error, EncodeError::Duplicate(_)))
                    {
                        let local = matches!(error, EncodeError::Local(_));
                        qp.handle_denied(bth.psn, local, reason);
                    }
                    self.turn = Some(turn);
                    continue;
                }
            };
            // The frame writes the headers: skip those that `encode` wrote.
            let headers = 12 + extensions.set().len();
            let pad = usize::from(bth.pad);
            let packet = Packet {
                bth,
                extensions,
                payload: &self.buffer[headers..length - pad],
                payload_len: length - pad - headers,
                pad: &[0; 3][..pad],
                icrc: None,
            };
            let port = 0xc000 | (turn.index as u16 & 0x3fff);
            emit(&packet, self.address, to, port, out);
            turn.packets += 1;
            match turn.packets < TURN {
                true => self.turn = Some(turn),
                false => self.end_turn(&turn, false),
            }
            return Some(Destination::Header);
        }
        None
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        if cfg!(debug_assertions) && self.turn.is_none() {
            self.schedule.check_invariants();
            self.credit.check_invariants();
            self.endpoints.iter().take(MAX_CHECKED).for_each(Endpoint::check_served);
        }
        let management = self.management.as_ref().and_then(|management| management.poll_timeout());
        let memory = self.memory.next_finish();
        let timers = [self.schedule.next_timer(), management, self.batch_ends, memory];
        timers.into_iter().flatten().min()
    }
}
