//! The coded fields of the set-up exchange.

use crate::number::{codes, numbers, write_flag_names};

pub use crate::access::AccessFlags;

codes! {
    /// Type of a message.
    pub struct MessageType(u8), 4 {
        DEVICE_DISCOVERY_REQ = 0x01 => "DEVICE_DISCOVERY_REQ",
        DEVICE_DISCOVERY_RESP = 0x02 => "DEVICE_DISCOVERY_RESP",
        QP_CREATE_REQ = 0x03 => "QP_CREATE_REQ",
        QP_CREATE_RESP = 0x04 => "QP_CREATE_RESP",
        MR_REGISTER_REQ = 0x05 => "MR_REGISTER_REQ",
        MR_REGISTER_RESP = 0x06 => "MR_REGISTER_RESP",
        CONNECTION_REQ = 0x07 => "CONNECTION_REQ",
        CONNECTION_ACCEPT = 0x08 => "CONNECTION_ACCEPT",
        CONNECTION_CONFIRM = 0x09 => "CONNECTION_CONFIRM",
        _ => "unknown",
    }

    /// Outcome of a request. Anything but success ends the exchange.
    pub struct Status(u8), 4 {
        SUCCESS = 0x00 => "success",
        UNSUPPORTED_VERSION = 0x01 => "protocol version not supported",
        OUT_OF_ORDER = 0x02 => "message does not belong to this phase",
        UNKNOWN_EXCHANGE = 0x03 => "no such exchange",
        INVALID_PARAMETER = 0x04 => "a field has a value that is not allowed",
        UNSUPPORTED_TRANSPORT = 0x05 => "transport not supported",
        UNSUPPORTED_CAPABILITY = 0x06 => "capability not supported",
        NO_RESOURCES = 0x07 => "no resources",
        NO_QUEUE_PAIR = 0x08 => "no such queue pair, or none left",
        NO_MEMORY_REGION = 0x09 => "no memory region left",
        ACCESS_DENIED = 0x0a => "access rights not granted",
        KEY_MISMATCH = 0x0b => "memory key does not match",
        REJECTED = 0x0c => "rejected by the application",
        TIMEOUT = 0x0d => "the peer took too long",
        INTERNAL_ERROR = 0x0e => "internal error",
        _ => "unknown",
    }

    /// The transport of a queue pair.
    pub struct QpType(u8), 4 {
        RC = 0x01 => "reliable connection",
        UC = 0x02 => "unreliable connection",
        UD = 0x03 => "unreliable datagram",
        XRC = 0x04 => "extended reliable connection",
        _ => "unknown",
    }
}

numbers! {
    /// Distinguishes the messages of this protocol from other datagrams.
    pub struct Magic(u32), 10, |magic| if *magic == Magic::SETUP { "set-up exchange" } else { "foreign" };
    /// Exchange ID chosen by the client, the same in all messages.
    pub struct ExchangeId(u32), 10;
    /// Request ID chosen by the sender, echoed in the response.
    pub struct TransactionId(u32), 10;
    /// ID of a peer, chosen by itself.
    pub struct PeerId(u32), 10;
    /// ID of a memory region, chosen by its owner.
    pub struct RegionId(u32), 10;
    /// ID of a protection domain (PD), chosen by its owner.
    pub struct DomainId(u32), 10;
}

impl Magic {
    /// "FeSU" in ASCII.
    pub const SETUP: Self = Self(u32::from_be_bytes(*b"FeSU"));
}

impl QpType {
    /// The set with only this transport; empty if unknown.
    pub const fn to_set(self) -> Transports {
        match self {
            Self::RC => Transports::RC,
            Self::UC => Transports::UC,
            Self::UD => Transports::UD,
            Self::XRC => Transports::XRC,
            _ => Transports(0),
        }
    }
}

/// Defines a [`numbers!`] type as a set of flags, with constants and displayed names.
macro_rules! flags {
    ($(
        $(#[$meta:meta])+
        pub struct $name:ident($repr:ty), $digits:literal {
            $( $(#[doc = $doc:literal])+ $flag:ident = $value:expr, )+
        }
    )+) => {
        numbers! {$(
            $(#[$meta])+
            pub struct $name($repr), $digits => |set, f| {
                write_flag_names(f, u32::from(set.0), $name::ALL.iter().map(|(name, flag)| (*name, u32::from(flag.0))))
            };
        )+}

        $(impl $name {
            $( $(#[doc = $doc])+ pub const $flag: Self = Self($value); )+

            /// Every flag with its name.
            pub const ALL: &[(&'static str, Self)] = &[$( (stringify!($flag), Self::$flag) ),+];

            /// Whether every flag of `other` is in this set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl core::ops::BitAnd for $name {
            type Output = Self;

            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        })+
    };
}

flags! {
    /// Set of transports.
    pub struct Transports(u8), 4 {
        /// Reliable connection.
        RC = 1 << 0,
        /// Unreliable connection.
        UC = 1 << 1,
        /// Unreliable datagram.
        UD = 1 << 2,
        /// Extended reliable connection.
        XRC = 1 << 3,
    }

    /// Capabilities of a peer beyond SEND.
    pub struct Capabilities(u32), 10 {
        /// RDMA WRITE.
        RDMA_WRITE = 1 << 0,
        /// RDMA READ.
        RDMA_READ = 1 << 1,
        /// Compare-and-swap, fetch-and-add.
        ATOMIC = 1 << 2,
        /// Immediate data with SEND and RDMA WRITE.
        IMMEDIATE = 1 << 3,
        /// SEND with invalidate, and memory windows to invalidate.
        INVALIDATE = 1 << 4,
        /// Shared receive queues.
        SHARED_RECEIVE_QUEUE = 1 << 5,
        /// ATOMIC WRITE.
        ATOMIC_WRITE = 1 << 6,
        /// FLUSH.
        FLUSH = 1 << 7,
        /// Sends CNPs for congestion marks, and reduces its rate on CNPs.
        CONGESTION_CONTROL = 1 << 8,
    }

}
