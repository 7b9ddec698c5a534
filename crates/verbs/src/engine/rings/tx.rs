//! Transmitting packets through rings.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::credit::Credit;
use ferroce_proto::budget::{Budget, Pending};
use ferroce_proto::time::Instant;
use ferroce_proto::transmit::EncodeError;
use ferroce_sys::ring::{Broken, Producer};
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::transport::{Aeth, Bth};

use super::super::adapter::Adapter;
use super::super::driver::Driver;
use super::super::link::Route;
use super::super::qp_stats::{Class, Traffic};
use super::super::queue_pair::{Core, Inner};
use super::super::tx::{DEFAULT_HOPS, TurnEnd};
use super::{INFO, MAX_PACKET, MAX_RECORD, RingRoute, RingTo, Uncounted, run};
use crate::headers::ICRC;
use crate::sync::lock;
use crate::tap::{Direction, Owner, PacketMetadata, Tap};
use crate::tuning::rings::{PUBLISH, SHORT};
use crate::tuning::tx::TURN;

/// The maximum length of a record with such a payload: the rest is the longest headers, padding and ICRC.
const SHORT_RECORD: usize = INFO + MAX_PACKET - 4096 + SHORT;

/// State that a turn keeps from one message to the next.
struct Turn {
    /// Whether the last message was signaled. If all are, no ACK is more urgent than the others, and no record is marked.
    was_signaled: bool,
    short: [u8; SHORT],
    /// Not yet added to the counters of the device.
    sent: Uncounted,
    /// SENDs and WRITEs not yet added to the counters of the QP.
    messages: [Traffic; 2],
}

impl Driver {
    /// Transmits packets of a QP through its ring, until its turn is over. Returns how many.
    pub(in crate::engine) fn transmit_to_ring(
        &mut self,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        route: &mut RingRoute,
        now: Instant,
    ) -> (usize, TurnEnd) {
        let to = &route.to;
        let mut producer = to.ring.producer.lock();
        let mut packets = 0;
        let mut end = TurnEnd::Over;
        let mut turn = Turn {
            was_signaled: true,
            short: [0; SHORT],
            sent: Uncounted::default(),
            messages: [Traffic::default(); 2],
        };
        // A capture that starts during the turn gets single packets from the next turn on.
        let tap = adapter.tap();
        let mtu = inner.endpoint.path_mtu();
        let max_run = if tap.is_some() { 1 } else { run::max_packets(mtu) };
        inner.endpoint.set_max_run(max_run);
        while packets < TURN {
            let message = match tap {
                None => write_message(adapter, inner, route, &mut producer, now, &mut turn),
                Some(_) => None,
            };
            let written = message.unwrap_or_else(|| {
                write_packet(adapter, inner, core, route, &mut producer, now, tap)
            });
            match written {
                Written::Packets(count) => {
                    packets += count;
                    if inner.endpoint.pending() == Pending::Nothing {
                        end = TurnEnd::Done;
                        break;
                    }
                }
                Written::Nothing => {
                    end = TurnEnd::Done;
                    break;
                }
                Written::Full => {
                    to.publish(&mut producer);
                    end = wait_for_ring(&mut self.credit, adapter, core, to, &mut producer);
                    break;
                }
            }
        }
        to.publish(&mut producer);
        if turn.sent.packets > 0 {
            adapter.counters.sent_locally(turn.sent.packets, turn.sent.bytes);
            inner.stats.sent_messages([Class::Send, Class::Write], &turn.messages);
        }
        let position = producer.position();
        drop(producer);
        if packets > 0 {
            route.sent = position;
        }
        (packets, end)
    }

    /// Resumes QPs whose rings have space again, no more than there is space for.
    pub(in crate::engine) fn resume_rings(&mut self, adapter: &Adapter) {
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
            self.credit.resume(to.ring.id, most, &mut self.schedule)
        });
        adapter.rings.is_full.store(!full.is_empty(), Ordering::Relaxed);
    }
}

/// Makes a QP wait for space in its ring, unless there is space by now.
#[cold]
pub(super) fn wait_for_ring(
    credit: &mut Credit<Arc<Core>, Route>,
    adapter: &Adapter,
    core: &Arc<Core>,
    to: &Arc<RingTo>,
    producer: &mut Producer,
) -> TurnEnd {
    // Before a wakeup is requested: a thread that consumes the wakeup and then sleeps checks this list.
    let mut full = lock(&adapter.rings.full);
    if !full.iter().any(|known| Arc::ptr_eq(known, to)) {
        full.push(Arc::clone(to));
    }
    adapter.rings.is_full.store(true, Ordering::Relaxed);
    drop(full);
    if producer.wait_for_room(MAX_RECORD) != Ok(false) {
        return TurnEnd::Over;
    }
    credit.wait_for_room(core, to.ring.id);
    TurnEnd::Done
}

pub(super) enum Written {
    /// This many packets, possibly as a run.
    Packets(usize),
    /// The QP has nothing to send.
    Nothing,
    /// The ring is full.
    Full,
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
    inner.stats.sent(&bth, Some(aeth), 0, 1);
    adapter.counters.sent_locally(1, LENGTH);
    route.to.publish(&mut producer);
    route.sent = producer.position();
    true
}

