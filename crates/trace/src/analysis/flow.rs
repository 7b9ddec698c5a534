//! Conversations: packet streams, and the matching of two streams of opposite direction.
//!
//! A packet of a connection carries only the destination QPN, so a stream is (source, destination, destination QPN).
//! Two streams are matched by the CM handshake, by an acknowledgement that matches outstanding requests of the other
//! direction, or, at the end of the file, because they are the only ones between two addresses.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ferroce_wire::number::{Psn, Qpn};
use ferroce_wire::opcode::{Operation, Position, Transport};
use ferroce_wire::packet::{MAX_PAYLOAD, Packet};

use super::anomaly::AnomalyKind;
use super::pairs::ConnectedPairs;
use super::report::{JoinedBy, Traffic};
use super::requester::{Progress, Requester};
use super::sink::{Reporter, Sink};
use super::stamp::{Side, Stamp};
use super::unreliable::UnreliableSender;
use super::window::ObservedPacket;

/// Candidate streams compared with a response, newest first.
const MAX_CANDIDATES: usize = 1024;

/// Credit for comparing streams, earned per packet and accumulated up to a limit. It bounds the work on captures in which
/// no response ever matches: these are compared with fewer than [`MAX_CANDIDATES`] streams.
const LOOKUPS_PER_PACKET: usize = 32;
const MAX_LOOKUP_CREDIT: usize = 1 << 18;

/// Address and QPN of a queue pair.
pub(super) type QueuePair = (IpAddr, u32);

/// One side: its address, and its QPN once a packet to it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    pub(super) qpn: Option<u32>,
}

/// One direction of a conversation.
#[derive(Debug, Default)]
pub(super) struct Direction {
    pub(super) traffic: Traffic,
    requester: Requester,
    unreliable: UnreliableSender,
}

/// A conversation under construction.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) transport: Transport,
    pub(super) a: Peer,
    pub(super) b: Peer,
    pub(super) joined_by: JoinedBy,
    pub(super) mtu: Option<u32>,
    /// From `a` to `b`, and back.
    pub(super) directions: [Direction; 2],
    pub(super) first: Stamp,
    pub(super) last: Stamp,
    /// The conversation whose opposite direction this one turned out to be.
    pub(super) merged_into: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StreamKey {
    transport: Transport,
    source: IpAddr,
    destination: IpAddr,
    qpn: u32,
    /// QPN of the sender, which datagrams carry as well.
    source_qpn: Option<u32>,
}

impl StreamKey {
    fn of(source: IpAddr, destination: IpAddr, packet: &Packet<'_>, transport: Transport) -> Self {
        Self {
            // A CNP may belong to any transport; assume a reliable connection.
            transport: match transport {
                Transport::CongestionNotification => Transport::ReliableConnection,
                transport => transport,
            },
            source,
            destination,
            qpn: packet.bth.destination.0,
            source_qpn: packet.extensions.deth.map(|deth| deth.source.0),
        }
    }

    /// Whether sender and receiver are the same queue pair.
    fn is_to_itself(&self) -> bool {
        self.source == self.destination && self.source_qpn == Some(self.qpn)
    }
}

/// Both sides of a connection, from a completed CM handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake {
    pub(super) active: QueuePair,
    pub(super) passive: QueuePair,
    pub(super) mtu: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Flows {
    pub(super) flows: Vec<Flow>,
    streams: HashMap<StreamKey, Side>,
    /// Streams without a matched opposite direction, by source and destination.
    one_way: HashMap<(IpAddr, IpAddr), BTreeSet<usize>>,
    /// Remaining comparisons with other streams.
    lookup_credit: usize,
    /// Connected peer and path MTU by queue pair.
    handshakes: HashMap<QueuePair, (QueuePair, Option<u32>)>,
    max_conversations: usize,
    /// What a first pass over the file found.
    pairs: Arc<ConnectedPairs>,
    /// Packets of conversations beyond the limit.
    pub(super) untracked: u64,
}

impl Flows {
    pub(super) fn new(max_conversations: usize, pairs: Arc<ConnectedPairs>) -> Self {
        Self {
            flows: Vec::new(),
            streams: HashMap::new(),
            one_way: HashMap::new(),
            lookup_credit: MAX_LOOKUP_CREDIT,
            handshakes: HashMap::new(),
            max_conversations,
            pairs,
            untracked: 0,
        }
    }

