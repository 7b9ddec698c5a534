//! Transmitting: collects packets in a batch and sends the batch.

#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_proto::budget::Budget;
use ferroce_proto::time::Instant;
use ferroce_proto::transmit::EncodeError;
use ferroce_sys::batch::{MAX_BYTES_V6, MAX_SEGMENTS};
use ferroce_sys::steering::slot_of;
use ferroce_sys::{Batch, Error, Socket};
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;

use super::adapter::Adapter;
use super::counters::count;
use super::link::Route;
use super::local_flow::LocalProcess;
use super::progress::PassState;
use super::queue_pair::Core;
use crate::headers::{Headers, ICRC};
use crate::sync::lock;
use crate::tap::{Direction, Owner, PacketMetadata};

/// The largest packet: 4096 bytes of payload and all headers, rounded up.
const MAX_PACKET: usize = 4096 + 128;

/// The hop limit of packets whose route sets none.
const DEFAULT_HOPS: u8 = 64;

/// The maximum number of packets a QP sends before the next QP gets its turn.
const TURN: usize = 64;

/// A batch under construction: packets of one size, of which the last may be shorter, to one process at one
/// destination.
#[derive(Debug)]
pub(crate) struct TxBatch {
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
    /// The socket's send buffer was full.
    blocked: bool,
    /// How many management packets were ever added.
    management: u64,
}

impl TxBatch {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; MAX_BYTES_V6 + MAX_PACKET].into(),
            used: 0,
            segment: 0,
            packets: 0,
            route: None,
            slot: None,
            closed: false,
            owners: Vec::new(),
            blocked: false,
            management: 0,
        }
    }

    /// The route of a batch that did not fit into the send buffer.
    pub(crate) fn blocked_route(&self) -> Option<Route> {
        self.route.filter(|_| self.blocked)
    }

    /// Space for the next packet, behind the packets in the batch.
    fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.used..]
    }

    /// Whether the packet of this length in [`TxBatch::room`] can join the batch.
    fn takes(&self, length: usize, route: &Route) -> bool {
        self.packets == 0
            || !self.closed
                && self.route.as_ref() == Some(route)
                && self.slot == slot_of(&self.bytes[self.used..])
                && length <= self.segment
                && self.packets < MAX_SEGMENTS
                && self.used + length <= MAX_BYTES_V6
    }

    fn clear(&mut self) {
        (self.used, self.segment, self.packets) = (0, 0, 0);
        (self.route, self.slot, self.closed, self.blocked) = (None, None, false, false);
        self.owners.clear();
    }
}

impl Adapter {
    /// Transmits all queued packets and returns whether there were any.
    pub(crate) fn transmit_all(&self, progress: &mut PassState, now: Instant) -> bool {
        if progress.tx.blocked && !self.flush(&mut progress.tx) {
            return false;
        }
        let mut sent = false;
        while let Some((route, packet)) = { lock(&self.outbox).pop_front() } {
            let room = progress.tx.room();
            room[..packet.len()].copy_from_slice(&packet);
            sent = true;
            progress.tx.management += 1;
            let owner = Owner { queue_pair: sender(&packet), work: None };
            if !self.append(&mut progress.tx, packet.len(), route, owner) {
                return true;
            }
        }
        progress.ready.append(&mut lock(&self.ready));
        while let Some(core) = progress.ready.pop_front() {
            if self.is_awaited() {
                progress.ready.push_front(core);
                break;
            }
            // From here on a post queues it again.
            core.queued.store(false, Ordering::Release);
            match self.transmit(&core, progress, now) {
                Turn::Done(some) => sent |= some,
                Turn::Over => {
                    sent = true;
                    if core.enqueue() {
                        progress.ready.push_back(core);
                    }
                }
                Turn::Blocked => {
                    if core.enqueue() {
                        progress.ready.push_front(core);
                    }
                    return true;
                }
            }
            if progress.ready.is_empty() {
                progress.ready.append(&mut lock(&self.ready));
            }
        }
        if self.flush(&mut progress.tx) {
            self.outbox_sent.store(progress.tx.management, Ordering::Release);
        }
        sent
    }

