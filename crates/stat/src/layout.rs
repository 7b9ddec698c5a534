//! The layout of the published memory: which word means what.

/// The version of the format.
pub const VERSION: u64 = 1;

/// The name of the memfd.
pub const NAME: &str = "ferroce-stat";

/// The first word: "FERROCE" and a zero.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"FERROCE\0");

/// The words of the header.
#[derive(Clone, Copy, Debug)]
pub enum Header {
    /// [`MAGIC`].
    Magic,
    /// [`VERSION`].
    Version,
    /// The end of the last slot, in words.
    End,
    /// When the process opened its first device: nanoseconds of `CLOCK_MONOTONIC`.
    Opened,
    /// How many objects could not be published, for want of memory.
    Unpublished,
    /// The version of the library, in 4 words.
    Library = 8,
    /// The last [`Reason`] of a call that belongs to no object.
    LastReason = 12,
}

/// The words of the header; slots follow.
pub const HEADER_WORDS: usize = 64;

/// The words of a reason: why something was refused.
#[derive(Clone, Copy, Debug)]
pub enum Reason {
    /// How many there were. The others describe the last one.
    Count,
    /// Its number, as in `vendor_err`.
    Number,
    /// When it was: nanoseconds of `CLOCK_MONOTONIC`.
    Time,
    /// The sentence, in [`REASON_TEXT_WORDS`] words.
    Text,
}

/// The words of [`Reason::Text`]. A longer text is cut.
pub const REASON_TEXT_WORDS: usize = 42;

/// The words of a [`Reason`].
pub const REASON_WORDS: usize = Reason::Text as usize + REASON_TEXT_WORDS;

/// The words of the two sizes of slots.
pub const SMALL: usize = 16;
/// See [`SMALL`].
pub const LARGE: usize = 256;

/// What a slot describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Free,
    /// An open device.
    Device,
    /// A queue pair.
    QueuePair,
    /// A completion queue.
    CompletionQueue,
    /// A memory region.
    MemoryRegion,
    /// A shared receive queue.
    SharedReceiveQueue,
}

impl Kind {
    #[cfg(feature = "reader")]
    const ALL: [Self; 6] = [
        Self::Free,
        Self::Device,
        Self::QueuePair,
        Self::CompletionQueue,
        Self::MemoryRegion,
        Self::SharedReceiveQueue,
    ];

    /// The words of a slot of this kind.
    pub const fn words(self) -> usize {
        match self {
            Self::Device | Self::QueuePair => LARGE,
            _ => SMALL,
        }
    }

    /// The second word of a slot of `words` words.
    pub(crate) const fn to_word(self, words: usize) -> u64 {
        self as u64 | (words as u64) << 32
    }

    /// The kind and the number of words in the second word of a slot; `None` if it makes no sense.
    #[cfg(feature = "reader")]
    pub(crate) fn from_word(word: u64) -> Option<(Self, usize)> {
        let kind = *Self::ALL.get((word & 0xffff_ffff) as usize)?;
        let words = (word >> 32) as usize;
        let fits = matches!(words, SMALL | LARGE) && (kind == Self::Free || kind.words() == words);
        fits.then_some((kind, words))
    }
}

/// The words of a slot before its fields.
#[derive(Clone, Copy, Debug)]
pub enum SlotHeader {
    /// How many changes of several fields are complete. The last word of a slot counts those that have begun.
    Completed,
    /// See [`Kind`].
    Kind,
}

/// The words of a device.
#[derive(Clone, Copy, Debug)]
pub enum Device {
    /// Its name, in 4 words.
    Name = 2,
    /// Its first GID, in 2 words.
    Gid = 6,
    /// 1 if the port is active.
    Active = 8,
    /// The largest path MTU in bytes.
    Mtu,
    /// The number of protection domains.
    Pds,
    /// The number of memory windows.
    Windows,
    /// Its counters, in the order of [`device_counters`](crate::device_counters).
    Counters = 32,
    /// The last [`Reason`] that belongs to no QP.
    LastReason = 80,
}

