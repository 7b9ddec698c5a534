//! A packet's way out through a socket: its ICRC, its batch, the system call.

#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::ops::Range;

use ferroce_device::{Committed, Link, Outgoing, Room, State as _, Tx};
use ferroce_sys::batch::{MAX_BYTES_V6, MAX_SEGMENTS};
use ferroce_sys::steering::slot_of;
use ferroce_sys::{Batch, Error, Uncancellable};
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::ICRC_LEN as ICRC;

use super::addresses::Addresses;
use crate::embedder::Embedder;
use crate::packet::{MAX_PACKET, Owner, SentPacket};
use crate::route::Route;

/// A batch under construction: packets of one size, of which the last may be shorter, to one process at one
/// destination.
#[derive(Debug)]
pub struct TxBatch {
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
    captured: usize,
    /// The socket's send buffer was full.
    blocked: bool,
    /// The packet behind the batch, which could not join it when the send buffer was full. Its PSN is used up and its
    /// completion may have been reported, so it is never dropped.
    kept: Option<Kept>,
    /// How many packets of the outbox were ever added.
    own_taken: u64,
    /// A socket is gone.
    pub broken: bool,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    /// The length with the ICRC.
    length: usize,
    route: Route,
    owner: Owner,
}

impl Default for TxBatch {
    fn default() -> Self {
        Self {
            bytes: vec![0; MAX_BYTES_V6 + MAX_PACKET].into(),
            used: 0,
            segment: 0,
            packets: 0,
            route: None,
            slot: None,
            closed: false,
            owners: Vec::new(),
            captured: 0,
            blocked: false,
            kept: None,
            own_taken: 0,
            broken: false,
        }
    }
}

impl TxBatch {
    /// The route of a batch that did not fit into the send buffer.
    pub fn blocked_route(&self) -> Option<Route> {
        self.route.filter(|_| self.blocked)
    }

    /// Whether there are packets in the batch, or behind it.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        self.packets > 0 || self.blocked || self.kept.is_some()
    }

    /// How many packets were taken from the outbox.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.own_taken
    }

    /// Space for the next packet, behind the packets in the batch.
    fn behind(&mut self) -> &mut [u8] {
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
    fn append<H: Embedder>(&mut self, host: &H, length: usize, route: Route, owner: Owner) -> bool {
        let length = length + ICRC;
        if self.takes(length, &route) {
            self.add(host.addresses(), Kept { length, route, owner });
            return true;
        }
        self.kept = Some(Kept { length, route, owner });
        self.send(host)
    }

    /// Completes the packet behind the batch with its ICRC and adds it.
    fn add(&mut self, addresses: &Addresses, packet: Kept) {
        let Kept { length, route, owner } = packet;
        if self.packets == 0 {
            (self.segment, self.route) = (length, Some(route));
            self.slot = slot_of(&self.bytes[self.used..]);
        }
        self.closed = length < self.segment;
        let (start, end) = (self.used, self.used + length - ICRC);
        let index = if addresses.sender(&route).gso() { self.packets } else { 0 };
        let icrc = addresses.headers(&route).icrc(&self.bytes[start..end], index as u16);
        self.bytes[end..end + ICRC].copy_from_slice(&icrc);
        self.used = end + ICRC;
        self.packets += 1;
        self.owners.push(owner);
    }

    /// Sends everything. Returns false, and keeps what is left, if the send buffer is full.
    pub fn flush<H: Embedder>(&mut self, host: &H) -> bool {
        while self.packets > 0 {
            if !self.send(host) {
                return false;
            }
        }
        true
    }

    /// Sends the batch; a kept packet begins the next one. Returns false if the send buffer is full.
    fn send<H: Embedder>(&mut self, host: &H) -> bool {
        let Some(route) = self.route else { return true };
        let sender = host.addresses().sender(&route);
        let mut start = 0;
        while start < self.used {
            if host.captures_before_sending() {
                self.capture(host, start, self.owners.len(), &route);
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
                    self.sent(host, start..end, &route);
                    start = end;
                }
                Err(Error::GsoRefused) => {
                    sender.disable_gso();
                    let headers = host.addresses().headers(&route);
                    for packet in self.bytes[start..self.used].chunks_mut(self.segment) {
                        if let Some((covered, icrc)) = packet.split_last_chunk_mut::<ICRC>() {
                            *icrc = headers.icrc(covered, 0);
                        }
                    }
                }
                // The kernel refused the packets. They count as lost; RC retransmits them.
                Err(error) => {
                    tracing::debug!(destination = %route.destination, %error, "packets not sent");
                    host.send_failed(&error);
                    self.broken |= error.is_fatal();
                    break;
                }
            }
        }
        self.clear(host.addresses());
        true
    }

    /// Empties the batch; a kept packet becomes its first.
    fn clear(&mut self, addresses: &Addresses) {
        let behind = self.used;
        (self.used, self.segment, self.packets) = (0, 0, 0);
        (self.route, self.slot, self.closed, self.blocked) = (None, None, false, false);
        self.owners.clear();
        self.captured = 0;
        if let Some(kept) = self.kept.take() {
            self.bytes.copy_within(behind..behind + kept.length, 0);
            self.add(addresses, kept);
        }
    }

    /// Removes the packets of a QP from a batch that did not fit into the send buffer.
    pub fn discard(&mut self, addresses: &Addresses, number: Qpn) {
        let Some(route) = self.route else { return };
        let kept = self.kept.take_if(|kept| kept.owner.queue_pair != number);
        let dropped = self.kept.take().is_some();
        if !dropped && self.owners.iter().all(|owner| owner.queue_pair != number) {
            self.kept = kept;
            return;
        }
        let gso = addresses.sender(&route).gso();
        let (headers, segment) = (addresses.headers(&route), self.segment);
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
        self.captured = self.owners[..self.captured].iter().filter(is_left).count();
        self.owners.retain(|owner| owner.queue_pair != number);
        (self.used, self.packets) = (used, self.owners.len());
        if self.packets == 0 {
            self.clear(addresses);
        }
    }

    fn sent<H: Embedder>(&mut self, host: &H, range: Range<usize>, route: &Route) {
        let packets = range.len().div_ceil(self.segment);
        host.sent_through_socket(packets as u32, range.len());
        self.capture(host, range.start, packets, route);
        self.owners.drain(..packets.min(self.owners.len()));
        self.captured = self.captured.saturating_sub(packets);
    }

    /// Captures the first packets of the batch, which begin at `start`, as far as they are not captured yet.
    fn capture<H: Embedder>(&mut self, host: &H, start: usize, packets: usize, route: &Route) {
        if !host.is_captured() {
            return;
        }
        let headers = host.addresses().headers(route);
        let gso = host.addresses().sender(route).gso();
        let bytes = self.bytes[start..self.used].chunks(self.segment).take(packets);
        let all = bytes.zip(&self.owners).enumerate();
        for (index, (bytes, &owner)) in all.skip(self.captured) {
            let index = if gso { index as u16 } else { 0 };
            host.capture(&SentPacket { owner, route, headers, index }, bytes);
        }
        self.captured = self.captured.max(packets.min(self.owners.len()));
    }
}

