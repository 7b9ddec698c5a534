//! Receiving: checks packets, finds the QP they belong to, and hands them to its endpoint.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_proto::endpoint;
use ferroce_proto::qp::ServiceType;
use ferroce_proto::time::Instant;
use ferroce_proto::ud::Envelope;
use ferroce_sys::{Recipient, RxDatagram, RxInfo};
use ferroce_wire::address::Gid;
use ferroce_wire::icrc::hidden::{
    Identification, IdentificationHistory, Plausibility, observe_flow,
};
use ferroce_wire::number::{PKey, Qpn};
use ferroce_wire::packet::Packet;

use super::adapter::{Adapter, now};
use super::counters::count;
use super::local_flow::{self, LocalFlow};
use super::progress::PassState;
use super::queue_pair::{Core, Inner};
use crate::headers::Headers;
use crate::sync::lock;
use crate::tap::{Direction, Owner, PacketMetadata};

/// "Congestion experienced" in the two ECN bits (RFC 3168).
const CONGESTION_EXPERIENCED: u8 = 3;

/// The default partition without its full-membership bit (IBA 10.9.1.1).
const DEFAULT_PARTITION: u16 = 0x7fff;

/// Empty receive calls after which a link counts as quiet, and the number of passes between reads of a quiet link.
const QUIET_AFTER: u32 = 256;
const QUIET_LINK_INTERVAL: u32 = 32;

/// The maximum number of datagrams per receive call.
const MAX_BURST: usize = 16;

/// The receive rate of a link, which predicts the next receive call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Consecutive receive calls that returned nothing.
    quiet: u32,
    /// Datagrams to prepare buffers for.
    burst: usize,
}

/// The bytes of the destination QPN in a BTH.
const DESTINATION: std::ops::Range<usize> = 5..8;

fn destination(packet: &[u8]) -> Option<Qpn> {
    let [a, b, c] = *packet.get(DESTINATION)?.first_chunk()?;
    Some(Qpn(u32::from_be_bytes([0, a, b, c])))
}

/// The process that owns a QPN.
fn slot_of(number: Qpn) -> Recipient {
    Recipient::Slot((number.0 >> 16) as u8)
}

/// Connected QPs need no envelope.
static NO_ENVELOPE: Envelope = Envelope { destination: Gid([0; 16]), header: None };

impl Adapter {
    /// Receives from all links and returns whether anything arrived. A pass that is not `thorough` skips most reads of
    /// quiet links, because pollers make many passes.
    pub(crate) fn receive_all(&self, progress: &mut PassState, thorough: bool) -> bool {
        let mut some = false;
        progress.rounds = progress.rounds.wrapping_add(1);
        for (index, link) in self.links.iter().enumerate() {
            let pace = progress.paces[index];
            let quiet = pace.quiet > QUIET_AFTER && index != progress.active;
            if quiet && !thorough && progress.rounds % QUIET_LINK_INTERVAL != 0 {
                continue;
            }
            // Preparing for many datagrams costs more, and most calls return one.
            let most = pace.burst.max(1);
            let received = link.receiver.receive_up_to(&mut progress.rx, most);
            let count = received.unwrap_or_else(|error| {
                tracing::debug!(address = %link.address, %error, "cannot receive packets");
                0
            });
            let pace = &mut progress.paces[index];
            if count == 0 {
                *pace = Pace { quiet: pace.quiet.saturating_add(1), burst: 1 };
                continue;
            }
            let burst = if count == most { (most * 2).min(MAX_BURST) } else { most };
            *pace = Pace { quiet: 0, burst };
            progress.active = index;
            some = true;
            self.dispatch(progress, link.address);
        }
        self.groups.each(|socket, address| {
            if socket.receive(&mut progress.rx).is_ok_and(|count| count > 0) {
                some = true;
                self.dispatch(progress, address);
            }
        });
        some
    }

    /// Receives packets that other processes forwarded to this one.
    pub(crate) fn receive_forwarded(&self, progress: &mut PassState) {
        self.management.connections.set_forwarded(true);
        for link in &self.links {
            while link.slot.receive(&mut progress.rx).is_ok_and(|count| count > 0) {
                let messages = progress.rx.len() as u64;
                self.counters.forwarded_in.fetch_add(messages, Ordering::Relaxed);
                self.dispatch(progress, link.address);
            }
        }
        self.management.connections.set_forwarded(false);
    }

