//! A packet's way in: the system call, the checks, the QP it belongs to, and what follows for that QP.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::credit::probe;
use ferroce_proto::endpoint;
use ferroce_proto::memory::Memory;
use ferroce_proto::qp::{ServiceType, State};
use ferroce_proto::reason::Reason;
use ferroce_proto::time::Instant;
use ferroce_proto::ud::Envelope;
use ferroce_sys::{ReceiveBatch, Recipient, RxDatagram, RxInfo, Uncancellable};
use ferroce_wire::address::Gid;
use ferroce_wire::icrc::hidden::{
    Identification, IdentificationHistory, Plausibility, observe_flow,
};
use ferroce_wire::number::{PKey, Qpn};
use ferroce_wire::opcode::{Opcode, OpcodeInfo, Operation};
use ferroce_wire::packet::Packet;
use ferroce_wire::transport::Bth;

use super::adapter::{Adapter, now};
use super::counters::{count, count_error};
use super::driver::Driver;
use super::link::Link;
use super::queue_pair::{Core, Inner};
use crate::drive::{LinkReads, Links};
use crate::faults::{FaultInjector, Faults};
use crate::headers::Headers;
use crate::report;
use crate::tap::{Direction, Owner, PacketMetadata};
use crate::tuning::rx::MAX_HISTORIES;

/// "Congestion experienced" in the two ECN bits (RFC 3168).
pub(super) const CONGESTION_EXPERIENCED: u8 = 3;

/// The default partition without its full-membership bit (IBA 10.9.1.1).
const DEFAULT_PARTITION: u16 = 0x7fff;

/// Whether a P_Key is that of the default partition, with full membership or limited.
#[inline]
pub(super) const fn is_default_partition(PKey(key): PKey) -> bool {
    key & 0x7fff == DEFAULT_PARTITION
}

/// The bytes of the destination QPN in a BTH.
const DESTINATION: std::ops::Range<usize> = 5..8;

pub(super) fn destination(packet: &[u8]) -> Option<Qpn> {
    let [a, b, c] = *packet.get(DESTINATION)?.first_chunk()?;
    Some(Qpn(u32::from_be_bytes([0, a, b, c])))
}

/// The process that owns a QPN.
fn slot_of(number: Qpn) -> Recipient {
    Recipient::Slot((number.0 >> 16) as u8)
}

