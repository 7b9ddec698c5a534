//! A packet's way out: a QP's turn, the packet's ICRC, its batch, the system call.

#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use ferroce_device::credit::Receiver;
use ferroce_proto::endpoint::Budget;
use ferroce_proto::time::Instant;
use ferroce_proto::transmit::EncodeError;
use ferroce_sys::batch::{MAX_BYTES_V6, MAX_SEGMENTS};
use ferroce_sys::steering::slot_of;
use ferroce_sys::{Batch, Error, Uncancellable};
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;

use super::adapter::Adapter;
use super::counters::count_error;
use super::driver::Driver;
use super::link::Route;
use super::queue_pair::{Core, Inner};
use crate::headers::ICRC;
use crate::tap::{Direction, Owner, PacketMetadata};
use crate::tuning::tx::TURN;

/// The largest packet: 4096 bytes of payload and all headers, rounded up.
pub(super) const MAX_PACKET: usize = 4096 + 128;

/// The hop limit of packets whose route sets none.
pub(super) const DEFAULT_HOPS: u8 = 64;

/// How a QP's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnEnd {
    /// It has nothing more to send now.
    Done,
    /// It may have more to send.
    Over,
    /// The send buffer is full.
    Blocked,
}

impl Driver {
    /// Transmits queued packets, about `most` of them, and returns whether there were any. The rest stays queued.
    pub(super) fn transmit_all(&mut self, adapter: &Adapter, now: Instant, most: usize) -> bool {
        if self.tx.blocked && !self.tx.flush(adapter) {
            return false;
        }
        let mut sent = false;
        while let Some((route, packet)) = adapter.outbox.pop(self.tx.management) {
            let _guard = Uncancellable::new();
            self.tx.room()[..packet.len()].copy_from_slice(&packet);
            sent = true;
            self.tx.management += 1;
            let owner = Owner { queue_pair: sender(&packet), work: None };
            if !self.tx.append(adapter, packet.len(), route, owner) {
                return true;
            }
        }
        let mut packets = 0;
        self.schedule.take_posted(&adapter.posted);
        while packets < most && !adapter.is_awaited() {
            let Some(core) = self.schedule.pop() else { break };
            let (count, end) = self.transmit(adapter, &core, now);
            packets += count;
            match end {
                TurnEnd::Done => {}
                TurnEnd::Over => self.schedule.push(core),
                TurnEnd::Blocked => {
                    self.schedule.push_front(core);
                    return true;
                }
            }
            if !self.schedule.has_ready() {
                self.schedule.take_posted(&adapter.posted);
                self.resume_rings(adapter);
            }
        }
        if self.tx.flush(adapter) {
            adapter.outbox.set_sent(self.tx.management);
        }
        sent || packets > 0
    }

    /// Transmits packets of one QP, up to its turn. Returns how many.
    fn transmit(&mut self, adapter: &Adapter, core: &Arc<Core>, now: Instant) -> (usize, TurnEnd) {
        self.turn(adapter, core, &mut core.inner.lock(), now)
    }

    /// The same for a QP that is locked already.
    pub(super) fn turn(
        &mut self,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        now: Instant,
    ) -> (usize, TurnEnd) {
        // Through a socket before it was connected again, or destroyed within a pass.
        if inner.destroyed || inner.ring.is_some() && inner.membership.holds_credit() {
            self.credit.leave(core, &mut inner.membership, &mut self.schedule);
        }
        if inner.destroyed {
            return (0, TurnEnd::Done);
        }
        inner.doorbell.release();
        inner.stats.begin_turn(now);
        if let Some(mut route) = inner.ring.take() {
            let turn = self.transmit_to_ring(adapter, core, inner, &mut route, now);
            inner.ring = Some(route);
            let lost = core.publish_completions(inner, adapter, now).lost;
            self.update(core, inner, lost);
            self.set_timer(core, inner);
            return turn;
        }
        let _guard = Uncancellable::new();
        let (member, receiver) = (&mut inner.membership, inner.receiver);
        let mut budget = self.credit.budget(core, member, receiver, &mut self.schedule);
        let mut packets = 0;
        let mut end = TurnEnd::Over;
        while packets < TURN {
            match self.transmit_one(adapter, core, inner, &mut budget, now, packets > 0) {
                Sent::Packet => packets += 1,
                Sent::Later => break,
                Sent::Nothing => {
                    end = TurnEnd::Done;
                    break;
                }
                Sent::Blocked => {
                    (packets, end) = (packets + 1, TurnEnd::Blocked);
                    break;
                }
            }
        }
        let lost = core.publish_completions(inner, adapter, now).lost;
        self.update(core, inner, lost);
        if let (TurnEnd::Done, Some(needs)) = (end, inner.endpoint.over_budget()) {
            if !self.credit.wait(core, &inner.membership, needs, &mut self.schedule) {
                end = TurnEnd::Over;
            }
        }
        self.set_timer(core, inner);
        (packets, end)
    }

