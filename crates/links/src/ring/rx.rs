//! Receiving packets from rings.

use std::net::SocketAddr;
use std::sync::Arc;

use ferroce_device::tuning::shared_memory::{
    ACK_INTERVAL, FEW, MAX_BURST, MAX_BURST_BYTES, RELEASE, SIZE as RING_SIZE, SPINS_PER_PASS,
};
use ferroce_device::{Burst, Device, Object, Refusal, State as _, admit, destination};
use ferroce_memory::Placement;
use ferroce_proto::endpoint::Pending;
use ferroce_proto::qp::ServiceType;
use ferroce_proto::time::Instant;
use ferroce_sys::clock::FastClock;
use ferroce_sys::ring::{Broken, Taken};
use ferroce_sys::{Incoming, RxDatagram, RxInfo, Uncancellable, record_header};
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::{ICRC_LEN as ICRC, Packet};
use ferroce_wire::transport::{Bth, Reth};
use ferroce_wire::udp_headers::Headers;

use super::record::{INFO, MAX_RECORD};
use super::route::RingRoute;
use super::run;
use super::tx::write_ack;
use crate::embedder::Embedder;
use crate::packet::MAX_PACKET;
use crate::received::{CONGESTION_EXPERIENCED, ReceivedPacket};
use crate::udp::DatagramReceiver;

/// The path MTU of captured packets whose QP does not exist.
const MAX_MTU: u16 = 4096;

/// Receives from all rings of a device.
#[derive(Debug)]
pub struct RingReceiver {
    incoming: Vec<Arc<Incoming>>,
    version: u32,
    /// The buffer into which records are copied out of their rings.
    pub(super) record: Box<[u8]>,
    /// The metadata of the last record: that of the next is often the same.
    last: Option<Metadata>,
    /// What was received in this burst and is not yet counted.
    pub(super) received: Uncounted,
}

/// Packets and bytes to add to the counters of the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uncounted {
    packets: u32,
    bytes: usize,
}

impl Uncounted {
    #[inline]
    pub(super) fn add(&mut self, packets: u32, bytes: usize) {
        self.packets += packets;
        self.bytes += bytes;
    }

    /// Adds the counts to the counters of the device, and resets them.
    #[inline]
    fn report<H: Embedder>(&mut self, host: &H) {
        let Self { packets, bytes } = std::mem::take(self);
        if packets > 0 {
            host.received_from_ring(packets, bytes);
        }
    }
}

/// The parsed metadata of a record.
#[derive(Debug)]
struct Metadata {
    /// As encoded in the ring.
    bytes: [u8; INFO],
    info: RxInfo,
    headers: Headers,
}

/// What was received from the rings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// At least one packet.
    pub some: bool,
    /// A ring may have more.
    pub more: bool,
    /// There were completions.
    pub completed: bool,
    /// When the last ring was read, if it had few packets: not much earlier than now.
    pub time: Option<Instant>,
}

/// What receiving from rings changes besides the rings.
struct Context<'a, H: Embedder> {
    device: &'a mut Device<H>,
    host: &'a H,
    datagrams: &'a mut DatagramReceiver,
    clock: &'a mut FastClock,
    received: Received,
}

impl Default for RingReceiver {
    fn default() -> Self {
        Self {
            incoming: Vec::new(),
            version: 0,
            record: vec![0; MAX_RECORD].into(),
            last: None,
            received: Uncounted::default(),
        }
    }
}

impl RingReceiver {
    /// Polls the rings several times, for a polling program: an empty pass takes as long as twenty polls of the rings.
    #[inline]
    pub fn spin_for_packets(&self) {
        if let [only] = &self.incoming[..] {
            let _ = (0..SPINS_PER_PASS).any(|_| only.consumer.has_records());
            return;
        }
        let looks = SPINS_PER_PASS / self.incoming.len().max(1);
        let _ = (0..looks).any(|_| self.incoming.iter().any(|ring| ring.consumer.has_records()));
    }

