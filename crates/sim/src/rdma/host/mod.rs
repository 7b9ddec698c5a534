//! A simulated host with queue pairs of all services: whole frames in and out.

mod end;
mod schedule;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use ferroce_proto::receive::{Extended, ReceiveQueue};
use ferroce_proto::time::Instant;
use ferroce_proto::transmit::EncodeError;
use ferroce_proto::ud;
use ferroce_wire::address::Gid;
use ferroce_wire::number::{Qpn, RKey};
use ferroce_wire::packet::Packet;

pub(super) use end::{Blueprint, End, Pair, Receives, Waiting, Work};
use schedule::Schedule;

use super::frame::{InboundPacket, emit};
use super::manage::Management;
use super::memory::Regions;
use crate::{Destination, Host};

/// Queue pairs are numbered from here on: 0 and 1 are taken for management, 2 for the set-up exchange.
pub(super) const FIRST_QPN: u32 = 16;

/// Shared receive queues are numbered from here on, in a space of their own.
const FIRST_QUEUE: u32 = 0x100;

/// The queue pair's number of an end.
pub(super) const fn number(end: usize) -> Qpn {
    Qpn(FIRST_QPN + end as u32)
}

/// The number of a shared receive queue.
pub(super) const fn queue_number(queue: usize) -> Qpn {
    Qpn(FIRST_QUEUE + queue as u32)
}

/// A receive queue that ends share, with the buffers of its requests, by their id: where in `region`, and how long.
#[derive(Debug)]
pub(super) struct SharedQueue {
    pub(super) queue: ReceiveQueue,
    pub(super) region: usize,
    pub(super) buffers: Vec<(usize, usize)>,
    pub(super) limit: usize,
    pub(super) limit_events: u32,
}

impl SharedQueue {
    pub(super) fn new(region: usize, extended: Option<Extended>) -> Self {
        const CAPACITY: usize = 1 << 16;
        let queue = match extended {
            Some(extended) => ReceiveQueue::extended(CAPACITY, extended),
            None => ReceiveQueue::new(CAPACITY),
        };
        Self { queue, region, buffers: Vec::new(), limit: 0, limit_events: 0 }
    }
}

/// A host with its memory.
#[derive(Debug)]
pub(super) struct RdmaHost {
    pub(super) address: Ipv4Addr,
    pub(super) memory: Regions,
    pub(super) ends: Vec<End>,
    pub(super) queues: Vec<SharedQueue>,
    /// Ends by the group that they are attached to.
    pub(super) groups: BTreeMap<Ipv4Addr, Vec<usize>>,
    /// A window of type 2 that somebody's queue pair has bound here: no other may use it.
    pub(super) window: Option<RKey>,
    /// Sets up connections, if they are not from the start.
    pub(super) management: Option<Box<Management>>,
    /// Frames that were dropped because of their ICRC.
    pub(super) damaged: u64,
    /// It has taken the place of one that crashed.
    pub(super) restarted: bool,
    /// How long frames are received before anything is sent, as a thread does that takes them in batches.
    pub(super) batch: Duration,
    /// The batch ends then.
    batch_ends: Option<Instant>,
    schedule: Schedule,
    buffer: Vec<u8>,
}

impl RdmaHost {
    pub(super) fn new(address: Ipv4Addr) -> Self {
        Self {
            address,
            memory: Regions::default(),
            ends: Vec::new(),
            queues: Vec::new(),
            groups: BTreeMap::new(),
            window: None,
            management: None,
            damaged: 0,
            restarted: false,
            batch: Duration::ZERO,
            batch_ends: None,
            schedule: Schedule::default(),
            buffer: vec![0; 8192],
        }
    }

    /// Adds an end; its queue pair's number is [`number`] of its index.
    pub(super) fn add_end(&mut self, end: End) -> usize {
        self.ends.push(end);
        self.ends.len() - 1
    }

    /// Makes the queue pair of an end, and binds the windows that its peer will use: the connection is up on this side.
    pub(super) fn open(&mut self, now: Instant, index: usize) {
        let Some(end) = self.ends.get_mut(index) else { return };
        let Some(waiting) = &mut end.waiting else { return };
        if !matches!(end.pair, Pair::None) {
            return;
        }
        end.pair = waiting.blueprint.build();
        if let Blueprint::Datagram(_, Some(group)) = waiting.blueprint {
            self.groups.entry(group).or_default().push(index);
        }
        let prelude = std::mem::take(&mut waiting.prelude);
        if let (Pair::Reliable(pair), false) = (&mut end.pair, prelude.is_empty()) {
            for request in prelude {
                // The send queue has room for all of the program.
                let _ = pair.post_send(request);
            }
            // Nothing is sent by this: binding is done on this side alone.
            let nothing = pair.poll_transmit(now, &mut self.memory).is_none();
            debug_assert!(nothing);
            end.bound.extend(std::iter::from_fn(|| pair.poll_send_completion()));
        }
    }

    /// Posts the work of an end whose connection is up on both sides.
    pub(super) fn start(&mut self, index: usize) {
        let Some(end) = self.ends.get_mut(index) else { return };
        let Some(waiting) = end.waiting.take() else { return };
        // Capacity is what is posted, and lengths are within what is allowed.
        match (&mut end.pair, waiting.work) {
            (Pair::Reliable(pair), Work::Connected(work)) => {
                work.into_iter().for_each(|request| _ = pair.post_send(request));
            }
            (Pair::Unreliable(pair), Work::Connected(work)) => {
                work.into_iter().for_each(|request| _ = pair.post_send(request));
            }
            (Pair::Datagram(pair), Work::Datagrams(work)) => {
                work.into_iter().for_each(|request| _ = pair.post_send(request));
            }
            _ => {}
        }
        self.schedule.wake(index, &mut end.entry);
    }

