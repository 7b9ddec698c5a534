//! The records of a ring, on their way to the QPs.

use ferroce_device::tuning::shared_memory::{
    ACK_INTERVAL, FEW, MAX_BURST, MAX_BURST_BYTES, RELEASE,
};
use ferroce_device::{Burst, Device, Refusal, admit, destination};
use ferroce_memory::Placement;
use ferroce_proto::qp::ServiceType;
use ferroce_proto::time::Instant;
use ferroce_sys::ring::{Broken, Taken};
use ferroce_sys::{Incoming, RxDatagram, RxInfo, Uncancellable};
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::{ICRC_LEN as ICRC, Packet};
use ferroce_wire::transport::Bth;

use super::aggregate;
use super::record::{Metadata, RecordBuffer};
use super::route::INFO;
use crate::embedder::Embedder;
use crate::packet::{CONGESTION_EXPERIENCED, ReceivedPacket, write_icrc};
use crate::udp::DatagramReceiver;

/// A burst of records of one ring.
pub(super) struct Records<'a> {
    buffer: &'a mut RecordBuffer,
    ring: &'a Incoming,
    /// The record that was taken last, if it was not handled yet.
    next: Option<Taken<'a>>,
    /// A malformed record ends the burst; those before it are delivered.
    result: Result<(), Broken>,
    /// A capture that starts during the burst gets the packets from the next burst on.
    is_captured: bool,
    /// The records that were handled, and their bytes.
    taken: usize,
    bytes: usize,
    /// The bytes whose space was not released.
    unreleased: usize,
    /// Records since the last ACK of a marked one.
    unacknowledged: usize,
}

impl<'a> Records<'a> {
    pub(super) fn new(buffer: &'a mut RecordBuffer, ring: &'a Incoming, is_captured: bool) -> Self {
        Self {
            buffer,
            ring,
            next: None,
            result: Ok(()),
            is_captured,
            taken: 0,
            bytes: 0,
            unreleased: 0,
            unacknowledged: ACK_INTERVAL - FEW,
        }
    }

    /// Ends the burst. Returns how many records it had, and whether the ring is broken.
    pub(super) fn end(self) -> (usize, Result<(), Broken>) {
        if self.ring.consumer.release_some() {
            self.ring.wake();
        }
        (self.taken, self.result)
    }

    /// Takes the next record, if the last one was handled and the burst is not over.
    #[inline]
    fn take(&mut self) {
        let is_over = self.taken >= MAX_BURST || self.bytes >= MAX_BURST_BYTES;
        if self.next.is_none() && !is_over {
            match self.buffer.take(self.ring) {
                Ok(found) => self.next = found,
                Err(broken) => self.result = Err(broken),
            }
        }
    }

    /// A record was handled.
    #[inline]
    fn handled(&mut self, length: usize) {
        self.taken += 1;
        self.bytes += length;
        self.unreleased += length;
        if self.unreleased >= RELEASE {
            self.unreleased = 0;
            if self.ring.consumer.release_some() {
                self.ring.wake();
            }
        }
    }

    /// Receives the burst with injected faults: they may delay a packet until later ones have arrived, so the records are handled
    /// like datagrams from a socket. Returns whether there were completions.
    #[cold]
    pub(super) fn receive_as_datagrams<H: Embedder>(
        &mut self,
        device: &mut Device<H>,
        host: &H,
        datagrams: &mut DatagramReceiver,
        now: Instant,
    ) -> bool {
        let _guard = Uncancellable::new();
        let mut completed = false;
        self.take();
        while let Some(taken) = self.next.take() {
            self.buffer.each_packet(host, &taken, |packet, Metadata { info, headers, .. }| {
                let info = RxInfo { length: packet.len(), segment: packet.len(), ..*info };
                let datagram = RxDatagram { info: &info, data: packet };
                completed |= datagrams.receive(device, host, &datagram, headers.destination, now);
            });
            self.handled(taken.length);
            self.take();
        }
        completed
    }

