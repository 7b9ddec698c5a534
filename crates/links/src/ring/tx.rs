//! Transmitting packets through rings.

use std::sync::Arc;

use ferroce_device::tuning::shared_memory::{PUBLISH, SHORT};
use ferroce_device::{Committed, Outgoing, QueueTurn, Room, TransmitQueue, Tx};
use ferroce_proto::time::Instant;
use ferroce_sync::MutexGuard;
use ferroce_sys::ring::{Broken, Producer};
use ferroce_tap::{Owner, PacketMetadata};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ICRC_LEN as ICRC;
use ferroce_wire::transport::{Aeth, Bth};

use super::aggregate;
use super::route::{INFO, MAX_RECORD, RingRoute, RingTo, SHORT_RECORD};
use crate::embedder::{Embedder, Traffic};
use crate::packet::write_icrc;
use crate::route::Route;

/// The packets of one turn of a QP, on their way into its ring.
#[derive(Debug)]
pub struct RingTurn<'a> {
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
    /// Packets and bytes of the messages that are not yet added to the counters of the device.
    uncounted: (u32, usize),
    /// SENDs and WRITEs not yet added to the counters of the QP.
    messages: [Traffic; 2],
}

impl<H: Embedder> TransmitQueue<H> for Box<RingRoute> {
    type Turn<'a>
        = RingTurn<'a>
    where
        Self: 'a;

    #[inline]
    fn begin<'a>(&'a mut self, host: &H, state: &mut H::State) -> RingTurn<'a> {
        let RingRoute { to, path, info, sent, short } = &mut **self;
        let is_captured = host.is_captured();
        let endpoint = &mut state.endpoint;
        let mtu = endpoint.path_mtu();
        endpoint.set_max_run(if is_captured { 1 } else { aggregate::max_packets(mtu) });
        RingTurn {
            producer: to.ring.producer.lock(),
            to,
            path,
            info,
            sent,
            is_captured,
            was_signaled: true,
            short,
            uncounted: (0, 0),
            messages: [Traffic::default(); 2],
        }
    }

    #[inline]
    fn write_ack(&mut self, host: &H, state: &mut H::State) -> bool {
        const LENGTH: usize = Bth::LEN + Aeth::LEN + ICRC;
        if host.is_captured() || self.to.has_ended() {
            return false;
        }
        let mut producer = self.to.ring.producer.lock();
        let Ok(Some(room)) = producer.room(INFO + LENGTH) else { return false };
        let Some((info, packet)) = room.split_first_chunk_mut::<INFO>() else { return false };
        let Some((headers, icrc)) = packet.split_last_chunk_mut::<ICRC>() else { return false };
        let Some((first, second)) = headers.split_first_chunk_mut() else { return false };
        let Some((bth, aeth)) = state.endpoint.take_ack() else { return false };
        (*info, *first, *icrc) = (self.info, bth.to_bytes(), [0; ICRC]);
        second.copy_from_slice(&aeth.to_bytes());
        producer.commit(INFO + LENGTH);
        host.sent(state, &bth, Some(aeth), 0, 1);
        host.sent_through_ring(1, LENGTH);
        self.to.publish(&mut producer);
        self.sent = producer.position();
        true
    }

    #[inline]
    fn number(&self) -> u64 {
        self.to.ring.id
    }

    fn is_unread(&self) -> bool {
        !self.to.has_ended() && self.to.ring.producer.lock().is_unread(self.sent)
    }
}

impl<H: Embedder> Tx<H> for RingTurn<'_> {
    #[inline]
    fn room(&mut self) -> Room {
        if self.to.has_ended() {
            return Room::Ended;
        }
        match self.producer.has_room(MAX_RECORD) {
            Ok(true) => Room::Some,
            Ok(false) => Room::Full,
            Err(Broken) => {
                tracing::debug!("ring broken: peer wrote an invalid position");
                self.to.end();
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
        host: &H,
        state: &mut H::State,
        packet: &Outgoing<'_, Route>,
    ) -> Committed {
        let Outgoing { number, bth, payload, length, work, .. } = *packet;
        let whole = length + ICRC;
        let Ok(Some(room)) = self.producer.room(MAX_RECORD) else {
            return Committed { packets: 0, has_room: true };
        };
        let is_short = payload <= SHORT;
        let record = if is_short { &mut self.short[..] } else { &mut *room };
        let (info, rest) = record[..INFO + whole].split_at_mut(INFO);
        info.copy_from_slice(self.info);
        rest[length..].fill(0);
        if let (true, Some(tap)) = (self.is_captured, host.tap()) {
            let headers = host.addresses().headers(self.path);
            write_icrc(rest, &headers, 0);
            let owner = Owner { queue_pair: number, work };
            let Route { traffic_class, hop_limit, .. } = *self.path;
            // Before it is published: otherwise the response could be captured first.
            tap.record(&PacketMetadata::sent(headers, traffic_class, hop_limit, 0, owner), rest);
        }
        if is_short {
            room[..INFO + whole].copy_from_slice(&self.short[..INFO + whole]);
        }
        self.producer.commit(INFO + whole);
        let packets = aggregate::packets(bth, payload, state.endpoint.path_mtu());
        host.sent_through_ring(packets, whole + aggregate::overhead(bth, packets));
        if self.producer.unpublished() >= PUBLISH {
            self.to.publish(&mut self.producer);
        }
        Committed { packets, has_room: true }
    }
}

impl<H: Embedder> QueueTurn<H> for RingTurn<'_> {
    /// Writes the next message of a QP if it can be one record.
    #[inline]
    fn message(&mut self, host: &H, state: &mut H::State, now: Instant) -> Option<usize> {
        if self.is_captured || self.to.has_ended() {
            return None;
        }
        let room = self.producer.room(MAX_RECORD).ok()??;
        let mut memory = host.memory(now);
        let message = state.endpoint.take_whole(now, &mut memory)?;
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
            state.endpoint.handle_denied(bth.psn, true, reason);
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
        self.messages[class].add(packets.into(), length as u64, 1);
        self.uncounted.0 += packets;
        self.uncounted.1 += whole - INFO + aggregate::overhead(&bth, packets);
        if self.producer.unpublished() >= PUBLISH {
            self.to.publish(&mut self.producer);
        }
        Some(packets as usize)
    }

    #[cold]
    fn wait(&mut self, host: &H) -> bool {
        self.to.publish(&mut self.producer);
        // Before a wakeup is requested: a thread that consumes the wakeup and then sleeps checks this list.
        host.rings().wait_for(self.to);
        self.producer.wait_for_room(MAX_RECORD) == Ok(false)
    }

    #[inline]
    fn end(mut self, host: &H, state: &mut H::State, packets: usize) {
        self.to.publish(&mut self.producer);
        let (packets_of_messages, bytes) = self.uncounted;
        if packets_of_messages > 0 {
            host.sent_through_ring(packets_of_messages, bytes);
            host.sent_messages(state, &self.messages);
        }
        if packets > 0 {
            *self.sent = self.producer.position();
        }
    }
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