    /// Processes the next packet and returns the side it belongs to.
    pub(super) fn packet(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        observed: &ObservedPacket<'_>,
        wire_bytes: u64,
        sink: &mut Sink,
    ) -> Option<Side> {
        let key = StreamKey::of(source, destination, observed.packet, observed.info.transport);
        self.lookup_credit = (self.lookup_credit + LOOKUPS_PER_PACKET).min(MAX_LOOKUP_CREDIT);
        let Some(mut side) = self.side(key, observed.stamp) else {
            self.untracked += 1;
            return None;
        };
        if let (true, Some(from_active)) = (key.is_to_itself(), observed.from_active) {
            // Management datagrams between processes of one host all go from QP 1 to QP 1: A is the active side.
            side.from_a = from_active;
        }
        let side = self.join_by_response(key, side, observed, sink);
        let flow = &mut self.flows[side.conversation];
        flow.last = observed.stamp;
        let traffic = &mut flow.directions[usize::from(!side.from_a)].traffic;
        traffic.packets += 1;
        traffic.bytes += wire_bytes;
        traffic.payload += observed.packet.payload_len as u64;

        let mut reporter = Reporter { sink, side, at: observed.stamp };
        match observed.info.transport {
            Transport::ReliableConnection | Transport::ExtendedReliableConnection => {
                flow.learn_mtu(observed);
                flow.reliable(observed, &mut reporter);
            }
            Transport::UnreliableConnection => {
                flow.learn_mtu(observed);
                flow.directions[usize::from(!side.from_a)]
                    .unreliable
                    .packet(observed, &mut reporter);
            }
            Transport::UnreliableDatagram => {
                flow.directions[usize::from(!side.from_a)]
                    .unreliable
                    .datagram(observed, &mut reporter);
            }
            Transport::CongestionNotification => {
                let text = format!(
                    "congestion on the path of queue pair {}: the sender should slow down",
                    observed.packet.bth.destination
                );
                reporter.sink.anomaly(AnomalyKind::Cnp, observed.stamp, Some(side), None, text);
            }
            // Counted, not tracked: no device implements it, and its streams are identified by end-to-end contexts.
            Transport::ReliableDatagram => {}
        }
        Some(side)
    }

    /// The known side that a corrupted packet seems to belong to.
    pub(super) fn side_of(
        &self,
        source: IpAddr,
        destination: IpAddr,
        packet: &Packet<'_>,
    ) -> Option<Side> {
        let transport = packet.bth.opcode.info()?.transport;
        let key = StreamKey::of(source, destination, packet, transport);
        self.streams.get(&key).copied()
    }

    /// The QPN of the sender, if it is known: from the CM handshake, because the two directions were matched, or from a first
    /// pass.
    pub(super) fn source_qpn(
        &self,
        source: IpAddr,
        destination: IpAddr,
        packet: &Packet<'_>,
    ) -> Option<Qpn> {
        let transport = packet.bth.opcode.info()?.transport;
        let key = StreamKey::of(source, destination, packet, transport);
        let known = match self.streams.get(&key) {
            Some(side) => {
                let flow = &self.flows[side.conversation];
                match side.from_a {
                    true => flow.a.qpn.or_else(|| self.pairs.sender(side.conversation, &key)),
                    false => flow.b.qpn,
                }
            }
            None => match self.handshakes.get(&(destination, key.qpn)) {
                Some(&((address, qpn), _)) if address == source => Some(qpn),
                _ => (self.pairs.sender(self.flows.len(), &key))
                    .or_else(|| self.answers(key, packet).and_then(|flow| flow.b.qpn)),
            },
        };
        known.map(Qpn)
    }

    /// The one-way conversation that a packet of a new stream responds to, as [`Flows::join_by_response`] will find it.
    fn answers(&self, key: StreamKey, packet: &Packet<'_>) -> Option<&Flow> {
        // Every response has an AETH, other than the middle packets of a READ response.
        packet.extensions.aeth?;
        let waiting = self.one_way.get(&(key.destination, key.source))?;
        let mut fitting = (waiting.iter().rev().take(LOOKUPS_PER_PACKET))
            .map(|&index| &self.flows[index])
            .filter(|flow| flow.transport == key.transport && flow.expects(packet.bth.psn));
        let found = fitting.next();
        found.filter(|_| fitting.next().is_none())
    }

    /// Returns the side of a stream, creating a conversation if needed.
    fn side(&mut self, key: StreamKey, stamp: Stamp) -> Option<Side> {
        if let Some(&side) = self.streams.get(&key) {
            return Some(side);
        }
        let side = match key.source_qpn {
            Some(source_qpn) => {
                let back = StreamKey {
                    source: key.destination,
                    destination: key.source,
                    qpn: source_qpn,
                    source_qpn: Some(key.qpn),
                    ..key
                };
                self.attach_or_open(key, back, Some(source_qpn), JoinedBy::Datagram, None, stamp)?
            }
            None => match self.handshakes.get(&(key.destination, key.qpn)) {
                Some(&((address, qpn), mtu)) if address == key.source => {
                    let back =
                        StreamKey { source: key.destination, destination: key.source, qpn, ..key };
                    self.attach_or_open(key, back, Some(qpn), JoinedBy::Cm, mtu, stamp)?
                }
                _ => self.open(key, None, JoinedBy::OneWay, None, stamp)?,
            },
        };
        self.streams.insert(key, side);
        Some(side)
    }

