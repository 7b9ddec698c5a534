//! Receiving: which sockets and rings a pass reads, and what becomes of the packets that the links have checked.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use ferroce_links::faults::Faults;
use ferroce_links::received::ReceivedPacket;
use ferroce_links::udp::{Address, DatagramReceiver};
use ferroce_proto::time::Instant;
use ferroce_sys::{ReceiveBatch, Uncancellable};
use ferroce_tap::{Owner, PacketMetadata};

use super::counters::count_error;
use super::data_path::DataPath;
use super::driver::Driver;
use super::queue_pair::Inner;
use crate::drive::{LinkReads, Links};
use crate::time::now;

/// The state of receiving.
#[derive(Debug)]
pub(super) struct Rx {
    batch: ReceiveBatch,
    reads: LinkReads,
    datagrams: DatagramReceiver,
    /// The last pass found packets in a socket.
    pub(super) received: bool,
    /// A socket may have more packets than were received.
    pub(super) more: bool,
    /// The time of the last packets, if there were few: not much later than now.
    pub(super) now: Option<Instant>,
    /// Completions were published since this was last reset.
    pub(super) completed: bool,
    /// A socket is gone.
    pub(super) broken: bool,
}

impl Rx {
    pub(super) fn new(links: &[Address], faults: Option<Faults>) -> Self {
        Self {
            batch: ReceiveBatch::for_socket(&links[0].receiver),
            reads: LinkReads::new(links.len()),
            datagrams: DatagramReceiver::new(faults),
            received: false,
            more: false,
            now: None,
            completed: false,
            broken: false,
        }
    }
}

impl Driver {
    /// Receives and returns whether anything arrived.
    pub(super) fn receive_all(&mut self, adapter: &DataPath, links: Links) -> bool {
        let mut some = false;
        self.rx.more = false;
        if links == Links::Lively && self.rx.reads.rings_are_active() {
            self.rings.spin_for_packets();
        }
        let reading = self.rx.reads.begin(links, self.now);
        for (index, link) in adapter.port.links.iter().enumerate() {
            let Some(most) = self.rx.reads.most(reading, index) else { continue };
            let received = link.receiver.receive_up_to(&mut self.rx.batch, most);
            let count = received.unwrap_or_else(|error| {
                tracing::debug!(address = %link.address, %error, "cannot receive packets");
                let counters = &adapter.counters;
                count_error(counters.receive_failed(), counters.receive_errno(), &error);
                self.rx.broken |= error.is_fatal();
                0
            });
            self.rx.more |= self.rx.reads.received(index, count, most);
            if count == 0 {
                continue;
            }
            some = true;
            self.dispatch(adapter, link.address);
        }
        if self.receive_from_rings(adapter) {
            self.rx.reads.received_from_rings();
            some = true;
        }
        if adapter.port.groups.is_empty() || matches!(links, Links::One(_)) {
            return some;
        }
        for (socket, address) in adapter.port.groups.sockets() {
            if socket.receive(&mut self.rx.batch).is_ok_and(|count| count > 0) {
                some = true;
                self.dispatch(adapter, address);
            }
        }
        some
    }

    /// Receives packets that other processes forwarded to this one.
    pub(super) fn receive_forwarded(&mut self, adapter: &DataPath) {
        adapter.management.connections.set_forwarded(true);
        for link in &adapter.port.links {
            while link.slot.receive(&mut self.rx.batch).is_ok_and(|count| count > 0) {
                let messages = self.rx.batch.len() as u64;
                adapter.counters.forwarded_in().fetch_add(messages, Ordering::Relaxed);
                self.dispatch(adapter, link.address);
            }
        }
        adapter.management.connections.set_forwarded(false);
    }

    /// Receives from all rings. Returns whether there were packets.
    fn receive_from_rings(&mut self, adapter: &DataPath) -> bool {
        let Self { rx, rings, device, clock, .. } = self;
        let received = rings.receive(device, adapter, &mut rx.datagrams, clock);
        rx.more |= received.more;
        rx.completed |= received.completed;
        if received.some {
            rx.now = received.time;
        }
        received.some
    }

    /// Handles the datagrams of the batch.
    fn dispatch(&mut self, adapter: &DataPath, local: SocketAddr) {
        let _guard = Uncancellable::new();
        let now = now();
        let Self { rx, device, .. } = self;
        let Rx { batch, datagrams, completed, .. } = rx;
        for datagram in batch.messages() {
            *completed |= datagrams.receive(device, adapter, &datagram, local, now);
        }
        rx.now = (rx.batch.len() == 1).then_some(now);
    }
}

impl DataPath {
    /// Captures a packet, with the work request that it responds to. Returns whether there is a capture.
    #[inline]
    pub(super) fn record(&self, received: &ReceivedPacket<'_>, inner: Option<&Inner>) -> bool {
        let tap = self.tap();
        if let Some(tap) = tap {
            let answer = received.packet.bth.opcode.info().is_some_and(|info| !info.request);
            let asked = inner.filter(|_| answer);
            let owner = Owner {
                queue_pair: received.packet.bth.destination,
                work: asked.and_then(|inner| inner.endpoint.work_of(&received.packet.bth)),
            };
            let ReceivedPacket { headers, info, identification, .. } = *received;
            let metadata =
                PacketMetadata::received(*headers, info.tos, info.hop_limit, identification, owner);
            tap.record(&metadata, received.bytes);
        }
        tap.is_some()
    }

    /// Whether packets from this address are accepted for a connected QP: only the peer's, even if the QPN and PSN match. A peer on
    /// this host may use another of our addresses: the kernel accepts packets from these addresses from no other host.
    pub(super) fn is_peer(&self, inner: &Inner, source: IpAddr) -> bool {
        let peer = inner.route.as_ref().map(|route| route.destination.ip());
        let is_ours = |ip: IpAddr| self.port.links.has_address(ip);
        peer == Some(source) || peer.is_some_and(is_ours) && is_ours(source)
    }
}