/// Connected QPs need no envelope.
static NO_ENVELOPE: Envelope = Envelope { destination: Gid([0; 16]), header: None };

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
    pub(super) fn new(links: &[Link], faults: Option<Faults>) -> Self {
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
        let mut failing = self.rx.failing.take();
        let mut histories = std::mem::take(&mut self.rx.histories);
        match &mut failing {
            None => self.message(adapter, message, local, now, &mut histories),
            Some(failing) => failing.pass(message, |message| {
                self.message(adapter, message, local, now, &mut histories);
            }),
        }
        if let Some(failing) = &mut failing {
            let injected = std::mem::take(&mut failing.injected);
            adapter.counters.faults_injected().fetch_add(injected, Ordering::Relaxed);
        }
        (self.rx.failing, self.rx.histories) = (failing, histories);
    }

    /// Handles the packets of one datagram batch, in runs for the same QP.
    fn message(
        &mut self,
        adapter: &Adapter,
        message: &RxDatagram<'_>,
        local: SocketAddr,
        now: Instant,
        histories: &mut Histories,
    ) {
        let info = message.info;
        let mut history = histories.of(info);
        let headers = Headers {
            source: info.source,
            destination: SocketAddr::new(info.destination, local.port()),
        };
        // A mailbox holds few messages, so a batch whose packets all belong to one process is forwarded whole.
        if let Some(owner) = adapter.sole_owner(message) {
            adapter.forward(local, owner, info, message.data);
            return;
        }
        let mut packets = message.packets().enumerate().peekable();
        while let Some(&(_, first)) = packets.peek() {
            let Some(number) = destination(first) else {
                count(adapter.counters.malformed());
                packets.next();
                continue;
            };
            let run = std::iter::from_fn(|| {
                packets.next_if(|(_, packet)| destination(packet) == Some(number))
            });
            if adapter.tables.is_foreign(number) {
                run.for_each(|(_, packet)| {
                    adapter.forward(local, slot_of(number), info, packet);
                });
                continue;
            }
            let core = adapter.tables.queue_pair(number);
            let mut locked = core.as_ref().map(|core| core.inner.lock());
            for (index, bytes) in run {
                let admitted = adapter.admit(bytes, &headers, info, index);
                let Some((packet, identification)) = admitted else { continue };
                adapter.counters.received(1, bytes.len());
                if !history.as_mut().is_none_or(|history| history.accepts(identification, now)) {
                    adapter.drop_corrupted(bytes, &headers, info, index);
                    continue;
                }
                let received = ReceivedPacket {
                    packet: &packet,
                    packets: 1,
                    bytes,
                    headers: &headers,
                    info,
                    identification,
                    now,
                };
                // The owner of a management datagram is known only after it is parsed. Its responses are sent after
                // this.
                if number.0 < 3 && core.is_none() {
                    if adapter.management.handle(adapter.mads(), local, &received) {
                        adapter.record(&received, None);
                    }
                    continue;
                }
                let is_captured = adapter.record(&received, locked.as_deref());
                match (&core, &mut locked) {
                    // The peer of a ring sends its CNPs there, so this one is forged: the QPN is all that it needs. Injected
                    // faults lose the origin of a packet.
                    (Some(_), Some(inner))
                        if packet.bth.opcode == Opcode::CNP
                            && inner.queue.is_some()
                            && self.rx.failing.is_none() => {}
                    (Some(core), Some(inner)) => {
                        adapter.deliver(core, inner, &received);
                        if is_captured {
                            self.report_captured(adapter, core, inner, &packet.bth, now);
                        }
                    }
                    _ if number == Qpn::MULTICAST => self.deliver_group(adapter, &received),
                    _ if probe::is_for(number) => {
                        self.handle_probe(adapter, &received, local);
                    }
                    _ => adapter.drop_unknown(&packet.bth),
                }
            }
            if let (Some(core), Some(inner)) = (&core, &mut locked) {
                self.received(adapter, core, inner, now);
            }
        }
    }

    /// Publishes the completions of a QP that received packets, and queues what it has to send.
    pub(super) fn received(
        &mut self,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        now: Instant,
    ) {
        self.rx.completed |= self.device.received(adapter, core, inner, now);
    }

    /// Reports why a captured packet was refused, if it was, so that its comment says so.
    #[cold]
    fn report_captured(
        &mut self,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        packet: &Bth,
        now: Instant,
    ) {
        if inner.endpoint.has_counters() {
            inner.captured = Some(*packet);
            self.received(adapter, core, inner, now);
            inner.captured = None;
        }
    }

    /// Delivers a copy to each QP attached to the multicast group (IBA 10.5).
    fn deliver_group(&mut self, adapter: &Adapter, received: &ReceivedPacket<'_>) {
        let group = Gid::from_ip(received.info.destination);
        for core in adapter.port.groups.members(group) {
            let mut inner = core.inner.lock();
            adapter.deliver(&core, &mut inner, received);
            self.received(adapter, &core, &mut inner, received.now);
        }
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

    /// Checks a packet's form, ICRC, opcode and partition (IBA 9.6.1.1).
    fn admit<'a>(
        &self,
        bytes: &'a [u8],
        headers: &Headers,
        info: &RxInfo,
        index: usize,
    ) -> Option<(Packet<'a>, Identification)> {
        let Ok(packet) = Packet::parse(bytes) else {
            count(self.counters.malformed());
            return None;
        };
        let Some(identification) = headers.check(bytes, index as u16) else {
            self.drop_corrupted(bytes, headers, info, index);
            return None;
        };
        self.admits_form(&packet).then_some((packet, identification))
    }

    /// Checks the opcode and partition of a packet or of a run.
    #[inline]
    pub(super) fn admits_form(&self, packet: &Packet<'_>) -> bool {
        if packet.bth.version != 0 || packet.bth.opcode.info().is_none() {
            count(self.counters.malformed());
            return false;
        }
        if !is_default_partition(packet.bth.partition) {
            count(self.counters.bad_partition());
            self.report_packet(&Reason::WrongPartition(packet.bth.partition), &packet.bth);
            return false;
        }
        true
    }

    /// Drops a packet for a QP that does not exist. Only requests are reported: a response may be late.
    #[cold]
    pub(super) fn drop_unknown(&self, packet: &Bth) {
        count(self.counters.no_queue_pair());
        if packet.opcode.info().is_some_and(|info| info.request) {
            self.report_packet(&Reason::UnknownQueuePair(packet.destination), packet);
        }
    }

    /// Reports a packet for a connected QP that is not from its peer, or that comes before it knows its peer.
    #[cold]
    fn drop_stranger(&self, core: &Core, inner: &Inner, packet: &Bth) {
        let reason = match inner.endpoint.state() {
            state @ (State::Reset | State::Init) => Reason::NotReceiving(state),
            _ => Reason::NotPeer,
        };
        let text = report::report(self.device.name(), Some(core.number), &reason, false);
        if let Some(text) = text {
            inner.stats.set_reason(reason.number(), &reason.to_string());
            self.annotate(packet, &text);
        }
    }

    /// Reports why the device refused or dropped something that belongs to no QP.
    #[cold]
    pub(super) fn report(&self, reason: &Reason) -> Option<String> {
        let text = report::report(self.device.name(), None, reason, false)?;
        self.counters.set_reason(reason.number(), &text);
        Some(text)
    }

    /// As [`Adapter::report`], for a packet.
    #[cold]
    fn report_packet(&self, reason: &Reason, packet: &Bth) {
        if let Some(text) = self.report(reason) {
            self.annotate(packet, &text);
        }
    }

    /// Adds why a packet was refused to its comment in a capture.
    pub(super) fn annotate(&self, packet: &Bth, text: &str) {
        if let Some(tap) = self.tap() {
            tap.annotate(packet, text);
        }
    }

    /// Counts a packet with a wrong ICRC, and captures it: the sender's record shows what it was before.
    fn drop_corrupted(&self, bytes: &[u8], headers: &Headers, info: &RxInfo, index: usize) {
        count(self.counters.bad_icrc());
        if let Some(tap) = self.tap() {
            let metadata = PacketMetadata {
                direction: Direction::In,
                headers: *headers,
                traffic_class: info.tos,
                hop_limit: info.hop_limit.unwrap_or(64),
                identification: Identification::of_segment(index as u16),
                owner: Owner { queue_pair: destination(bytes).unwrap_or_default(), work: None },
                corrupted: true,
            };
            tap.record(&metadata, bytes);
        }
    }

    /// Captures a packet, with the work request that it responds to. Returns whether there is a capture.
    #[inline]
    pub(super) fn record(&self, received: &ReceivedPacket<'_>, inner: Option<&Inner>) -> bool {
        let tap = self.tap();
        if let Some(tap) = tap {
            let answer = received.packet.bth.opcode.info().is_some_and(|info| !info.request);
            let asked = inner.filter(|_| answer);
            let metadata = PacketMetadata {
                direction: Direction::In,
                headers: *received.headers,
                traffic_class: received.info.tos,
                hop_limit: received.info.hop_limit.unwrap_or(64),
                identification: received.identification,
                owner: Owner {
                    queue_pair: received.packet.bth.destination,
                    work: asked.and_then(|inner| inner.endpoint.work_of(&received.packet.bth)),
                },
                corrupted: false,
            };
            tap.record(&metadata, received.bytes);
        }
        tap.is_some()
    }

    /// Whether packets from this address are accepted for a connected QP: only the peer's, even if the QPN and PSN match. A peer on
    /// this host may use another of our addresses: the kernel accepts packets from these addresses from no other host.
    pub(super) fn is_peer(&self, inner: &Inner, source: IpAddr) -> bool {
        let peer = inner.route.as_ref().map(|route| route.destination.ip());
        let is_ours = |ip: IpAddr| self.port.has_address(ip);
        peer == Some(source) || peer.is_some_and(is_ours) && is_ours(source)
    }

    pub(super) fn deliver(
        &self,
        core: &Arc<Core>,
        inner: &mut Inner,
        received: &ReceivedPacket<'_>,
    ) {
        self.deliver_into(core, inner, received, &mut &*self.memory);
    }

    /// Delivers a packet whose payload goes to `memory`.
    pub(super) fn deliver_into(
        &self,
        core: &Arc<Core>,
        inner: &mut Inner,
        received: &ReceivedPacket<'_>,
        memory: &mut impl Memory,
    ) {
        if inner.destroyed {
            return self.drop_unknown(&received.packet.bth);
        }
        let datagram = inner.endpoint.settings().service == ServiceType::UnreliableDatagram;
        let envelope = if datagram { received.envelope() } else { NO_ENVELOPE };
        if !datagram && !self.is_peer(inner, received.info.source.ip()) {
            self.drop_stranger(core, inner, &received.packet.bth);
            return count(self.counters.no_queue_pair());
        }
        inner.heard = Some(received.now);
        inner.stats.received(received.packet, received.packets);
        let info = endpoint::InboundPacket {
            time: received.now,
            packet: received.packet,
            packets: received.packets,
            marked: received.info.ecn() == CONGESTION_EXPERIENCED,
            envelope: &envelope,
        };
        if inner.endpoint.settings().service == ServiceType::XrcTarget {
            let named = received.packet.extensions.xrceth.map(|header| header.receive_queue.into());
            let receives = named.and_then(|number| self.tables.receive_queue(number));
            let mut queue = receives.as_ref().map(|receives| receives.queue.lock());
            inner.endpoint.handle_packet(&info, queue.as_deref_mut(), memory);
            return;
        }
        let reliable = inner.endpoint.settings().service == ServiceType::ReliableConnection;
        let takes_receive = received.packet.bth.opcode.info().is_some_and(takes_receive);
        // The lock is spared where no receive request can be taken.
        let mut queue = (!reliable || takes_receive).then(|| core.receives.queue.lock());
        inner.endpoint.handle_packet(&info, queue.as_deref_mut(), memory);
    }
}