    /// Receives from all rings, and ends those to processes that have exited. With injected faults, records are handled as
    /// `datagrams`.
    pub fn receive<H: Embedder>(
        &mut self,
        device: &mut Device<H>,
        host: &H,
        datagrams: &mut DatagramReceiver,
        clock: &mut FastClock,
    ) -> Received {
        self.refresh(host);
        device.resume(host);
        let received = Received::default();
        let mut context = Context { device, host, datagrams, clock, received };
        context.received.some = self.receive_bursts(&mut context);
        if host.rings().is_ending() {
            self.receive_last(&mut context);
        }
        context.received
    }

    /// Receives what processes that have exited sent, and fails the requests in flight to them.
    #[cold]
    fn receive_last<H: Embedder>(&mut self, context: &mut Context<'_, H>) {
        let _guard = Uncancellable::new();
        self.refresh(context.host);
        // Other processes may go on sending, but a ring does not hold more than this.
        let bursts = (0..RING_SIZE / MAX_BURST / 64).take_while(|_| self.receive_bursts(context));
        let some = bursts.count() > 0;
        let Context { device, host, clock, received, .. } = context;
        received.some |= some;
        // The last ACK may be among what was received.
        let ending = host.rings().end();
        if !ending.is_empty() {
            let has_ended =
                |queue: &Box<RingRoute>| ending.iter().any(|to| Arc::ptr_eq(to, &queue.to));
            let now = Instant::from_nanos(clock.now());
            received.completed |= device.end_queues(host, has_ended, now);
        }
    }
}

