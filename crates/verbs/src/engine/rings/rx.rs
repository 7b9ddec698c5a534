//! Receiving packets from rings.

use std::net::SocketAddr;
use std::sync::Arc;

use ferroce_device::tuning::shared_memory::{
    ACK_INTERVAL, FEW, MAX_BURST, MAX_BURST_BYTES, RELEASE, SIZE as RING_SIZE,
};
use ferroce_device::{Burst, Device, Refusal, admit, destination};
use ferroce_links::packet::MAX_PACKET;
use ferroce_links::ring::record::INFO;
use ferroce_links::ring::{run, write_ack};
use ferroce_memory::Placement;
use ferroce_proto::endpoint::Pending;
use ferroce_proto::qp::ServiceType;
use ferroce_proto::time::Instant;
use ferroce_sys::ring::{Broken, Taken};
use ferroce_sys::{Incoming, RxDatagram, RxInfo, Uncancellable, record_header};
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::{ICRC_LEN as ICRC, Packet};
use ferroce_wire::transport::{Bth, Reth};
use ferroce_wire::udp_headers::Headers;

use super::super::adapter::Adapter;
use super::super::counters::count;
use super::super::driver::Driver;
use super::super::queue_pair::{Core, Inner};
use super::super::rx::{CONGESTION_EXPERIENCED, ReceivedPacket};
use super::{Metadata, RingState};

/// The path MTU of captured packets whose QP does not exist.
const MAX_MTU: u16 = 4096;

impl RingState {
    /// Updates the list of rings to receive from.
    #[inline]
    fn refresh(&mut self, adapter: &Adapter) {
        let version = adapter.rings.version();
        if version != self.version {
            self.incoming = adapter.rings.incoming();
            self.version = version;
        }
    }

    /// Takes the next record from a ring. The payload of a long one stays in the ring.
    fn take<'a>(&mut self, ring: &'a Incoming) -> Result<Option<Taken<'a>>, Broken> {
        ring.consumer.take_start(&mut self.record, INFO + MAX_PACKET, INFO + Bth::LEN + Reth::LEN)
    }

    /// Copies the rest of a record of which only the start was copied.
    #[inline]
    fn complete(&mut self, taken: &Taken<'_>) {
        if taken.copied == taken.length {
            return;
        }
        taken.rest().copy_to(&mut self.record[taken.copied..taken.length]);
    }

    /// The number of packets in the record of this length, according to its first header.
    #[inline]
    fn packets(&self, length: usize, mtu: u16) -> u32 {
        let behind = length.saturating_sub(INFO + Bth::LEN);
        if run::is_single(behind, mtu) {
            return 1;
        }
        let header = self.record.get(INFO..).and_then(<[u8]>::first_chunk);
        header.map(Bth::parse).map_or(1, |bth| run::packets(&bth, run::payload(&bth, behind), mtu))
    }

    /// The metadata of the record, and the record itself; `None` if the metadata is malformed. Both addresses must be
    /// local: a process on this host cannot send from the address of another host, whatever it writes.
    #[inline]
    fn info(&mut self, adapter: &Adapter) -> Option<(&Metadata, &mut [u8])> {
        let (found, _) = self.record.split_first_chunk::<INFO>()?;
        if self.last.as_ref().is_none_or(|last| last.bytes != *found) {
            self.last = Some(Metadata::parse(found, adapter)?);
        }
        Some((self.last.as_ref()?, &mut self.record))
    }
}

impl Metadata {
    fn parse(bytes: &[u8; INFO], adapter: &Adapter) -> Option<Self> {
        let info = record_header::decode(bytes);
        let is_here = |ip| adapter.port.links.is_here(ip);
        if !is_here(info.source.ip()) || !is_here(info.destination) {
            return None;
        }
        let destination = SocketAddr::new(info.destination, adapter.options.port);
        Some(Self { bytes: *bytes, info, headers: Headers { source: info.source, destination } })
    }
}

