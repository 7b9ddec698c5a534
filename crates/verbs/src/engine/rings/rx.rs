//! Receiving packets from rings.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::Published;
use ferroce_memory::Placement;
use ferroce_proto::endpoint::Pending;
use ferroce_proto::qp::ServiceType;
use ferroce_proto::time::Instant;
use ferroce_sys::ring::{Broken, Taken};
use ferroce_sys::{Incoming, RxDatagram, RxInfo, Uncancellable, record_header};
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::Packet;
use ferroce_wire::transport::{Bth, Reth};

use super::super::adapter::Adapter;
use super::super::counters::count;
use super::super::driver::Driver;
use super::super::queue_pair::{Core, Inner};
use super::super::rx::{CONGESTION_EXPERIENCED, ReceivedPacket, destination};
use super::tx::write_ack;
use super::{INFO, MAX_PACKET, Metadata, RingState, run};
use crate::headers::{Headers, ICRC};
use crate::sync::lock;
use crate::tuning::rings::{ACK_INTERVAL, FEW, MAX_BURST, MAX_BURST_BYTES, RELEASE, RING_SIZE};

/// The path MTU of captured packets whose QP does not exist.
const MAX_MTU: u16 = 4096;

impl RingState {
    /// Updates the list of rings to receive from.
    #[inline]
    fn refresh(&mut self, adapter: &Adapter) {
        let version = adapter.rings.version.load(Ordering::Acquire);
        if version != self.version {
            self.incoming = lock(&adapter.rings.incoming).to_vec();
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
        let is_here = |ip| adapter.port.is_here(ip);
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
        if adapter.rings.is_ending.load(Ordering::Acquire) {
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
        let mut some = false;
        // Moved out, because handling packets borrows the rest of the state mutably.
        let incoming = std::mem::take(&mut self.rings.incoming);
        for ring in &incoming {
            if !ring.consumer.has_records() {
                if ring.has_ended() {
                    adapter.rings.change(|list| list.retain(|ring| !ring.has_ended()));
                }
                continue;
            }
            some = true;
            if self.receive_from(adapter, ring) == Err(Broken) {
                tracing::debug!("ring closed: a local process wrote an invalid position or length");
                count(adapter.counters.malformed());
                if let Some(hub) = adapter.rings.hub() {
                    hub.close(ring.id);
                }
                adapter.rings.change(|list| list.retain(|one| one.id != ring.id));
            }
            self.rx.more |= !ring.consumer.is_empty();
        }
        self.rings.incoming = incoming;
        some
    }

    /// Receives packets from one ring. Consecutive packets for the same QP are handled under one lock.
    fn receive_from(&mut self, adapter: &Adapter, ring: &Incoming) -> Result<(), Broken> {
        let now = self.read_clock();
        let mut result = Ok(());
        let (mut taken, mut bytes, mut kept) = (0, 0, 0);
        // A capture that starts during the burst gets the packets from the next burst on.
        let may_be_fast = adapter.tap().is_none();
        let mut unacknowledged = ACK_INTERVAL - FEW;
        let mut next = self.rings.take(ring)?;
        while let Some(mut record) = next {
            let number = destination(self.rings.record.get(INFO..).unwrap_or_default());
            let number = number.unwrap_or(Qpn(0));
            let version = adapter.tables.version();
            let last = self.rings.last_core.take();
            let last = last.filter(|(seen, core)| *seen == version && core.number == number);
            let found = || adapter.tables.queue_pair(number).filter(|_| number.0 >= 3);
            let core = last.map(|(_, core)| core).or_else(found);
            let mut locked = core.as_ref().map(|core| core.inner.lock());
            loop {
                match (&core, &mut locked) {
                    (Some(core), Some(inner)) if self.rx.failing.is_none() => {
                        let is_fast = may_be_fast && record.copied == record.length;
                        if !is_fast || !self.receive_fast(adapter, core, inner, record.length, now)
                        {
                            self.ring_packet(adapter, core, inner, &record, now);
                        }
                    }
                    // Injected faults may delay a packet until later ones have arrived.
                    (_, Some(inner)) => {
                        let mtu = inner.endpoint.path_mtu();
                        locked = None;
                        self.rings.complete(&record);
                        self.ring_datagram(adapter, mtu, record.length, now);
                    }
                    (_, None) => self.ring_stray(adapter, number, &record, now),
                }
                taken += 1;
                unacknowledged += 1;
                if record.is_marked && unacknowledged >= ACK_INTERVAL {
                    if let (Some(core), Some(inner)) = (&core, &mut locked) {
                        self.rings.received.move_to(&adapter.counters);
                        self.acknowledge(adapter, core, inner, now);
                        unacknowledged = 0;
                    }
                }
                (bytes, kept) = (bytes + record.length, kept + record.length);
                if kept >= RELEASE {
                    kept = 0;
                    if ring.consumer.release_some() {
                        ring.wake();
                    }
                }
                next = None;
                if taken < MAX_BURST && bytes < MAX_BURST_BYTES {
                    // Records before a malformed one are delivered.
                    match self.rings.take(ring) {
                        Ok(found) => next = found,
                        Err(broken) => result = Err(broken),
                    }
                }
                let Some(more) = next else { break };
                record = more;
                if locked.is_none() || destination(&self.rings.record[INFO..]) != Some(number) {
                    break;
                }
            }
            // Counted before the ACK or a completion makes the packets known.
            self.rings.received.move_to(&adapter.counters);
            if let (Some(core), Some(inner)) = (&core, &mut locked) {
                self.acknowledge(adapter, core, inner, now);
                self.received(adapter, core, inner, now);
            }
            drop(locked);
            self.rings.last_core = core.map(|core| (version, core));
        }
        self.rx.now = (taken <= FEW).then_some(now);
        if ring.consumer.release_some() {
            ring.wake();
        }
        result
    }

    /// Sends the ACK that a QP owes through its ring, if it has nothing else to send. The ACK costs no system call, so
    /// it does not wait for other packets as it does with sockets, and it is cheapest while the QP is locked.
    fn acknowledge(
        &mut self,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        now: Instant,
    ) {
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
                self.device.turn_in_queue(adapter, core, inner, now);
            }
        }
    }