    fn dispatch(&self, progress: &mut PassState, local: SocketAddr) {
        let now = now();
        let PassState { rx, ready, histories, failing, local_flow, .. } = progress;
        let mut touched = |core: &Arc<Core>| {
            if core.enqueue() {
                ready.push_back(Arc::clone(core));
            }
        };
        for message in rx.messages() {
            match failing {
                None => self.message(&message, local, now, (histories, local_flow), &mut touched),
                Some(failing) => failing.pass(&message, |message| {
                    self.message(message, local, now, (histories, local_flow), &mut touched);
                }),
            }
        }
    }

    /// Handles the packets of one datagram batch, in runs for the same QP.
    fn message(
        &self,
        message: &RxDatagram<'_>,
        local: SocketAddr,
        now: Instant,
        (histories, local_flow): (&mut Histories, &mut LocalFlow),
        touched: &mut impl FnMut(&Arc<Core>),
    ) {
        let info = message.info;
        let mut history = histories.of(info);
        let headers = Headers {
            source: info.source,
            destination: SocketAddr::new(info.destination, local.port()),
        };
        // A mailbox holds few messages, so a batch whose packets all belong to one process is forwarded whole.
        if let Some(owner) = self.sole_owner(message) {
            self.forward(local, owner, info, message.data);
            return;
        }
        let mut packets = message.packets().enumerate().peekable();
        while let Some(&(_, first)) = packets.peek() {
            let Some(number) = destination(first) else {
                count(&self.counters.malformed);
                packets.next();
                continue;
            };
            let run = std::iter::from_fn(|| {
                packets.next_if(|(_, packet)| destination(packet) == Some(number))
            });
            if self.is_foreign(number) {
                run.for_each(|(_, packet)| {
                    self.forward(local, slot_of(number), info, packet);
                });
                continue;
            }
            let core = self.queue_pair(number);
            let mut locked = core.as_ref().map(|core| lock(&core.inner));
            for (index, bytes) in run {
                let admitted = self.admit(bytes, &headers, index);
                let Some((packet, identification)) = admitted else { continue };
                if !history.as_mut().is_none_or(|history| history.accepts(identification, now)) {
                    count(&self.counters.bad_icrc);
                    continue;
                }
                let received = ReceivedPacket { packet, bytes, headers, info, identification, now };
                // The owner of a management datagram is known only after it is parsed. Its responses are sent after
                // this.
                if number.0 < 3 && core.is_none() {
                    if self.management.handle(self, local, &received) {
                        self.record(&received, None);
                    }
                    continue;
                }
                self.record(&received, locked.as_deref());
                match (&core, &mut locked) {
                    (Some(core), Some(inner)) => self.deliver(core, inner, &received),
                    _ if number == Qpn::MULTICAST => self.deliver_group(&received, touched),
                    _ if local_flow::is_for(number) => {
                        self.handle_local_flow(local_flow, &received, local, touched);
                    }
                    _ => count(&self.counters.no_queue_pair),
                }
            }
            if let (Some(core), Some(inner)) = (&core, &mut locked) {
                core.publish_completions(inner, self, now);
                touched(core);
            }
        }
    }

    /// The other process that all packets of a batch belong to, if there is one.
    fn sole_owner(&self, message: &RxDatagram<'_>) -> Option<Recipient> {
        let mut owners = message.packets().map(|packet| {
            destination(packet).filter(|&number| self.is_foreign(number)).map(slot_of)
        });
        let first = owners.next()??;
        owners.all(|owner| owner == Some(first)).then_some(first)
    }

    /// Whether a QPN belongs to another process.
    fn is_foreign(&self, number: Qpn) -> bool {
        number != Qpn::MULTICAST && number.0 >= 3 && number.0 >> 16 != u32::from(self.slot())
    }