impl Driver {
    /// Receives from all rings. Returns whether there were packets.
    pub(in crate::engine) fn receive_from_rings(&mut self, adapter: &Adapter) -> bool {
        self.rings.refresh(adapter);
        self.device.resume(adapter);
        let mut some = self.receive_bursts(adapter);
        if adapter.rings.is_ending() {
            let _guard = Uncancellable::new();
            self.rings.refresh(adapter);
            // Other processes may go on sending, but a ring does not hold more than this.
            let bursts =
                (0..RING_SIZE / MAX_BURST / 64).take_while(|_| self.receive_bursts(adapter));
            some |= bursts.count() > 0;
            self.end_rings(adapter);
        }
        some
    }

    /// Receives a burst from each ring that has packets. Returns whether any had.
    fn receive_bursts(&mut self, adapter: &Adapter) -> bool {
        let (mut some, mut gone) = (false, Vec::new());
        // Moved out, because handling packets borrows the rest of the state mutably.
        let incoming = std::mem::take(&mut self.rings.incoming);
        for ring in &incoming {
            if !ring.consumer.has_records() {
                if ring.has_ended() {
                    gone.push(ring.id);
                }
                continue;
            }
            some = true;
            if self.receive_from(adapter, ring) == Err(Broken) {
                tracing::debug!("ring closed: a local process wrote an invalid position or length");
                count(adapter.counters.malformed());
                gone.push(ring.id);
            }
            self.rx.more |= !ring.consumer.is_empty();
        }
        self.rings.incoming = incoming;
        if !gone.is_empty() {
            adapter.rings.close(&gone);
            // Their memory is unmapped at once: the next pass may be far away.
            self.rings.refresh(adapter);
        }
        some
    }

    /// Receives packets from one ring.
    fn receive_from(&mut self, adapter: &Adapter, ring: &Incoming) -> Result<(), Broken> {
        let now = self.read_clock();
        if self.rx.failing.is_some() {
            return self.receive_faulty(adapter, ring, now);
        }
        let mut burst = Records::new(adapter, &mut self.rings, ring);
        self.rx.completed |= self.device.receive(adapter, &mut burst, now);
        let (taken, result) = burst.end();
        self.rx.now = (taken <= FEW).then_some(now);
        result
    }

    /// As [`Driver::receive_from`], with injected faults: they may delay a packet until later ones have arrived, so the
    /// records are handled like datagrams from a socket.
    #[cold]
    fn receive_faulty(
        &mut self,
        adapter: &Adapter,
        ring: &Incoming,
        now: Instant,
    ) -> Result<(), Broken> {
        let _guard = Uncancellable::new();
        let mut result = Ok(());
        for _ in 0..MAX_BURST {
            match self.rings.take(ring) {
                Ok(Some(taken)) => {
                    self.rings.complete(&taken);
                    self.ring_datagram(adapter, taken.length, now);
                }
                Ok(None) => break,
                Err(broken) => {
                    result = Err(broken);
                    break;
                }
            }
        }
        if ring.consumer.release_some() {
            ring.wake();
        }
        result
    }

    /// Handles a record like a datagram from a socket.
    fn ring_datagram(&mut self, adapter: &Adapter, length: usize, now: Instant) {
        let Some((&Metadata { info, headers, .. }, _)) = self.rings.info(adapter) else {
            return count(adapter.counters.malformed());
        };
        let mut record = std::mem::take(&mut self.rings.record);
        if let Some(bytes) = record.get_mut(INFO..length) {
            each_packet(adapter, bytes, |packet| {
                add_icrc(packet, &headers);
                let info = RxInfo { length: packet.len(), segment: packet.len(), ..info };
                let datagram = RxDatagram { info: &info, data: packet };
                self.datagram(adapter, &datagram, headers.destination, now);
            });
        }
        self.rings.record = record;
    }
}

