//! Receiving from sockets: the system call, and the checks of a packet before the device core gives it to its QP.

use std::iter::Peekable;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::{Arrival, Burst, Device, admit, destination};
use ferroce_links::udp::{Address, Histories, History};
use ferroce_proto::time::Instant;
use ferroce_proto::ud::Envelope;
use ferroce_sys::{ReceiveBatch, Recipient, RxDatagram, RxInfo, Uncancellable};
use ferroce_tap::{Owner, PacketMetadata};
use ferroce_wire::address::Gid;
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::Packet;
use ferroce_wire::udp_headers::Headers;

use super::adapter::{Adapter, now};
use super::counters::{count, count_error};
use super::driver::Driver;
use super::queue_pair::{Core, Inner};
use crate::drive::{LinkReads, Links};
use crate::faults::{FaultInjector, Faults};

/// "Congestion experienced" in the two ECN bits (RFC 3168).
pub(super) const CONGESTION_EXPERIENCED: u8 = 3;

/// The process that owns a QPN.
fn slot_of(number: Qpn) -> Recipient {
    Recipient::Slot((number.0 >> 16) as u8)
}

/// The state of receiving.
#[derive(Debug)]
pub(super) struct Rx {
    /// The buffers; absent while their packets are handled.
    batch: Option<ReceiveBatch>,
    reads: LinkReads,
    histories: Histories,
    pub(super) failing: Option<FaultInjector>,
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
            batch: Some(ReceiveBatch::for_socket(&links[0].receiver)),
            reads: LinkReads::new(links.len()),
            histories: Histories::default(),
            failing: faults.map(FaultInjector::new),
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
    pub(super) fn receive_all(&mut self, adapter: &Adapter, links: Links) -> bool {
        let mut some = false;
        self.rx.more = false;
        if links == Links::Lively && self.rx.reads.rings_are_active() {
            self.rings.spin_for_packets();
        }
        let reading = self.rx.reads.begin(links, self.now);
        for (index, link) in adapter.port.links.iter().enumerate() {
            let Some(most) = self.rx.reads.most(reading, index) else { continue };
            let Some(batch) = &mut self.rx.batch else { return some };
            let received = link.receiver.receive_up_to(batch, most);
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
            let Some(batch) = &mut self.rx.batch else { return some };
            if socket.receive(batch).is_ok_and(|count| count > 0) {
                some = true;
                self.dispatch(adapter, address);
            }
        }
        some
    }

    /// Receives packets that other processes forwarded to this one.
    pub(super) fn receive_forwarded(&mut self, adapter: &Adapter) {
        adapter.management.connections.set_forwarded(true);
        for link in &adapter.port.links {
            while let Some(batch) = &mut self.rx.batch {
                if !link.slot.receive(batch).is_ok_and(|count| count > 0) {
                    break;
                }
                let messages = batch.len() as u64;
                adapter.counters.forwarded_in().fetch_add(messages, Ordering::Relaxed);
                self.dispatch(adapter, link.address);
            }
        }
        adapter.management.connections.set_forwarded(false);
    }

    fn dispatch(&mut self, adapter: &Adapter, local: SocketAddr) {
        let _guard = Uncancellable::new();
        let now = now();
        // Taken out while the packets in it change the rest of the state.
        let Some(batch) = self.rx.batch.take() else { return };
        self.rx.now = (batch.len() == 1).then_some(now);
        for message in batch.messages() {
            self.datagram(adapter, &message, local, now);
        }
        self.rx.batch = Some(batch);
    }

    /// Handles the packets of one datagram batch, after faults.
    pub(super) fn datagram(
        &mut self,
        adapter: &Adapter,
        message: &RxDatagram<'_>,
        local: SocketAddr,
        now: Instant,
    ) {
        let Self { rx, device, .. } = self;
        let Rx { failing, histories, completed, .. } = rx;
        let Some(failing) = failing else {
            *completed |= receive_datagram(device, adapter, message, local, histories, false, now);
            return;
        };
        failing.pass(message, |message| {
            *completed |= receive_datagram(device, adapter, message, local, histories, true, now);
        });
        let injected = std::mem::take(&mut failing.injected);
        adapter.counters.faults_injected().fetch_add(injected, Ordering::Relaxed);
    }
}

/// Handles the packets of one datagram batch. Returns whether there were completions.
fn receive_datagram(
    device: &mut Device<Adapter>,
    adapter: &Adapter,
    message: &RxDatagram<'_>,
    local: SocketAddr,
    histories: &mut Histories,
    may_be_queued: bool,
    now: Instant,
) -> bool {
    let info = message.info;
    // A mailbox holds few messages, so a batch whose packets all belong to one process is forwarded whole.
    if let Some(owner) = adapter.sole_owner(message) {
        adapter.forward(local, owner, info, message.data);
        return false;
    }
    let mut burst = Segments {
        packets: message.packets().enumerate().peekable(),
        info,
        local: &local,
        headers: Headers {
            source: info.source,
            destination: SocketAddr::new(info.destination, local.port()),
        },
        history: histories.of(info),
        may_be_queued,
    };
    device.receive(adapter, &mut burst, now)
}

/// The packets of one datagram batch.
struct Segments<'a, I: Iterator<Item = (usize, &'a [u8])>> {
    packets: Peekable<I>,
    info: &'a RxInfo,
    local: &'a SocketAddr,
    headers: Headers,
    history: Option<History<'a>>,
    /// Injected faults lose the origin of a packet.
    may_be_queued: bool,
}

