//! A simulated host with QPs of all services, which takes and returns whole frames.

mod buffer;
mod control;
mod endpoint;
mod poster;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_device::credit::Receiver;
use ferroce_device::credit::probe::{self, Message};
use ferroce_device::{Device, Host as _, Object, QueuePair};
use ferroce_proto::budget::Budget;
use ferroce_proto::endpoint::InboundPacket;
use ferroce_proto::held::HeldPacket;
use ferroce_proto::memory::{Finished, PayloadRead};
use ferroce_proto::qp::{QueuePairAttributes, State};
use ferroce_proto::receive::{ReceiveQueue, XrcProperties};
use ferroce_proto::time::Instant;
use ferroce_proto::ud;
use ferroce_wire::address::Gid;
use ferroce_wire::number::{Psn, Qpn, RKey};

use buffer::ReceiveBuffer;
pub(super) use endpoint::{Endpoint, EndpointRq, PendingSetup, QpConfig, Transport, Work};
use poster::Poster;
use shared::{Shared, Wire};

use super::frame::ReceivedPacket;
use super::layout::{FIRST_QPN, qpn};
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
    /// When the programs of endpoints post their next list.
    posts: BTreeSet<(Instant, usize)>,
    device: Device<Shared>,
    shared: Shared,
    wire: Wire,
}

/// The credit towards one receiver, if it does not matter.
const UNLIMITED_SHARE: usize = 1 << 40;

/// The QPs of a host that are checked after each event.
const MAX_CHECKED: usize = 16;

impl RdmaHost {
    pub(super) fn new(address: Ipv4Addr, memory: Regions) -> Self {
        Self {
            address,
            shared: Shared::new(Arc::clone(memory.registered())),
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
            posts: BTreeSet::new(),
            device: Device::new(UNLIMITED_SHARE, 0),
            wire: Wire::new(address),
        }
    }

    /// Adds an endpoint and returns its index, from which [`super::layout::qpn`] derives its QPN.
    pub(super) fn add_endpoint(&mut self, peer: Ipv4Addr, rq: EndpointRq) -> usize {
        let endpoint = Endpoint::new(qpn(self.endpoints.len()), peer, rq);
        self.shared.queue_pairs.push(Arc::clone(&endpoint.core));
        self.endpoints.push(endpoint);
        self.endpoints.len() - 1
    }

    /// Passes a packet to the QP of an endpoint.
    fn deliver(&mut self, now: Instant, index: usize, received: &ReceivedPacket<'_>) {
        let Some(endpoint) = self.endpoints.get_mut(index) else { return };
        let is_open = endpoint.lock().is_open;
        endpoint.packet_received |= is_open;
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
        self.deliver_packet(index, &inbound);
    }

    /// Passes a packet to the QP of an endpoint, with the receive queue that it names.
    fn deliver_packet(&mut self, index: usize, inbound: &InboundPacket<'_>) {
        let endpoint = &mut self.endpoints[index];
        let core = Arc::clone(&endpoint.core);
        let mut served = core.state().lock();
        if !served.is_open || served.queue_pair.destroyed {
            return;
        }
        let named = inbound.packet.extensions.xrceth.map(|header| header.receive_queue);
        let queue = endpoint.rq.queue(&mut self.srqs, named);
        let mut memory = self.shared.memory.access(inbound.time);
        served.queue_pair.endpoint.handle_packet(inbound, queue, &mut memory);
        drop(memory);
        self.device.received(&self.shared, &core, &mut served, inbound.time);
        drop(served);
        self.collect();
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
            let Some(core) = self.shared.queue_pairs.get(index).cloned() else { continue };
            let mut served = core.state().lock();
            let QueuePair { endpoint, destroyed, .. } = &mut served.queue_pair;
            if *destroyed {
                continue;
            }
            match ended {
                Ended::Access(finished) => {
                    let queue = self.endpoints[index].rq.queue(&mut self.srqs, None);
                    endpoint.handle_finished(&finished, queue);
                }
                Ended::Read(read) => endpoint.handle_read(read),
            }
            drop(served);
            self.device.schedule.push(core);
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
        let mut served = self.endpoints[index].lock();
        served.queue_pair.endpoint.take_held(&self.shared.memory.access(now))
    }

    /// Returns how many requests an endpoint holds back although nothing will send them.
    pub(super) fn stranded(&self, index: usize) -> Option<usize> {
        // A restarted host has none of its endpoints.
        self.endpoints.get(index)?.stranded()
    }

    /// Publishes what happened to a QP, and updates its credit.
    fn update(&mut self, index: usize) {
        let core = Arc::clone(&self.endpoints[index].core);
        let mut served = core.state().lock();
        let lost = self.shared.publish(&core, &mut served, Instant::ZERO).lost;
        self.device.update(&core, &mut served.queue_pair, lost);
        drop(served);
        self.collect();
    }