/// A burst of records of one ring.
struct Records<'a> {
    rings: &'a mut RingState,
    ring: &'a Incoming,
    /// The record that was taken last, if it was not handled yet.
    next: Option<Taken<'a>>,
    is_over: bool,
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
    fn new(adapter: &Adapter, rings: &'a mut RingState, ring: &'a Incoming) -> Self {
        Self {
            rings,
            ring,
            next: None,
            is_over: false,
            result: Ok(()),
            is_captured: adapter.tap().is_some(),
            taken: 0,
            bytes: 0,
            unreleased: 0,
            unacknowledged: ACK_INTERVAL - FEW,
        }
    }

    /// Ends the burst. Returns how many records it had, and whether the ring is broken.
    fn end(self) -> (usize, Result<(), Broken>) {
        if self.ring.consumer.release_some() {
            self.ring.wake();
        }
        (self.taken, self.result)
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

    #[inline(never)] // Keeps the code of the fast path in fewer cache lines.
    fn packet(
        &mut self,
        device: &mut Device<Adapter>,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        taken: &Taken<'_>,
        now: Instant,
    ) -> bool {
        let mtu = inner.endpoint.path_mtu();
        let packets = self.rings.packets(taken.length, mtu);
        // Only the payload of a run is copied without being parsed.
        let is_shared = taken.copied < taken.length && packets > 1 && !self.is_captured;
        if !is_shared {
            self.rings.complete(taken);
        }
        let record = self.rings.info(adapter);
        let Some((Metadata { info, headers, bytes: info_bytes }, record)) = record else {
            count(adapter.counters.malformed());
            return false;
        };
        let is_reliable = inner.endpoint.settings().service == ServiceType::ReliableConnection;
        let is_marked = info.ecn() == CONGESTION_EXPERIENCED;
        if is_reliable && !is_marked && adapter.is_peer(inner, info.source.ip()) {
            inner.peer_info = Some(*info_bytes);
        }
        let Some(bytes) = record.get_mut(INFO..taken.length) else {
            count(adapter.counters.malformed());
            return false;
        };
        let mut completed = false;
        let is_captured = self.is_captured;
        let mut deliver = |bytes: &mut [u8], packets: u32| {
            if is_captured {
                add_icrc(bytes, headers);
            }
            let handle = |received: &ReceivedPacket<'_>| {
                if !is_shared {
                    let memory = &mut &*adapter.memory;
                    completed |= device.arrive(adapter, core, inner, received, memory);
                    return;
                }
                let Packet { bth, payload, .. } = received.packet;
                let start = taken.length - ICRC - usize::from(bth.pad) - payload.len();
                if let Some(shared) = taken.bytes.part(start, payload.len()) {
                    let mut memory = Placement::new(&adapter.memory, payload, shared);
                    completed |= device.arrive(adapter, core, inner, received, &mut memory);
                }
            };
            receive_packet(adapter, bytes, packets, (info, headers), now, handle);
        };
        match packets {
            2.. if is_captured => run::split(bytes, mtu, |single| deliver(single, 1)),
            packets => deliver(bytes, packets),
        }
        completed
    }
}

