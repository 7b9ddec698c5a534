//! What an analysis found, as plain data: the text output draws it, `--json` prints it as it stands here.
//!
//! The JSON form is documented in `docs/analyze-json.md` and stable: fields are added, never renamed or removed,
//! within one [`SCHEMA`]. Times are nanoseconds: absolute ones since 1970, `time_ns` since the file's first packet.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::anomaly::{AnomalyKind, Severity};

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

/// What one capture file holds.
#[derive(Debug, Default, Serialize)]
pub struct FileReport {
    /// The file as it was named.
    pub path: String,
    /// `pcap` or `pcapng`; empty when the file is neither.
    pub format: String,
    /// Bytes of the file that were read.
    pub file_bytes: u64,
    /// Records of the file. One may hold several packets, see `offload`.
    pub frames: u64,
    /// Packets of any kind.
    pub packets: u64,
    /// Packets that the capture lost, as the file itself says.
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
    /// Verdicts on the ICRC of every RoCE packet.
    pub icrc: IcrcCounts,
    /// Packets by opcode, named as in the specification.
    pub opcodes: BTreeMap<String, u64>,
    /// Packets by protocol, layer in layer.
    pub hierarchy: Vec<HierarchyNode>,
    /// Who talked to whom.
    pub conversations: Vec<Conversation>,
    /// All conversations, those that were not asked for included.
    pub conversations_total: u64,
    /// Messages in the order in which they were finished.
    pub messages: Vec<CapturedMessage>,
    /// All messages, those beyond the list's limit included.
    pub messages_total: u64,
    /// Everything out of the ordinary, in order of the packets.
    pub anomalies: Vec<Anomaly>,
    /// All anomalies by kind, those beyond the list's limit included.
    pub anomaly_counts: BTreeMap<&'static str, u64>,
    /// Latency by operation over all conversations.
    pub latency: BTreeMap<&'static str, Latency>,
    /// The connection manager's messages.
    pub cm: Vec<CmEvent>,
    /// Connection manager messages beyond the list's limit.
    pub cm_omitted: u64,
    /// Messages of Ferroce's set-up exchange.
    pub setup: Vec<SetupEvent>,
    /// Traffic over time.
    pub graph: Graph,
    /// Each packet with its ICRC verdict, when asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub packet_list: Vec<PacketRow>,
    /// Packets that could not be read in full, and where the file itself is damaged.
    pub problems: Vec<ProblemReport>,
    /// All problems, those beyond the list's limit included.
    pub problems_total: u64,
    /// Entries that the trackers looked at: time without a clock. No capture makes it grow faster than its packets.
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

/// Verdicts on ICRCs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IcrcCounts {
    /// Right.
    pub ok: u64,
    /// Wrong.
    pub bad: u64,
    /// Not to be checked: cut by the capture, or not readable.
    pub unverifiable: u64,
}

/// One protocol in the hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HierarchyNode {
    /// Its name.
    pub name: &'static str,
    /// Packets that had it.
    pub packets: u64,
    /// Bytes of these packets on the wire.
    pub bytes: u64,
    /// What it carried.
    pub children: Vec<HierarchyNode>,
}

/// One side of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// IP address or GID.
    pub address: String,
    /// Queue pair number, `None` while no packet to it was seen.
    pub qpn: Option<u32>,
}

/// How the two directions of a conversation were found to belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinedBy {
    /// The connection manager's handshake named both queue pairs.
    Cm,
    /// An acknowledgement fits requests of the other direction.
    Acknowledgement,
    /// The only queue pairs between these addresses.
    Address,
    /// Datagrams name both queue pairs.
    Datagram,
    /// Only one direction was seen.
    OneWay,
    /// Both ends are one queue pair, whose packets do not tell their direction.
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