    /// Ends a connection: its queue pair goes into the error state.
    pub(super) fn close(&mut self, index: usize) {
        if let Some(end) = self.ends.get_mut(index) {
            end.close();
            end.collect();
        }
    }

    /// A packet for a queue pair of ours.
    fn deliver(&mut self, now: Instant, index: usize, arrival: &InboundPacket<'_>) {
        let Some(end) = self.ends.get_mut(index) else { return };
        let packet = &arrival.packet;
        let queue = match (&mut end.receives, packet.extensions.xrceth) {
            (Receives::Own(queue), _) => Some(queue),
            (Receives::Shared(index), _) => {
                self.queues.get_mut(*index).map(|shared| &mut shared.queue)
            }
            (Receives::Named, Some(header)) => {
                let named = header.receive_queue.0.wrapping_sub(FIRST_QUEUE) as usize;
                self.queues.get_mut(named).map(|shared| &mut shared.queue)
            }
            (Receives::Named, None) => None,
        };
        match (&mut end.pair, queue) {
            (Pair::None, _) => return,
            (Pair::Reliable(pair), queue) => {
                pair.handle_packet(now, packet, arrival.marked, queue, &mut self.memory);
            }
            (Pair::Unreliable(pair), Some(queue)) => {
                pair.handle_packet(packet, queue, &mut self.memory);
            }
            (Pair::Datagram(pair), Some(queue)) => {
                let destination = Gid::from_ip(Ipv4Addr::from(arrival.ip.destination.0).into());
                let header = Some(arrival.route_header());
                let envelope = ud::Envelope { destination, header };
                pair.handle_packet(packet, &envelope, queue, &mut self.memory);
            }
            (Pair::Unreliable(_) | Pair::Datagram(_), None) => {}
        }
        end.collect();
        end.heard = true;
        self.schedule.wake(index, &mut end.entry);
        for shared in &mut self.queues {
            shared.limit_events += u32::from(shared.queue.poll_limit());
        }
    }

    /// Lets the management do its work on the ends.
    pub(super) fn manage(&mut self, act: impl FnOnce(&mut Management, &mut Self)) {
        if let Some(mut management) = self.management.take() {
            act(&mut management, self);
            self.management = Some(management);
        }
    }
}

impl Host for RdmaHost {
    fn handle_frame(&mut self, now: Instant, bytes: &[u8]) {
        if !self.batch.is_zero() {
            self.batch_ends.get_or_insert(now + self.batch);
        }
        let Some(arrival) = InboundPacket::read(bytes) else {
            self.damaged += 1;
            return;
        };
        match arrival.packet.bth.destination {
            Qpn::MULTICAST => {
                let group = Ipv4Addr::from(arrival.ip.destination.0);
                let members = self.groups.get(&group).cloned().unwrap_or_default();
                members.into_iter().for_each(|index| self.deliver(now, index, &arrival));
            }
            destination if Management::owns(destination) => {
                self.manage(|management, host| management.handle(now, &arrival, host));
            }
            destination => {
                let index = destination.0.wrapping_sub(FIRST_QPN) as usize;
                let first = self.ends.get(index).is_some_and(|end| !end.heard);
                self.deliver(now, index, &arrival);
                // Data tells that the peer is ready, when the message that says so was lost (IBA 12.9.8.1).
                if first && self.ends.get(index).is_some_and(|end| end.heard) {
                    self.manage(|management, host| management.data_received(now, index, host));
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.batch_ends = self.batch_ends.filter(|&end| now < end);
        while let Some((index, at)) = self.schedule.due(now) {
            let Some(end) = self.ends.get_mut(index) else { continue };
            if !Schedule::is_current(&mut end.entry, at) {
                continue;
            }
            let deadline = end.poll_timeout();
            if deadline.is_some_and(|deadline| deadline <= now) {
                if let Pair::Reliable(pair) = &mut end.pair {
                    pair.handle_timeout(now);
                }
                end.collect();
                self.schedule.wake(index, &mut end.entry);
            } else {
                self.schedule.arm(index, &mut end.entry, deadline);
            }
        }
        self.manage(|management, host| management.handle_timeout(now, host));
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
            let end = &mut self.ends[index];
            Schedule::taken(&mut end.entry);
            let Some((to, transmit)) = end.poll_transmit(now, &mut self.memory) else {
                // What is done on this side alone may have completed.
                end.collect();
                let deadline = end.poll_timeout();
                self.schedule.arm(index, &mut end.entry, deadline);
                continue;
            };
            let (bth, extensions) = (transmit.bth, transmit.extensions);
            let encoded = transmit.encode(&self.memory, &mut self.buffer);
            self.schedule.wake(index, &mut end.entry);
            let length = match encoded {
                Ok(length) => length,
                Err(error) => {
                    if !matches!(error, EncodeError::Again(_)) {
                        end.handle_denied(bth.psn, matches!(error, EncodeError::Local(_)));
                    }
                    end.collect();
                    continue;
                }
            };
            // Headers are written by the frame: what `encode` wrote of them is passed over.
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