/// Whether a packet with this opcode may take a receive request (IBA 9.7.4.1.4).
fn takes_receive(info: &OpcodeInfo) -> bool {
    info.operation == Operation::Send || info.immediate
}

/// A received packet and its metadata.
pub(crate) struct ReceivedPacket<'a> {
    pub(crate) packet: &'a Packet<'a>,
    /// How many it is: one, unless it is a run of a ring.
    pub(crate) packets: u32,
    pub(crate) bytes: &'a [u8],
    pub(crate) headers: &'a Headers,
    pub(crate) info: &'a RxInfo,
    pub(crate) identification: Identification,
    pub(crate) now: Instant,
}

impl ReceivedPacket<'_> {
    fn envelope(&self) -> Envelope {
        let hops = self.info.hop_limit.unwrap_or(0);
        let header =
            self.headers.global_route(self.bytes, self.identification, self.info.tos, hops);
        Envelope { destination: Gid::from_ip(self.info.destination), header: Some(header) }
    }
}

/// The IPv4 identifications that remote hosts have used. They increase steadily, so one far from the last indicates a
/// corrupt packet where the ICRC alone cannot (`docs/icrc.md`). Some hosts count per flow, others per destination
/// address.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    pairs: HistoriesBy<(IpAddr, IpAddr)>,
    flows: HistoriesBy<(SocketAddr, IpAddr)>,
    /// The flow of the last datagram, with the positions of its histories: the next is often of the same flow.
    last: Option<(SocketAddr, IpAddr, [usize; 2])>,
}

