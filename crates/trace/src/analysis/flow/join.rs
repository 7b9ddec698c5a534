//! The matching of two streams of opposite direction.

use std::collections::{BTreeSet, HashMap};

use ferroce_wire::opcode::{Operation, Transport};

use super::{Flows, Handshake, QueuePair, StreamKey};
use crate::analysis::report::JoinedBy;
use crate::analysis::sink::{Reporter, Sink};
use crate::analysis::stamp::Side;
use crate::analysis::window::ObservedPacket;

/// Candidate streams compared with a response, newest first.
pub(super) const MAX_CANDIDATES: usize = 1024;

impl Flows {
    /// Merges the stream of a response with the opposite stream, if exactly one has a matching outstanding request.
    pub(super) fn join_by_response(
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
        let mut direction = std::mem::take(&mut dropped.directions[0]);
        let responses = std::mem::take(&mut dropped.directions[1].requester.unmatched);
        let (mtu, last, peer) = (dropped.mtu, dropped.last, dropped.b);
        let kept = &mut self.flows[keep];
        direction.requester.adopt_responses(&kept.directions[1].requester.unmatched);
        kept.directions[1] = direction;
        kept.directions[0].requester.adopt_responses(&responses);
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
    pub(in crate::analysis) fn connected(&mut self, handshake: &Handshake) {
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
    pub(in crate::analysis) fn by_sides(&self) -> HashMap<(QueuePair, QueuePair), usize> {
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
    pub(in crate::analysis) fn finish(&mut self, filtered: bool, sink: &mut Sink) {
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
        self.datagrams.finish(filtered, sink);
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
    pub(in crate::analysis) fn resolve(&self, side: Side) -> Side {
        match self.flows[side.conversation].merged_into {
            Some(conversation) => Side { conversation, from_a: !side.from_a },
            None => side,
        }
    }
}