impl<H: Embedder> Tx<H> for TxBatch {
    /// The batch takes every packet, and the one behind a batch that cannot be sent is kept.
    #[inline]
    fn room(&mut self) -> Room {
        Room::Some
    }

    #[inline]
    fn space(&mut self, _: usize) -> &mut [u8] {
        self.behind()
    }

    fn commit(
        &mut self,
        host: &H,
        state: &mut H::State,
        packet: &Outgoing<'_, Route>,
    ) -> Committed {
        let Outgoing { number, bth, length, route, is_local, work, .. } = *packet;
        let route = match route {
            Some(own) if !is_local => {
                let (addresses, queue_pairs) = (host.addresses(), (number, bth.destination));
                Some(addresses.with_sender(own, queue_pairs, |address| host.open_sender(address)))
            }
            route => route.or(state.queue_pair().route),
        };
        let Some(route) = route else { return Committed { packets: 0, has_room: true } };
        let owner = Owner { queue_pair: number, work };
        Committed { packets: 1, has_room: self.append(host, length, route, owner) }
    }
}

impl<H: Embedder> Link<H> for TxBatch {
    type Guard = Uncancellable;

    fn guard(&self) -> Uncancellable {
        Uncancellable::new()
    }

    #[inline]
    fn unblock(&mut self, host: &H) -> bool {
        !self.blocked || Self::flush(self, host)
    }

    #[inline]
    fn flush(&mut self, host: &H) -> bool {
        Self::flush(self, host)
    }

    fn push(&mut self, host: &H, route: Route, packet: &[u8]) -> bool {
        self.behind()[..packet.len()].copy_from_slice(packet);
        let owner = Owner { queue_pair: sender(packet), work: None };
        self.append(host, packet.len(), route, owner)
    }

    #[inline]
    fn own_taken(&mut self) -> &mut u64 {
        &mut self.own_taken
    }
}

/// The source QPN in a datagram's DETH (IBA 9.3.1).
fn sender(packet: &[u8]) -> Qpn {
    match packet.get(17..20) {
        Some(&[a, b, c]) => Qpn(u32::from_be_bytes([0, a, b, c])),
        _ => Qpn(0),
    }
}
