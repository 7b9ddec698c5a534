//! The pass over a file: feeds each record to all trackers and builds the report.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferroce_wire::cm::CommId;
use ferroce_wire::frame::{Frame, IcrcVerdict, Network};
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Transport;
use ferroce_wire::packet::{MAX_PAYLOAD, Packet};
use ferroce_wire::setup;

use super::anomaly::AnomalyKind;
use super::cm::{CmTracker, value_with_meaning};
use super::findings::findings;
use super::flow::{Flow, Flows};
use super::graph::Grapher;
use super::hierarchy::Hierarchy;
use super::latency::Histogram;
use super::options::Options;
use super::report::{
    Conversation, Details, Endpoint, FileReport, JoinedBy, PacketRow, ProblemReport, SetupEvent,
};
use super::sink::{ConversationTally, Sink};
use super::stamp::{Side, Stamp};
use super::window::ObservedPacket;
use crate::dissect;
use crate::file::Record;
use crate::segments::{self, PacketRun};

/// Limit of a packet's time relative to the first packet, about a century: the difference of two such times fits in i64.
const MAX_TIME_NS: i64 = i64::MAX / 3;

#[derive(Debug)]
pub(super) struct Engine<'o> {
    options: &'o Options,
    report: FileReport,
    opcodes: [u64; 256],
    hierarchy: Hierarchy,
    grapher: Grapher,
    flows: Flows,
    cm: CmTracker,
    /// The connection that each listed CM message belongs to.
    cm_connections: Vec<Option<(IpAddr, CommId)>>,
    sink: Sink,
    rows: Vec<(Option<Side>, PacketRow)>,
    last_time: i64,
    /// Scratch space for one packet of a record that holds several.
    buffer: Vec<u8>,
}

impl<'o> Engine<'o> {
    pub(super) fn new(path: &str, options: &'o Options) -> Self {
        Self {
            options,
            report: FileReport { path: path.to_owned(), ..FileReport::default() },
            opcodes: [0; 256],
            hierarchy: Hierarchy::default(),
            grapher: Grapher::new(options.graph_interval_ns),
            flows: Flows::new(options.max_conversations),
            cm: CmTracker::default(),
            cm_connections: Vec::new(),
            sink: Sink::new(options),
            rows: Vec::new(),
            last_time: 0,
            buffer: Vec::new(),
        }
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        self.report.frames += 1;
        if record.dropped > 0 {
            self.sink.gaps += 1;
        }
        let stamp = self.stamp(record);
        for oddity in record.oddities.iter() {
            self.problem(Some(record.number), record.offset, oddity.to_string());
        }
        let (start, frame) =
            match dissect::read(record.link, record.data, record.original_len as usize) {
                Ok(Some(read)) => read,
                Ok(None) => return self.count_unreadable(record, stamp),
                Err(error) => {
                    self.problem(Some(record.number), record.data_offset, error.to_string());
                    return self.count_unreadable(record, stamp);
                }
            };
        let verdict = frame.is_roce().then(|| frame.check_icrc());
        if verdict.is_some_and(|verdict| verdict != IcrcVerdict::Ok) {
            if let Some(run) = PacketRun::find_in(record.link, start, &frame) {
                return self.offload_run(record, run, stamp);
            }
        }
        self.frame(record, start, &frame, verdict, stamp);
    }