impl Burst<Adapter> for Records<'_> {
    #[inline]
    fn destination(&mut self, _: &Adapter) -> Option<Qpn> {
        if self.next.is_none() {
            if self.is_over || self.taken >= MAX_BURST || self.bytes >= MAX_BURST_BYTES {
                return None;
            }
            match self.rings.take(self.ring) {
                Ok(found) => self.next = found,
                Err(broken) => self.result = Err(broken),
            }
            if self.next.is_none() {
                self.is_over = true;
                return None;
            }
        }
        let number = destination(self.rings.record.get(INFO..).unwrap_or_default());
        Some(number.unwrap_or(Qpn(0)))
    }

    /// No process sends those of another process through the ring to this one, so they are not forwarded.
    #[cold]
    fn forward(&mut self, adapter: &Adapter, _: Qpn) {
        if let Some(taken) = self.next.take() {
            self.rings.drop_record(adapter, &taken);
            self.handled(taken.length);
        }
    }

    #[inline]
    fn deliver(
        &mut self,
        device: &mut Device<Adapter>,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        now: Instant,
    ) -> bool {
        let Some(taken) = self.next.take() else { return false };
        let may_be_fast = !self.is_captured && taken.copied == taken.length;
        let mut completed = false;
        if !may_be_fast || !self.rings.receive_fast(adapter, core, inner, taken.length, now) {
            completed = self.packet(device, adapter, core, inner, &taken, now);
        }
        self.unacknowledged += 1;
        if taken.is_marked && self.unacknowledged >= ACK_INTERVAL {
            self.finish(device, adapter, core, inner, now);
            self.unacknowledged = 0;
        }
        self.handled(taken.length);
        completed
    }

    /// A record whose QP does not exist is one packet: it was destroyed, or a process writes what it should not. A run of 64 KiB
    /// is not worth the work of its packets. A capture has them.
    #[cold]
    fn stray(&mut self, device: &mut Device<Adapter>, adapter: &Adapter, now: Instant) -> bool {
        let Some(taken) = self.next.take() else { return false };
        if self.is_captured && taken.length >= INFO + Bth::LEN + ICRC {
            self.rings.complete(&taken);
            let Some((Metadata { info, headers, .. }, record)) = self.rings.info(adapter) else {
                count(adapter.counters.malformed());
                return false;
            };
            each_packet(adapter, &mut record[INFO..taken.length], |packet| {
                add_icrc(packet, headers);
                receive_packet(adapter, packet, 1, (info, headers), now, |received| {
                    device.arrive_elsewhere(adapter, received);
                });
            });
        } else {
            self.rings.drop_record(adapter, &taken);
        }
        self.handled(taken.length);
        false
    }

    /// Counts what was received, before an ACK or a completion makes it known, and sends the ACK that the QP owes through its
    /// ring, if it has nothing else to send. The ACK costs no system call, so it does not wait for other packets as it does
    /// with sockets, and it is cheapest while the QP is locked.
    #[inline]
    fn finish(
        &mut self,
        device: &mut Device<Adapter>,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        now: Instant,
    ) {
        self.rings.received.move_to(&adapter.counters);
        if inner.endpoint.pending() != Pending::Ack || inner.destroyed {
            return;
        }
        // The program polls the CQ only for its own requests and watches its memory for WRITEs. The ACK follows its
        // reply, so that the peer, which does the same, polls until both have arrived.
        if inner.endpoint.has_only_send_completions() {
            return;
        }
        if let Some(mut route) = inner.queue.take() {
            let written = write_ack(adapter, inner, &mut route);
            inner.queue = Some(route);
            if !written {
                device.turn_in_queue(adapter, core, inner, now);
            }
        }
    }
}

impl RingState {
    /// Counts a record for no QP of this process.
    fn drop_record(&mut self, adapter: &Adapter, taken: &Taken<'_>) {
        if taken.length < INFO + Bth::LEN + ICRC {
            return count(adapter.counters.malformed());
        }
        self.received.add(1, taken.length - INFO);
        self.received.move_to(&adapter.counters);
        if let Some(packet) = self.record.get(INFO..).and_then(<[u8]>::first_chunk) {
            adapter.drop_packet(Refusal::UnknownQueuePair, Some(&Bth::parse(packet)));
        }
    }
}

/// Checks and counts a packet or a run, and passes it to `handle`.
fn receive_packet(
    adapter: &Adapter,
    bytes: &[u8],
    packets: u32,
    (info, headers): (&RxInfo, &Headers),
    now: Instant,
    handle: impl FnOnce(&ReceivedPacket<'_>),
) {
    let mut packet = Packet::default();
    if packet.read(bytes).is_err() {
        return count(adapter.counters.malformed());
    }
    let length = bytes.len() + run::overhead(&packet.bth, packets);
    if !admit(adapter, &packet.bth) {
        return;
    }
    adapter.counters.received_locally(packets, length);
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

/// Calls `each` with the packets of a record: of the path MTU of its QP, or the largest if there is no such QP.
#[cold]
fn each_packet(adapter: &Adapter, bytes: &mut [u8], mut each: impl FnMut(&mut [u8])) {
    let core = destination(bytes).and_then(|number| adapter.tables.queue_pair(number));
    let mtu = core.map_or(MAX_MTU, |core| core.inner.lock().endpoint.path_mtu());
    match Packet::parse(bytes).map(|one| run::packets(&one.bth, one.payload_len, mtu)) {
        Ok(2..) => run::split(bytes, mtu, each),
        _ => each(bytes),
    }
}

/// Writes the ICRC into the last bytes of a packet.
fn add_icrc(packet: &mut [u8], headers: &Headers) {
    if let Some((covered, icrc)) = packet.split_last_chunk_mut::<ICRC>() {
        *icrc = headers.icrc(covered, 0);
    }
}