    #[inline(never)] // Keeps the code of the fast path in fewer cache lines.
    fn packet<H: Embedder>(
        &mut self,
        device: &mut Device<H>,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        taken: &Taken<'_>,
        now: Instant,
    ) -> bool {
        let endpoint = &state.endpoint;
        let mtu = endpoint.path_mtu();
        let is_reliable = endpoint.settings().service == ServiceType::ReliableConnection;
        let packets = self.buffer.packets(taken.length, mtu);
        // Only the payload of an aggregate is copied without being parsed.
        let is_shared = taken.copied < taken.length && packets > 1 && !self.is_captured;
        if !is_shared {
            self.buffer.complete(taken);
        }
        let Some((metadata, bytes)) = self.buffer.packet(host, taken.length) else { return false };
        let is_marked = metadata.info.ecn() == CONGESTION_EXPERIENCED;
        if is_reliable && !is_marked && host.is_peer(state, metadata.info.source.ip()) {
            *H::peer_info(state) = Some(metadata.bytes);
        }
        let mut completed = false;
        let is_captured = self.is_captured;
        let mut deliver = |bytes: &mut [u8], packets: u32| {
            if is_captured {
                write_icrc(bytes, &metadata.headers, 0);
            }
            let arrive = |received: &ReceivedPacket<'_>| {
                if !is_shared {
                    let memory = &mut host.memory(now);
                    completed |= device.arrive(host, handle, state, received, memory);
                    return;
                }
                let Packet { bth, payload, .. } = received.packet;
                let start = taken.length - ICRC - usize::from(bth.pad) - payload.len();
                if let Some(shared) = taken.bytes.part(start, payload.len()) {
                    let mut memory = Placement::new(host.memory(now), payload, shared);
                    completed |= device.arrive(host, handle, state, received, &mut memory);
                }
            };
            receive_packet(host, bytes, packets, metadata, now, arrive);
        };
        match packets {
            2.. if is_captured => aggregate::split(bytes, mtu, |single| deliver(single, 1)),
            packets => deliver(bytes, packets),
        }
        completed
    }
}

impl<H: Embedder> Burst<H> for Records<'_> {
    #[inline]
    fn destination(&mut self, _: &H) -> Option<Qpn> {
        self.take();
        self.next.as_ref()?;
        let number = destination(self.buffer.bytes.get(INFO..).unwrap_or_default());
        Some(number.unwrap_or(Qpn(0)))
    }

    /// No process sends those of another process through the ring to this one, so they are not forwarded.
    #[cold]
    fn forward(&mut self, host: &H, _: Qpn) {
        if let Some(taken) = self.next.take() {
            self.buffer.refuse(host, taken.length);
            self.handled(taken.length);
        }
    }

    #[inline]
    fn deliver(
        &mut self,
        device: &mut Device<H>,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        now: Instant,
    ) -> bool {
        let Some(taken) = self.next.take() else { return false };
        let may_be_fast = !self.is_captured && taken.copied == taken.length;
        let mut completed = false;
        if !may_be_fast || !self.buffer.receive_from_peer(host, handle, state, taken.length, now) {
            completed = self.packet(device, host, handle, state, &taken, now);
        }
        self.unacknowledged += 1;
        if taken.is_marked && self.unacknowledged >= ACK_INTERVAL {
            self.finish(device, host, handle, state, now);
            self.unacknowledged = 0;
        }
        self.handled(taken.length);
        completed
    }

    /// A record whose QP does not exist is one packet: it was destroyed, or a process writes what it should not. An aggregate of 64 KiB
    /// is not worth the work of its packets. A capture has them.
    #[cold]
    fn stray(&mut self, device: &mut Device<H>, host: &H, now: Instant) -> bool {
        let Some(taken) = self.next.take() else { return false };
        if self.is_captured && taken.length >= INFO + Bth::LEN + ICRC {
            self.buffer.each_packet(host, &taken, |packet, metadata| {
                receive_packet(host, packet, 1, metadata, now, |received| {
                    device.arrive_elsewhere(host, received);
                });
            });
        } else {
            self.buffer.refuse(host, taken.length);
        }
        self.handled(taken.length);
        false
    }

    /// Counts what was received, before an ACK or a completion makes it known.
    #[inline]
    fn finish(
        &mut self,
        device: &mut Device<H>,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        now: Instant,
    ) {
        self.buffer.report(host);
        device.acknowledge(host, handle, state, now);
    }
}

/// Checks and counts a packet or an aggregate, and passes it to `handle`.
fn receive_packet<H: Embedder>(
    host: &H,
    bytes: &[u8],
    packets: u32,
    Metadata { info, headers, .. }: &Metadata,
    now: Instant,
    handle: impl FnOnce(&ReceivedPacket<'_>),
) {
    let mut packet = Packet::default();
    if packet.read(bytes).is_err() {
        return host.refuse(Refusal::Malformed, None);
    }
    let length = bytes.len() + aggregate::overhead(&packet.bth, packets);
    if !admit(host, &packet.bth) {
        return;
    }
    host.received_from_ring(packets, length);
    handle(&ReceivedPacket {
        packet: &packet,
        packets,
        bytes,
        headers,
        info,
        local: &headers.destination,
        identification: Identification::of_segment(0),
        may_be_queued: true,
        now,
    });
}
