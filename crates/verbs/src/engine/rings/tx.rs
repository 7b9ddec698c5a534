//! Transmitting packets through rings.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::tuning::shared_memory::{PUBLISH, SHORT};
use ferroce_device::{Committed, Host, Outgoing, QueueTurn, Room, TransmitQueue, Tx};
use ferroce_links::route::Route;
use ferroce_proto::time::Instant;
use ferroce_sync::MutexGuard;
use ferroce_sys::ring::{Broken, Producer};
use ferroce_tap::{Owner, PacketMetadata};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ICRC_LEN as ICRC;
use ferroce_wire::transport::{Aeth, Bth};

use super::super::adapter::Adapter;
use super::super::qp_stats::{Class, Traffic};
use super::super::queue_pair::Inner;
use super::{INFO, MAX_PACKET, MAX_RECORD, RingRoute, RingTo, Uncounted, run};
use crate::sync::lock;

/// The maximum length of a record with such a payload: the rest is the longest headers, padding and ICRC.
pub(super) const SHORT_RECORD: usize = INFO + MAX_PACKET - 4096 + SHORT;

/// The packets of one turn of a QP, on their way into its ring.
pub(crate) struct RingTurn<'a> {
    to: &'a Arc<RingTo>,
    path: &'a Route,
    info: &'a [u8; INFO],
    /// The position in the ring after the last packet of the QP.
    sent: &'a mut u64,
    producer: MutexGuard<'a, Producer>,
    /// A capture that starts during the turn gets single packets from the next turn on.
    is_captured: bool,
    /// Whether the last message was signaled. If all are, no ACK is more urgent than the others, and no record is marked.
    was_signaled: bool,
    short: &'a mut [u8; SHORT_RECORD],
    /// Not yet added to the counters of the device.
    uncounted: Uncounted,
    /// SENDs and WRITEs not yet added to the counters of the QP.
    messages: [Traffic; 2],
}

impl TransmitQueue<Adapter> for Box<RingRoute> {
    type Turn<'a>
        = RingTurn<'a>
    where
        Self: 'a;

    #[inline]
    fn begin<'a>(&'a mut self, adapter: &Adapter, inner: &mut Inner) -> RingTurn<'a> {
        let RingRoute { to, path, info, sent, short } = &mut **self;
        let is_captured = adapter.tap().is_some();
        let mtu = inner.endpoint.path_mtu();
        inner.endpoint.set_max_run(if is_captured { 1 } else { run::max_packets(mtu) });
        RingTurn {
            producer: to.ring.producer.lock(),
            to,
            path,
            info,
            sent,
            is_captured,
            was_signaled: true,
            short,
            uncounted: Uncounted::default(),
            messages: [Traffic::default(); 2],
        }
    }

    #[inline]
    fn number(&self) -> u64 {
        self.to.ring.id
    }

    fn is_unread(&self) -> bool {
        !self.to.ended.load(Ordering::Relaxed) && self.to.ring.producer.lock().is_unread(self.sent)
    }
}

