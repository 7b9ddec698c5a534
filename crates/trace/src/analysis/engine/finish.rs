//! Builds the report after the last packet.

use std::collections::{BTreeMap, HashSet};

use super::Engine;
use crate::analysis::findings::findings;
use crate::analysis::flow::{Flow, Peer};
use crate::analysis::latency::Histogram;
use crate::analysis::losses::{Losses, Paths};
use crate::analysis::pairs::ConnectedPairs;
use crate::analysis::report::{Conversation, Endpoint, FileReport, JoinedBy, ProblemReport};
use crate::analysis::sink::ConversationTally;

impl Engine<'_> {
    /// The connected queue pairs, after the last readable record.
    pub(in crate::analysis) fn connected_pairs(mut self) -> ConnectedPairs {
        self.flows.finish(false, &mut self.sink);
        ConnectedPairs::of(&self.flows)
    }

    /// Builds the report after the last readable record. `dropped` is the number of packets lost by the capture.
    pub(in crate::analysis) fn finish(
        mut self,
        format: &str,
        file_bytes: u64,
        dropped: u64,
    ) -> FileReport {
        self.report.format = format.to_owned();
        self.report.file_bytes = file_bytes;
        self.report.dropped = self.report.dropped.saturating_add(dropped);
        let filtered = !self.options.filter.is_empty();
        self.flows.finish(filtered, &mut self.sink);
        let ids = self.conversation_ids();
        let sides = self.flows.by_sides();
        let id = |index: usize| ids[index];
        let wanted = self.options.conversation;
        let keep = |conversation: Option<u32>| wanted.is_none() || conversation == wanted;
        let tallies = self.sink.tallies;
        let selected =
            |index: usize| !filtered || tallies.get(index).is_some_and(|tally| tally.selected);

        let mut report = self.report;
        report.conversations_total = ids.last().copied().unwrap_or(0).into();
        report.steps = self.sink.steps;
        for (code, &count) in self.opcodes.iter().enumerate().filter(|(_, count)| **count > 0) {
            let opcode = ferroce_wire::opcode::Opcode(code as u8);
            report.opcodes.insert(opcode.to_string(), count);
        }
        report.hierarchy = self.hierarchy.finish();
        report.graph = self.grapher.finish();
        report.detail = self.detail.map(|detail| detail.finish(&self.flows, &id));
        for (event, connection) in report.cm.iter_mut().zip(&self.cm_connections) {
            let handshake = connection.and_then(|connection| self.cm.handshake(connection));
            let found = handshake.and_then(|both| sides.get(&(both.active, both.passive)));
            event.conversation = found.map(|&index| id(index));
        }
        let mut disproved: HashSet<(u64, u32, &str)> = HashSet::new();
        disproved.extend(self.sink.withdrawn.iter().map(|&index| {
            let anomaly = &self.sink.anomalies[index].1;
            (anomaly.frame, anomaly.segment, anomaly.text.as_str())
        }));
        for (side, mut row) in self.rows {
            row.notes.retain(|note| !disproved.contains(&(row.frame, row.segment, note)));
            if let Some(side) = side.map(|side| self.flows.resolve(side)) {
                (row.conversation, row.from_a) = (Some(id(side.conversation)), side.from_a);
            }
            if keep(row.conversation) {
                report.packet_list.push(row);
            }
        }
        for (side, mut message) in self.sink.messages {
            let side = self.flows.resolve(side);
            (message.conversation, message.from_a) = (id(side.conversation), side.from_a);
            if keep(Some(message.conversation)) && selected(side.conversation) {
                report.messages.push(message);
            }
        }
        for (index, (side, mut anomaly)) in self.sink.anomalies.into_iter().enumerate() {
            if self.sink.withdrawn.contains(&index) {
                continue;
            }
            let side = side.map(|side| self.flows.resolve(side));
            anomaly.conversation = side.map(|side| id(side.conversation));
            if keep(anomaly.conversation) {
                report.anomalies.push(anomaly);
            }
        }
        report.anomalies.sort_by_key(|anomaly| (anomaly.frame, anomaly.segment));
        if wanted.is_none() {
            report.anomaly_counts = self.sink.anomaly_counts;
        }
        if wanted.is_none() && !filtered {
            report.messages_total = self.sink.messages_total;
        }

        let paths = Paths::of(self.flows.flows.iter().zip(&tallies));
        let mut latency: BTreeMap<&'static str, Histogram> = BTreeMap::new();
        for (index, flow) in self.flows.flows.iter().enumerate() {
            if flow.merged_into.is_some() || !keep(Some(id(index))) || !selected(index) {
                continue;
            }
            let tally = tallies.get(index).cloned().unwrap_or_default();
            if wanted.is_some() || filtered {
                let operations = tally.operations.values();
                let messages = operations.map(|operation| operation.stats.messages);
                report.messages_total += messages.sum::<u64>();
            }
            if wanted.is_some() {
                let anomalies = tally.anomalies.iter().filter(|(_, count)| count.selected > 0);
                report.anomaly_counts =
                    anomalies.map(|(kind, count)| (kind.name(), count.selected)).collect();
            }
            for (name, operations) in &tally.operations {
                latency.entry(name).or_default().merge(&operations.latency);
            }
            let losses = Losses::of(&tally, paths.get(flow));
            report.losses.add(&losses);
            let conversation = conversation(id(index), flow, tally, losses, report.dropped > 0);
            report.conversations.push(conversation);
        }
        report.latency =
            latency.iter().filter_map(|(name, all)| Some((*name, all.summary()?))).collect();
        if let Some(detail) = &mut report.detail {
            detail.marks = self.sink.marks.map_or_else(Vec::new, |it| it.finish(&self.flows, &id));
            detail.latency = latency.iter().map(|(name, all)| (*name, all.bins())).collect();
        }
        if self.flows.untracked > 0 {
            report.problems_total += 1;
            report.problems.push(ProblemReport {
                frame: None,
                offset: None,
                text: format!(
                    "more than {} conversations: {} packets of the others were counted but not analysed",
                    self.options.max_conversations, self.flows.untracked
                ),
            });
        }
        report
    }

    /// Returns the id of each conversation in the report, in order of their first packet.
    fn conversation_ids(&self) -> Vec<u32> {
        let mut next = 0;
        (self.flows.flows.iter())
            .map(|flow| {
                next += u32::from(flow.merged_into.is_none());
                next
            })
            .collect()
    }
}

