//! The pass over a file: feeds each record to all trackers and builds the report.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::ControlFlow;

use ferroce_wire::cm::CommId;
use ferroce_wire::frame::{Frame, IcrcVerdict, Network};
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Transport;
use ferroce_wire::packet::{MAX_PAYLOAD, Packet};
use ferroce_wire::setup;

use super::anomaly::AnomalyKind;
use super::cm::{CmTracker, value_with_meaning};
use super::detail;
use super::findings::findings;
use super::flow::{Flow, Flows};
use super::graph::Grapher;
use super::hierarchy::Hierarchy;
use super::latency::Histogram;
use super::observer::{Observer, PacketEvent};
use super::options::Options;
use super::pairs::ConnectedPairs;
use super::report::{
    Conversation, Details, Endpoint, FileReport, JoinedBy, PacketRow, ProblemReport, SetupEvent,
};
use super::sink::{ConversationTally, Sink};
use super::stamp::{Side, Stamp};
use super::window::ObservedPacket;
use crate::dissect;
use crate::file::{Direction, Record};
use crate::segments::{self, PacketRun};

/// Limit of a packet's time relative to the first packet, about a century: the difference of two such times fits in i64.
const MAX_TIME_NS: i64 = i64::MAX / 3;

/// A time without packets in which those that arrive may have waited for a busy host.
const PAUSE_NS: i64 = 150_000;

pub(super) struct Engine<'o> {
    options: &'o Options,
    /// Receives the selected packets.
    observer: Option<&'o mut Observer<'o>>,
    /// Whether the observer asked to stop.
    pub(super) stopped: bool,
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
    detail: Option<detail::Collector>,
    last_time: i64,
    /// When the last pause between packets ended.
    pause_end: Option<i64>,
    /// Scratch space for one packet of a record that holds several.
    buffer: Vec<u8>,
}

