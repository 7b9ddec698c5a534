//! A simulated host with QPs of all services, which takes and returns whole frames.

mod buffer;
mod control;
mod endpoint;
mod machine;
mod poster;
mod queues;
mod receives;
mod shared;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_device::{Burst, Device, Object, publish};
use ferroce_proto::budget::Budget;
use ferroce_proto::memory::{Finished, PayloadRead};
use ferroce_proto::qp::{QueuePairAttributes, State};
use ferroce_proto::receive::XrcProperties;
use ferroce_proto::time::Instant;
use ferroce_sync::MutexGuard;
use ferroce_wire::number::{Psn, Qpn, RKey};

use buffer::ReceiveBuffer;
pub(super) use endpoint::{Endpoint, PendingSetup, QpConfig, Work};
pub(super) use machine::{Counted, Machine, Member, service};
use poster::Poster;
use receives::Srq;
pub(super) use receives::{EndpointRq, Receives};
use shared::Shared;
pub(super) use shared::{Core, Served};
pub(super) use wire::{SingleFrame, Wire};

use super::frame::ReceivedPacket;
use super::layout::srq_number;
use super::management::{Management, QpControl};
use super::memory::{Ended, Regions};
use crate::host::{Destination, Host, HostId};
use crate::random::Random;

/// A host with its memory and QPs.
#[derive(Debug)]
pub(super) struct RdmaHost {
    pub(super) address: Ipv4Addr,
    pub(super) memory: Regions,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) srqs: Vec<Srq>,
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
            shared: Shared::new(address, Arc::clone(memory.registered())),
            memory,
            endpoints: Vec::new(),
            srqs: Vec::new(),
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
        let index = self.endpoints.len();
        let endpoint = Endpoint::new(self.qpn(index), index, peer, rq, &self.srqs);
        self.endpoints.push(endpoint);
        index
    }

    /// The QPN of an endpoint.
    pub(super) fn qpn(&self, index: usize) -> Qpn {
        Qpn(self.shared.first + index as u32)
    }

    /// The index of the endpoint with this QPN.
    pub(super) fn index_of(&self, number: Qpn) -> usize {
        self.shared.index_of(number)
    }

    /// Adds an SRQ, whose buffers are in this region.
    pub(super) fn add_srq(&mut self, region: usize, extended: Option<XrcProperties>) {
        let srq = Srq::new(self.srqs.len(), region, extended);
        self.shared
            .tables
            .add_receive_queue(srq_number(self.srqs.len()), Arc::clone(&srq.receives));
        self.srqs.push(srq);
    }

    /// Endpoints by the multicast group that they are attached to.
    pub(super) fn groups(&mut self) -> MutexGuard<'_, BTreeMap<Ipv4Addr, Vec<usize>>> {
        self.shared.groups.lock()
    }

    /// Finishes the accesses to memory that are due, and handles the packets that waited for them.
    fn finish_accesses(&mut self, now: Instant) {
        while let Some(ended) = self.memory.finish(now) {
            let (Ended::Access(Finished { queue_pair, .. })
            | Ended::Read(PayloadRead { queue_pair, .. })) = ended;
            let Some(core) = self.shared.tables.queue_pair(queue_pair) else { continue };
            let mut served = core.state().lock();
            match ended {
                Ended::Access(finished) => {
                    self.device.finish_access(&self.shared, &core, &mut served, &finished, now);
                }
                Ended::Read(read) => {
                    self.device.finish_read(&self.shared, &core, &mut served, read, now);
                }
            }
            drop(served);
            self.collect();
        }
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
        let lost = publish(&self.shared, &core, &mut served, Instant::ZERO).lost;
        self.device.update(&core, &mut served.queue_pair, lost);
        drop(served);
        self.collect();
    }

    /// Collects the completions that the device has published.
    fn collect(&mut self) {
        let published = std::mem::take(&mut *self.shared.published.lock());
        published.into_iter().for_each(|index| self.endpoints[index].collect());
    }

    /// Handles a frame, or forwards it.
    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        if !self.forwards(now, bytes) {
            self.receive_own(now, bytes);
        }
    }

    /// Handles a frame that is not of another process.
    fn receive_own(&mut self, now: Instant, bytes: &[u8]) {
        let Some(received) = ReceivedPacket::parse(bytes, now) else {
            self.damaged += 1;
            return;
        };
        if Management::owns(received.packet.bth.destination) {
            self.with_management(|management, host| management.handle(now, &received, host));
            return;
        }
        self.arrive(now, &mut SingleFrame(Some(&received)));
    }

    /// Gives packets to their QPs.
    fn arrive(&mut self, now: Instant, burst: &mut impl Burst<Shared>) {
        self.device.receive(&self.shared, burst, now);
        self.collect();
        // Data shows that the peer is ready, even if its RTU was lost (IBA 12.9.8.1).
        let reached = std::mem::take(&mut *self.shared.reached.lock());
        for index in reached {
            self.with_management(|management, host| management.data_received(now, index, host));
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
        let shared_receives = matches!(endpoint.rq, EndpointRq::Shared(_));
        pending.config.settings.shared_receives = shared_receives;
        served.queue_pair.endpoint = pending.config.build();
        served.set_peer(endpoint.peer, pending.config.attributes.destination);
        if let Some(group) = pending.config.group {
            self.shared.groups.lock().entry(group).or_default().push(index);
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
        drop(served);
        self.shared.open(&endpoint.core);
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

    fn connect(&mut self, index: usize, peer: Ipv4Addr, config: &QpConfig) -> bool {
        // Packets of its previous life do not show that the peer is ready.
        self.endpoints[index].lock().packet_received = false;
        RdmaHost::connect(self, index, peer, config).is_ok()
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
        if self.with_member(|member| member.handle_timeout(now)) == Some(true) {
            self.read_queues(now);
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
            if self.wire.pop(out) {
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
        let machine = self.with_member(|member| member.poll_timeout()).flatten();
        let timers = [self.device.next_timer(), post, management, self.batch_ends, memory, machine];
        timers.into_iter().flatten().min()
    }

    fn handle_notification(&mut self, now: Instant) {
        self.handle_wakeup(now);
    }

    fn poll_notification(&mut self) -> Option<(HostId, Duration)> {
        self.with_member(Member::poll_notification).flatten()
    }
}