fn conversation(
    id: u32,
    flow: &Flow,
    tally: ConversationTally,
    losses: Losses,
    dropped: bool,
) -> Conversation {
    let endpoint = |peer: Peer| Endpoint { address: peer.address.to_string(), qpn: peer.qpn };
    let findings = findings(&tally, &losses, dropped);
    let operations = tally.operations.into_iter().map(|(name, mut operations)| {
        operations.stats.latency = operations.latency.summary();
        (name, operations.stats)
    });
    // A conversation joined by datagrams may still be one-way.
    let joined_by = match flow.joined_by {
        JoinedBy::Datagram if flow.directions[1].traffic.packets > 0 => JoinedBy::Datagram,
        JoinedBy::Datagram if flow.a == flow.b => JoinedBy::SameEndpoint,
        JoinedBy::Datagram => JoinedBy::OneWay,
        other => other,
    };
    Conversation {
        id,
        transport: flow.transport.name(),
        a: endpoint(flow.a),
        b: endpoint(flow.b),
        joined_by,
        path_mtu: flow.mtu,
        a_to_b: flow.directions[0].traffic,
        b_to_a: flow.directions[1].traffic,
        first_frame: flow.first.frame,
        last_frame: flow.last.frame,
        time_ns: flow.first.time,
        duration_ns: u64::try_from(flow.last.time - flow.first.time).unwrap_or(0),
        operations: operations.collect(),
        anomalies: tally.anomalies.iter().map(|(kind, count)| (kind.name(), count.count)).collect(),
        findings,
        losses,
    }
}