impl Tx<Adapter> for RingTurn<'_> {
    #[inline]
    fn room(&mut self) -> Room {
        if self.to.ended.load(Ordering::Relaxed) {
            return Room::Ended;
        }
        match self.producer.has_room(MAX_RECORD) {
            Ok(true) => Room::Some,
            Ok(false) => Room::Full,
            Err(Broken) => {
                tracing::debug!("ring broken: peer wrote an invalid position");
                self.to.ended.store(true, Ordering::Relaxed);
                Room::Ended
            }
        }
    }

    #[inline]
    fn space(&mut self, payload: usize) -> &mut [u8] {
        if payload <= SHORT {
            return &mut self.short[INFO..];
        }
        // Only if the peer has broken the ring since: then nothing fits.
        let Ok(Some(room)) = self.producer.room(MAX_RECORD) else { return &mut [] };
        &mut room[INFO..]
    }

    #[inline]
    fn commit(
        &mut self,
        adapter: &Adapter,
        inner: &mut Inner,
        packet: &Outgoing<'_, Route>,
    ) -> Committed {
        let Outgoing { number, bth, payload, length, work, .. } = *packet;
        let whole = length + ICRC;
        let Ok(Some(room)) = self.producer.room(MAX_RECORD) else {
            return Committed { packets: 0, has_room: true };
        };
        let is_short = payload <= SHORT;
        let record = if is_short { &mut self.short[..] } else { &mut *room };
        let Some((info, rest)) = record[..INFO + whole].split_first_chunk_mut::<INFO>() else {
            return Committed { packets: 0, has_room: true };
        };
        *info = *self.info;
        let (covered, icrc) = rest.split_at_mut(length);
        icrc.fill(0);
        let tap = if self.is_captured { adapter.tap() } else { None };
        if let Some(tap) = tap {
            let headers = adapter.port.links.headers(self.path);
            icrc.copy_from_slice(&headers.icrc(covered, 0));
            let (class, hop_limit) = (self.path.traffic_class, self.path.hop_limit);
            let owner = Owner { queue_pair: number, work };
            let metadata = PacketMetadata::sent(headers, class, hop_limit, 0, owner);
            // Before it is published: otherwise the response could be captured first.
            tap.record(&metadata, rest);
        }
        if is_short {
            room[..INFO + whole].copy_from_slice(&self.short[..INFO + whole]);
        }
        self.producer.commit(INFO + whole);
        let packets = run::packets(bth, payload, inner.endpoint.path_mtu());
        adapter.counters.sent_locally(packets, whole + run::overhead(bth, packets));
        if self.producer.unpublished() >= PUBLISH {
            self.to.publish(&mut self.producer);
        }
        Committed { packets, has_room: true }
    }
}

impl QueueTurn<Adapter> for RingTurn<'_> {
    /// Writes the next message of a QP if it can be one record.
    #[inline]
    fn message(&mut self, adapter: &Adapter, inner: &mut Inner, now: Instant) -> Option<usize> {
        if self.is_captured || self.to.ended.load(Ordering::Relaxed) {
            return None;
        }
        let room = self.producer.room(MAX_RECORD).ok()??;
        let mut memory = &*adapter.memory;
        let message = inner.queue_pair.endpoint.take_whole(now, &mut memory)?;
        let (bth, length, packets) = (message.bth, message.length, message.packets);
        let is_awaited = message.signaled && !self.was_signaled;
        self.was_signaled = message.signaled;
        let headers = INFO + message.headers_len();
        let whole = headers + length + usize::from(bth.pad) + ICRC;
        let (short, _) = self.short.split_first_chunk_mut::<SHORT>()?;
        let payload = short.get_mut(..length);
        let is_short = payload.is_some();
        let payload = payload.unwrap_or(&mut room[headers..headers + length]);
        if let Err(denied) = message.read(&memory, payload) {
            let reason = message.explain(denied, &memory);
            inner.queue_pair.endpoint.handle_denied(bth.psn, true, reason);
            return Some(1);
        }
        let (info, packet) = room[..whole].split_first_chunk_mut::<INFO>()?;
        *info = *self.info;
        let rest = message.encode_headers(packet)?;
        let (payload, behind) = rest.split_at_mut(length);
        if is_short {
            copy_short(short, payload);
        }
        match behind.first_chunk_mut::<ICRC>() {
            Some(icrc) if bth.pad == 0 => *icrc = [0; ICRC],
            _ => behind.fill(0),
        }
        self.producer.commit_record(whole, is_awaited);
        let class = usize::from(bth.opcode == Opcode::RC_RDMA_WRITE_ONLY);
        self.messages[class].add(packets, length, 1);
        self.uncounted.add(packets, whole - INFO + run::overhead(&bth, packets));
        if self.producer.unpublished() >= PUBLISH {
            self.to.publish(&mut self.producer);
        }
        Some(packets as usize)
    }

    #[cold]
    fn wait(&mut self, adapter: &Adapter) -> bool {
        self.to.publish(&mut self.producer);
        // Before a wakeup is requested: a thread that consumes the wakeup and then sleeps checks this list.
        let mut full = lock(&adapter.rings.full);
        if !full.iter().any(|known| Arc::ptr_eq(known, self.to)) {
            full.push(Arc::clone(self.to));
        }
        adapter.rings.is_full.store(true, Ordering::Relaxed);
        drop(full);
        self.producer.wait_for_room(MAX_RECORD) == Ok(false)
    }

    #[inline]
    fn end(mut self, adapter: &Adapter, inner: &mut Inner, packets: usize) {
        self.to.publish(&mut self.producer);
        if self.uncounted.packets > 0 {
            adapter.counters.sent_locally(self.uncounted.packets, self.uncounted.bytes);
            inner.stats.sent_messages([Class::Send, Class::Write], &self.messages);
        }
        if packets > 0 {
            *self.sent = self.producer.position();
        }
    }
}