    /// Returns the opposite direction of a known stream, or a new conversation with both sides known.
    fn attach_or_open(
        &mut self,
        key: StreamKey,
        back: StreamKey,
        source_qpn: Option<u32>,
        joined_by: JoinedBy,
        mtu: Option<u32>,
        stamp: Stamp,
    ) -> Option<Side> {
        match self.streams.get(&back) {
            Some(side) => Some(Side { from_a: !side.from_a, ..*side }),
            None => self.open(key, source_qpn, joined_by, mtu, stamp),
        }
    }

    fn open(
        &mut self,
        key: StreamKey,
        source_qpn: Option<u32>,
        joined_by: JoinedBy,
        mtu: Option<u32>,
        stamp: Stamp,
    ) -> Option<Side> {
        if self.flows.len() >= self.max_conversations {
            return None;
        }
        let conversation = self.flows.len();
        if joined_by == JoinedBy::OneWay {
            self.one_way.entry((key.source, key.destination)).or_default().insert(conversation);
        }
        self.flows.push(Flow {
            transport: key.transport,
            a: Peer { address: key.source, qpn: source_qpn },
            b: Peer { address: key.destination, qpn: Some(key.qpn) },
            joined_by,
            mtu,
            directions: Default::default(),
            first: stamp,
            last: stamp,
            merged_into: None,
        });
        Some(Side { conversation, from_a: true })
    }

    /// Merges the stream of a response with the opposite stream, if exactly one has a matching outstanding request.
    fn join_by_response(
        &mut self,
        key: StreamKey,
        side: Side,
        observed: &ObservedPacket<'_>,
        sink: &mut Sink,
    ) -> Side {
        let is_one_way = self.flows[side.conversation].joined_by == JoinedBy::OneWay;
        let is_response = matches!(
            observed.info.operation,
            Operation::Acknowledge | Operation::AtomicAcknowledge | Operation::ReadResponse
        );
        if !is_one_way || !is_response {
            return side;
        }
        let waiting = self.one_way.get(&(key.destination, key.source)).into_iter().flatten();
        let waiting = waiting.rev().take(MAX_CANDIDATES.min(self.lookup_credit));
        let mut lookups = 0;
        let mut fitting = waiting.copied().filter(|&other| {
            lookups += 1;
            let flow = &self.flows[other];
            other != side.conversation
                && flow.transport == key.transport
                && flow.expects(observed.packet.bth.psn)
        });
        let found = (fitting.next(), fitting.next());
        self.lookup_credit -= lookups;
        sink.steps += lookups as u64;
        match found {
            (Some(other), None) => {
                self.merge(side.conversation, other, JoinedBy::Acknowledgement, sink);
                self.streams.get(&key).copied().unwrap_or(side)
            }
            // No match or several: a later response may decide.
            _ => side,
        }
    }

    /// Merges two streams of opposite direction into one conversation, which keeps the number of the earlier one.
    fn merge(&mut self, one: usize, other: usize, joined_by: JoinedBy, sink: &mut Sink) {
        let (keep, drop) = (one.min(other), one.max(other));
        for index in [one, other] {
            let flow = &self.flows[index];
            let key = (flow.a.address, flow.b.address);
            if let Some(list) = self.one_way.get_mut(&key) {
                list.remove(&index);
            }
        }
        let dropped = &mut self.flows[drop];
        dropped.merged_into = Some(keep);
        let direction = std::mem::take(&mut dropped.directions[0]);
        let (mtu, last, peer) = (dropped.mtu, dropped.last, dropped.b);
        let kept = &mut self.flows[keep];
        kept.directions[1] = direction;
        kept.a.qpn = peer.qpn;
        kept.mtu = kept.mtu.or(mtu);
        if let Some(mtu) = kept.mtu {
            // One direction may have learnt it before the other one had a READ.
            kept.directions.iter_mut().for_each(|direction| direction.requester.learn_mtu(mtu));
        }
        kept.joined_by = joined_by;
        if last.frame > kept.last.frame {
            kept.last = last;
        }
        let key = self.flows[drop].stream();
        self.streams.insert(key, Side { conversation: keep, from_a: false });
        let tally = std::mem::take(sink.tally(drop));
        sink.tally(keep).absorb(tally);
    }

