//! A packet's way in, from a link or a transmit queue to the transport of its QP.

use ferroce_proto::endpoint::InboundPacket;
use ferroce_proto::memory::{Finished, Memory, PayloadRead};
use ferroce_proto::qp::ServiceType;
use ferroce_proto::time::Instant;
use ferroce_proto::ud::Envelope;
use ferroce_wire::address::Gid;
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::{Opcode, OpcodeInfo, Operation};
use ferroce_wire::transport::Bth;

use crate::arrival::{Arrival, Refusal, is_default_partition};
use crate::credit::Receiver;
use crate::credit::probe::{self, Message};
use crate::device::Device;
use crate::handle::Schedulable;
use crate::host::Host;
use crate::link::TransmitQueue;
use crate::queue_pair::{Object, QueuePair, ReceiveSource};

/// Packets that were received together, one after the other.
pub trait Burst<H: Host> {
    /// The destination of the next packet, or `None` after the last one. Packets too short to have one are counted and skipped.
    fn destination(&mut self, host: &H) -> Option<Qpn>;

    /// Takes the next packets, for this QP of another process, and forwards them.
    fn forward(&mut self, host: &H, number: Qpn);

    /// Takes the next packet, checks it, and gives it to [`Device::arrive`]. Returns whether there were completions that are
    /// published already.
    fn deliver(
        &mut self,
        device: &mut Device<H>,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        now: Instant,
    ) -> bool;

    /// Takes the next packet, which is for no QP of its own, and gives it to [`Device::arrive_elsewhere`]. Returns whether
    /// there were completions.
    fn stray(&mut self, device: &mut Device<H>, host: &H, now: Instant) -> bool;

    /// All packets for this QP were delivered; others follow, or none.
    #[inline]
    fn finish(
        &mut self,
        _device: &mut Device<H>,
        _host: &H,
        _handle: &H::Handle,
        _state: &mut H::State,
        _now: Instant,
    ) {
    }
}

impl<H: Host<Queue: TransmitQueue<H>>> Device<H> {
    /// Handles a burst of packets. Consecutive packets for the same QP are handled under one lock. Returns whether there were
    /// completions.
    #[inline]
    pub fn receive<B: Burst<H>>(&mut self, host: &H, burst: &mut B, now: Instant) -> bool {
        let mut completed = false;
        let mut next = burst.destination(host);
        while let Some(number) = next {
            let version = host.tables().version();
            let last = self.last.take();
            let last = last.filter(|(seen, last)| *seen == version && last.number() == number);
            let found = last.map(|(_, last)| last).or_else(|| host.tables().queue_pair(number));
            let Some(handle) = found else {
                match host.tables().is_foreign(number) {
                    true => burst.forward(host, number),
                    false => completed |= burst.stray(self, host, now),
                }
                next = burst.destination(host);
                continue;
            };
            let mut state = handle.state().lock();
            loop {
                completed |= burst.deliver(self, host, &handle, &mut state, now);
                next = burst.destination(host);
                if next != Some(number) {
                    break;
                }
            }
            burst.finish(self, host, &handle, &mut state, now);
            completed |= self.received(host, &handle, &mut state, now);
            drop(state);
            self.last = Some((version, handle));
        }
        completed
    }

    /// A packet for a QP has arrived: captures it, and gives it to the transport. Its payload goes to `memory`. Returns
    /// whether there were completions, as far as they are published already.
    #[inline]
    pub fn arrive(
        &mut self,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        arrival: &H::Arrival<'_>,
        memory: &mut impl Memory,
    ) -> bool {
        let is_captured = host.record(arrival, Some(state));
        let bth = &arrival.packet().bth;
        // The peer sends its CNPs through its transmit queue, so this one is forged: the QPN is all that it needs.
        let is_forged = bth.opcode == Opcode::CNP && !arrival.may_be_queued();
        if is_forged && state.queue.is_some() {
            return false;
        }
        deliver(host, handle, state, arrival, memory);
        if is_captured && state.endpoint.has_counters() {
            // Published now, so that a reason becomes the comment of this packet.
            return self.received_captured(host, handle, state, arrival);
        }
        false
    }

    #[cold]
    fn received_captured(
        &mut self,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        arrival: &H::Arrival<'_>,
    ) -> bool {
        host.set_captured(state, Some(&arrival.packet().bth));
        let completed = self.received(host, handle, state, arrival.time());
        host.set_captured(state, None);
        completed
    }

    /// A packet has arrived whose QPN is none of a QP: for management, a multicast group, or a probe. Returns whether there were
    /// completions.
    pub fn arrive_elsewhere(&mut self, host: &H, arrival: &H::Arrival<'_>) -> bool {
        let number = arrival.packet().bth.destination;
        if number.0 < 3 {
            // The owner of a management datagram is known only after it is parsed. Its responses are sent after this.
            if host.handle_management(arrival) {
                host.record(arrival, None);
            }
            return false;
        }
        host.record(arrival, None);
        match number {
            Qpn::MULTICAST => self.arrive_at_group(host, arrival),
            number if probe::is_for(number) => {
                self.handle_probe(host, arrival);
                false
            }
            _ => {
                host.refuse(Refusal::UnknownQueuePair, Some(&arrival.packet().bth));
                false
            }
        }
    }

    /// Delivers a copy to each QP attached to the multicast group (IBA 10.5).
    fn arrive_at_group(&mut self, host: &H, arrival: &H::Arrival<'_>) -> bool {
        let mut completed = false;
        for handle in host.members(Gid::from_ip(arrival.destination())) {
            let mut state = handle.state().lock();
            deliver(host, &handle, &mut state, arrival, &mut host.memory(arrival.time()));
            completed |= self.received(host, &handle, &mut state, arrival.time());
        }
        completed
    }