    /// Adds one packet of a QP to the batch.
    fn transmit_one(
        &mut self,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        budget: &mut Budget,
        now: Instant,
        sent: bool,
    ) -> Sent {
        let process = inner.local_receiver_of_next(&adapter.port);
        let through_ring =
            process.and_then(|to| self.transmit_datagram(adapter, core, inner, to, now));
        if let Some(sent) = through_ring {
            return sent;
        }
        let member = &mut inner.membership;
        let must_wait = process.is_some_and(|to| self.credit.must_wait(core, member, to, sent));
        if must_wait {
            return Sent::Nothing;
        }
        let mut memory = &*adapter.memory;
        let outgoing = inner.endpoint.poll_transmit(now, budget, &mut memory);
        let Some(outgoing) = outgoing else { return Sent::Nothing };
        let bth = outgoing.transmit.bth;
        let (aeth, payload) = (outgoing.transmit.extensions.aeth, outgoing.transmit.payload.len());
        let route = match (outgoing.route, process) {
            // Probes must stay behind the packets they cover, so all packets to local receivers share a socket.
            (route, Some(_)) => {
                (route.or(inner.route)).map(|route| Route { sender: 0, flow_label: 0, ..route })
            }
            (Some(route), None) => Some(adapter.with_sender(route, core.number, bth.destination)),
            (None, None) => inner.route,
        };
        let length = match outgoing.transmit.encode(&memory, self.tx.room()) {
            Ok(length) => length,
            Err(EncodeError::Duplicate(_)) => return Sent::Packet,
            Err(error) => {
                let local = matches!(error, EncodeError::Local(_));
                let reason = outgoing.transmit.explain(error, &memory);
                inner.endpoint.handle_denied(bth.psn, local, reason);
                return Sent::Packet;
            }
        };
        let Some(route) = route else { return Sent::Packet };
        inner.stats.sent(&bth, aeth, payload, 1);
        // Only captures need the work request.
        let ours = adapter.tap().is_some() && bth.opcode.info().is_some_and(|info| info.request);
        let work = if ours { inner.endpoint.work_of(&bth) } else { None };
        let owner = Owner { queue_pair: core.number, work };
        let appended = self.tx.append(adapter, length, route, owner);
        let probed = process.is_none_or(|to| self.probe(adapter, to, route, length, now, appended));
        if appended && probed { Sent::Packet } else { Sent::Blocked }
    }

    /// Accounts for an unacknowledged packet to a local receiver, and sends a probe behind it when one is due. Returns
    /// false if the send buffer is full.
    fn probe(
        &mut self,
        adapter: &Adapter,
        process: Receiver,
        route: Route,
        length: usize,
        now: Instant,
        has_room: bool,
    ) -> bool {
        let probe = self.credit.sent(process, route, length, now, &mut self.schedule);
        let Some((route, packet)) = probe else { return true };
        if !has_room {
            // The place behind the batch holds the packet before it.
            adapter.outbox.push(route, packet.into());
            return false;
        }
        self.tx.room()[..packet.len()].copy_from_slice(&packet);
        let owner = Owner { queue_pair: sender(&packet), work: None };
        self.tx.append(adapter, packet.len(), route, owner)
    }

    /// Sends the remaining packets of a QP. Returns false if a send buffer is full.
    pub(super) fn send_remaining(
        &mut self,
        adapter: &Adapter,
        core: &Arc<Core>,
        now: Instant,
    ) -> bool {
        if !self.tx.flush(adapter) {
            return false;
        }
        self.transmit(adapter, core, now);
        self.tx.flush(adapter)
    }
}

pub(super) enum Sent {
    Packet,
    Nothing,
    /// Nothing now, but it has more to send.
    Later,
    /// The send buffer is full; the packet is kept.
    Blocked,
}

/// A batch under construction: packets of one size, of which the last may be shorter, to one process at one
/// destination.
#[derive(Debug)]
pub(super) struct TxBatch {
    bytes: Box<[u8]>,
    used: usize,
    /// The size of each packet.
    segment: usize,
    packets: usize,
    route: Option<Route>,
    /// The slot of the destination QPs. The kernel steers a batch by its first packet, so a packet for another process
    /// would reach the wrong one, be forwarded, and arrive after packets that were sent later.
    slot: Option<u8>,
    /// The last packet is shorter, so nothing can follow it.
    closed: bool,
    /// The QP and work request of each packet.
    owners: Vec<Owner>,
    /// How many of its first packets are in the capture already.
    recorded: usize,
    /// The socket's send buffer was full.
    blocked: bool,
    /// The packet behind the batch, which could not join it when the send buffer was full. Its PSN is used up and its
    /// completion may have been reported, so it is never dropped.
    kept: Option<Kept>,
    /// How many packets of the outbox were ever added.
    management: u64,
    /// A socket is gone.
    pub(super) broken: bool,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    /// The length with the ICRC.
    length: usize,
    route: Route,
    owner: Owner,
}