    #[inline(never)] // Keeps the code of the fast path in fewer cache lines.
    fn ring_packet(
        &mut self,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        taken: &Taken<'_>,
        now: Instant,
    ) {
        let (mtu, is_captured) = (inner.endpoint.path_mtu(), adapter.tap().is_some());
        let packets = self.rings.packets(taken.length, mtu);
        // Only the payload of a run is copied without being parsed.
        let is_shared = taken.copied < taken.length && packets > 1 && !is_captured;
        if !is_shared {
            self.rings.complete(taken);
        }
        let record = self.rings.info(adapter);
        let Some((Metadata { info, headers, bytes: info_bytes }, record)) = record else {
            return count(adapter.counters.malformed());
        };
        let is_reliable = inner.endpoint.settings().service == ServiceType::ReliableConnection;
        let is_marked = info.ecn() == CONGESTION_EXPERIENCED;
        if is_reliable && !is_marked && adapter.is_peer(inner, info.source.ip()) {
            inner.peer_info = Some(*info_bytes);
        }
        let Some(bytes) = record.get_mut(INFO..taken.length) else {
            return count(adapter.counters.malformed());
        };
        let mut published = Published::default();
        let mut deliver = |bytes: &mut [u8], packets: u32| {
            if is_captured {
                add_icrc(bytes, headers);
            }
            let mut packet = Packet::default();
            if packet.read(bytes).is_err() {
                return count(adapter.counters.malformed());
            }
            let length = bytes.len() + run::overhead(&packet.bth, packets);
            if !adapter.admits_form(&packet) {
                return;
            }
            adapter.counters.received_locally(packets, length);
            let identification = Identification::of_segment(0);
            let received = ReceivedPacket {
                packet: &packet,
                packets,
                bytes,
                headers,
                info,
                identification,
                now,
            };
            if is_captured {
                adapter.record(&received, Some(inner));
                adapter.deliver(core, inner, &received);
                // Now, so that a reason becomes the comment of this packet.
                if inner.endpoint.has_counters() {
                    inner.captured = Some(packet.bth);
                    published.add(core.publish_completions(inner, adapter, now));
                    inner.captured = None;
                }
                return;
            }
            if !is_shared {
                return adapter.deliver(core, inner, &received);
            }
            let start = taken.length - ICRC - usize::from(packet.bth.pad) - packet.payload.len();
            if let Some(shared) = taken.bytes.part(start, packet.payload.len()) {
                let mut memory = Placement::new(&adapter.memory, packet.payload, shared);
                adapter.deliver_into(core, inner, &received, &mut memory);
            }
        };
        match packets {
            2.. if is_captured => run::split(bytes, mtu, |single| deliver(single, 1)),
            packets => deliver(bytes, packets),
        }
        if is_captured {
            self.rx.completed |= published.some;
            self.device.update(core, inner, published.lost);
        }
    }

    /// Counts a record whose QP does not exist as one packet: it was destroyed, or a process writes what it should not. A
    /// run of 64 KiB is not worth the work of its packets, and no process sends those of another process through the
    /// ring to this one, so they are not forwarded. A capture has the packets of this process's QPNs.
    #[cold]
    fn ring_stray(&mut self, adapter: &Adapter, number: Qpn, record: &Taken<'_>, now: Instant) {
        if record.length < INFO + Bth::LEN + ICRC {
            return count(adapter.counters.malformed());
        }
        if adapter.tap().is_some() && !adapter.tables.is_foreign(number) {
            self.rings.complete(record);
            return self.ring_datagram(adapter, MAX_MTU, record.length, now);
        }
        self.rings.received.add(1, record.length - INFO);
        if let Some(packet) = self.rings.record.get(INFO..).and_then(<[u8]>::first_chunk) {
            adapter.drop_unknown(&Bth::parse(packet));
        }
    }

    /// Handles a record like a datagram from a socket: for injected faults, and to capture packets whose QP does not exist.
    #[cold]
    fn ring_datagram(&mut self, adapter: &Adapter, mtu: u16, length: usize, now: Instant) {
        let _guard = Uncancellable::new();
        let Some((&Metadata { info, headers, .. }, _)) = self.rings.info(adapter) else {
            return count(adapter.counters.malformed());
        };
        let mut record = std::mem::take(&mut self.rings.record);
        if let Some(bytes) = record.get_mut(INFO..length) {
            let mut deliver = |bytes: &mut [u8]| {
                add_icrc(bytes, &headers);
                let info = RxInfo { length: bytes.len(), segment: bytes.len(), ..info };
                let datagram = RxDatagram { info: &info, data: bytes };
                self.datagram(adapter, &datagram, headers.destination, now);
            };
            let packets =
                Packet::parse(bytes).map(|one| run::packets(&one.bth, one.payload_len, mtu));
            match packets {
                Ok(2..) => run::split(bytes, mtu, deliver),
                _ => deliver(bytes),
            }
        }
        self.rings.record = record;
    }
}

/// Writes the ICRC into the last bytes of a packet.
fn add_icrc(packet: &mut [u8], headers: &Headers) {
    if let Some((covered, icrc)) = packet.split_last_chunk_mut::<ICRC>() {
        *icrc = headers.icrc(covered, 0);
    }
}