    /// Checks a packet's form, ICRC, opcode and partition (IBA 9.6.1.1).
    fn admit<'a>(
        &self,
        bytes: &'a [u8],
        headers: &Headers,
        index: usize,
    ) -> Option<(Packet<'a>, Identification)> {
        let Ok(packet) = Packet::parse(bytes) else {
            count(&self.counters.malformed);
            return None;
        };
        let Some(identification) = headers.check(bytes, index as u16) else {
            count(&self.counters.bad_icrc);
            return None;
        };
        if packet.bth.version != 0 || packet.bth.opcode.info().is_none() {
            count(&self.counters.malformed);
            return None;
        }
        let PKey(partition) = packet.bth.partition;
        if partition & 0x7fff != DEFAULT_PARTITION {
            count(&self.counters.bad_partition);
            return None;
        }
        self.counters.packets_in.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes_in.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Some((packet, identification))
    }

    /// Captures a packet, with the work request that it responds to.
    fn record(&self, received: &ReceivedPacket<'_>, inner: Option<&Inner>) {
        if let Some(tap) = &self.tap {
            let answer = received.packet.bth.opcode.info().is_some_and(|info| !info.request);
            let asked = inner.filter(|_| answer);
            let metadata = PacketMetadata {
                direction: Direction::In,
                headers: received.headers,
                traffic_class: received.info.tos,
                hop_limit: received.info.hop_limit.unwrap_or(64),
                identification: received.identification,
                owner: Owner {
                    queue_pair: received.packet.bth.destination,
                    work: asked.and_then(|inner| inner.endpoint.work_of(&received.packet.bth)),
                },
            };
            tap.record(&metadata, received.bytes);
        }
    }

    fn deliver(&self, core: &Arc<Core>, inner: &mut Inner, received: &ReceivedPacket<'_>) {
        if inner.destroyed {
            return count(&self.counters.no_queue_pair);
        }
        let datagram = inner.endpoint.settings().service == ServiceType::UnreliableDatagram;
        let envelope = if datagram { received.envelope() } else { NO_ENVELOPE };
        if !datagram {
            // Only the connected peer's address is accepted, even if the QPN and PSN match. A peer on this host may use
            // another of our addresses: the kernel accepts packets from these addresses from no other host.
            let source = received.info.source.ip();
            let peer = inner.route.map(|route| route.destination.ip());
            let is_ours = |ip: IpAddr| self.links.iter().any(|link| link.address.ip() == ip);
            if peer != Some(source) && !(peer.is_some_and(is_ours) && is_ours(source)) {
                return count(&self.counters.no_queue_pair);
            }
        }
        inner.heard = Some(received.now);
        let info = endpoint::InboundPacket {
            time: received.now,
            packet: &received.packet,
            marked: received.info.ecn() == CONGESTION_EXPERIENCED,
            envelope: &envelope,
        };
        let mut memory = &self.memory;
        if inner.endpoint.settings().service == ServiceType::XrcTarget {
            let named = received.packet.extensions.xrceth.map(|header| header.receive_queue.into());
            let receives = named.and_then(|number| self.receive_queue(number));
            let mut queue = receives.as_ref().map(|receives| lock(&receives.queue));
            inner.endpoint.handle_packet(&info, queue.as_deref_mut(), &mut memory);
            return;
        }
        let mut queue = lock(&core.receives.queue);
        inner.endpoint.handle_packet(&info, Some(&mut queue), &mut memory);
    }

    /// Delivers a copy to each QP attached to the multicast group (IBA 10.5).
    fn deliver_group(&self, received: &ReceivedPacket<'_>, touched: &mut impl FnMut(&Arc<Core>)) {
        let group = Gid::from_ip(received.info.destination);
        for core in self.groups.members(group) {
            let mut inner = lock(&core.inner);
            self.deliver(&core, &mut inner, received);
            core.publish_completions(&mut inner, self, received.now);
            touched(&core);
        }
    }
}

/// A received packet and its metadata.
pub(crate) struct ReceivedPacket<'a> {
    pub(crate) packet: Packet<'a>,
    pub(crate) bytes: &'a [u8],
    pub(crate) headers: Headers,
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
    pairs: HashMap<(IpAddr, IpAddr), IdentificationHistory>,
    flows: HashMap<(SocketAddr, IpAddr), IdentificationHistory>,
}

/// The two histories that apply to a flow: of its address pair, and of the flow itself.
struct History<'a> {
    pair: &'a mut IdentificationHistory,
    flow: &'a mut IdentificationHistory,
}

/// The limit on tracked hosts and flows: more than this means spoofed addresses.
const MAX_HISTORIES: usize = 4096;

impl Histories {
    fn of(&mut self, info: &RxInfo) -> Option<History<'_>> {
        if info.source.is_ipv6() {
            return None;
        }
        if self.pairs.len() > MAX_HISTORIES {
            self.pairs.clear();
        }
        if self.flows.len() > MAX_HISTORIES {
            self.flows.clear();
        }
        let (source, destination) = (info.source, info.destination);
        let pair = self.pairs.entry((source.ip(), destination)).or_default();
        let flow = self.flows.entry((source, destination)).or_default();
        Some(History { pair, flow })
    }
}

impl History<'_> {
    fn accepts(&mut self, identification: Identification, now: Instant) -> bool {
        let now = std::time::Duration::from_nanos(now.as_nanos());
        observe_flow(self.pair, self.flow, identification, now) != Plausibility::Implausible
    }
}