/// Writes the next message of a QP to a ring if it can be one record; `None` if [`write_packet`] has to decide.
#[inline]
fn write_message(
    adapter: &Adapter,
    inner: &mut Inner,
    route: &RingRoute,
    producer: &mut Producer,
    now: Instant,
    turn: &mut Turn,
) -> Option<Written> {
    if route.to.ended.load(Ordering::Relaxed) {
        return None;
    }
    let room = producer.room(MAX_RECORD).ok()??;
    let message = inner.endpoint.take_whole(now, &mut &*adapter.memory)?;
    let (bth, length, packets) = (message.bth, message.length, message.packets);
    let is_awaited = message.signaled && !turn.was_signaled;
    turn.was_signaled = message.signaled;
    let headers = INFO + message.headers_len();
    let whole = headers + length + usize::from(bth.pad) + ICRC;
    let payload = turn.short.get_mut(..length);
    let is_short = payload.is_some();
    let payload = payload.unwrap_or(&mut room[headers..headers + length]);
    if let Err(denied) = message.read(&&*adapter.memory, payload) {
        let reason = message.explain(denied, &&*adapter.memory);
        inner.endpoint.handle_denied(bth.psn, true, reason);
        return Some(Written::Packets(1));
    }
    let (info, packet) = room[..whole].split_first_chunk_mut::<INFO>()?;
    *info = route.info;
    let rest = message.encode_headers(packet)?;
    let (payload, behind) = rest.split_at_mut(length);
    if is_short {
        copy_short(&turn.short, payload);
    }
    match behind.first_chunk_mut::<ICRC>() {
        Some(icrc) if bth.pad == 0 => *icrc = [0; ICRC],
        _ => behind.fill(0),
    }
    producer.commit_record(whole, is_awaited);
    turn.messages[usize::from(bth.opcode == Opcode::RC_RDMA_WRITE_ONLY)].add(packets, length, 1);
    turn.sent.add(packets, whole - INFO + run::overhead(&bth, packets));
    if producer.unpublished() >= PUBLISH {
        route.to.publish(producer);
    }
    Some(Written::Packets(packets as usize))
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

/// Writes the next packet or run of a QP to a ring.
#[inline(never)]
pub(super) fn write_packet(
    adapter: &Adapter,
    inner: &mut Inner,
    core: &Core,
    route: &RingRoute,
    producer: &mut Producer,
    now: Instant,
    tap: Option<&Tap>,
) -> Written {
    let mut ended = route.to.ended.load(Ordering::Relaxed);
    let mut dropped = [0; 0];
    let room = match producer.room(MAX_RECORD) {
        _ if ended => &mut dropped[..],
        Ok(Some(room)) => room,
        Ok(None) => return Written::Full,
        Err(Broken) => {
            tracing::debug!(qpn = core.number.0, "ring broken: peer wrote an invalid position");
            route.to.ended.store(true, Ordering::Relaxed);
            ended = true;
            &mut dropped[..]
        }
    };
    let mut memory = &*adapter.memory;
    let mut budget = Budget::UNLIMITED;
    let outgoing = inner.endpoint.poll_transmit(now, &mut budget, &mut memory);
    let Some(outgoing) = outgoing else { return Written::Nothing };
    let bth = outgoing.transmit.bth;
    let (aeth, payload) = (outgoing.transmit.extensions.aeth, outgoing.transmit.payload.len());
    if ended {
        if bth.opcode.info().is_some_and(|info| info.request) {
            inner.endpoint.handle_link_down(now);
        }
        return Written::Packets(1);
    }
    let mut short = [0; SHORT_RECORD];
    let is_short = payload <= SHORT;
    let record = if is_short { &mut short[..] } else { &mut *room };
    let Some((info, packet)) = record.split_first_chunk_mut::<INFO>() else { return Written::Full };
    *info = route.info;
    let length = match outgoing.transmit.encode(&memory, packet) {
        Ok(length) => length,
        Err(EncodeError::Duplicate(_)) => return Written::Packets(1),
        Err(error) => {
            let local = matches!(error, EncodeError::Local(_));
            let reason = outgoing.transmit.explain(error, &memory);
            inner.endpoint.handle_denied(bth.psn, local, reason);
            return Written::Packets(1);
        }
    };
    let whole = length + ICRC;
    if let Some(tap) = tap {
        let (sent, headers) = (&route.path, adapter.port.headers(&route.path));
        let icrc = headers.icrc(&packet[..length], 0);
        packet[length..whole].copy_from_slice(&icrc);
        let is_request = bth.opcode.info().is_some_and(|info| info.request);
        let work = if is_request { inner.endpoint.work_of(&bth) } else { None };
        let metadata = PacketMetadata {
            direction: Direction::Out,
            headers,
            traffic_class: sent.traffic_class,
            hop_limit: sent.hop_limit.unwrap_or(DEFAULT_HOPS),
            identification: Identification::of_segment(0),
            owner: Owner { queue_pair: core.number, work },
            corrupted: false,
        };
        // Before it is published: otherwise the response could be captured first.
        tap.record(&metadata, &packet[..whole]);
    } else {
        if let Some(icrc) = packet[length..].first_chunk_mut::<ICRC>() {
            *icrc = [0; ICRC];
        }
    }
    if is_short {
        room[..INFO + whole].copy_from_slice(&short[..INFO + whole]);
    }
    producer.commit(INFO + whole);
    let packets = run::packets(&bth, payload, inner.endpoint.path_mtu());
    inner.stats.sent(&bth, aeth, payload, packets);
    adapter.counters.sent_locally(packets, whole + run::overhead(&bth, packets));
    if producer.unpublished() >= PUBLISH {
        route.to.publish(producer);
    }
    Written::Packets(packets as usize)
}
