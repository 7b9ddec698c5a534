//! A packet's way in through a ring.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_proto::time::Instant;
use ferroce_sys::ring::Broken;
use ferroce_sys::{Incoming, RxDatagram, RxInfo, forward_header};
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::Packet;

use super::super::adapter::{Adapter, now};
use super::super::counters::count;
use super::super::driver::Driver;
use super::super::queue_pair::{Core, Inner};
use super::super::rx::{ReceivedPacket, destination};
use super::{INFO, RING_SIZE, RingState};
use crate::headers::{Headers, ICRC};
use crate::sync::lock;

/// The maximum number of records taken from a ring in one pass, and after how many their space is given back.
const MAX_BURST: usize = 64;
const RELEASE: usize = 8;

impl RingState {
    /// Looks up the rings to receive from.
    fn refresh(&mut self, adapter: &Adapter) {
        let version = adapter.rings.version.load(Ordering::Acquire);
        if version != self.version {
            self.incoming = Arc::clone(&lock(&adapter.rings.incoming));
            self.version = version;
        }
    }

    /// The metadata of the record.
    fn info(&mut self) -> Option<RxInfo> {
        let (found, _) = self.record.split_first_chunk::<INFO>()?;
        if let Some((_, info)) = self.last.filter(|(bytes, _)| bytes == found) {
            return Some(info);
        }
        let info = forward_header::decode(found)?;
        self.last = Some((*found, info));
        Some(info)
    }
}

impl Driver {
    /// Receives from all rings. Returns whether there was anything.
    pub(in crate::engine) fn receive_from_rings(&mut self, adapter: &Adapter) -> bool {
        self.rings.refresh(adapter);
        if adapter.rings.is_full.load(Ordering::Relaxed) {
            self.resume_rings(adapter);
        }
        let mut some = self.receive_bursts(adapter);
        if adapter.rings.is_ending.load(Ordering::Acquire) {
            self.rings.refresh(adapter);
            // Others may go on sending, but a ring does not hold more than this.
            let bursts =
                (0..RING_SIZE / MAX_BURST / 64).take_while(|_| self.receive_bursts(adapter));
            some |= bursts.count() > 0;
            self.end_rings(adapter);
        }
        some
    }

    /// Receives a burst from each ring that has packets. Returns whether one had.
    fn receive_bursts(&mut self, adapter: &Adapter) -> bool {
        let mut some = false;
        for index in 0..self.rings.incoming.len() {
            if self.rings.incoming[index].consumer.is_empty() {
                if self.rings.incoming[index].has_ended() {
                    adapter.rings.change(|list| list.retain(|ring| !ring.has_ended()));
                }
                continue;
            }
            some = true;
            let ring = Arc::clone(&self.rings.incoming[index]);
            if self.receive_from(adapter, &ring) == Err(Broken) {
                tracing::debug!("a process on this host has written nonsense");
                count(&adapter.counters.malformed);
                if let Some(hub) = adapter.rings.hub() {
                    hub.close(ring.id);
                }
                adapter.rings.change(|list| list.retain(|one| one.id != ring.id));
            }
            self.rx.more |= !ring.consumer.is_empty();
        }
        some
    }

    /// Receives packets of one ring, in runs for the same QP.
    fn receive_from(&mut self, adapter: &Adapter, ring: &Incoming) -> Result<(), Broken> {
        let now = now();
        let mut result = Ok(());
        let mut taken = 0;
        let mut next = ring.consumer.take(&mut self.rings.record)?;
        while let Some(mut length) = next {
            let number = destination(self.rings.record.get(INFO..).unwrap_or_default());
            let number = number.unwrap_or(Qpn(0));
            let core = adapter.tables.queue_pair(number).filter(|_| number.0 >= 3);
            let mut locked = core.as_ref().map(|core| lock(&core.inner));
            loop {
                match (&core, &mut locked) {
                    (Some(core), Some(inner)) if self.rx.failing.is_none() => {
                        self.ring_packet(adapter, core, inner, length, now);
                    }
                    // Faults may delay a packet until others have come.
                    _ => {
                        locked = None;
                        self.ring_datagram(adapter, length, now);
                    }
                }
                taken += 1;
                if taken % RELEASE == 0 && ring.consumer.release() {
                    ring.wake();
                }
                next = None;
                if taken < MAX_BURST {
                    // What came before nonsense is delivered.
                    match ring.consumer.take(&mut self.rings.record) {
                        Ok(found) => next = found,
                        Err(broken) => result = Err(broken),
                    }
                }
                let Some(more) = next else { break };
                length = more;
                if locked.is_none() || destination(&self.rings.record[INFO..]) != Some(number) {
                    break;
                }
            }
            if let (Some(core), Some(inner)) = (&core, &mut locked) {
                self.received(adapter, core, inner, now);
            }
        }
        if ring.consumer.release() {
            ring.wake();
        }
        result
    }

    fn ring_packet(
        &mut self,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        length: usize,
        now: Instant,
    ) {
        let Some(info) = self.rings.info() else { return count(&adapter.counters.malformed) };
        let Some(bytes) = self.rings.record.get_mut(INFO..length) else {
            return count(&adapter.counters.malformed);
        };
        let local = SocketAddr::new(info.destination, adapter.options.port);
        let headers = Headers { source: info.source, destination: local };
        if adapter.tap.is_some() {
            add_icrc(bytes, &headers);
        }
        let Some(packet) = Packet::parse(bytes).ok() else {
            return count(&adapter.counters.malformed);
        };
        let Some(packet) = adapter.admit_form(packet, bytes.len()) else { return };
        count(&adapter.counters.local_packets_in);
        let identification = Identification::of_segment(0);
        let received = ReceivedPacket { packet, bytes, headers, info: &info, identification, now };
        adapter.record(&received, Some(inner));
        adapter.deliver(core, inner, &received);
    }

    /// Handles a packet as one from a socket: for faults, and for packets whose QP does not exist.
    fn ring_datagram(&mut self, adapter: &Adapter, length: usize, now: Instant) {
        let Some(info) = self.rings.info() else { return count(&adapter.counters.malformed) };
        let mut record = std::mem::take(&mut self.rings.record);
        let local = SocketAddr::new(info.destination, adapter.options.port);
        if let Some(bytes) = record.get_mut(INFO..length) {
            add_icrc(bytes, &Headers { source: info.source, destination: local });
            let info = RxInfo { length: bytes.len(), segment: bytes.len(), ..info };
            self.datagram(adapter, &RxDatagram { info: &info, data: bytes }, local, now);
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