    /// Records a completed CM handshake: packets between the two queue pairs from now on are a new conversation.
    pub(super) fn connected(&mut self, handshake: &Handshake) {
        let Handshake { active, passive, mtu } = *handshake;
        if self.handshakes.len() + 2 > 2 * self.max_conversations {
            return;
        }
        self.handshakes.insert(active, (passive, mtu));
        self.handshakes.insert(passive, (active, mtu));
        // QPNs are reused: streams from before the handshake belong to an earlier connection.
        for transport in [
            Transport::ReliableConnection,
            Transport::UnreliableConnection,
            Transport::ExtendedReliableConnection,
        ] {
            for (from, to) in [(active, passive), (passive, active)] {
                self.streams.remove(&StreamKey {
                    transport,
                    source: from.0,
                    destination: to.0,
                    qpn: to.1,
                    source_qpn: None,
                });
            }
        }
    }

    /// Conversations by their two sides, in both orders.
    pub(super) fn by_sides(&self) -> HashMap<(QueuePair, QueuePair), usize> {
        let mut sides = HashMap::new();
        for (index, flow) in self.flows.iter().enumerate() {
            if let (Some(a), Some(b), None) = (flow.a.qpn, flow.b.qpn, flow.merged_into) {
                let (a, b) = ((flow.a.address, a), (flow.b.address, b));
                sides.insert((a, b), index);
                sides.insert((b, a), index);
            }
        }
        sides
    }

    /// Ends unfinished messages at the end of the file, and merges one-way streams that have only one possible match.
    /// If `filtered`, only in conversations that have a selected packet.
    pub(super) fn finish(&mut self, filtered: bool, sink: &mut Sink) {
        for (index, flow) in self.flows.iter_mut().enumerate() {
            sink.muted = filtered && !sink.tally(index).selected;
            for (direction, from_a) in flow.directions.iter_mut().zip([true, false]) {
                let side = Side { conversation: index, from_a };
                let mut reporter = Reporter { sink, side, at: flow.last };
                direction.requester.finish(&mut reporter);
                direction.unreliable.finish(&mut reporter);
            }
        }
        sink.muted = false;
        let only_entry = |list: &BTreeSet<usize>| list.first().copied().filter(|_| list.len() == 1);
        let pairs: Vec<_> = (self.one_way.iter())
            .filter_map(|(&(source, destination), list)| {
                let one = only_entry(list)?;
                let other = only_entry(self.one_way.get(&(destination, source))?)?;
                let same = self.flows[one].transport == self.flows[other].transport;
                (one < other && same).then_some((one, other))
            })
            .collect();
        for (one, other) in pairs {
            self.merge(one, other, JoinedBy::Address, sink);
        }
    }

    /// Maps a side of a merged conversation to the side of the conversation it was merged into.
    pub(super) fn resolve(&self, side: Side) -> Side {
        match self.flows[side.conversation].merged_into {
            Some(conversation) => Side { conversation, from_a: !side.from_a },
            None => side,
        }
    }
}

impl Flow {
    /// The stream of a one-way conversation.
    pub(super) fn stream(&self) -> StreamKey {
        StreamKey {
            transport: self.transport,
            source: self.a.address,
            destination: self.b.address,
            qpn: self.b.qpn.unwrap_or(0),
            source_qpn: None,
        }
    }

    /// Returns how far the requester of one direction is.
    pub(super) fn progress(&self, from_a: bool) -> Option<Progress> {
        self.directions[usize::from(!from_a)].requester.progress()
    }

    fn expects(&self, psn: Psn) -> bool {
        self.directions[0].requester.expects(psn)
    }

    /// Learns the path MTU from a first or middle packet, whose payload has that length (IBA 9.7.4.1.6).
    fn learn_mtu(&mut self, observed: &ObservedPacket<'_>) {
        let full = matches!(observed.info.position, Position::First | Position::Middle);
        let len = observed.packet.payload_len;
        if self.mtu.is_some()
            || !full
            || !len.is_power_of_two()
            || !(256..=MAX_PAYLOAD).contains(&len)
        {
            return;
        }
        self.mtu = Some(len as u32);
        for direction in &mut self.directions {
            direction.requester.learn_mtu(len as u32);
        }
    }

    fn reliable(&mut self, observed: &ObservedPacket<'_>, reporter: &mut Reporter<'_>) {
        let own = usize::from(!reporter.side.from_a);
        if observed.info.request {
            self.directions[own].requester.request(observed, &mut self.mtu, reporter);
        } else {
            // A response concerns the opposite side's requester.
            reporter.side.from_a = !reporter.side.from_a;
            self.directions[1 - own].requester.response(observed, reporter);
        }
    }
}
