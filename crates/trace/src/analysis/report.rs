//! The result of an analysis as plain data. The text output is drawn from it; `--json` serializes it.
//!
//! The JSON form is documented in `docs/analyze-json.md`. Within one [`SCHEMA`], fields are added but never renamed or
//! removed. Times are nanoseconds: absolute ones since 1970, `time_ns` since the file's first packet.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::anomaly::{AnomalyKind, Severity};
use super::detail::Detail;
use super::losses::Losses;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "ferroce-analyze/1";

/// The reports of all files of one run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// One for each file, in the order given.
    pub files: Vec<FileReport>,
}

/// Contents of one capture file.
#[derive(Debug, Default, Serialize)]
pub struct FileReport {
    /// The path as given.
    pub path: String,
    /// `pcap` or `pcapng`; empty when the file is neither.
    pub format: String,
    /// Bytes of the file that were read.
    pub file_bytes: u64,
    /// Records of the file. One may hold several packets, see `offload`.
    pub frames: u64,
    /// Packets of any kind.
    pub packets: u64,
    /// Packets that the filter excludes. They count nowhere else.
    #[serde(skip_serializing_if = "is_zero_packets")]
    pub excluded_packets: u64,
    /// Packets that the capture lost, according to the file's drop counters.
    pub dropped: u64,
    /// Frames that were captured before segmentation offload split them, or after receive offload joined them.
    pub offload: Offload,
    /// Bytes of all packets, as they were on the wire.
    pub bytes: u64,
    /// Packets of RoCE or InfiniBand.
    pub roce_packets: u64,
    /// When the first packet was captured, nanoseconds since 1970.
    pub start_ns: Option<i64>,
    /// From the first packet to the last.
    pub duration_ns: u64,
    /// ICRC check results of all RoCE packets.
    pub icrc: IcrcCounts,
    /// Packets by opcode, named as in the specification.
    pub opcodes: BTreeMap<String, u64>,
    /// Packets by protocol, as a tree of layers.
    pub hierarchy: Vec<HierarchyNode>,
    /// Pairs of queue pairs that exchanged packets.
    pub conversations: Vec<Conversation>,
    /// Number of all conversations, including those filtered out.
    pub conversations_total: u64,
    /// Messages in order of completion.
    pub messages: Vec<CapturedMessage>,
    /// Number of all messages, including those beyond the list's limit.
    pub messages_total: u64,
    /// Anomalies in packet order.
    pub anomalies: Vec<Anomaly>,
    /// Number of anomalies by kind, including those beyond the list's limit.
    pub anomaly_counts: BTreeMap<&'static str, u64>,
    /// Lost packets of all conversations of this report.
    pub losses: Losses,
    /// Latency by operation over all conversations.
    pub latency: BTreeMap<&'static str, Latency>,
    /// Connection manager messages.
    pub cm: Vec<CmEvent>,
    /// Number of connection manager messages beyond the list's limit.
    pub cm_omitted: u64,
    /// Messages of Ferroce's set-up exchange.
    pub setup: Vec<SetupEvent>,
    /// Traffic over time.
    pub graph: Graph,
    /// Each packet with its ICRC verdict, if [`super::Options::packet_list`] is set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub packet_list: Vec<PacketRow>,
    /// Packets that could not be parsed in full, and damage of the file itself.
    pub problems: Vec<ProblemReport>,
    /// Number of all problems, including those beyond the list's limit.
    pub problems_total: u64,
    /// Data for drawings, if [`super::Options::detail`] is set.
    #[serde(skip)]
    pub detail: Option<Detail>,
    /// Entries visited by the trackers: a deterministic measure of the work done, at most linear in the packet count.
    #[serde(skip)]
    pub steps: u64,
}

/// Frames that hold several packets, because of segmentation offload (GSO) or receive offload (GRO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Offload {
    /// Frames.
    pub frames: u64,
    /// Packets in them.
    pub packets: u64,
}

/// Counts of ICRC check results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IcrcCounts {
    /// Correct.
    pub ok: u64,
    /// Wrong.
    pub bad: u64,
    /// Not verifiable: truncated by the capture, or malformed.
    pub unverifiable: u64,
}