/// Finds the rings that have space again, and calls `resume` with their number and for how many QPs.
#[inline]
pub(in crate::engine) fn resume_rings(
    adapter: &Adapter,
    mut resume: impl FnMut(u64, usize) -> bool,
) {
    if !adapter.rings.is_full.load(Ordering::Relaxed) {
        return;
    }
    let mut full = lock(&adapter.rings.full);
    full.retain(|to| {
        let mut most = usize::MAX;
        if !to.ended.load(Ordering::Relaxed) {
            let mut producer = to.ring.producer.lock();
            let is_full = producer.has_room(MAX_RECORD) == Ok(false)
                && (producer.awaits_room() || producer.wait_for_room(MAX_RECORD) == Ok(false));
            if is_full {
                return true;
            }
            most = producer.rooms(MAX_RECORD).max(1);
        }
        resume(to.ring.id, most)
    });
    adapter.rings.is_full.store(!full.is_empty(), Ordering::Relaxed);
}

impl RingTo {
    /// Publishes the packets written so far, and wakes the receiver if it sleeps.
    pub(super) fn publish(&self, producer: &mut Producer) {
        if producer.publish() {
            self.ring.wake();
        }
    }
}

/// Writes the ACK that a QP owes to its ring, unless packets are captured or there is no space. Returns whether it did.
pub(super) fn write_ack(adapter: &Adapter, inner: &mut Inner, route: &mut RingRoute) -> bool {
    const LENGTH: usize = Bth::LEN + Aeth::LEN + ICRC;
    if adapter.tap().is_some() || route.to.ended.load(Ordering::Relaxed) {
        return false;
    }
    let mut producer = route.to.ring.producer.lock();
    let Ok(Some(room)) = producer.room(INFO + LENGTH) else { return false };
    let Some((info, packet)) = room.split_first_chunk_mut::<INFO>() else { return false };
    let Some((headers, icrc)) = packet.split_last_chunk_mut::<ICRC>() else { return false };
    let Some((first, second)) = headers.split_first_chunk_mut() else { return false };
    let Some((bth, aeth)) = inner.endpoint.take_ack() else { return false };
    (*info, *first, *icrc) = (route.info, bth.to_bytes(), [0; ICRC]);
    second.copy_from_slice(&aeth.to_bytes());
    producer.commit(INFO + LENGTH);
    adapter.sent(inner, &bth, Some(aeth), 0, 1);
    adapter.counters.sent_locally(1, LENGTH);
    route.to.publish(&mut producer);
    route.sent = producer.position();
    true
}

/// Copies the payload of a short message.
#[inline(always)]
fn copy_short(from: &[u8; SHORT], to: &mut [u8]) {
    // A constant length compiles to a few moves instead of a call.
    let (rest, behind) = match to.split_first_chunk_mut::<64>() {
        Some((first, rest)) => {
            first.copy_from_slice(&from[..64]);
            (rest, 64)
        }
        None => (to, 0),
    };
    if !rest.is_empty() {
        rest.copy_from_slice(&from[behind..behind + rest.len()]);
    }
}