/// The words of a queue pair.
#[derive(Clone, Copy, Debug)]
pub enum QueuePair {
    /// The position of its device's slot, as in the words of the same name below.
    Device = 2,
    /// The QPN.
    Number,
    /// The service: the index in [`SERVICES`].
    Service,
    /// The state: the index in [`STATES`].
    State,
    /// The remote QPN.
    RemoteNumber,
    /// The GID of the peer, in 2 words.
    RemoteGid,
    /// How packets reach the peer: the index in [`LINKS`].
    Link = 9,
    /// The path MTU in bytes.
    PathMtu,
    /// The capacity of the SQ.
    MaxSendWr,
    /// The capacity of the RQ.
    MaxRecvWr,
    /// The SRQ's number, or 0.
    SharedReceiveQueue,
    /// The ID of the CQ of the SQ.
    SendCq,
    /// The ID of the CQ of the RQ.
    RecvCq,
    /// The shard it belongs to.
    Shard,
    /// When it was created, and when it last sent or received: nanoseconds of `CLOCK_MONOTONIC`.
    Created,
    /// See [`QueuePair::Created`].
    Active,
    /// The PSN of the next request.
    SqPsn,
    /// The PSN expected next.
    RqPsn,
    /// Send requests that have not completed.
    SendOutstanding,
    /// Request packets sent and not acknowledged.
    InFlightPackets,
    /// Their bytes, and those of READ responses that were requested.
    InFlightBytes,
    /// Send requests posted.
    SendPosted,
    /// Receive requests posted to its own RQ.
    RecvPosted,
    /// Completions of its RQ.
    RecvCompleted,
    /// Completions of its SQ.
    SendCompleted,
    /// Completions with an error, of both queues.
    CompletionErrors,
    /// The status of the last of them: one more than the index in [`STATUSES`], or 0.
    LastError,
    /// The sum of the latencies in the histogram, in nanoseconds.
    LatencySum,
    /// Its transport counters, in the order of [`TRANSPORT_COUNTERS`].
    Counters = 32,
    /// NAKs received, in the order of [`NAKS`].
    NaksReceived = 48,
    /// NAKs sent.
    NaksSent = 53,
    /// [`Traffic`] for each [`CLASSES`], sent and then received.
    Traffic = 64,
    /// The latency histogram: see [`histogram`](crate::histogram).
    Histogram = 104,
    /// The last [`Reason`].
    LastReason = 209,
}

/// The words of each class of [`QueuePair::Traffic`].
#[derive(Clone, Copy, Debug)]
pub enum Traffic {
    /// Packets.
    Packets,
    /// Bytes of payload.
    Bytes,
    /// Packets that end a message.
    Messages,
}

/// The number of words of [`Traffic`].
pub const TRAFFIC_WORDS: usize = 3;

/// The words of a completion queue.
#[derive(Clone, Copy, Debug)]
pub enum CompletionQueue {
    /// The position of its device's slot.
    Device = 2,
    /// Its ID in the process.
    Id,
    /// The maximum number of entries.
    Capacity,
    /// Entries that the program has not polled.
    Pending,
    /// Entries ever added.
    Completions,
    /// Entries lost because it was full.
    Overruns,
}

/// The words of a memory region.
#[derive(Clone, Copy, Debug)]
pub enum MemoryRegion {
    /// The position of its device's slot.
    Device = 2,
    /// Its PD.
    Pd,
    /// The length in bytes.
    Length,
    /// The access flags, as in `enum ibv_access_flags`.
    Access,
}

/// The words of a shared receive queue.
#[derive(Clone, Copy, Debug)]
pub enum SharedReceiveQueue {
    /// The position of its device's slot.
    Device = 2,
    /// Its number.
    Number,
    /// The maximum number of requests.
    Capacity,
    /// Requests posted.
    Posted,
    /// Requests completed.
    Completed,
}

/// The services.
pub const SERVICES: [&str; 5] = ["RC", "UC", "UD", "XRC_INI", "XRC_TGT"];

/// The QP states.
pub const STATES: [&str; 7] = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];

/// How packets reach the peer.
pub const LINKS: [&str; 3] = ["none", "sockets", "shared memory"];

/// The statuses of completions, as in `enum ibv_wc_status`.
pub const STATUSES: [&str; 13] = [
    "SUCCESS",
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_PROT_ERR",
    "LOC_ACCESS_ERR",
    "MW_BIND_ERR",
    "WR_FLUSH_ERR",
    "BAD_RESP_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
    "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR",
];

/// The reasons of NAKs.
pub const NAKS: [&str; 5] =
    ["rnr", "psn_sequence", "invalid_request", "remote_access", "remote_operational"];

