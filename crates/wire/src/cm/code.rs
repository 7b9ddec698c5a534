//! Coded fields of CM messages.

use core::fmt;

use crate::number::codes;

codes! {
    /// Reason of a REJ (IBA 12.6.7.2, table 109).
    pub struct RejectReason(u16), 6 {
        NO_QP = 1 => "no queue pair available",
        NO_EEC = 2 => "no end-to-end context available",
        NO_RESOURCES = 3 => "no resources available",
        TIMEOUT = 4 => "timeout",
        UNSUPPORTED_REQUEST = 5 => "unsupported request",
        INVALID_COMM_ID = 6 => "invalid communication ID",
        INVALID_COMM_INSTANCE = 7 => "invalid communication instance",
        INVALID_SERVICE_ID = 8 => "invalid service ID: no listener",
        INVALID_TRANSPORT_TYPE = 9 => "invalid transport service type",
        STALE_CONNECTION = 10 => "stale connection",
        RDC_DOES_NOT_EXIST = 11 => "reliable datagram channel does not exist",
        PRIMARY_GID_REJECTED = 12 => "primary remote port GID rejected",
        PRIMARY_LID_REJECTED = 13 => "primary remote port LID rejected",
        INVALID_PRIMARY_SL = 14 => "invalid primary service level",
        INVALID_PRIMARY_TRAFFIC_CLASS = 15 => "invalid primary traffic class",
        INVALID_PRIMARY_HOP_LIMIT = 16 => "invalid primary hop limit",
        INVALID_PRIMARY_PACKET_RATE = 17 => "invalid primary packet rate",
        ALTERNATE_GID_REJECTED = 18 => "alternate remote port GID rejected",
        ALTERNATE_LID_REJECTED = 19 => "alternate remote port LID rejected",
        INVALID_ALTERNATE_SL = 20 => "invalid alternate service level",
        INVALID_ALTERNATE_TRAFFIC_CLASS = 21 => "invalid alternate traffic class",
        INVALID_ALTERNATE_HOP_LIMIT = 22 => "invalid alternate hop limit",
        INVALID_ALTERNATE_PACKET_RATE = 23 => "invalid alternate packet rate",
        PORT_AND_CM_REDIRECTION = 24 => "port and connection manager redirection",
        PORT_REDIRECTION = 25 => "port redirection",
        INVALID_PATH_MTU = 26 => "invalid path MTU",
        INSUFFICIENT_RESPONDER_RESOURCES = 27 => "insufficient responder resources",
        CONSUMER_REJECT = 28 => "rejected by the consumer",
        RNR_RETRY_COUNT_REJECT = 29 => "RNR retry count rejected",
        DUPLICATE_LOCAL_COMM_ID = 30 => "duplicate local communication ID",
        UNSUPPORTED_CLASS_VERSION = 31 => "class version not supported",
        INVALID_PRIMARY_FLOW_LABEL = 32 => "invalid primary flow label",
        INVALID_ALTERNATE_FLOW_LABEL = 33 => "invalid alternate flow label",
        VENDOR_OPTION_NOT_SUPPORTED = 35 => "vendor option not supported",
        _ => "reserved",
    }

    /// Message rejected by a REJ (IBA 12.6.7).
    pub struct RejectedMessage(u8), 3 {
        REQ = 0 => "REQ",
        REP = 1 => "REP",
        NONE = 2 => "no message in particular",
        _ => "reserved",
    }

    /// Message acknowledged by an MRA (IBA 12.6.6).
    pub struct ReceivedMessage(u8), 3 {
        REQ = 0 => "REQ",
        REP = 1 => "REP",
        LAP = 2 => "LAP",
        _ => "reserved",
    }

    /// Transport requested by a REQ (IBA 12.6.5).
    pub struct TransportService(u8), 3 {
        RC = 0 => "reliable connection",
        UC = 1 => "unreliable connection",
        RD = 2 => "reliable datagram",
        EXTENDED = 3 => "see the extended transport type",
        _ => "reserved",
    }

    /// Transport requested by a REQ with [`TransportService::EXTENDED`] (IBA A14).
    pub struct ExtendedTransport(u8), 3 {
        NONE = 0 => "none",
        XRC = 1 => "extended reliable connection",
        _ => "reserved",
    }

    /// Failover status: outcome of the alternate path of a REQ (IBA 12.6.8).
    pub struct Failover(u8), 3 {
        ACCEPTED = 0 => "alternate path accepted",
        NOT_SUPPORTED = 1 => "failover not supported",
        REJECTED = 2 => "alternate path rejected",
        _ => "reserved",
    }

    /// Outcome of a LAP (IBA 12.8.2).
    pub struct ApStatus(u8), 4 {
        LOADED = 0 => "alternate path loaded",
        INVALID_COMM_ID = 1 => "invalid communication ID",
        NOT_SUPPORTED = 2 => "alternate paths not supported",
        REJECTED = 3 => "failover port rejected",
        REDIRECTION = 4 => "port and connection manager redirection",
        IS_CURRENT = 5 => "the path is the current one",
        QPN_MISMATCH = 6 => "queue pair or context does not match the communication ID",
        LID_REJECTED = 7 => "remote port LID rejected",
        GID_REJECTED = 8 => "remote port GID rejected",
        FLOW_LABEL_REJECTED = 9 => "flow label rejected",
        TRAFFIC_CLASS_REJECTED = 10 => "traffic class rejected",
        HOP_LIMIT_REJECTED = 11 => "hop limit rejected",
        PACKET_RATE_REJECTED = 12 => "packet rate rejected",
        SL_REJECTED = 13 => "service level rejected",
        _ => "reserved",
    }

    /// Outcome of a SIDR_REQ (IBA 12.11.2).
    pub struct SidrStatus(u8), 4 {
        VALID = 0 => "queue pair and key are valid",
        UNSUPPORTED_SERVICE = 1 => "service ID not supported",
        REJECTED = 2 => "rejected by the service provider",
        NO_QP = 3 => "no queue pair available",
        REDIRECTION = 4 => "redirection",
        UNSUPPORTED_VERSION = 5 => "version not supported",
        _ => "reserved",
    }

    /// Path MTU: maximum payload of a packet (IBA 9.2, 12.6.5).
    pub struct PathMtu(u8), 3 {
        MTU_256 = 1 => "256 bytes",
        MTU_512 = 2 => "512 bytes",
        MTU_1024 = 3 => "1024 bytes",
        MTU_2048 = 4 => "2048 bytes",
        MTU_4096 = 5 => "4096 bytes",
        _ => "reserved",
    }

    /// Static rate of a path (IBA 9.11.1). 0 and 1 are not rates; CMs over RoCE use 0.
    pub struct PacketRate(u8), 4 {
        GBPS_2_5 = 2 => "2.5 Gbit/s",
        GBPS_10 = 3 => "10 Gbit/s",
        GBPS_30 = 4 => "30 Gbit/s",
        GBPS_5 = 5 => "5 Gbit/s",
        GBPS_20 = 6 => "20 Gbit/s",
        GBPS_40 = 7 => "40 Gbit/s",
        GBPS_60 = 8 => "60 Gbit/s",
        GBPS_80 = 9 => "80 Gbit/s",
        GBPS_120 = 10 => "120 Gbit/s",
        GBPS_14 = 11 => "14 Gbit/s",
        GBPS_56 = 12 => "56 Gbit/s",
        GBPS_112 = 13 => "112 Gbit/s",
        GBPS_168 = 14 => "168 Gbit/s",
        GBPS_25 = 15 => "25 Gbit/s",
        GBPS_100 = 16 => "100 Gbit/s",
        GBPS_200 = 17 => "200 Gbit/s",
        GBPS_300 = 18 => "300 Gbit/s",
        GBPS_28 = 19 => "28 Gbit/s",
        GBPS_50 = 20 => "50 Gbit/s",
        GBPS_400 = 21 => "400 Gbit/s",
        GBPS_600 = 22 => "600 Gbit/s",
        GBPS_800 = 23 => "800 Gbit/s",
        GBPS_1200 = 24 => "1200 Gbit/s",
        _ => "not given",
    }

    /// RNR retry count (IBA 9.7.5.2.8).
    pub struct RnrRetry(u8), 3 {
        NEVER = 0 => "never",
        FOR_EVER = 7 => "for ever",
        _ => "",
    }
}

