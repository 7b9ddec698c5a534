//! A simulated host with QPs of all services, which takes and returns whole frames.

mod endpoint;
mod poster;
pub(super) mod schedule;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use ferroce_proto::budget::Budget;
use ferroce_proto::endpoint::InboundPacket;
use ferroce_proto::receive::{ReceiveQueue, XrcProperties};
use ferroce_proto::time::Instant;
use ferroce_proto::transmit::EncodeError;
use ferroce_proto::ud;
use ferroce_wire::address::Gid;
use ferroce_wire::number::{Psn, Qpn, RKey};
use ferroce_wire::packet::Packet;

pub(super) use endpoint::{Endpoint, EndpointRq, PendingSetup, QpConfig, QueuePair, Work};
use poster::Poster;
use schedule::Schedule;

use super::frame::{ReceivedPacket, emit};
use super::layout::{FIRST_QPN, FIRST_SRQN};
use super::management::{Management, QpControl};
use super::memory::Regions;
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
    /// How long frames are received before anything is sent, as by a thread that receives in batches.
    pub(super) batch: Duration,
    /// Requests are posted over time, and when is drawn from it; otherwise all at once.
    pub(super) posting: Option<Random>,
    /// The end of the current batch.
    batch_ends: Option<Instant>,
    schedule: Schedule,
    buffer: Vec<u8>,
}

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
            batch_ends: None,
            schedule: Schedule::default(),
            buffer: vec![0; 8192],
        }
    }

    /// Adds an endpoint and returns its index, from which [`super::layout::qpn`] derives its QPN.
    pub(super) fn add_endpoint(&mut self, endpoint: Endpoint) -> usize {
        self.endpoints.push(endpoint);
        self.endpoints.len() - 1
    }

    /// Passes a packet to the QP of an endpoint.
    fn deliver(&mut self, now: Instant, index: usize, received: &ReceivedPacket<'_>) {
        let Some(endpoint) = self.endpoints.get_mut(index) else { return };
        let packet = &received.packet;
        let queue = match (&mut endpoint.rq, packet.extensions.xrceth) {
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
        qp.handle_packet(&inbound, queue, &mut self.memory.access());
        endpoint.collect();
        endpoint.packet_received = true;
        self.schedule.wake(index, &mut endpoint.entry);
        for shared in &mut self.srqs {
            shared.limit_events += u32::from(shared.queue.poll_limit());
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
                .poll_transmit(now, &mut { Budget::UNLIMITED }, &mut self.memory.access())
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
        self.schedule.wake(index, &mut endpoint.entry);
    }

    fn close(&mut self, index: usize) {
        if let Some(endpoint) = self.endpoints.get_mut(index) {
            endpoint.close();
            endpoint.collect();
        }
    }
}

impl Host for RdmaHost {
    fn handle_frame(&mut self, now: Instant, bytes: &[u8]) {
        if !self.batch.is_zero() {
            self.batch_ends.get_or_insert(now + self.batch);
        }
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

    fn handle_timeout(&mut self, now: Instant) {
        self.batch_ends = self.batch_ends.filter(|&end| now < end);
        while let Some((index, at)) = self.schedule.due(now) {
            let Some(endpoint) = self.endpoints.get_mut(index) else { continue };
            if !Schedule::is_current(&mut endpoint.entry, at) {
                continue;
            }
            if endpoint.handle_timeout(now) {
                self.schedule.wake(index, &mut endpoint.entry);
            } else {
                let deadline = endpoint.poll_timeout();
                self.schedule.arm(index, &mut endpoint.entry, deadline);
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
        while let Some(index) = self.schedule.next() {
            let endpoint = &mut self.endpoints[index];
            Schedule::clear_ready(&mut endpoint.entry);
            endpoint.release();
            let peer = endpoint.peer;
            let Some(outbound) = endpoint.poll_transmit(now, &mut self.memory.access()) else {
                // Local operations may have completed.
                endpoint.collect();
                let deadline = endpoint.poll_timeout();
                self.schedule.arm(index, &mut endpoint.entry, deadline);
                continue;
            };
            let (to, transmit) = (outbound.route.unwrap_or(peer), outbound.transmit);
            let (bth, extensions) = (transmit.bth, transmit.extensions);
            let encoded = transmit.encode(&self.memory.access(), &mut self.buffer);
            let encoded =
                encoded.map_err(|error| (error, transmit.explain(error, &self.memory.access())));
            self.schedule.wake(index, &mut endpoint.entry);
            let length = match encoded {
                Ok(length) => length,
                Err((error, reason)) => {
                    if let (Some(qp), false) =
                        (&mut endpoint.qp, matches!(error, EncodeError::Duplicate(_)))
                    {
                        let local = matches!(error, EncodeError::Local(_));
                        qp.handle_denied(bth.psn, local, reason);
                    }
                    endpoint.collect();
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
            let port = 0xc000 | (index as u16 & 0x3fff);
            emit(&packet, self.address, to, port, out);
            return Some(Destination::Header);
        }
        None
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let management = self.management.as_ref().and_then(|management| management.poll_timeout());
        let timers = [self.schedule.next_timer(), management, self.batch_ends];
        timers.into_iter().flatten().min()
    }
}
