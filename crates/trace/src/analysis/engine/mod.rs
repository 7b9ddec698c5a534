//! The pass over a file: feeds each record to all trackers, and builds the report at the end.

mod finish;
mod packet;

use std::net::IpAddr;
use std::ops::ControlFlow;

use ferroce_wire::cm::CommId;
use ferroce_wire::frame::{Frame, IcrcVerdict};

use super::cm::CmTracker;
use super::detail;
use super::flow::Flows;
use super::graph::Grapher;
use super::hierarchy::Hierarchy;
use super::observer::{Observer, PacketEvent};
use super::options::Options;
use super::report::{FileReport, PacketRow, ProblemReport};
use super::sink::Sink;
use super::stamp::{Side, Stamp};
use crate::dissect;
use crate::file::Record;
use crate::segments::PacketRun;

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
        self.sink.next_packet();
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
        self.sink.next_packet();
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
}