impl<'o> Engine<'o> {
    pub(super) fn new(
        path: &str,
        options: &'o Options,
        observer: Option<&'o mut Observer<'o>>,
    ) -> Self {
        Self {
            options,
            observer,
            stopped: false,
            report: FileReport { path: path.to_owned(), ..FileReport::default() },
            opcodes: [0; 256],
            hierarchy: Hierarchy::default(),
            grapher: Grapher::new(options.graph_interval_ns),
            flows: Flows::new(options.max_conversations, options.pairs.clone()),
            cm: CmTracker::default(),
            cm_connections: Vec::new(),
            sink: Sink::new(options),
            rows: Vec::new(),
            detail: options.detail.map(detail::Collector::new),
            last_time: 0,
            pause_end: None,
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
                Ok(None) => return self.unreadable(record, stamp, None),
                Err(error) => return self.unreadable(record, stamp, Some(error.to_string())),
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
            if self.stopped {
                break;
            }
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

    /// A record without a frame: an InfiniBand link packet, or an unsupported link layer.
    fn unreadable(&mut self, record: &Record<'_>, stamp: Stamp, problem: Option<String>) {
        self.sink.steps += 1;
        if !self.options.filter.is_empty() {
            self.report.excluded_packets += 1;
            return;
        }
        if let Some(text) = problem {
            self.problem(Some(record.number), record.data_offset, text);
        }
        self.count(record);
        self.grapher.add(stamp.time, false, u64::from(record.original_len));
        self.sink.notes.clear();
        self.observe(record, None, None);
    }

    fn count(&mut self, packet: &Record<'_>) {
        self.report.packets += 1;
        self.report.bytes += u64::from(packet.original_len);
    }

    fn observe(
        &mut self,
        record: &Record<'_>,
        frame: Option<&Frame<'_>>,
        icrc: Option<IcrcVerdict>,
    ) {
        let Some(observer) = &mut self.observer else { return };
        let event = PacketEvent { record, frame, icrc, anomalies: &self.sink.notes };
        if let ControlFlow::Break(()) = observer(&event) {
            self.stopped = true;
        }
    }

    /// Whether the filter selects a frame. The sender's QPN is known if its conversation is.
    fn selects(&self, frame: &Frame<'_>) -> bool {
        let filter = &self.options.filter;
        if filter.is_empty() {
            return true;
        }
        let source = match (&frame.packet, frame.addresses()) {
            (Some(packet), Some((source, destination))) if !filter.queue_pairs.is_empty() => {
                self.flows.source_qpn(source, destination, packet)
            }
            _ => None,
        };
        filter.matches_from(frame, source)
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
        self.sink.steps += 1;
        self.sink.notes.clear();
        // Packets that the filter excludes are still tracked, for the state of their conversation: an acknowledgement
        // ends a message, whether it is selected or not.
        self.sink.muted = !self.selects(frame);
        if self.sink.muted {
            self.report.excluded_packets += 1;
        } else {
            self.count(record);
            let bytes = u64::from(record.original_len);
            self.hierarchy.add(record.link, frame, bytes);
            self.grapher.add(stamp.time, verdict.is_some(), bytes);
        }
        if let Some(malformed) = frame.problem {
            let at = record.data_offset + (start + malformed.offset) as u64;
            self.problem(Some(record.number), at, malformed.problem.to_string());
        }
        if let Some(verdict) = verdict {
            self.roce(record, frame, verdict, stamp);
        } else if let Some(detail) = self.detail.as_mut().filter(|_| !self.sink.muted) {
            detail.other(frame, u64::from(record.original_len), stamp, &self.flows);
        }
        if !std::mem::take(&mut self.sink.muted) {
            self.observe(record, Some(frame), verdict);
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
        if time - self.last_time >= PAUSE_NS {
            self.pause_end = Some(time);
        }
        self.last_time = time;
        self.report.duration_ns = self.report.duration_ns.max(u64::try_from(time).unwrap_or(0));
        Stamp { frame: record.number, segment: 0, time }
    }

    fn problem(&mut self, frame: Option<u64>, offset: u64, text: String) {
        if self.sink.muted {
            return;
        }
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
        let side = match &frame.packet {
            Some(packet) => self.packet(record, frame, packet, verdict, stamp),
            None => None,
        };
        if self.sink.muted {
            return;
        }
        if let Some(side) = side {
            self.sink.tally(side.conversation).selected = true;
        }
        self.report.roce_packets += 1;
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
        if let Some(detail) = &mut self.detail {
            let bytes = u64::from(record.original_len);
            let kinds: Vec<_> = self.sink.notes.iter().map(|(kind, _)| *kind).collect();
            detail.roce(side, bytes, stamp, &kinds, &self.flows);
        }
        if self.options.packet_list && self.rows.len() < self.options.max_packet_rows {
            let row = PacketRow {
                frame: stamp.frame,
                segment: stamp.segment,
                time_ns: stamp.time,
                conversation: None,
                from_a: true,
                icrc,
                summary: dissect::summary(frame),
                notes: self.sink.notes.iter().map(|(_, text)| text.clone()).collect(),
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
        self.opcodes[usize::from(opcode.0)] += u64::from(!self.sink.muted);
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
        let outbound = record.direction == Some(Direction::Outbound);
        let since_pause = self.pause_end.map(|end| stamp.time - end);
        let observed = ObservedPacket {
            stamp,
            packet,
            info,
            identification,
            from_active,
            gaps,
            outbound,
            since_pause,
        };
        let side = self.flows.packet(
            source,
            destination,
            &observed,
            u64::from(record.original_len),
            &mut self.sink,
        );
        if let (Some(detail), Some(mut side)) = (&mut self.detail, side) {
            // A response concerns the opposite side's requester.
            side.from_a ^= !info.request;
            if let Some(progress) = self.flows.flows[side.conversation].progress(side.from_a) {
                detail.progress(side, stamp.time, progress);
            }
        }
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
            let muted = self.sink.muted;
            let listed = !muted && self.report.cm.len() < self.options.max_cm;
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
            } else if !muted {
                self.report.cm_omitted += 1;
            }
            message.from_active
        } else if packet.bth.destination == setup::QUEUE_PAIR {
            let message = setup::SetupMessage::parse(packet.payload).ok()?;
            let from_active = Some(!is_setup_response(&message));
            if self.sink.muted || self.report.setup.len() >= self.options.max_cm {
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

    /// The connected queue pairs, after the last readable record.
    pub(super) fn connected_pairs(mut self) -> ConnectedPairs {
        self.flows.finish(false, &mut self.sink);
        ConnectedPairs::of(&self.flows)
    }

    /// Builds the report after the last readable record. `dropped` is the number of packets lost by the capture.
    pub(super) fn finish(mut self, format: &str, file_bytes: u64, dropped: u64) -> FileReport {
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
            if keep(Some(message.conversation)) && selected(side.conversation) {
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
            report.anomaly_counts = self.sink.anomaly_counts;
        }
        if wanted.is_none() && !filtered {
            report.messages_total = self.sink.messages_total;
        }

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
            let conversation = conversation(id(index), flow, tally, report.dropped > 0);
            report.conversations.push(conversation);
        }
        report.latency =
            latency.iter().filter_map(|(name, all)| Some((*name, all.summary()?))).collect();
        if let Some(detail) = &mut report.detail {
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

fn conversation(id: u32, flow: &Flow, tally: ConversationTally, dropped: bool) -> Conversation {
    let endpoint =
        |peer: super::flow::Peer| Endpoint { address: peer.address.to_string(), qpn: peer.qpn };
    let findings = findings(&tally, dropped);
    let lost_requests = tally.lost_requests;
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
        lost_requests,
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
