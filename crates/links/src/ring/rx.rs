//! Receiving packets from rings.

use std::sync::Arc;

use ferroce_device::tuning::shared_memory::{FEW, MAX_BURST, SIZE as RING_SIZE, SPINS_PER_PASS};
use ferroce_device::{Device, Refusal};
use ferroce_proto::time::Instant;
use ferroce_sys::clock::FastClock;
use ferroce_sys::ring::Broken;
use ferroce_sys::{Incoming, Uncancellable};

use super::record::RecordBuffer;
use super::records::Records;
use super::route::RingTo;
use crate::embedder::Embedder;
use crate::udp::DatagramReceiver;

/// Receives from all rings of a device.
#[derive(Debug, Default)]
pub struct RingReceiver {
    incoming: Arc<[Arc<Incoming>]>,
    version: u32,
    buffer: RecordBuffer,
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

    /// Updates the list of rings to receive from.
    #[inline]
    fn refresh<H: Embedder>(&mut self, host: &H) {
        let version = host.rings().version();
        if version != self.version {
            self.incoming = host.rings().incoming();
            self.version = version;
        }
    }

    /// Receives a burst from each ring that has packets. Returns whether any had.
    fn receive_bursts<H: Embedder>(&mut self, reception: &mut Reception<'_, H>) -> bool {
        let (mut some, mut gone) = (false, Vec::new());
        for ring in self.incoming.iter() {
            if !ring.consumer.has_records() {
                if ring.has_ended() {
                    gone.push(ring.id);
                }
                continue;
            }
            some = true;
            if reception.receive_from(ring, &mut self.buffer) == Err(Broken) {
                tracing::debug!("ring closed: a local process wrote an invalid position or length");
                reception.host.refuse(Refusal::Malformed, None);
                gone.push(ring.id);
            }
            reception.received.more |= !ring.consumer.is_empty();
        }
        if !gone.is_empty() {
            reception.host.rings().close(&gone);
            // Their memory is unmapped at once: the next pass may be far away.
            self.refresh(reception.host);
        }
        some
    }
}

impl<H: Embedder> Reception<'_, H> {
    /// Receives packets from one ring.
    fn receive_from(&mut self, ring: &Incoming, buffer: &mut RecordBuffer) -> Result<(), Broken> {
        let Self { device, host, datagrams, clock, received } = self;
        let now = Instant::from_nanos(clock.now());
        let mut burst = Records::new(buffer, ring, host.is_captured());
        if datagrams.faults.is_some() {
            received.completed |= burst.receive_as_datagrams(device, *host, datagrams, now);
            return burst.end().1;
        }
        received.completed |= device.receive(*host, &mut burst, now);
        let (taken, result) = burst.end();
        received.time = (taken <= FEW).then_some(now);
        result
    }
}
