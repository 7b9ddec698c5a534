//! Conversations: packet streams, and the matching of two streams of opposite direction.
//!
//! A packet of a connection carries only the destination QPN, so a stream is (source, destination, destination QPN).
//! Two streams are matched by the CM handshake, by an acknowledgement that matches outstanding requests of the other
//! direction, or, at the end of the file, because they are the only ones between two addresses.

mod conversation;
mod join;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Transport;
use ferroce_wire::packet::Packet;

use super::anomaly::AnomalyKind;
use super::datagrams::DatagramSenders;
use super::pairs::ConnectedPairs;
use super::report::JoinedBy;
use super::sink::{Reporter, Sink};
use super::stamp::{Side, Stamp};
use super::window::ObservedPacket;
pub(super) use conversation::{Flow, Peer, StreamKey};

/// Credit for comparing streams, earned per packet and accumulated up to a limit. It bounds the work on captures in which
/// no response ever matches: these are compared with fewer than [`join::MAX_CANDIDATES`] streams.
const LOOKUPS_PER_PACKET: usize = 32;
const MAX_LOOKUP_CREDIT: usize = 1 << 18;

/// Address and QPN of a queue pair.
pub(super) type QueuePair = (IpAddr, u32);

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
    /// Senders of datagrams, whose PSNs count over all conversations.
    datagrams: DatagramSenders,
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
            datagrams: DatagramSenders::default(),
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
                if self.datagrams.add(source, observed, side, self.max_conversations) {
                    sink.suspected.push(AnomalyKind::MessageLost);
                }
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
}