    /// Transmits packets of one QP, up to its turn.
    pub(super) fn transmit(
        &self,
        core: &Arc<Core>,
        progress: &mut PassState,
        now: Instant,
    ) -> Turn {
        let mut guard = lock(&core.inner);
        let inner = &mut *guard;
        if inner.destroyed {
            return Turn::Done(false);
        }
        let mut turn = Turn::Done(false);
        let mut memory = &self.memory;
        for count in 0.. {
            if count == TURN {
                turn = Turn::Over;
                break;
            }
            let process = self.local_receiver_of_next(inner);
            let must_wait = |process| {
                progress.local_flow.must_wait(process, core, &mut inner.throttled, count > 0)
            };
            if process.is_some_and(must_wait) {
                break;
            }
            let Some(outgoing) =
                inner.endpoint.poll_transmit(now, &mut { Budget::UNLIMITED }, &mut memory)
            else {
                break;
            };
            let bth = outgoing.transmit.bth;
            let route = match (outgoing.route, process) {
                // Probes must stay behind the packets they cover, so all packets to local receivers share a socket.
                (route, Some(_)) => {
                    (route.or(inner.route)).map(|route| Route { sender: 0, flow_label: 0, ..route })
                }
                (Some(route), None) => Some(self.with_sender(route, core.number, bth.destination)),
                (None, None) => inner.route,
            };
            let encoded = outgoing.transmit.encode(&memory, progress.tx.room());
            turn = Turn::Done(true);
            match (encoded, route) {
                (Ok(length), Some(route)) => {
                    // Only captures need it.
                    let ours =
                        self.tap.is_some() && bth.opcode.info().is_some_and(|info| info.request);
                    let work = if ours { inner.endpoint.work_of(&bth) } else { None };
                    let owner = Owner { queue_pair: core.number, work };
                    if !self.append(&mut progress.tx, length, route, owner) {
                        turn = Turn::Blocked;
                        break;
                    }
                    if process
                        .is_some_and(|process| !self.probe(process, route, length, progress, now))
                    {
                        turn = Turn::Blocked;
                        break;
                    }
                }
                (Err(EncodeError::Duplicate(_)), _) => {}
                (Err(error), _) => {
                    let local = matches!(error, EncodeError::Local(_));
                    inner.endpoint.handle_denied(bth.psn, local);
                }
                (Ok(_), None) => {}
            }
        }
        core.publish_completions(inner, self, now);
        progress.set_timer(core, inner);
        turn
    }

    /// Accounts for an unacknowledged packet to a local receiver, and sends a probe behind it when one is due. Returns
    /// false if the send buffer is full.
    fn probe(
        &self,
        process: LocalProcess,
        route: Route,
        length: usize,
        progress: &mut PassState,
        now: Instant,
    ) -> bool {
        let probe = progress.local_flow.sent(process, route, length, now);
        let Some((route, packet)) = probe else { return true };
        progress.tx.room()[..packet.len()].copy_from_slice(&packet);
        let owner = Owner { queue_pair: sender(&packet), work: None };
        self.append(&mut progress.tx, packet.len(), route, owner)
    }

    /// Completes the packet behind the batch with its ICRC and adds it; a batch that cannot take it is sent first.
    /// Returns false if the send buffer is full.
    fn append(&self, tx: &mut TxBatch, length: usize, route: Route, owner: Owner) -> bool {
        let length = length + ICRC;
        if !tx.takes(length, &route) {
            let start = tx.used;
            if !self.flush(tx) {
                // The packet is dropped and has to be retransmitted.
                return false;
            }
            tx.bytes.copy_within(start..start + length, 0);
        }
        if tx.packets == 0 {
            (tx.segment, tx.route) = (length, Some(route));
            tx.slot = slot_of(&tx.bytes[tx.used..]);
        }
        tx.closed = length < tx.segment;
        let (start, end) = (tx.used, tx.used + length - ICRC);
        let index = if self.sender(&route).gso() { tx.packets } else { 0 };
        let icrc = self.headers(&route).icrc(&tx.bytes[start..end], index as u16);
        tx.bytes[end..end + ICRC].copy_from_slice(&icrc);
        tx.used = end + ICRC;
        tx.packets += 1;
        tx.owners.push(owner);
        true
    }

