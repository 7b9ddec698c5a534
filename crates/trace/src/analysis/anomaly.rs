//! Everything that is not plain delivery, by name.

use serde::Serialize;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// The protocol had to repair something.
    Warning,
    /// Something failed for good.
    Error,
}

/// The kinds of anomaly, with the name that JSON gives them and their usual severity.
macro_rules! kinds {
    ($( $(#[doc = $doc:literal])+ $kind:ident = $name:literal, $severity:ident; )+) => {
        /// What kind of anomaly.
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

            /// How bad it usually is.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$kind => Severity::$severity,)+ }
            }

            /// What the kind means, one line.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$kind => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

kinds! {
    /// Request packets that never came past the capture point: lost before it, or not captured.
    MissingRequest = "missing_request", Warning;
    /// Packets that the capture itself lost, as the file says.
    CaptureGap = "capture_gap", Warning;
    /// Response packets that never came past the capture point.
    MissingResponse = "missing_response", Warning;
    /// A packet that came later than packets sent after it.
    Reordered = "reordered", Warning;
    /// A packet that came twice although its sender sent it once.
    Duplicate = "duplicate", Warning;
    /// A request sent again by its requester.
    Retransmission = "retransmission", Warning;
    /// A request was sent again because no answer came in time.
    Timeout = "timeout", Warning;
    /// A response sent again, because its request came again.
    RepeatedResponse = "repeated_response", Info;
    /// An acknowledgement of what was acknowledged before.
    RepeatedAcknowledge = "repeated_acknowledge", Info;
    /// An acknowledgement of a packet that the capture has not.
    UnseenAcknowledged = "unseen_acknowledged", Info;
    /// NAK: the responder misses a packet and asks to go back.
    NakSequence = "nak_sequence", Warning;
    /// RNR NAK: the responder had no receive request posted.
    RnrNak = "rnr_nak", Warning;
    /// NAK: the request is not one that the queue pair accepts.
    NakInvalidRequest = "nak_invalid_request", Error;
    /// NAK: key, bounds or access rights do not allow the request.
    NakRemoteAccess = "nak_remote_access", Error;
    /// NAK: the responder failed locally.
    NakRemoteOperational = "nak_remote_operational", Error;
    /// NAK: reliable datagram only.
    NakInvalidRd = "nak_invalid_rd", Error;
    /// An AETH syndrome that the specification reserves.
    ReservedSyndrome = "reserved_syndrome", Warning;
    /// The requester got no answer to any attempt, and the capture shows no further one.
    RetryExceeded = "retry_exceeded", Error;
    /// The responder was never ready, and the capture shows no further attempt.
    RnrRetryExceeded = "rnr_retry_exceeded", Error;
    /// Packets of an unreliable message are missing: its receiver drops it.
    MessageLost = "message_lost", Warning;
    /// PSNs start anew: the queue pair was connected again.
    Restart = "restart", Info;
    /// Congestion notification: the path marked packets, the requester shall slow down.
    Cnp = "cnp", Info;
    /// A router marked the packet: congestion experienced.
    EcnMarked = "ecn_marked", Info;
    /// The ICRC does not fit the packet's bytes: it is damaged, and every receiver drops it.
    BadIcrc = "bad_icrc", Error;
    /// An opcode that the specification does not define.
    UnknownOpcode = "unknown_opcode", Warning;
    /// More payload than any path MTU allows: several packets that an offload has not yet split.
    Oversized = "oversized", Info;
    /// The connection manager refused a connection.
    CmReject = "cm_reject", Error;
    /// The connection manager sent a message again.
    CmRepeated = "cm_repeated", Warning;
}