    /// A record that holds several packets, because of segmentation offload.
    fn offload_run(&mut self, record: &Record<'_>, run: PacketRun, stamp: Stamp) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for index in 0..run.captured() {
            let packet = run.packet(record, index, &mut buffer);
            let stamp = Stamp { segment: index + 1, ..stamp };
            let read = dissect::read(packet.link, packet.data, packet.original_len as usize);
            if let Ok(Some((start, frame))) = read {
                self.frame(&packet, start, &frame, Some(frame.check_icrc()), stamp);
            }
        }
        self.buffer = buffer;
        self.report.offload.frames += 1;
        self.report.offload.packets += u64::from(run.captured());
        let cut = run.count() - run.captured();
        if cut > 0 {
            let text = format!(
                "snapped: the capture kept {} of {} packets in this frame; \
                 record with a larger snap length",
                run.captured(),
                run.count(),
            );
            self.problem(Some(record.number), record.offset, text);
            self.report.dropped += u64::from(cut);
            self.sink.gaps += 1;
        }
    }

    fn count_unreadable(&mut self, record: &Record<'_>, stamp: Stamp) {
        self.count(record);
        self.grapher.add(stamp.time, false, u64::from(record.original_len));
    }

    fn count(&mut self, packet: &Record<'_>) {
        self.report.packets += 1;
        self.sink.steps += 1;
        self.report.bytes += u64::from(packet.original_len);
    }

    /// Counts one packet: a record, or one of the packets in a record.
    fn frame(
        &mut self,
        record: &Record<'_>,
        start: usize,
        frame: &Frame<'_>,
        verdict: Option<IcrcVerdict>,
        stamp: Stamp,
    ) {
        self.count(record);
        if let Some(malformed) = frame.problem {
            let at = record.data_offset + (start + malformed.offset) as u64;
            self.problem(Some(record.number), at, malformed.problem.to_string());
        }
        let bytes = u64::from(record.original_len);
        self.hierarchy.add(record.link, frame, bytes);
        self.grapher.add(stamp.time, verdict.is_some(), bytes);
        if let Some(verdict) = verdict {
            self.roce(record, frame, verdict, stamp);
        }
    }

    fn stamp(&mut self, record: &Record<'_>) -> Stamp {
        // Simple Packet Blocks have no timestamp: use that of the previous packet.
        let time = match record.timestamp {
            Some(timestamp) => {
                let now = timestamp.as_nanoseconds();
                let since = now.saturating_sub(*self.report.start_ns.get_or_insert(now));
                since.clamp(-MAX_TIME_NS, MAX_TIME_NS)
            }
            None => self.last_time,
        };
        self.last_time = time;
        self.report.duration_ns = self.report.duration_ns.max(u64::try_from(time).unwrap_or(0));
        Stamp { frame: record.number, segment: 0, time }
    }

    fn problem(&mut self, frame: Option<u64>, offset: u64, text: String) {
        self.report.problems_total += 1;
        if self.report.problems.len() < self.options.max_problems {
            self.report.problems.push(ProblemReport { frame, offset: Some(offset), text });
        }
    }

    /// Records damage of the file itself.
    pub(super) fn damaged(&mut self, offset: u64, text: String) {
        self.problem(None, offset, text);
    }

    fn roce(&mut self, record: &Record<'_>, frame: &Frame<'_>, verdict: IcrcVerdict, stamp: Stamp) {
        self.report.roce_packets += 1;
        self.sink.notes.clear();
        let icrc = match verdict {
            IcrcVerdict::Ok => {
                self.report.icrc.ok += 1;
                "ok"
            }
            IcrcVerdict::Bad { .. } => {
                self.report.icrc.bad += 1;
                "bad"
            }
            IcrcVerdict::Unverifiable => {
                self.report.icrc.unverifiable += 1;
                "unverifiable"
            }
        };
        let side = match &frame.packet {
            Some(packet) => self.packet(record, frame, packet, verdict, stamp),
            None => None,
        };
        if self.options.packet_list && self.rows.len() < self.options.max_packet_rows {
            let row = PacketRow {
                frame: stamp.frame,
                segment: stamp.segment,
                time_ns: stamp.time,
                conversation: None,
                from_a: true,
                icrc,
                summary: dissect::summary(frame),
                notes: std::mem::take(&mut self.sink.notes),
            };
            self.rows.push((side, row));
        }
    }

    fn packet(
        &mut self,
        record: &Record<'_>,
        frame: &Frame<'_>,
        packet: &Packet<'_>,
        verdict: IcrcVerdict,
        stamp: Stamp,
    ) -> Option<Side> {
        let opcode = packet.bth.opcode;
        self.opcodes[usize::from(opcode.0)] += 1;
        let psn = Some(packet.bth.psn.0);
        let transport_at = (record.data.len() - frame.bytes.len() + frame.at.transport) as u64;
        if let IcrcVerdict::Bad { computed, found } = verdict {
            let side = (frame.addresses())
                .and_then(|(source, destination)| self.flows.side_of(source, destination, packet));
            if packet.payload_len > MAX_PAYLOAD {
                let text = format!(
                    "{} bytes of payload: several packets of a segmentation offload, or corruption; no ICRC shows \
                     where a packet ends",
                    packet.payload_len
                );
                self.sink.anomaly(AnomalyKind::Oversized, stamp, side, psn, text);
            } else {
                let text = format!("ICRC {}, should be {}", hex(found), hex(computed));
                self.problem(Some(stamp.frame), record.data_offset + transport_at, text.clone());
                self.sink.anomaly(AnomalyKind::BadIcrc, stamp, side, psn, text);
            }
            // Receivers drop the packet, and its fields cannot be trusted: list it in the conversation it seems to
            // belong to, but do not track it.
            return side;
        }
        let Some(info) = opcode.info() else {
            let text = format!("{} opcode {:#04x}", opcode.name(), opcode.0);
            self.problem(Some(stamp.frame), record.data_offset + transport_at, text.clone());
            self.sink.anomaly(AnomalyKind::UnknownOpcode, stamp, None, psn, text);
            return None;
        };
        if frame.problem.is_some() {
            return None;
        }
        if !packet.is_whole() && segments::holds_several(frame) {
            let text = format!(
                "snapped: {} of {} bytes captured of a frame that holds several packets (segmentation offload), \
                 which cannot be separated; record with a larger snap length",
                record.data.len(),
                record.original_len
            );
            self.problem(Some(stamp.frame), record.offset, text);
            self.sink.gaps += 1;
            let (source, destination) = frame.addresses()?;
            return self.flows.side_of(source, destination, packet);
        }
        if !packet.is_whole() {
            let text = format!(
                "snapped: {} of {} bytes captured, ICRC cut off; record with a larger snap length",
                record.data.len(),
                record.original_len
            );
            self.problem(Some(stamp.frame), record.offset, text);
        }
        let (source, destination) = frame.addresses()?;
        let identification = match frame.network {
            Some(Network::Ipv4(ip, _)) => Some(ip.identification.0),
            _ => None,
        };
        let from_active = match info.transport {
            Transport::UnreliableDatagram => self.management(packet, source, destination, stamp),
            _ => None,
        };
        let gaps = self.sink.gaps;
        let observed = ObservedPacket { stamp, packet, info, identification, from_active, gaps };
        let side = self.flows.packet(
            source,
            destination,
            &observed,
            u64::from(record.original_len),
            &mut self.sink,
        );
        if dissect::is_congestion_marked(frame) {
            let text = "congestion experienced on the path".to_owned();
            self.sink.anomaly(AnomalyKind::EcnMarked, stamp, side, psn, text);
        }
        side
    }

    /// Processes datagrams that set up connections. Returns whether the active side sent it, if it is one.
    fn management(
        &mut self,
        packet: &Packet<'_>,
        source: IpAddr,
        destination: IpAddr,
        stamp: Stamp,
    ) -> Option<bool> {
        if packet.bth.destination == Qpn::GENERAL_SERVICES {
            let listed = self.report.cm.len() < self.options.max_cm;
            let message = self.cm.datagram(packet.payload, source, destination, stamp, listed)?;
            if let Some(handshake) = &message.connected {
                if !message.event.repeated {
                    self.flows.connected(handshake);
                }
            }
            if message.event.repeated {
                let text = format!("{} retransmitted", message.event.message);
                self.sink.anomaly(AnomalyKind::CmRepeated, stamp, None, None, text);
            }
            if let Some(why) = message.rejected {
                self.sink.anomaly(AnomalyKind::CmReject, stamp, None, None, why);
            }
            if listed {
                self.report.cm.push(message.event);
                self.cm_connections.push(message.connection);
            } else {
                self.report.cm_omitted += 1;
            }
            message.from_active
        } else if packet.bth.destination == setup::QUEUE_PAIR {
            let message = setup::SetupMessage::parse(packet.payload).ok()?;
            let from_active = Some(!is_setup_response(&message));
            if self.report.setup.len() >= self.options.max_cm {
                return from_active;
            }
            let mut details = Details::default();
            message.visit(&mut |field, value| {
                if !field.is_reserved() {
                    details.push(field.name, value_with_meaning(value));
                }
            });
            self.report.setup.push(SetupEvent {
                frame: stamp.frame,
                time_ns: stamp.time,
                source: source.to_string(),
                destination: destination.to_string(),
                message: message.name(),
                details,
            });
            from_active
        } else {
            None
        }
    }

    /// Builds the report after the last readable record. `dropped` is the number of packets lost by the capture.
    pub(super) fn finish(mut self, format: &str, file_bytes: u64, dropped: u64) -> FileReport {
        self.report.format = format.to_owned();
        self.report.file_bytes = file_bytes;
        self.report.dropped = self.report.dropped.saturating_add(dropped);
        self.flows.finish(&mut self.sink);
        let ids = self.conversation_ids();
        let sides = self.flows.by_sides();
        let id = |index: usize| ids[index];
        let wanted = self.options.conversation;
        let keep = |conversation: Option<u32>| wanted.is_none() || conversation == wanted;

        let mut report = self.report;
        report.conversations_total = ids.last().copied().unwrap_or(0).into();
        report.steps = self.sink.steps;
        for (code, &count) in self.opcodes.iter().enumerate().filter(|(_, count)| **count > 0) {
            let opcode = ferroce_wire::opcode::Opcode(code as u8);
            report.opcodes.insert(opcode.to_string(), count);
        }
        report.hierarchy = self.hierarchy.finish();
        report.graph = self.grapher.finish();
        for (event, connection) in report.cm.iter_mut().zip(&self.cm_connections) {
            let handshake = connection.and_then(|connection| self.cm.handshake(connection));
            let found = handshake.and_then(|both| sides.get(&(both.active, both.passive)));
            event.conversation = found.map(|&index| id(index));
        }
        for (side, mut row) in self.rows {
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
            if keep(Some(message.conversation)) {
                report.messages.push(message);
            }
        }
        for (side, mut anomaly) in self.sink.anomalies {
            let side = side.map(|side| self.flows.resolve(side));
            anomaly.conversation = side.map(|side| id(side.conversation));
            if keep(anomaly.conversation) {
                report.anomalies.push(anomaly);
            }
        }
        report.anomalies.sort_by_key(|anomaly| (anomaly.frame, anomaly.segment));
        if wanted.is_none() {
            report.messages_total = self.sink.messages_total;
            report.anomaly_counts = self.sink.anomaly_counts;
        }

        let mut latency: BTreeMap<&'static str, Histogram> = BTreeMap::new();
        for (index, flow) in self.flows.flows.iter().enumerate() {
            if flow.merged_into.is_some() || !keep(Some(id(index))) {
                continue;
            }
            let tally = self.sink.tallies.get(index).cloned().unwrap_or_default();
            if wanted.is_some() {
                let operations = tally.operations.values();
                report.messages_total = operations.map(|operation| operation.stats.messages).sum();
                let anomalies = tally.anomalies.iter();
                report.anomaly_counts =
                    anomalies.map(|(kind, count)| (kind.name(), count.count)).collect();
            }
            for (name, operations) in &tally.operations {
                latency.entry(name).or_default().merge(&operations.latency);
            }
            let conversation = conversation(id(index), flow, tally, report.dropped > 0);
            report.conversations.push(conversation);
        }
        report.latency =
            latency.iter().filter_map(|(name, all)| Some((*name, all.summary()?))).collect();
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

fn conversation(id: u32, flow: &Flow, tally: ConversationTally, dropped: bool) -> Conversation {
    let endpoint =
        |peer: super::flow::Peer| Endpoint { address: peer.address.to_string(), qpn: peer.qpn };
    let findings = findings(&tally, dropped);
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
    }
}

/// Whether this message of the set-up exchange is a response, sent by the server.
fn is_setup_response(message: &setup::SetupMessage) -> bool {
    use setup::SetupMessage;
    matches!(
        message,
        SetupMessage::DeviceDiscoveryResp(_)
            | SetupMessage::QpCreateResp(_)
            | SetupMessage::MrRegisterResp(_)
            | SetupMessage::ConnectionAccept(_)
    )
}

fn hex(bytes: [u8; 4]) -> String {
    format!("{:08x}", u32::from_be_bytes(bytes))
}