    /// Handles a probe to this process, or the acknowledgement of one of its own: see [`crate::credit`].
    fn handle_probe(&mut self, host: &H, arrival: &H::Arrival<'_>) {
        let Some(message) = Message::parse(arrival.packet()) else { return };
        let Some(route) = host.route_back(arrival) else { return };
        match message {
            Message::Probe { number, sender } => {
                host.push_probe((route, probe::ack(number, sender, host.tables().slot())));
            }
            Message::Ack { number, sender } => {
                let receiver = Receiver::new(arrival.source(), sender);
                let Self { credit, schedule, .. } = self;
                let next = credit.handle_probe_ack(receiver, number, arrival.time(), schedule);
                next.into_iter().for_each(|probe| host.push_probe(probe));
            }
        }
    }

    /// An access to memory that a QP has begun is over.
    pub fn finish_access(
        &mut self,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        finished: &Finished,
        now: Instant,
    ) {
        let QueuePair { endpoint, destroyed, .. } = &mut **state;
        if !*destroyed {
            endpoint.handle_finished(finished, Some(&mut handle.receives().queue().lock()));
            self.finish_held(host, handle, state, now);
        }
    }

    /// As [`Device::finish_access`], for a read of a payload that is to be sent.
    pub fn finish_read(
        &mut self,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        read: PayloadRead,
        now: Instant,
    ) {
        let QueuePair { endpoint, destroyed, .. } = &mut **state;
        if !*destroyed {
            endpoint.handle_read(read);
            self.finish_held(host, handle, state, now);
        }
    }

    /// Handles the packets that were withheld until memory has finished, and queues what the QP has to send.
    fn finish_held(&mut self, host: &H, handle: &H::Handle, state: &mut H::State, now: Instant) {
        loop {
            let held = state.endpoint.take_held(&host.memory(now));
            let Some(held) = held else { break };
            let inbound = InboundPacket {
                time: now,
                packet: &held.packet(),
                packets: held.packets,
                marked: false,
                envelope: &NO_ENVELOPE,
            };
            handle_packet(host, handle, state, &inbound, &mut host.memory(now));
        }
        self.schedule.push(handle.clone());
        self.received(host, handle, state, now);
    }
}

/// Connected QPs need no envelope.
static NO_ENVELOPE: Envelope = Envelope { destination: Gid([0; 16]), header: None };

/// Checks the opcode and the partition of a packet (IBA 9.6.1.1).
#[inline]
pub fn admit<H: Host>(host: &H, bth: &Bth) -> bool {
    if bth.version != 0 || bth.opcode.info().is_none() {
        host.refuse(Refusal::Malformed, None);
        return false;
    }
    if !is_default_partition(bth.partition) {
        host.refuse(Refusal::Partition, Some(bth));
        return false;
    }
    true
}

/// Gives a packet to the transport of its QP, if it comes from the peer.
#[inline]
fn deliver<H: Host>(
    host: &H,
    handle: &H::Handle,
    state: &mut H::State,
    arrival: &H::Arrival<'_>,
    memory: &mut impl Memory,
) {
    let QueuePair { endpoint, destroyed, .. } = &mut **state;
    if *destroyed {
        return host.refuse(Refusal::UnknownQueuePair, Some(&arrival.packet().bth));
    }
    let is_datagram = endpoint.settings().service == ServiceType::UnreliableDatagram;
    if !is_datagram && !host.is_peer(state, arrival.source()) {
        return host.refuse_stranger(handle, state, &arrival.packet().bth);
    }
    host.accepted(state, arrival);
    let own;
    let envelope = if is_datagram {
        own = arrival.envelope();
        &own
    } else {
        &NO_ENVELOPE
    };
    let inbound = InboundPacket {
        time: arrival.time(),
        packet: arrival.packet(),
        packets: arrival.packets(),
        marked: arrival.is_marked(),
        envelope,
    };
    handle_packet(host, handle, state, &inbound, memory);
}

/// Gives a packet to the transport of its QP, with the receive queue whose requests it may take.
#[inline]
fn handle_packet<H: Host>(
    host: &H,
    handle: &H::Handle,
    state: &mut H::State,
    inbound: &InboundPacket<'_>,
    memory: &mut impl Memory,
) {
    let endpoint = &mut state.endpoint;
    match endpoint.settings().service {
        ServiceType::XrcTarget => {
            let named = inbound.packet.extensions.xrceth.map(|header| header.receive_queue.into());
            let receives = named.and_then(|number| host.tables().receive_queue(number));
            let mut queue = receives.as_ref().map(|receives| receives.queue().lock());
            endpoint.handle_packet(inbound, queue.as_deref_mut(), memory);
            // Of the SRQs of other QPs when their completions are published.
            let is_limit = queue.is_some_and(|mut queue| queue.poll_limit());
            if let (Some(receives), true) = (&receives, is_limit) {
                host.limit_reached(receives);
            }
        }
        service => {
            let is_reliable = service == ServiceType::ReliableConnection;
            let takes_receive = inbound.packet.bth.opcode.info().is_some_and(takes_receive);
            // The lock is spared where no receive request can be taken.
            let mut queue =
                (!is_reliable || takes_receive).then(|| handle.receives().queue().lock());
            endpoint.handle_packet(inbound, queue.as_deref_mut(), memory);
        }
    }
}

/// Whether a packet with this opcode may take a receive request (IBA 9.7.4.1.4).
fn takes_receive(info: &OpcodeInfo) -> bool {
    info.operation == Operation::Send || info.immediate
}