impl<'a, I: Iterator<Item = (usize, &'a [u8])>> Segments<'a, I> {
    /// Takes the next packet, checks it, and passes it to `handle`.
    #[inline]
    fn next<T>(
        &mut self,
        adapter: &Adapter,
        now: Instant,
        handle: impl FnOnce(&ReceivedPacket<'_>) -> T,
    ) -> Option<T> {
        let Self { packets, info, local, headers, history, may_be_queued } = self;
        let (index, bytes) = packets.next()?;
        let Ok(packet) = Packet::parse(bytes) else {
            count(adapter.counters.malformed());
            return None;
        };
        let Some(identification) = headers.check(bytes, index as u16) else {
            adapter.drop_corrupted(bytes, headers, info, index);
            return None;
        };
        if !admit(adapter, &packet.bth) {
            return None;
        }
        adapter.counters.received(1, bytes.len());
        if !history.as_mut().is_none_or(|history| history.accepts(identification, now)) {
            adapter.drop_corrupted(bytes, headers, info, index);
            return None;
        }
        Some(handle(&ReceivedPacket {
            packet: &packet,
            packets: 1,
            bytes,
            headers,
            info,
            local,
            identification,
            may_be_queued: *may_be_queued,
            now,
        }))
    }
}

impl<'a, I: Iterator<Item = (usize, &'a [u8])>> Burst<Adapter> for Segments<'a, I> {
    #[inline]
    fn destination(&mut self, adapter: &Adapter) -> Option<Qpn> {
        loop {
            let (_, packet) = self.packets.peek()?;
            if let Some(number) = destination(packet) {
                return Some(number);
            }
            count(adapter.counters.malformed());
            self.packets.next();
        }
    }

    fn forward(&mut self, adapter: &Adapter, number: Qpn) {
        let is_same = |(_, packet): &(usize, &[u8])| destination(packet) == Some(number);
        while let Some((_, packet)) = self.packets.next_if(is_same) {
            adapter.forward(*self.local, slot_of(number), self.info, packet);
        }
    }

    #[inline]
    fn deliver(
        &mut self,
        device: &mut Device<Adapter>,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        now: Instant,
    ) -> bool {
        let delivered = self.next(adapter, now, |received| {
            device.arrive(adapter, core, inner, received, &mut &*adapter.memory)
        });
        delivered.unwrap_or(false)
    }

    fn stray(&mut self, device: &mut Device<Adapter>, adapter: &Adapter, now: Instant) -> bool {
        self.next(adapter, now, |received| device.arrive_elsewhere(adapter, received))
            .unwrap_or(false)
    }
}

impl Adapter {
    /// The other process that all packets of a batch belong to, if there is one.
    fn sole_owner(&self, message: &RxDatagram<'_>) -> Option<Recipient> {
        let mut owners = message.packets().map(|packet| {
            destination(packet).filter(|&number| self.tables.is_foreign(number)).map(slot_of)
        });
        let first = owners.next()??;
        owners.all(|owner| owner == Some(first)).then_some(first)
    }

    /// Counts a packet with a wrong ICRC, and captures it: the sender's record shows what it was before.
    fn drop_corrupted(&self, bytes: &[u8], headers: &Headers, info: &RxInfo, index: usize) {
        count(self.counters.bad_icrc());
        if let Some(tap) = self.tap() {
            let expected = Identification::of_segment(index as u16);
            let owner = Owner { queue_pair: destination(bytes).unwrap_or_default(), work: None };
            let metadata =
                PacketMetadata::received(*headers, info.tos, info.hop_limit, expected, owner);
            tap.record(&metadata.corrupted(), bytes);
        }
    }

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

/// A received packet and its metadata.
pub(crate) struct ReceivedPacket<'a> {
    pub(crate) packet: &'a Packet<'a>,
    /// How many it is: one, unless it is a run of a ring.
    pub(crate) packets: u32,
    pub(crate) bytes: &'a [u8],
    pub(crate) headers: &'a Headers,
    pub(crate) info: &'a RxInfo,
    /// The address of the link.
    pub(crate) local: &'a SocketAddr,
    pub(crate) identification: Identification,
    /// It may have come through a ring.
    pub(crate) may_be_queued: bool,
    pub(crate) now: Instant,
}

impl Arrival for ReceivedPacket<'_> {
    #[inline]
    fn packet(&self) -> &Packet<'_> {
        self.packet
    }

    #[inline]
    fn packets(&self) -> u32 {
        self.packets
    }

    #[inline]
    fn time(&self) -> Instant {
        self.now
    }

    #[inline]
    fn source(&self) -> IpAddr {
        self.info.source.ip()
    }

    #[inline]
    fn destination(&self) -> IpAddr {
        self.info.destination
    }

    #[inline]
    fn is_marked(&self) -> bool {
        self.info.ecn() == CONGESTION_EXPERIENCED
    }

    #[inline]
    fn may_be_queued(&self) -> bool {
        self.may_be_queued
    }

    fn envelope(&self) -> Envelope {
        let hops = self.info.hop_limit.unwrap_or(0);
        let header =
            self.headers.global_route(self.bytes, self.identification, self.info.tos, hops);
        Envelope { destination: Gid::from_ip(self.info.destination), header: Some(header) }
    }
}