/// One protocol in the hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HierarchyNode {
    /// Its name.
    pub name: &'static str,
    /// Packets that contain it.
    pub packets: u64,
    /// Bytes of these packets on the wire.
    pub bytes: u64,
    /// Protocols it carried.
    pub children: Vec<HierarchyNode>,
}

/// One side of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// IP address or GID.
    pub address: String,
    /// Queue pair number; `None` until a packet to it is seen.
    pub qpn: Option<u32>,
}

/// How the two directions of a conversation were matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinedBy {
    /// The connection manager's handshake named both queue pairs.
    Cm,
    /// An acknowledgement matches outstanding requests of the other direction.
    Acknowledgement,
    /// The only queue pairs between these addresses.
    Address,
    /// Datagrams carry both queue pair numbers.
    Datagram,
    /// Only one direction was seen.
    OneWay,
    /// Both ends are the same queue pair, so the direction of a packet is unknown.
    SameEndpoint,
}

/// Packets and bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire, all headers included.
    pub bytes: u64,
    /// Bytes of payload.
    pub payload: u64,
}

/// Two queue pairs that exchange packets.
#[derive(Clone, Debug, Serialize)]
pub struct Conversation {
    /// Counted from 1.
    pub id: u32,
    /// `RC`, `UC`, `RD`, `UD` or `XRC`.
    pub transport: &'static str,
    /// The side whose packet was seen first.
    pub a: Endpoint,
    /// The other side.
    pub b: Endpoint,
    /// How the two directions were matched.
    pub joined_by: JoinedBy,
    /// Path MTU, if known from the CM handshake or from full packets.
    pub path_mtu: Option<u32>,
    /// From `a` to `b`.
    pub a_to_b: Traffic,
    /// From `b` to `a`.
    pub b_to_a: Traffic,
    /// Number of its first packet in the file.
    pub first_frame: u64,
    /// Number of its last packet.
    pub last_frame: u64,
    /// When it started.
    pub time_ns: i64,
    /// From its first packet to its last.
    pub duration_ns: u64,
    /// Messages by operation.
    pub operations: BTreeMap<&'static str, OperationStats>,
    /// Anomalies by kind.
    pub anomalies: BTreeMap<&'static str, u64>,
    /// The diagnosis in sentences, most severe first.
    pub findings: Vec<Finding>,
    /// Lost packets.
    pub losses: Losses,
}

/// Messages of one operation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OperationStats {
    /// Messages.
    pub messages: u64,
    /// Messages with packets missing from the capture.
    pub incomplete: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// Packets, excluding retransmissions.
    pub packets: u64,
    /// From the request's first packet to its acknowledgement.
    pub latency: Option<Latency>,
}

/// Latency over many messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // Percentiles by their names.
pub struct Latency {
    /// Messages measured.
    pub count: u64,
    pub min_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    pub mean_ns: u64,
    /// Whether the percentiles are exact, which they are up to a few thousand messages. Otherwise each is at most 1/64
    /// too high.
    pub exact: bool,
}

/// A sentence of diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// What happened and what it means.
    pub text: String,
}

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageStatus {
    /// The responder acknowledged it or sent the response.
    Acknowledged,
    /// The responder refused it with a NAK; the anomaly gives the reason.
    Refused,
    /// No acknowledgement was seen.
    Unacknowledged,
    /// Sent on an unacknowledged service.
    Sent,
    /// Some of its packets are not in the capture.
    Incomplete,
}

/// A message reassembled from its captured packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CapturedMessage {
    /// Its conversation.
    pub conversation: u32,
    /// Whether `a` is the requester; otherwise `b` is.
    pub from_a: bool,
    /// `SEND`, `RDMA_WRITE`, `RDMA_READ`, `COMPARE_SWAP`, `FETCH_ADD`, `FLUSH`, `ATOMIC_WRITE`.
    pub operation: &'static str,
    /// Bytes of payload moved.
    pub size: u64,
    /// Packets that carried it, including READ responses, excluding retransmissions.
    pub packets: u64,
    /// Retransmitted packets.
    pub retransmitted: u64,
    /// Its first packet.
    pub first_frame: u64,
    /// The packet that ended it: its acknowledgement, or its last packet.
    pub last_frame: u64,
    /// When its first packet was sent.
    pub time_ns: i64,
    /// First and last PSN.
    pub psn: (u32, u32),
    /// From its first packet to its acknowledgement.
    pub latency_ns: Option<u64>,
    /// How it ended.
    pub status: MessageStatus,
    /// Immediate data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immediate: Option<u32>,
    /// R_Key that the receiver is told to invalidate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalidate: Option<u32>,
    /// Remote address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_address: Option<u64>,
    /// Remote key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_key: Option<u32>,
}