    /// Collects the completions that the device has published.
    fn collect(&mut self) {
        let published = std::mem::take(&mut *self.shared.published.lock());
        published.into_iter().for_each(|index| self.endpoints[index].collect());
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
            destination if probe::is_for(destination) => self.handle_probe(now, &received),
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

    /// Handles a probe, or the acknowledgement of one of its own.
    fn handle_probe(&mut self, now: Instant, received: &ReceivedPacket<'_>) {
        let source = Ipv4Addr::from(received.ip.source.0);
        match Message::parse(&received.packet) {
            Some(Message::Probe { number, sender }) => {
                self.shared.push_probe((source, probe::ack(number, sender, 0)));
            }
            Some(Message::Ack { number, sender }) => {
                let Device { credit, schedule } = &mut self.device;
                let receiver = Receiver::new(source.into(), sender);
                let next = credit.handle_probe_ack(receiver, number, now, schedule);
                next.into_iter().for_each(|probe| self.shared.push_probe(probe));
            }
            None => {}
        }
    }

    /// Posts the lists of an endpoint's program that are due. Returns whether the QP is to be served.
    fn post_due(&mut self, now: Instant, index: usize) -> bool {
        let endpoint = &mut self.endpoints[index];
        let Some(mut poster) = endpoint.poster.take() else { return false };
        let rings = poster.post_due(now, &mut endpoint.lock().queue_pair);
        self.posts.extend(poster.due().map(|due| (due, index)));
        endpoint.poster = Some(poster);
        rings
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
        let mut served = endpoint.core.state().lock();
        if served.is_open {
            return;
        }
        served.queue_pair.endpoint = pending.config.build();
        served.is_open = true;
        served.set_peer(endpoint.peer);
        if let Some(group) = pending.config.group {
            self.groups.entry(group).or_default().push(index);
        }
        let window_binds = std::mem::take(&mut pending.window_binds);
        if !window_binds.is_empty() {
            let qp = &mut served.queue_pair.endpoint;
            for request in window_binds {
                // The SQ has capacity for all of the program.
                let _ = qp.post_send(request);
            }
            // Binding is local: no packet is sent.
            let mut memory = self.shared.memory.access(now);
            let nothing = qp.poll_transmit(now, &mut { Budget::UNLIMITED }, &mut memory).is_none();
            debug_assert!(nothing);
            endpoint.bind_completions.extend(std::iter::from_fn(|| qp.poll_send_completion()));
        }
    }

    fn start(&mut self, now: Instant, index: usize) {
        let Some(endpoint) = self.endpoints.get_mut(index) else { return };
        let Some(mut pending) = endpoint.pending.take() else { return };
        if let (Some(random), Work::Connected(work)) = (&self.posting, &mut pending.work) {
            let mut random = random.substream(index as u64);
            let poster = Poster::new(std::mem::take(work), now, &mut random);
            endpoint.poster = Some(Box::new(poster));
        }
        let mut served = endpoint.core.state().lock();
        let qp = &mut served.queue_pair.endpoint;
        // The SQ has capacity for all of the program, and all lengths are valid.
        match pending.work {
            Work::Connected(work) => {
                work.into_iter().for_each(|request| _ = qp.post_send(request));
            }
            Work::Datagrams(work) => {
                work.into_iter().for_each(|request| _ = qp.post_datagram(request));
            }
        }
        drop(served);
        self.device.schedule.push(Arc::clone(&endpoint.core));
        self.post_due(now, index);
    }

    fn close(&mut self, index: usize) {
        if let Some(endpoint) = self.endpoints.get_mut(index) {
            let change =
                QueuePairAttributes { state: Some(State::Error), ..QueuePairAttributes::default() };
            // Possible in every state.
            let _ = endpoint.lock().queue_pair.endpoint.modify(&change);
            self.update(index);
        }
    }
}

impl Host for RdmaHost {
    fn handle_frame(&mut self, now: Instant, bytes: &[u8]) {
        if !self.batch.is_zero() {
            self.batch_ends.get_or_insert(now + self.batch);
            return self.received.push(bytes);
        }
        self.receive(now, bytes);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.batch_ends = self.batch_ends.filter(|&end| now < end);
        if self.batch_ends.is_none() {
            for frame in self.received.take() {
                self.receive(now, &frame);
            }
        }
        self.finish_accesses(now);
        while let Some(&(due, index)) = self.posts.first().filter(|(due, _)| *due <= now) {
            self.posts.remove(&(due, index));
            if self.post_due(now, index) {
                self.device.schedule.push(Arc::clone(&self.endpoints[index].core));
            }
            self.update(index);
        }
        self.device.run_timers(&self.shared, now);
        self.collect();
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
        self.device.schedule.release_owed();
        loop {
            if let Some(mut frame) = self.wire.pop() {
                out.append(&mut frame);
                return Some(Destination::Header);
            }
            let served = self.device.transmit_all(&mut self.wire, &self.shared, now, 1);
            self.collect();
            if !served && !self.device.schedule.has_ready() {
                return None;
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        if cfg!(debug_assertions) {
            self.device.check_invariants();
            self.endpoints.iter().take(MAX_CHECKED).for_each(Endpoint::check_served);
        }
        let management = self.management.as_ref().and_then(|management| management.poll_timeout());
        let memory = self.memory.next_finish();
        let post = self.posts.first().map(|(due, _)| *due);
        let timers = [self.device.next_timer(), post, management, self.batch_ends, memory];
        timers.into_iter().flatten().min()
    }
}
