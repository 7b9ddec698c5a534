//! The data of a page, embedded as JSON. Names of packets and points are short because there are many.

use std::collections::BTreeMap;

use ferroce_trace::analysis::anomaly::Severity;
use ferroce_trace::analysis::report::{
    Endpoint, HierarchyNode, IcrcCounts, JoinedBy, Latency, OperationStats, Traffic,
};
use serde::Serialize;

/// Name and version of the data.
pub const SCHEMA: &str = "ferroce-report/1";

/// A page: one or more captures.
#[derive(Debug, Serialize)]
pub struct Page {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of Ferroce that wrote it.
    pub version: &'static str,
    /// One for each file, in the order given.
    pub files: Vec<FilePage>,
}

/// One capture.
#[derive(Debug, Default, Serialize)]
pub struct FilePage {
    /// The path as given.
    pub path: String,
    /// `pcap` or `pcapng`; empty when the file is neither.
    pub format: String,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Packets of any kind.
    pub packets: u64,
    /// Packets of RoCE or InfiniBand.
    pub roce_packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Packets that the capture lost.
    pub dropped: u64,
    /// When it started, in words.
    pub start: String,
    /// From the first packet to the last.
    pub duration_ns: u64,
    /// ICRC check results.
    pub icrc: IcrcCounts,
    /// Messages.
    pub messages: u64,
    /// Number of all conversations.
    pub conversations_total: u64,
    /// The worst severity of the diagnosis; `None` if nothing is wrong.
    pub worst: Option<Severity>,
    /// The diagnosis, the most severe first.
    pub topics: Vec<Topic>,
    /// The largest conversations, by number.
    pub conversations: Vec<ConversationPage>,
    /// TCP connections, the largest first.
    pub tcp: Vec<TcpPage>,
    /// Packets by protocol.
    pub hierarchy: Vec<HierarchyNode>,
    /// Packets by opcode.
    pub opcodes: BTreeMap<String, u64>,
    /// Latency by operation.
    pub latency: Vec<LatencyPage>,
    /// Traffic over time.
    pub series: SeriesPage,
    /// Bytes in flight and PSN progress.
    pub curves: Vec<CurvePage>,
    /// Anomalies, for the timeline and the PSN chart: evenly over time if there are too many.
    pub marks: Vec<Mark>,
    /// Anomalies without a mark.
    pub marks_left_out: u64,
    /// Descriptions of fields: name and purpose.
    pub specs: Vec<(&'static str, &'static str)>,
    /// The packets shown.
    pub shown: Vec<PacketPage>,
    /// Packets left out after the last shown one, by conversation; 0 stands for packets without one.
    pub left_out: BTreeMap<u32, u64>,
    /// Damage of the file and packets that could not be read.
    pub problems: Vec<String>,
    /// Number of all problems.
    pub problems_total: u64,
}

/// One statement of the diagnosis.
#[derive(Debug, Serialize)]
pub struct Topic {
    /// Its name, for links and tests.
    pub id: &'static str,
    /// Severity.
    pub severity: Severity,
    /// What happened, in a few words.
    pub title: String,
    /// What it means.
    pub meaning: &'static str,
    /// What to do.
    pub advice: &'static str,
    /// Occurrences.
    pub count: u64,
    /// Conversations it concerns.
    pub conversations: Vec<u32>,
    /// The first packets that show it.
    pub evidence: Vec<Evidence>,
}

/// A packet that shows an anomaly.
#[derive(Debug, Serialize)]
pub struct Evidence {
    /// The frame.
    pub frame: u64,
    /// The packet within the frame, or 0.
    pub segment: u32,
    /// What the analysis says about it.
    pub text: String,
}

/// A conversation.
#[derive(Debug, Serialize)]
pub struct ConversationPage {
    /// Its number.
    pub id: u32,
    /// Its transport.
    pub transport: &'static str,
    /// The side whose packet was seen first.
    pub a: Endpoint,
    /// The other side.
    pub b: Endpoint,
    /// How its directions were matched.
    pub joined_by: JoinedBy,
    /// Path MTU.
    pub mtu: Option<u32>,
    /// From `a` to `b`.
    pub a_to_b: Traffic,
    /// From `b` to `a`.
    pub b_to_a: Traffic,
    /// When it started.
    pub time_ns: i64,
    /// From its first packet to its last.
    pub duration_ns: u64,
    /// Messages by operation.
    pub operations: BTreeMap<&'static str, OperationStats>,
    /// Anomalies by kind.
    pub anomalies: BTreeMap<&'static str, u64>,
    /// The worst severity of its anomalies.
    pub worst: Option<Severity>,
    /// Messages of the connection manager that belong to it.
    pub control: Vec<Control>,
    /// States of the queue pairs, inferred from the packets.
    pub states: Vec<State>,
}