    /// Removes the packets of a QP from a batch that did not fit into the send buffer.
    pub(super) fn discard(&self, tx: &mut TxBatch, number: Qpn) {
        let Some(route) = tx.route else { return };
        let gso = self.sender(&route).gso();
        let (headers, segment) = (self.headers(&route), tx.segment);
        let (mut used, mut start) = (0, 0);
        for index in 0..tx.owners.len() {
            let end = (start + segment).min(tx.used);
            if tx.owners[index].queue_pair != number {
                tx.bytes.copy_within(start..end, used);
                let packet = &mut tx.bytes[used..used + end - start];
                if let Some((covered, icrc)) = packet.split_last_chunk_mut::<ICRC>() {
                    // The ICRC covers the IPv4 identification, which counts up within a batch.
                    let index = if gso { used / segment } else { 0 };
                    *icrc = headers.icrc(covered, index as u16);
                }
                used += end - start;
            }
            start = end;
        }
        tx.owners.retain(|owner| owner.queue_pair != number);
        (tx.used, tx.packets) = (used, tx.owners.len());
        if tx.packets == 0 {
            tx.clear();
        }
    }

    /// The headers of a packet on this route.
    fn headers(&self, route: &Route) -> Headers {
        let source = self.sender(route).local();
        Headers { source, destination: route.destination }
    }

    /// The send socket of a route.
    fn sender(&self, route: &Route) -> &Socket {
        self.links[usize::from(route.link)].senders.get(route.sender)
    }

    /// Sends the batch. Returns false, and keeps the batch, if the send buffer is full.
    pub(super) fn flush(&self, tx: &mut TxBatch) -> bool {
        let Some(route) = tx.route else { return true };
        let sender = self.sender(&route);
        let mut start = 0;
        while start < tx.used {
            let pieces = [IoSlice::new(&tx.bytes[start..tx.used])];
            let batch = Batch {
                destination: route.destination,
                tos: route.traffic_class,
                hop_limit: route.hop_limit,
                segment: tx.segment,
                pieces: &pieces,
            };
            match sender.send(&batch) {
                Ok(0) => {
                    tx.bytes.copy_within(start..tx.used, 0);
                    tx.used -= start;
                    tx.blocked = true;
                    return false;
                }
                Ok(packets) => {
                    let end = (start + packets * tx.segment).min(tx.used);
                    self.sent(tx, start..end, &route);
                    start = end;
                }
                Err(Error::GsoRefused) => {
                    sender.disable_gso();
                    let headers = self.headers(&route);
                    for packet in tx.bytes[start..tx.used].chunks_mut(tx.segment) {
                        if let Some((covered, icrc)) = packet.split_last_chunk_mut::<ICRC>() {
                            *icrc = headers.icrc(covered, 0);
                        }
                    }
                }
                // The kernel refused the packets. They count as lost; RC retransmits them.
                Err(error) => {
                    tracing::debug!(destination = %route.destination, %error, "packets not sent");
                    count(&self.counters.send_failed);
                    break;
                }
            }
        }
        tx.clear();
        true
    }

    fn sent(&self, tx: &mut TxBatch, range: Range<usize>, route: &Route) {
        let bytes = &tx.bytes[range];
        let packets = bytes.chunks(tx.segment);
        self.counters.packets_out.fetch_add(packets.len() as u64, Ordering::Relaxed);
        self.counters.bytes_out.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let count = packets.len().min(tx.owners.len());
        let owners = tx.owners.drain(..count);
        if let Some(tap) = &self.tap {
            let headers = self.headers(route);
            let gso = self.sender(route).gso();
            for ((index, packet), owner) in packets.enumerate().zip(owners) {
                let index = if gso { index as u16 } else { 0 };
                let metadata = PacketMetadata {
                    direction: Direction::Out,
                    headers,
                    traffic_class: route.traffic_class,
                    hop_limit: route.hop_limit.unwrap_or(DEFAULT_HOPS),
                    identification: Identification::of_segment(index),
                    owner,
                };
                tap.record(&metadata, packet);
            }
        }
    }
}

/// The source QPN in a datagram's DETH (IBA 9.3.1).
fn sender(packet: &[u8]) -> Qpn {
    match packet.get(17..20) {
        Some(&[a, b, c]) => Qpn(u32::from_be_bytes([0, a, b, c])),
        _ => Qpn(0),
    }
}

/// How a QP's turn ended.
pub(super) enum Turn {
    /// It has nothing more to send; the flag says whether it sent anything.
    Done(bool),
    /// It may have more to send.
    Over,
    /// The send buffer is full.
    Blocked,
}
