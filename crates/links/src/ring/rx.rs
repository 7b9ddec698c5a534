//! Receiving packets from rings.

use std::net::SocketAddr;
use std::sync::Arc;

use ferroce_device::tuning::shared_memory::{FEW, MAX_BURST, SIZE as RING_SIZE, SPINS_PER_PASS};
use ferroce_device::{Device, Refusal};
use ferroce_proto::time::Instant;
use ferroce_sys::clock::FastClock;
use ferroce_sys::ring::{Broken, Taken};
use ferroce_sys::{Incoming, RxDatagram, RxInfo, Uncancellable, record_header};
use ferroce_wire::packet::ICRC_LEN as ICRC;
use ferroce_wire::transport::{Bth, Reth};
use ferroce_wire::udp_headers::Headers;

use super::aggregate;
use super::record::{INFO, MAX_RECORD};
use super::records::{Records, add_icrc, each_packet};
use super::route::RingTo;
use crate::embedder::Embedder;
use crate::packet::MAX_PACKET;
use crate::udp::DatagramReceiver;

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
    pub(super) fn report<H: Embedder>(&mut self, host: &H) {
        let Self { packets, bytes } = std::mem::take(self);
        if packets > 0 {
            host.received_from_ring(packets, bytes);
        }
    }
}

/// The parsed metadata of a record.
#[derive(Debug)]
pub(super) struct Metadata {
    /// As encoded in the ring.
    pub(super) bytes: [u8; INFO],
    pub(super) info: RxInfo,
    pub(super) headers: Headers,
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
struct Reception<'a, H: Embedder> {
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
        let mut reception = Reception { device, host, datagrams, clock, received };
        reception.received.some = self.receive_bursts(&mut reception);
        if host.rings().is_ending() {
            self.receive_last(&mut reception);
        }
        reception.received
    }

    /// Receives what processes that have exited sent, and fails the requests in flight to them.
    #[cold]
    fn receive_last<H: Embedder>(&mut self, reception: &mut Reception<'_, H>) {
        let _guard = Uncancellable::new();
        self.refresh(reception.host);
        // Other processes may go on sending, but a ring does not hold more than this.
        let bursts = (0..RING_SIZE / MAX_BURST / 64).take_while(|_| self.receive_bursts(reception));
        let some = bursts.count() > 0;
        let Reception { device, host, clock, received, .. } = reception;
        received.some |= some;
        // The last ACK may be among what was received.
        let ending = host.rings().end();
        if !ending.is_empty() {
            let now = Instant::from_nanos(clock.now());
            let is_ending = |to: &Arc<RingTo>| ending.iter().any(|ring| Arc::ptr_eq(ring, to));
            received.completed |= device.end_queues(host, |queue| is_ending(&queue.to), now);
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
    pub(super) fn take<'a>(&mut self, ring: &'a Incoming) -> Result<Option<Taken<'a>>, Broken> {
        ring.consumer.take_start(&mut self.record, INFO + MAX_PACKET, INFO + Bth::LEN + Reth::LEN)
    }

    /// Copies the rest of a record of which only the start was copied.
    #[inline]
    pub(super) fn complete(&mut self, taken: &Taken<'_>) {
        if taken.copied == taken.length {
            return;
        }
        taken.rest().copy_to(&mut self.record[taken.copied..taken.length]);
    }

    /// The number of packets in the record of this length, according to its first header.
    #[inline]
    pub(super) fn packets(&self, length: usize, mtu: u16) -> u32 {
        let behind = length.saturating_sub(INFO + Bth::LEN);
        if aggregate::is_single(behind, mtu) {
            return 1;
        }
        let header = self.record.get(INFO..).and_then(<[u8]>::first_chunk);
        header
            .map(Bth::parse)
            .map_or(1, |bth| aggregate::packets(&bth, aggregate::payload(&bth, behind), mtu))
    }

    /// The metadata of the record, and the record itself; `None` if the metadata is malformed. Both addresses must be
    /// local: a process on this host cannot send from the address of another host, whatever it writes.
    #[inline]
    pub(super) fn info<H: Embedder>(&mut self, host: &H) -> Option<(&Metadata, &mut [u8])> {
        let (found, _) = self.record.split_first_chunk::<INFO>()?;
        if self.last.as_ref().is_none_or(|last| last.bytes != *found) {
            self.last = Some(Metadata::parse(found, host)?);
        }
        Some((self.last.as_ref()?, &mut self.record))
    }

    /// Counts a record for no QP of this process.
    pub(super) fn drop_record<H: Embedder>(&mut self, host: &H, taken: &Taken<'_>) {
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
    fn receive_bursts<H: Embedder>(&mut self, reception: &mut Reception<'_, H>) -> bool {
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
            if self.receive_from(reception, ring) == Err(Broken) {
                tracing::debug!("ring closed: a local process wrote an invalid position or length");
                reception.host.refuse(Refusal::Malformed, None);
                gone.push(ring.id);
            }
            reception.received.more |= !ring.consumer.is_empty();
        }
        self.incoming = incoming;
        if !gone.is_empty() {
            reception.host.rings().close(&gone);
            // Their memory is unmapped at once: the next pass may be far away.
            self.refresh(reception.host);
        }
        some
    }

    /// Receives packets from one ring.
    fn receive_from<H: Embedder>(
        &mut self,
        reception: &mut Reception<'_, H>,
        ring: &Incoming,
    ) -> Result<(), Broken> {
        let Reception { device, host, datagrams, clock, received } = reception;
        let now = Instant::from_nanos(clock.now());
        if datagrams.injects_faults() {
            return self.receive_faulty(reception, ring, now);
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
        reception: &mut Reception<'_, H>,
        ring: &Incoming,
        now: Instant,
    ) -> Result<(), Broken> {
        let _guard = Uncancellable::new();
        let mut result = Ok(());
        for _ in 0..MAX_BURST {
            match self.take(ring) {
                Ok(Some(taken)) => {
                    self.complete(&taken);
                    self.receive_as_datagrams(reception, taken.length, now);
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
        reception: &mut Reception<'_, H>,
        length: usize,
        now: Instant,
    ) {
        let Reception { device, host, datagrams, received, .. } = reception;
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