/// A message of the connection manager.
#[derive(Debug, Serialize)]
pub struct Control {
    /// The frame.
    pub frame: u64,
    /// The packet within the frame, or 0.
    pub segment: u32,
    /// When.
    pub time_ns: i64,
    /// Whether `a` sent it.
    pub from_a: bool,
    /// Its name.
    pub message: &'static str,
    /// One-line summary.
    pub summary: String,
}

/// A state that a queue pair enters at a packet.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct State {
    /// The frame.
    pub frame: u64,
    /// The packet within the frame, or 0.
    pub segment: u32,
    /// Whether it is `a`'s queue pair.
    pub of_a: bool,
    /// `INIT`, `RTR`, `RTS` or `ERROR`.
    pub state: &'static str,
}

/// A TCP connection.
#[derive(Debug, Serialize)]
pub struct TcpPage {
    /// The side whose packet was seen first.
    pub a: String,
    /// The other side.
    pub b: String,
    /// Packets, bytes on the wire, payload, from `a` to `b`.
    pub a_to_b: Traffic,
    /// From `b` to `a`.
    pub b_to_a: Traffic,
    /// Retransmitted segments of both directions.
    pub retransmitted: u64,
    /// Segments that filled a gap.
    pub late: u64,
    /// When it started.
    pub time_ns: i64,
    /// From its first packet to its last.
    pub duration_ns: u64,
}

/// Latency of one operation.
#[derive(Debug, Serialize)]
pub struct LatencyPage {
    /// The operation.
    pub operation: &'static str,
    /// Percentiles.
    pub summary: Latency,
    /// Upper bounds and counts of the distribution.
    pub bins: Vec<(u64, u64)>,
}

/// Traffic over time.
#[derive(Debug, Default, Serialize)]
pub struct SeriesPage {
    /// Length of an interval.
    pub interval_ns: u64,
    /// Number of intervals.
    pub bins: u64,
    /// The lines: all RoCE and all TCP traffic, then the largest conversations and TCP connections, then the others.
    pub lines: Vec<SeriesLine>,
}

/// Kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    /// All conversations together.
    AllRdma,
    /// All TCP connections together.
    AllTcp,
    /// A conversation.
    Rdma,
    /// A TCP connection.
    Tcp,
    /// All others.
    Others,
}

/// Traffic of one conversation over time.
#[derive(Debug, Serialize)]
pub struct SeriesLine {
    /// What it counts.
    pub kind: LineKind,
    /// Conversation number, or number of the TCP connection.
    pub id: u32,
    /// Interval, packets, bytes; intervals without packets are left out.
    pub points: Vec<(u64, u64, u64)>,
}

/// State of a requester over time.
#[derive(Debug, Serialize)]
pub struct CurvePage {
    /// Its conversation.
    pub conversation: u32,
    /// Whether `a` is the requester.
    pub from_a: bool,
    /// Its first PSN.
    pub first_psn: u32,
    /// Time, bytes in flight, PSNs sent, PSNs acknowledged.
    pub points: Vec<(u64, u64, u64, u64)>,
}

/// An anomaly in a chart.
#[derive(Debug, Serialize)]
pub struct Mark {
    /// Its kind.
    pub kind: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// The frame.
    pub frame: u64,
    /// The packet within the frame, or 0.
    pub segment: u32,
    /// When.
    pub time_ns: i64,
    /// Its conversation.
    pub conversation: Option<u32>,
    /// The PSN concerned.
    pub psn: Option<u32>,
}

/// A packet.
#[derive(Debug, Serialize)]
pub struct PacketPage {
    /// Frame number.
    pub f: u64,
    /// Packet within the frame, or 0.
    pub s: u32,
    /// Time in nanoseconds since the file's first packet.
    pub t: i64,
    /// Conversation, or 0.
    pub c: u32,
    /// Whether `a` sent it.
    pub a: bool,
    /// Packets of the same conversation left out directly before it.
    pub x: u64,
    /// One-line summary.
    pub y: String,
    /// Source and destination address.
    pub d: String,
    /// Anomalies: severity, kind, text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub n: Vec<(Severity, &'static str, String)>,
    /// Length on the wire.
    pub o: usize,
    /// The first bytes in hexadecimal; empty if left out to keep the page small.
    pub h: String,
    /// Captured length.
    pub k: usize,
    /// Layers.
    pub l: Vec<LayerPage>,
    /// Problems of the packet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub p: Vec<String>,
}

/// Name, offset, length, summary, fields.
#[derive(Debug, Serialize)]
pub struct LayerPage(pub &'static str, pub usize, pub usize, pub String, pub Vec<FieldPage>);

/// Index in [`FilePage::specs`], offset, first bit, width in bits, value, meaning, check result (`correct`, `wrong`, …).
#[derive(Debug, Serialize)]
pub struct FieldPage(
    pub usize,
    pub usize,
    pub usize,
    pub usize,
    pub String,
    pub String,
    pub &'static str,
);