/// The classes of packets. Requests and responses of READs and atomics have the same class.
pub const CLASSES: [&str; 6] = ["send", "write", "read", "atomic", "ack", "other"];

/// The counters of a QP's transport, by the names of Linux drivers where they have one.
pub const TRANSPORT_COUNTERS: [&str; 11] = [
    "duplicate_request",
    "out_of_sequence",
    "out_of_window_request",
    "packet_seq_err",
    "implied_nak_seq_err",
    "rnr_nak_retry_err",
    "local_ack_timeout_err",
    "retrans_pkts",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
];

/// Passes the counters of a device to a macro, in the order of their words: `name,` after its documentation.
#[macro_export]
macro_rules! device_counters {
    ($with:ident) => {
        $with! {
            /// Packets received for this process.
            packets_in,
            /// Their bytes, from the BTH to the ICRC.
            bytes_in,
            /// Packets sent.
            packets_out,
            /// Their bytes, from the BTH to the ICRC.
            bytes_out,
            /// Packets received through memory that another process shares, of all received.
            local_packets_in,
            /// Packets sent through such memory, of all sent.
            local_packets_out,
            /// Packets that are not valid RoCE packets.
            malformed,
            /// Packets with a wrong ICRC.
            bad_icrc,
            /// Packets for another partition.
            bad_partition,
            /// Packets for a QP that does not exist, or from a host that is not its peer.
            no_queue_pair,
            /// Packets received by another process and forwarded to this one.
            forwarded_in,
            /// Packets forwarded to another process.
            forwarded_out,
            /// Packets that could not be forwarded.
            forward_failed,
            /// Packets that the kernel refused to send.
            send_failed,
            /// The error number (`errno`) of the last of them.
            send_errno,
            /// Receive calls that the kernel refused.
            receive_failed,
            /// The error number (`errno`) of the last of them.
            receive_errno,
            /// Completions lost because the CQ was full.
            overruns,
            /// Packets missing in the capture.
            capture_drops,
            /// Packets that fault injection lost, duplicated, delayed or corrupted.
            faults_injected,
            /// Responder: requests that had been executed before.
            duplicate_request,
            /// Responder: requests behind a gap in the PSNs.
            out_of_sequence,
            /// Responder: requests with a PSN that no requester in sequence sends.
            out_of_window_request,
            /// Requester: NAKs for a PSN sequence error, within the retry limit.
            packet_seq_err,
            /// Requester: gaps in READ and atomic responses that made it go back, within the retry limit.
            implied_nak_seq_err,
            /// Requester: RNR NAKs, within the retry limit.
            rnr_nak_retry_err,
            /// Requester: expiries of the ACK timer, within the retry limit.
            local_ack_timeout_err,
            /// Requester: packets sent again.
            retrans_pkts,
            /// Notification point: CNPs sent.
            np_cnp_sent,
            /// Notification point: packets received with "congestion experienced".
            np_ecn_marked_roce_packets,
            /// Reaction point: CNPs that reduced the rate.
            rp_cnp_handled,
        }
    };
}

macro_rules! names {
    ($( $(#[$doc:meta])+ $name:ident, )+) => {
        /// The names of the counters of a device.
        pub const DEVICE_COUNTERS: &[&str] = &[$( stringify!($name) ),+];
    };
}

device_counters!(names);

const _: () = {
    assert!(Device::Counters as usize + DEVICE_COUNTERS.len() <= Device::LastReason as usize);
    assert!(
        QueuePair::Counters as usize + TRANSPORT_COUNTERS.len() <= QueuePair::NaksReceived as usize
    );
    assert!(QueuePair::NaksReceived as usize + NAKS.len() == QueuePair::NaksSent as usize);
    assert!(QueuePair::NaksSent as usize + NAKS.len() <= QueuePair::Traffic as usize);
    let traffic = 2 * CLASSES.len() * TRAFFIC_WORDS;
    assert!(QueuePair::Traffic as usize + traffic <= QueuePair::Histogram as usize);
    assert!((CompletionQueue::Overruns as usize) < SMALL - 1);
    assert!(
        QueuePair::Histogram as usize + crate::histogram::BUCKETS <= QueuePair::LastReason as usize
    );
    assert!(QueuePair::LastReason as usize + REASON_WORDS < LARGE);
    assert!(Device::LastReason as usize + REASON_WORDS < LARGE);
    assert!(Header::LastReason as usize + REASON_WORDS <= HEADER_WORDS);
};
