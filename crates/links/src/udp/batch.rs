//! A packet's way out through a socket: its ICRC, its batch, the system call.

#[cfg(test)]
mod tests;

use std::io::IoSlice;

use ferroce_device::{Committed, Link, Outgoing, Room, Tx};
use ferroce_sys::batch::{MAX_BYTES_V6, MAX_SEGMENTS};
use ferroce_sys::steering::slot_of;
use ferroce_sys::{Batch, Error, Uncancellable};
use ferroce_tap::{Owner, PacketMetadata};
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::ICRC_LEN as ICRC;
use ferroce_wire::transport::{Bth, Deth};

use super::addresses::Addresses;
use crate::embedder::Embedder;
use crate::packet::{MAX_PACKET, write_icrc};
use crate::route::Route;

/// A batch under construction: packets of one size, of which the last may be shorter, to one process at one
/// destination.
#[derive(Debug)]
pub struct TxBatch {
    bytes: Box<[u8]>,
    used: usize,
    /// The size of each packet, but for a shorter last one.
    segment: usize,
    route: Option<Route>,
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
    pub own_taken: u64,
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
            route: None,
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

    /// Whether there are packets in the batch. Only then there may be one behind it.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        !self.owners.is_empty()
    }

    /// Space for the next packet, behind the packets in the batch.
    fn behind(&mut self) -> &mut [u8] {
        debug_assert!(self.kept.is_none(), "the kept packet is there");
        &mut self.bytes[self.used..]
    }

    /// Whether the packet of this length behind the batch can join it: nothing can follow a packet that is shorter than the
    /// others. The kernel steers a batch by its first packet, so a packet for another process would reach the wrong one, be
    /// forwarded, and arrive after packets that were sent later.
    fn takes(&self, length: usize, route: &Route) -> bool {
        let packets = self.owners.len();
        packets == 0
            || self.used == packets * self.segment
                && self.route.as_ref() == Some(route)
                && slot_of(&self.bytes) == slot_of(&self.bytes[self.used..])
                && length <= self.segment
                && packets < MAX_SEGMENTS
                && self.used + length <= MAX_BYTES_V6
    }

    /// Adds the packet behind the batch, which has no ICRC yet; a batch that cannot take it is sent first. Returns
    /// false if the send buffer is full: the packet is kept, and nothing else may be added.
    fn append<H: Embedder>(&mut self, host: &H, length: usize, route: Route, owner: Owner) -> bool {
        let packet = Kept { length: length + ICRC, route, owner };
        if self.takes(packet.length, &route) {
            self.add(host.addresses(), packet);
            return true;
        }
        self.kept = Some(packet);
        self.send(host)
    }

    /// Completes the packet behind the batch with its ICRC and adds it.
    fn add(&mut self, addresses: &Addresses, packet: Kept) {
        let Kept { length, route, owner } = packet;
        if self.owners.is_empty() {
            (self.segment, self.route) = (length, Some(route));
        }
        let index = if addresses.sender(&route).gso() { self.owners.len() } else { 0 };
        let end = self.used + length;
        write_icrc(&mut self.bytes[self.used..end], &addresses.headers(&route), index);
        self.used = end;
        self.owners.push(owner);
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
                    self.blocked = true;
                    return false;
                }
                Ok(packets) => {
                    let end = (start + packets * self.segment).min(self.used);
                    host.sent_through_socket(packets as u32, end - start);
                    self.capture(host, start, packets, &route);
                    self.owners.drain(..packets.min(self.owners.len()));
                    self.captured = self.captured.saturating_sub(packets);
                    start = end;
                }
                Err(Error::GsoRefused) => {
                    sender.disable_gso();
                    let headers = host.addresses().headers(&route);
                    let packets = self.bytes[start..self.used].chunks_mut(self.segment);
                    packets.for_each(|packet| write_icrc(packet, &headers, 0));
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
        (self.used, self.segment, self.captured) = (0, 0, 0);
        (self.route, self.blocked) = (None, false);
        self.owners.clear();
        if let Some(kept) = self.kept.take() {
            self.bytes.copy_within(behind..behind + kept.length, 0);
            self.add(addresses, kept);
        }
    }

    /// Removes the packets of a QP from a batch that did not fit into the send buffer.
    pub fn discard(&mut self, addresses: &Addresses, number: Qpn) {
        let Some(route) = self.route else { return };
        let is_left = |owner: &Owner| owner.queue_pair != number;
        self.kept = self.kept.filter(|kept| is_left(&kept.owner));
        if self.owners.iter().all(is_left) {
            return;
        }
        let gso = addresses.sender(&route).gso();
        let (headers, segment) = (addresses.headers(&route), self.segment);
        let mut used = 0;
        for (index, _) in self.owners.iter().enumerate().filter(|(_, owner)| is_left(owner)) {
            let start = index * segment;
            let end = (start + segment).min(self.used);
            self.bytes.copy_within(start..end, used);
            // The ICRC covers the IPv4 identification, which counts up within a batch.
            let index = if gso { used / segment } else { 0 };
            write_icrc(&mut self.bytes[used..used + end - start], &headers, index);
            used += end - start;
        }
        if let Some(kept) = self.kept {
            self.bytes.copy_within(self.used..self.used + kept.length, used);
        }
        self.captured = self.owners[..self.captured].iter().filter(|&owner| is_left(owner)).count();
        self.owners.retain(is_left);
        self.used = used;
        if self.owners.is_empty() {
            self.clear(addresses);
        }
    }

    /// Captures the first packets of the batch, which begin at `start`, as far as they are not captured yet.
    fn capture<H: Embedder>(&mut self, host: &H, start: usize, packets: usize, route: &Route) {
        let Some(tap) = host.tap() else { return };
        let headers = host.addresses().headers(route);
        let gso = host.addresses().sender(route).gso();
        let bytes = self.bytes[start..self.used].chunks(self.segment).take(packets);
        let all = bytes.zip(&self.owners).enumerate();
        for (index, (bytes, &owner)) in all.skip(self.captured) {
            let index = if gso { index as u16 } else { 0 };
            let (class, hop_limit) = (route.traffic_class, route.hop_limit);
            tap.record(&PacketMetadata::sent(headers, class, hop_limit, index, owner), bytes);
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
            route => route.or(state.route),
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
        !self.blocked || self.flush(host)
    }

    #[inline]
    fn flush(&mut self, host: &H) -> bool {
        while self.is_in_use() {
            if !self.send(host) {
                return false;
            }
        }
        true
    }

    fn push(&mut self, host: &H, route: Route, packet: &[u8]) -> bool {
        self.behind()[..packet.len()].copy_from_slice(packet);
        // IBA 9.3.1.
        let deth = packet.get(Bth::LEN..).and_then(Deth::split);
        let queue_pair = deth.map_or(Qpn(0), |(deth, _)| deth.source);
        self.append(host, packet.len(), route, Owner { queue_pair, work: None })
    }

    #[inline]
    fn own_taken(&mut self) -> &mut u64 {
        &mut self.own_taken
    }
}
