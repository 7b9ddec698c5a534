//! Kinds of anomalies: everything that is not plain delivery.

use serde::Serialize;

/// Severity of an anomaly or finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Informational.
    Info,
    /// The protocol had to recover.
    Warning,
    /// An operation failed permanently.
    Error,
}

/// Defines the kinds of anomaly with their JSON name and default severity.
macro_rules! kinds {
    ($( $(#[doc = $doc:literal])+ $kind:ident = $name:literal, $severity:ident; )+) => {
        /// Kind of anomaly.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum AnomalyKind { $( $(#[doc = $doc])+ $kind, )+ }

        impl AnomalyKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// The name in JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)+ }
            }

            /// Default severity.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$kind => Severity::$severity,)+ }
            }

            /// One-line description of the kind.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$kind => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

impl AnomalyKind {
    /// Whether it means packets that are not in the capture. It is noticed at a later packet, which it does not concern.
    pub const fn is_missing(self) -> bool {
        use AnomalyKind::{CaptureGap, MessageLost, MissingRequest, MissingResponse};
        matches!(self, MissingRequest | MissingResponse | MessageLost | CaptureGap)
    }

    /// Whether it means a packet that is in the capture a second time.
    pub const fn is_repeat(self) -> bool {
        use AnomalyKind::{
            Duplicate, Probe, RepeatedAcknowledge, RepeatedResponse, Retransmission, Timeout,
        };
        matches!(
            self,
            Duplicate | Probe | RepeatedAcknowledge | RepeatedResponse | Retransmission | Timeout
        )
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

kinds! {
    /// Request packets that did not reach the capture point: lost before it, or not captured.
    MissingRequest = "missing_request", Warning;
    /// Packets lost by the capture itself, according to its drop counters.
    CaptureGap = "capture_gap", Warning;
    /// Response packets that did not reach the capture point.
    MissingResponse = "missing_response", Warning;
    /// A packet that the capture contains and its receiver misses: lost after the capture point, or reordered there.
    LostAfterCapture = "lost_after_capture", Warning;
    /// A packet that arrived after packets sent later.
    Reordered = "reordered", Warning;
    /// A packet seen twice although it was sent once.
    Duplicate = "duplicate", Warning;
    /// A request retransmitted by the requester.
    Retransmission = "retransmission", Warning;
    /// A request retransmitted because no response arrived before the timeout.
    Timeout = "timeout", Warning;
    /// A packet sent again after a short wait, to ask for an acknowledgement that is late or lost.
    Probe = "probe", Info;
    /// A response repeated because its request was repeated.
    RepeatedResponse = "repeated_response", Info;
    /// A repeated acknowledgement.
    RepeatedAcknowledge = "repeated_acknowledge", Info;
    /// An acknowledgement of a packet that is not in the capture.
    UnseenAcknowledged = "unseen_acknowledged", Info;
    /// NAK, PSN sequence error: the responder misses a packet and requests go-back-N.
    NakSequence = "nak_sequence", Warning;
    /// RNR NAK: the responder had no receive request posted.
    RnrNak = "rnr_nak", Warning;
    /// NAK, invalid request: the queue pair does not accept the request.
    NakInvalidRequest = "nak_invalid_request", Error;
    /// NAK, remote access error: R_Key, bounds or access flags do not allow the request.
    NakRemoteAccess = "nak_remote_access", Error;
    /// NAK, remote operational error: the responder failed locally.
    NakRemoteOperational = "nak_remote_operational", Error;
    /// NAK, invalid RD request: defined for reliable datagrams only.
    NakInvalidRd = "nak_invalid_rd", Error;
    /// An AETH syndrome that the specification reserves.
    ReservedSyndrome = "reserved_syndrome", Warning;
    /// The requester got no response to any attempt, and the capture shows no further attempt.
    RetryExceeded = "retry_exceeded", Error;
    /// The responder answered every attempt with an RNR NAK, and the capture shows no further attempt.
    RnrRetryExceeded = "rnr_retry_exceeded", Error;
    /// Packets of an unreliable message are missing: the receiver drops the message.
    MessageLost = "message_lost", Warning;
    /// PSNs restart: the queue pair was reconnected.
    Restart = "restart", Info;
    /// Congestion notification packet: the path marked packets, the requester should slow down.
    Cnp = "cnp", Info;
    /// A packet marked congestion experienced (CE) by a switch or router.
    EcnMarked = "ecn_marked", Info;
    /// The ICRC does not match the packet: it is corrupted, and receivers drop it.
    BadIcrc = "bad_icrc", Error;
    /// An opcode that the specification does not define.
    UnknownOpcode = "unknown_opcode", Warning;
    /// More payload than any path MTU allows: several packets not yet split by segmentation offload.
    Oversized = "oversized", Info;
    /// The peer's connection manager rejected a connection.
    CmReject = "cm_reject", Error;
    /// A retransmitted connection manager message.
    CmRepeated = "cm_repeated", Warning;
}