impl TxBatch {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; MAX_BYTES_V6 + MAX_PACKET].into(),
            used: 0,
            segment: 0,
            packets: 0,
            route: None,
            slot: None,
            closed: false,
            owners: Vec::new(),
            recorded: 0,
            blocked: false,
            kept: None,
            management: 0,
            broken: false,
        }
    }

    /// The route of a batch that did not fit into the send buffer.
    pub(super) fn blocked_route(&self) -> Option<Route> {
        self.route.filter(|_| self.blocked)
    }

    /// Whether there are packets in the batch, or behind it.
    #[inline]
    pub(super) fn is_in_use(&self) -> bool {
        self.packets > 0 || self.blocked || self.kept.is_some()
    }

    /// How many packets were taken from the outbox.
    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.management
    }

    /// Space for the next packet, behind the packets in the batch.
    fn room(&mut self) -> &mut [u8] {
        debug_assert!(self.kept.is_none(), "the kept packet is there");
        &mut self.bytes[self.used..]
    }

    /// Whether the packet of this length behind the batch can join it.
    fn takes(&self, length: usize, route: &Route) -> bool {
        self.packets == 0
            || !self.closed
                && self.route.as_ref() == Some(route)
                && self.slot == slot_of(&self.bytes[self.used..])
                && length <= self.segment
                && self.packets < MAX_SEGMENTS
                && self.used + length <= MAX_BYTES_V6
    }

    /// Adds the packet behind the batch, which has no ICRC yet; a batch that cannot take it is sent first. Returns
    /// false if the send buffer is full: the packet is kept, and nothing else may be added.
    fn append(&mut self, adapter: &Adapter, length: usize, route: Route, owner: Owner) -> bool {
        let length = length + ICRC;
        if self.takes(length, &route) {
            self.push(adapter, Kept { length, route, owner });
            return true;
        }
        self.kept = Some(Kept { length, route, owner });
        self.send(adapter)
    }

    /// Completes the packet behind the batch with its ICRC and adds it.
    fn push(&mut self, adapter: &Adapter, packet: Kept) {
        let Kept { length, route, owner } = packet;
        if self.packets == 0 {
            (self.segment, self.route) = (length, Some(route));
            self.slot = slot_of(&self.bytes[self.used..]);
        }
        self.closed = length < self.segment;
        let (start, end) = (self.used, self.used + length - ICRC);
        let index = if adapter.port.sender(&route).gso() { self.packets } else { 0 };
        let icrc = adapter.port.headers(&route).icrc(&self.bytes[start..end], index as u16);
        self.bytes[end..end + ICRC].copy_from_slice(&icrc);
        self.used = end + ICRC;
        self.packets += 1;
        self.owners.push(owner);
    }

    /// Sends everything. Returns false, and keeps what is left, if the send buffer is full.
    pub(super) fn flush(&mut self, adapter: &Adapter) -> bool {
        while self.packets > 0 {
            if !self.send(adapter) {
                return false;
            }
        }
        true
    }

    /// Sends the batch; a kept packet begins the next one. Returns false if the send buffer is full.
    fn send(&mut self, adapter: &Adapter) -> bool {
        let Some(route) = self.route else { return true };
        let sender = adapter.port.sender(&route);
        let mut start = 0;
        while start < self.used {
            if adapter.records_before_sending() {
                self.record(adapter, start, self.owners.len(), &route);
            }
            let pieces = [IoSlice::new(&self.bytes[start..self.used])];
            let batch = Batch {
                destination: route.destination,
                tos: route.traffic_class,
                hop_limit: route.hop_limit,
                segment: self.segment,
                pieces: &pieces,
            };
            match sender.send(&batch) {
                Ok(0) => {
                    let kept = self.kept.map_or(0, |kept| kept.length);
                    self.bytes.copy_within(start..self.used + kept, 0);
                    self.used -= start;
                    self.packets = self.owners.len();
                    self.blocked = true;
                    return false;
                }
                Ok(packets) => {
                    let end = (start + packets * self.segment).min(self.used);
                    self.sent(adapter, start..end, &route);
                    start = end;
                }
                Err(Error::GsoRefused) => {
                    sender.disable_gso();
                    let headers = adapter.port.headers(&route);
                    for packet in self.bytes[start..self.used].chunks_mut(self.segment) {
                        if let Some((covered, icrc)) = packet.split_last_chunk_mut::<ICRC>() {
                            *icrc = headers.icrc(covered, 0);
                        }
                    }
                }
                // The kernel refused the packets. They count as lost; RC retransmits them.
                Err(error) => {
                    tracing::debug!(destination = %route.destination, %error, "packets not sent");
                    let counters = &adapter.counters;
                    count_error(counters.send_failed(), counters.send_errno(), &error);
                    self.broken |= error.is_fatal();
                    break;
                }
            }
        }
        self.clear(adapter);
        true
    }

    /// Empties the batch; a kept packet becomes its first.
    fn clear(&mut self, adapter: &Adapter) {
        let behind = self.used;
        (self.used, self.segment, self.packets) = (0, 0, 0);
        (self.route, self.slot, self.closed, self.blocked) = (None, None, false, false);
        self.owners.clear();
        self.recorded = 0;
        if let Some(kept) = self.kept.take() {
            self.bytes.copy_within(behind..behind + kept.length, 0);
            self.push(adapter, kept);
        }
    }

    /// Removes the packets of a QP from a batch that did not fit into the send buffer.
    pub(super) fn discard(&mut self, adapter: &Adapter, number: Qpn) {
        let Some(route) = self.route else { return };
        let kept = self.kept.take_if(|kept| kept.owner.queue_pair != number);
        let dropped = self.kept.take().is_some();
        if !dropped && self.owners.iter().all(|owner| owner.queue_pair != number) {
            self.kept = kept;
            return;
        }
        let gso = adapter.port.sender(&route).gso();
        let (headers, segment) = (adapter.port.headers(&route), self.segment);
        let (mut used, mut start) = (0, 0);
        for index in 0..self.owners.len() {
            let end = (start + segment).min(self.used);
            if self.owners[index].queue_pair != number {
                self.bytes.copy_within(start..end, used);
                let packet = &mut self.bytes[used..used + end - start];
                if let Some((covered, icrc)) = packet.split_last_chunk_mut::<ICRC>() {
                    // The ICRC covers the IPv4 identification, which counts up within a batch.
                    let index = if gso { used / segment } else { 0 };
                    *icrc = headers.icrc(covered, index as u16);
                }
                used += end - start;
            }
            start = end;
        }
        if let Some(kept) = kept {
            self.bytes.copy_within(self.used..self.used + kept.length, used);
            self.kept = Some(kept);
        }
        let is_left = |owner: &&Owner| owner.queue_pair != number;
        self.recorded = self.owners[..self.recorded].iter().filter(is_left).count();
        self.owners.retain(|owner| owner.queue_pair != number);
        (self.used, self.packets) = (used, self.owners.len());
        if self.packets == 0 {
            self.clear(adapter);
        }
    }

    fn sent(&mut self, adapter: &Adapter, range: Range<usize>, route: &Route) {
        let packets = range.len().div_ceil(self.segment);
        adapter.counters.sent(packets as u32, range.len());
        self.record(adapter, range.start, packets, route);
        self.owners.drain(..packets.min(self.owners.len()));
        self.recorded = self.recorded.saturating_sub(packets);
    }

    /// Captures the first packets of the batch, which begin at `start`, as far as they are not captured yet.
    fn record(&mut self, adapter: &Adapter, start: usize, packets: usize, route: &Route) {
        let Some(tap) = adapter.tap() else { return };
        let headers = adapter.port.headers(route);
        let gso = adapter.port.sender(route).gso();
        let bytes = self.bytes[start..self.used].chunks(self.segment).take(packets);
        let all = bytes.zip(&self.owners).enumerate();
        for (index, (packet, owner)) in all.skip(self.recorded) {
            let metadata = PacketMetadata {
                direction: Direction::Out,
                headers,
                traffic_class: route.traffic_class,
                hop_limit: route.hop_limit.unwrap_or(DEFAULT_HOPS),
                identification: Identification::of_segment(if gso { index as u16 } else { 0 }),
                owner: *owner,
                corrupted: false,
            };
            tap.record(&metadata, packet);
        }
        self.recorded = self.recorded.max(packets.min(self.owners.len()));
    }
}

impl Adapter {
    /// Whether packets are captured before they are sent, as kernels do: otherwise the response, which another shard or a
    /// captured process receives, could come first. A file of one shard gets them afterwards, without those that the kernel
    /// refused.
    fn records_before_sending(&self) -> bool {
        self.tap().is_some_and(|tap| self.options.shard_count() > 1 || tap.is_live())
    }
}

/// The source QPN in a datagram's DETH (IBA 9.3.1).
fn sender(packet: &[u8]) -> Qpn {
    match packet.get(17..20) {
        Some(&[a, b, c]) => Qpn(u32::from_be_bytes([0, a, b, c])),
        _ => Qpn(0),
    }
}