impl PathMtu {
    /// The MTU in bytes; `None` for reserved codes.
    pub const fn bytes(self) -> Option<usize> {
        match self.0 {
            1..=5 => Some(128 << self.0),
            _ => None,
        }
    }

    /// The code of an MTU of exactly this many bytes.
    pub fn from_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.iter().copied().find(|mtu| mtu.bytes() == Some(bytes))
    }
}

/// Connected transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Extended reliable connection.
    Xrc,
}

impl Transport {
    /// The transport of the two fields of a REQ; `None` if reserved.
    pub const fn from_codes(
        service: TransportService,
        extended: ExtendedTransport,
    ) -> Option<Self> {
        match (service, extended) {
            (TransportService::RC, _) => Some(Self::Rc),
            (TransportService::UC, _) => Some(Self::Uc),
            (TransportService::RD, _) => Some(Self::Rd),
            (TransportService::EXTENDED, ExtendedTransport::XRC) => Some(Self::Xrc),
            _ => None,
        }
    }

    /// The two fields of a REQ for this transport.
    pub const fn codes(self) -> (TransportService, ExtendedTransport) {
        match self {
            Self::Rc => (TransportService::RC, ExtendedTransport::NONE),
            Self::Uc => (TransportService::UC, ExtendedTransport::NONE),
            Self::Rd => (TransportService::RD, ExtendedTransport::NONE),
            Self::Xrc => (TransportService::EXTENDED, ExtendedTransport::XRC),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Rd => "RD",
            Self::Xrc => "XRC",
        })
    }
}