#[derive(Debug)]
struct HistoriesBy<K> {
    positions: HashMap<K, usize>,
    list: Vec<IdentificationHistory>,
}

impl<K> Default for HistoriesBy<K> {
    fn default() -> Self {
        Self { positions: HashMap::new(), list: Vec::new() }
    }
}

impl<K: Eq + Hash> HistoriesBy<K> {
    fn position(&mut self, key: K) -> usize {
        let next = self.list.len();
        let position = *self.positions.entry(key).or_insert(next);
        if position == next {
            self.list.push(IdentificationHistory::default());
        }
        position
    }
}

/// The two histories that apply to a flow: of its address pair, and of the flow itself.
struct History<'a> {
    pair: &'a mut IdentificationHistory,
    flow: &'a mut IdentificationHistory,
}

impl Histories {
    fn of(&mut self, info: &RxInfo) -> Option<History<'_>> {
        if info.source.is_ipv6() {
            return None;
        }
        let (source, destination) = (info.source, info.destination);
        let last = self.last.filter(|last| (last.0, last.1) == (source, destination));
        let found = last.map_or_else(|| self.find(source, destination), |(.., found)| found);
        self.last = Some((source, destination, found));
        let (pair, flow) = (self.pairs.list.get_mut(found[0]), self.flows.list.get_mut(found[1]));
        Some(History { pair: pair?, flow: flow? })
    }

    /// The positions of the histories of a flow's address pair, and of the flow.
    fn find(&mut self, source: SocketAddr, destination: IpAddr) -> [usize; 2] {
        if self.flows.list.len() > MAX_HISTORIES {
            *self = Self::default();
        }
        [
            self.pairs.position((source.ip(), destination)),
            self.flows.position((source, destination)),
        ]
    }
}

impl History<'_> {
    fn accepts(&mut self, identification: Identification, now: Instant) -> bool {
        let now = std::time::Duration::from_nanos(now.as_nanos());
        observe_flow(self.pair, self.flow, identification, now) != Plausibility::Implausible
    }
}