/// Two queue pairs that talk to each other.
#[derive(Clone, Debug, Serialize)]
pub struct Conversation {
    /// Counted from 1.
    pub id: u32,
    /// `RC`, `UC`, `RD`, `UD` or `XRC`.
    pub transport: &'static str,
    /// The side that was heard first.
    pub a: Endpoint,
    /// The other side.
    pub b: Endpoint,
    /// Why these two belong together.
    pub joined_by: JoinedBy,
    /// Path MTU, when the connection manager or full packets told it.
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
    /// What happened, in words, worst first.
    pub findings: Vec<Finding>,
}

/// Messages of one operation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OperationStats {
    /// Messages.
    pub messages: u64,
    /// Those of them of which packets are not in the capture.
    pub incomplete: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// Packets, retransmissions not counted.
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
    /// Whether the percentiles are exact, as they are of a few thousand messages. Otherwise each is at most 1/64 too
    /// high.
    pub exact: bool,
}

/// A sentence of diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What happened and what it means.
    pub text: String,
}

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageStatus {
    /// The responder acknowledged it, or sent what was asked for.
    Acknowledged,
    /// The responder refused it: its anomaly says why.
    Refused,
    /// No acknowledgement was seen.
    Unacknowledged,
    /// Sent on a service that acknowledges nothing.
    Sent,
    /// Some of its packets are not in the capture.
    Incomplete,
}

/// A message put together from its packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CapturedMessage {
    /// Its conversation.
    pub conversation: u32,
    /// Whether `a` asked for it; else `b` did.
    pub from_a: bool,
    /// `SEND`, `RDMA_WRITE`, `RDMA_READ`, `COMPARE_SWAP`, `FETCH_ADD`, `FLUSH`, `ATOMIC_WRITE`.
    pub operation: &'static str,
    /// Bytes of payload moved.
    pub size: u64,
    /// Packets that carried it, responses of a READ included, retransmissions not.
    pub packets: u64,
    /// Packets that were sent again.
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
    /// The key that the receiver was told to invalidate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalidate: Option<u32>,
    /// Remote address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_address: Option<u64>,
    /// Remote key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_key: Option<u32>,
}

/// Something out of the ordinary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    /// What it is.
    pub kind: AnomalyKind,
    /// How bad it is.
    pub severity: Severity,
    /// The packet that shows it.
    pub frame: u64,
    /// Which packet of that frame, counted from 1, if the frame holds several; else 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub segment: u32,
    /// When.
    pub time_ns: i64,
    /// Its conversation.
    pub conversation: Option<u32>,
    /// The PSN it is about.
    pub psn: Option<u32>,
    /// What happened, in words.
    pub text: String,
}

/// Fields of a message and their values as text, in the order in which the message has them. A map in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details(Vec<(&'static str, String)>);

impl Details {
    /// Adds a field behind the others.
    pub fn push(&mut self, name: &'static str, value: String) {
        self.0.push((name, value));
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find_map(|(field, value)| (field == name).then_some(value))
    }

    /// All fields, first to last.
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
    /// Which packet of that frame, counted from 1, if the frame holds several; else 0.
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
    /// Everything else it says, by name.
    pub details: Details,
    /// What it says, in one line.
    pub summary: String,
    /// The consumer's private data in hexadecimal, RDMA-CM's own header and trailing zeroes cut off.
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
    /// What it says, by field.
    pub details: Details,
}

/// Traffic over time in equal steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Graph {
    /// Length of a step.
    pub interval_ns: u64,
    /// The steps, from the file's first packet on.
    pub bins: Vec<GraphBin>,
}

/// One step of the graph.
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
    /// Which packet of that frame, counted from 1, if the frame holds several; else 0.
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
    /// What it is, in one line.
    pub summary: String,
    /// What is out of the ordinary about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A packet, or a place in the file, that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProblemReport {
    /// The packet's number, when it is one packet's problem.
    pub frame: Option<u64>,
    /// Where in the file, in bytes, when it is one place.
    pub offset: Option<u64>,
    /// What is wrong and what to do.
    pub text: String,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