impl RingReceiver {
    /// Updates the list of rings to receive from.
    #[inline]
    fn refresh<H: Embedder>(&mut self, host: &H) {
        let version = host.rings().version();
        if version != self.version {
            self.incoming = host.rings().incoming();
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
    fn info<H: Embedder>(&mut self, host: &H) -> Option<(&Metadata, &mut [u8])> {
        let (found, _) = self.record.split_first_chunk::<INFO>()?;
        if self.last.as_ref().is_none_or(|last| last.bytes != *found) {
            self.last = Some(Metadata::parse(found, host)?);
        }
        Some((self.last.as_ref()?, &mut self.record))
    }
}

impl Metadata {
    fn parse<H: Embedder>(bytes: &[u8; INFO], host: &H) -> Option<Self> {
        let info = record_header::decode(bytes);
        let addresses = host.addresses();
        let is_here = |ip| addresses.is_here(ip);
        if !is_here(info.source.ip()) || !is_here(info.destination) {
            return None;
        }
        let destination = SocketAddr::new(info.destination, addresses.port());
        Some(Self { bytes: *bytes, info, headers: Headers { source: info.source, destination } })
    }
}

impl RingReceiver {
    /// Receives a burst from each ring that has packets. Returns whether any had.
    fn receive_bursts<H: Embedder>(&mut self, context: &mut Context<'_, H>) -> bool {
        let (mut some, mut gone) = (false, Vec::new());
        // Moved out, because handling packets borrows the rest of the state mutably.
        let incoming = std::mem::take(&mut self.incoming);
        for ring in &incoming {
            if !ring.consumer.has_records() {
                if ring.has_ended() {
                    gone.push(ring.id);
                }
                continue;
            }
            some = true;
            if self.receive_from(context, ring) == Err(Broken) {
                tracing::debug!("ring closed: a local process wrote an invalid position or length");
                context.host.refuse(Refusal::Malformed, None);
                gone.push(ring.id);
            }
            context.received.more |= !ring.consumer.is_empty();
        }
        self.incoming = incoming;
        if !gone.is_empty() {
            context.host.rings().close(&gone);
            // Their memory is unmapped at once: the next pass may be far away.
            self.refresh(context.host);
        }
        some
    }

    /// Receives packets from one ring.
    fn receive_from<H: Embedder>(
        &mut self,
        context: &mut Context<'_, H>,
        ring: &Incoming,
    ) -> Result<(), Broken> {
        let Context { device, host, datagrams, clock, received } = context;
        let now = Instant::from_nanos(clock.now());
        if datagrams.injects_faults() {
            return self.receive_faulty(context, ring, now);
        }
        let mut burst = Records::new(*host, self, ring);
        received.completed |= device.receive(*host, &mut burst, now);
        let (taken, result) = burst.end();
        received.time = (taken <= FEW).then_some(now);
        result
    }

    /// As [`RingReceiver::receive_from`], with injected faults: they may delay a packet until later ones have arrived, so the
    /// records are handled like datagrams from a socket.
    #[cold]
    fn receive_faulty<H: Embedder>(
        &mut self,
        context: &mut Context<'_, H>,
        ring: &Incoming,
        now: Instant,
    ) -> Result<(), Broken> {
        let _guard = Uncancellable::new();
        let mut result = Ok(());
        for _ in 0..MAX_BURST {
            match self.take(ring) {
                Ok(Some(taken)) => {
                    self.complete(&taken);
                    self.receive_as_datagrams(context, taken.length, now);
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

    /// Handles the packets of a record like datagrams from a socket.
    fn receive_as_datagrams<H: Embedder>(
        &mut self,
        context: &mut Context<'_, H>,
        length: usize,
        now: Instant,
    ) {
        let Context { device, host, datagrams, received, .. } = context;
        let Some((Metadata { info, headers, .. }, record)) = self.info(*host) else {
            return host.refuse(Refusal::Malformed, None);
        };
        if let Some(bytes) = record.get_mut(INFO..length) {
            each_packet(*host, bytes, |packet| {
                add_icrc(packet, headers);
                let info = RxInfo { length: packet.len(), segment: packet.len(), ..*info };
                let datagram = RxDatagram { info: &info, data: packet };
                let local = headers.destination;
                received.completed |= datagrams.receive(device, *host, &datagram, local, now);
            });
        }
    }
}

/// A burst of records of one ring.
struct Records<'a> {
    rings: &'a mut RingReceiver,
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
    fn new<H: Embedder>(host: &H, rings: &'a mut RingReceiver, ring: &'a Incoming) -> Self {
        Self {
            rings,
            ring,
            next: None,
            is_over: false,
            result: Ok(()),
            is_captured: host.is_captured(),
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
    fn packet<H: Embedder>(
        &mut self,
        device: &mut Device<H>,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        taken: &Taken<'_>,
        now: Instant,
    ) -> bool {
        let endpoint = &state.queue_pair().endpoint;
        let mtu = endpoint.path_mtu();
        let is_reliable = endpoint.settings().service == ServiceType::ReliableConnection;
        let packets = self.rings.packets(taken.length, mtu);
        // Only the payload of a run is copied without being parsed.
        let is_shared = taken.copied < taken.length && packets > 1 && !self.is_captured;
        if !is_shared {
            self.rings.complete(taken);
        }
        let record = self.rings.info(host);
        let Some((Metadata { info, headers, bytes: info_bytes }, record)) = record else {
            host.refuse(Refusal::Malformed, None);
            return false;
        };
        let is_marked = info.ecn() == CONGESTION_EXPERIENCED;
        if is_reliable && !is_marked && host.is_peer(state, info.source.ip()) {
            *H::peer_info(state) = Some(*info_bytes);
        }
        let Some(bytes) = record.get_mut(INFO..taken.length) else {
            host.refuse(Refusal::Malformed, None);
            return false;
        };
        let mut completed = false;
        let is_captured = self.is_captured;
        let mut deliver = |bytes: &mut [u8], packets: u32| {
            if is_captured {
                add_icrc(bytes, headers);
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
                    let mut memory = Placement::new(host.registry(), payload, shared);
                    completed |= device.arrive(host, handle, state, received, &mut memory);
                }
            };
            receive_packet(host, bytes, packets, (info, headers), now, arrive);
        };
        match packets {
            2.. if is_captured => run::split(bytes, mtu, |single| deliver(single, 1)),
            packets => deliver(bytes, packets),
        }
        completed
    }
}

impl<H: Embedder> Burst<H> for Records<'_> {
    #[inline]
    fn destination(&mut self, _: &H) -> Option<Qpn> {
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
    fn forward(&mut self, host: &H, _: Qpn) {
        if let Some(taken) = self.next.take() {
            self.rings.drop_record(host, &taken);
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
        if !may_be_fast || !self.rings.receive_fast(host, handle, state, taken.length, now) {
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

    /// A record whose QP does not exist is one packet: it was destroyed, or a process writes what it should not. A run of 64 KiB
    /// is not worth the work of its packets. A capture has them.
    #[cold]
    fn stray(&mut self, device: &mut Device<H>, host: &H, now: Instant) -> bool {
        let Some(taken) = self.next.take() else { return false };
        if self.is_captured && taken.length >= INFO + Bth::LEN + ICRC {
            self.rings.complete(&taken);
            let Some((Metadata { info, headers, .. }, record)) = self.rings.info(host) else {
                host.refuse(Refusal::Malformed, None);
                return false;
            };
            each_packet(host, &mut record[INFO..taken.length], |packet| {
                add_icrc(packet, headers);
                receive_packet(host, packet, 1, (info, headers), now, |received| {
                    device.arrive_elsewhere(host, received);
                });
            });
        } else {
            self.rings.drop_record(host, &taken);
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
        device: &mut Device<H>,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        now: Instant,
    ) {
        self.rings.received.report(host);
        let queue_pair = state.queue_pair();
        if queue_pair.endpoint.pending() != Pending::Ack || queue_pair.destroyed {
            return;
        }
        // The program polls the CQ only for its own requests and watches its memory for WRITEs. The ACK follows its
        // reply, so that the peer, which does the same, polls until both have arrived.
        if queue_pair.endpoint.has_only_send_completions() {
            return;
        }
        if let Some(mut route) = queue_pair.queue.take() {
            let written = write_ack(host, state, &mut route);
            state.queue_pair().queue = Some(route);
            if !written {
                device.turn_in_queue(host, handle, state, now);
            }
        }
    }
}

impl RingReceiver {
    /// Counts a record for no QP of this process.
    fn drop_record<H: Embedder>(&mut self, host: &H, taken: &Taken<'_>) {
        if taken.length < INFO + Bth::LEN + ICRC {
            return host.refuse(Refusal::Malformed, None);
        }
        self.received.add(1, taken.length - INFO);
        self.received.report(host);
        if let Some(packet) = self.record.get(INFO..).and_then(<[u8]>::first_chunk) {
            host.refuse(Refusal::UnknownQueuePair, Some(&Bth::parse(packet)));
        }
    }
}

/// Checks and counts a packet or a run, and passes it to `handle`.
fn receive_packet<H: Embedder>(
    host: &H,
    bytes: &[u8],
    packets: u32,
    (info, headers): (&RxInfo, &Headers),
    now: Instant,
    handle: impl FnOnce(&ReceivedPacket<'_>),
) {
    let mut packet = Packet::default();
    if packet.read(bytes).is_err() {
        return host.refuse(Refusal::Malformed, None);
    }
    let length = bytes.len() + run::overhead(&packet.bth, packets);
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

/// Calls `each` with the packets of a record: of the path MTU of its QP, or the largest if there is no such QP.
#[cold]
fn each_packet<H: Embedder>(host: &H, bytes: &mut [u8], mut each: impl FnMut(&mut [u8])) {
    let known = destination(bytes).and_then(|number| host.tables().queue_pair(number));
    let mtu = |handle: H::Handle| handle.state().lock().queue_pair().endpoint.path_mtu();
    let mtu = known.map_or(MAX_MTU, mtu);
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