/// One anomaly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    /// Kind of anomaly.
    pub kind: AnomalyKind,
    /// Severity.
    pub severity: Severity,
    /// The packet at which it was detected.
    pub frame: u64,
    /// Packet within that frame, counted from 1, if the frame holds several; otherwise 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub segment: u32,
    /// When.
    pub time_ns: i64,
    /// Its conversation.
    pub conversation: Option<u32>,
    /// The PSN concerned.
    pub psn: Option<u32>,
    /// Description.
    pub text: String,
}

/// Fields of a message with their values as text, in message order. Serialized as a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details(Vec<(&'static str, String)>);

impl Details {
    /// Appends a field.
    pub fn push(&mut self, name: &'static str, value: String) {
        self.0.push((name, value));
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find_map(|(field, value)| (field == name).then_some(value))
    }

    /// All fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

impl Serialize for Details {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// One message of the connection manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CmEvent {
    /// The packet.
    pub frame: u64,
    /// Packet within that frame, counted from 1, if the frame holds several; otherwise 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub segment: u32,
    /// When.
    pub time_ns: i64,
    /// Sender's address.
    pub source: String,
    /// Receiver's address.
    pub destination: String,
    /// `REQ`, `REP`, `RTU`, `REJ`, `MRA`, `DREQ`, `DREP`, `LAP`, `APR`, `SIDR_REQ` or `SIDR_REP`.
    pub message: &'static str,
    /// Transaction of the management datagram.
    pub transaction: u64,
    /// The sender's communication id (or SIDR request id).
    pub local_id: Option<u32>,
    /// The receiver's communication id.
    pub remote_id: Option<u32>,
    /// Whether the same message was seen before.
    pub repeated: bool,
    /// The conversation it set up or ended.
    pub conversation: Option<u32>,
    /// All other fields by name.
    pub details: Details,
    /// One-line summary.
    pub summary: String,
    /// The consumer's private data in hexadecimal, without the RDMA-CM header and trailing zeroes.
    pub private_data: String,
}

/// One message of Ferroce's set-up exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetupEvent {
    /// The packet.
    pub frame: u64,
    /// When.
    pub time_ns: i64,
    /// Sender's address.
    pub source: String,
    /// Receiver's address.
    pub destination: String,
    /// Its name, for example `DEVICE_DISCOVERY_REQ`.
    pub message: &'static str,
    /// Its fields by name.
    pub details: Details,
}

/// Traffic over time in equal intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Graph {
    /// Length of an interval.
    pub interval_ns: u64,
    /// The intervals, starting at the file's first packet.
    pub bins: Vec<GraphBin>,
}

/// One interval of the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GraphBin {
    /// RoCE packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets of everything else.
    pub other_packets: u64,
    /// Their bytes on the wire.
    pub other_bytes: u64,
}

/// One packet in the packet list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PacketRow {
    /// Its number in the file.
    pub frame: u64,
    /// Packet within that frame, counted from 1, if the frame holds several; otherwise 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub segment: u32,
    /// When.
    pub time_ns: i64,
    /// Its conversation.
    pub conversation: Option<u32>,
    /// Whether `a` of the conversation sent it.
    pub from_a: bool,
    /// `ok`, `bad`, `unverifiable`.
    pub icrc: &'static str,
    /// One-line summary.
    pub summary: String,
    /// Descriptions of its anomalies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A packet or a position in the file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProblemReport {
    /// The packet's number, if the problem concerns one packet.
    pub frame: Option<u64>,
    /// Byte offset in the file, if there is one.
    pub offset: Option<u64>,
    /// What is wrong and how to fix it.
    pub text: String,
}

fn is_zero_packets(number: &u64) -> bool {
    *number == 0
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
