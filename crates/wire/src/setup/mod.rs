//! The set-up exchange: nine messages in five phases that discover a peer, exchange queue pairs and memory keys, and
//! connect. `docs/set-up-exchange.md` describes the protocol.
//!
//! Each message is the whole payload of one UD SEND only to [`QUEUE_PAIR`] with [`QUEUE_KEY`]. Parsing validates magic,
//! version, type and length, and preserves all other bits.

mod code;
mod message;

#[cfg(test)]
mod tests;

use core::fmt;

pub use code::{
    AccessFlags, Capabilities, DomainId, ExchangeId, Magic, MessageType, PeerId, QpType, RegionId,
    Status, TransactionId, Transports,
};
pub use message::{
    ConnectionAccept, ConnectionConfirm, ConnectionReq, DeviceDiscoveryReq, DeviceDiscoveryResp,
    MrRegisterReq, MrRegisterResp, Prefix, QpCreateReq, QpCreateResp,
};

use crate::cm::{AckTimeout, RnrRetry};
use crate::field::{FieldSpec, Header, Show};
use crate::number::{QKey, Qpn};

/// The protocol's version.
pub const VERSION: u8 = 1;

/// The well-known queue pair of the messages: the first after the two that the specification reserves for management.
pub const QUEUE_PAIR: Qpn = Qpn(2);

/// The Q_Key of the messages: "FERR" in ASCII. Its top bit is clear, so no privilege is required to use it (IBA 10.2.5).
pub const QUEUE_KEY: QKey = QKey(u32::from_be_bytes(*b"FERR"));

/// Length of the longest message in bytes.
pub const MAX_LEN: usize = 64;

/// Default timeout requested by a client: 4.3 seconds.
pub const DEFAULT_TIMEOUT: AckTimeout = AckTimeout(0x14);

/// Default retry count requested by a client.
pub const DEFAULT_RETRY_COUNT: u8 = 7;

/// Default RNR retry count requested by a client.
pub const DEFAULT_RNR_RETRY: RnrRetry = RnrRetry::FOR_EVER;

/// Default maximum message size requested by a client: 16 MiB.
pub const DEFAULT_MAX_MESSAGE_SIZE: u32 = 0x0100_0000;

/// Phase of the exchange that a message belongs to. The fifth, data transfer, has no messages of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Device discovery.
    Discovery = 1,
    /// Queue pairs.
    QueuePairs = 2,
    /// Memory regions and their keys.
    Memory = 3,
    /// Connect, accept, confirm.
    Connection = 4,
    /// RDMA operations.
    Data = 5,
}

impl MessageType {
    /// The phase of the message; `None` if the type is unknown.
    pub const fn phase(self) -> Option<Phase> {
        match self.0 {
            1 | 2 => Some(Phase::Discovery),
            3 | 4 => Some(Phase::QueuePairs),
            5 | 6 => Some(Phase::Memory),
            7..=9 => Some(Phase::Connection),
            _ => None,
        }
    }

    /// The type of the response to this message; `None` if it has none.
    pub const fn response(self) -> Option<Self> {
        match self.0 {
            1 | 3 | 5 | 7 => Some(Self(self.0 + 1)),
            _ => None,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discovery => "device discovery",
            Self::QueuePairs => "queue pair creation",
            Self::Memory => "memory registration",
            Self::Connection => "connection establishment",
            Self::Data => "data transfer",
        })
    }
}

/// Error of parsing a message of the set-up exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Shorter than the prefix.
    Short(usize),
    /// Wrong magic number.
    Magic(Magic),
    /// Unsupported version: the response, if any, has [`Status::UNSUPPORTED_VERSION`].
    Version(u8),
    /// Unknown message type.
    Type(MessageType),
    /// Wrong length for the type.
    Length {
        /// The type.
        message_type: MessageType,
        /// The correct length of the type.
        expected: usize,
        /// The length found.
        found: usize,
    },
}

/// Defines [`SetupMessage`] with its variants, parser and emitter.
macro_rules! messages {
    ($( $variant:ident, )+) => {
        /// Any message of the set-up exchange.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // Each variant is the message of its name.
        pub enum SetupMessage {
            $( $variant($variant), )+
        }

        impl SetupMessage {
            /// Parses a message: the whole payload of a datagram.
            pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
                let (prefix, _) = Prefix::split(bytes).ok_or(ParseError::Short(bytes.len()))?;
                if prefix.magic != Magic::SETUP {
                    return Err(ParseError::Magic(prefix.magic));
                }
                if prefix.version != VERSION {
                    return Err(ParseError::Version(prefix.version));
                }
                match prefix.message_type {
                    $( $variant::TYPE => match bytes.try_into() {
                        Ok(exact) => Ok(Self::$variant($variant::parse(exact))),
                        Err(_) => Err(ParseError::Length {
                            message_type: $variant::TYPE,
                            expected: $variant::LEN,
                            found: bytes.len(),
                        }),
                    }, )+
                    unknown => Err(ParseError::Type(unknown)),
                }
            }

            /// Writes the message to the front of `buffer` and returns that part: the inverse of [`SetupMessage::parse`].
            pub fn emit<'b>(&self, buffer: &'b mut [u8; MAX_LEN]) -> &'b [u8] {
                match self {
                    $( Self::$variant(message) => {
                        let (used, _) = buffer.split_at_mut($variant::LEN);
                        used.copy_from_slice(&message.to_bytes());
                        used
                    } )+
                }
            }

            /// The prefix of the message.
            pub const fn prefix(&self) -> Prefix {
                match self {
                    $( Self::$variant(message) => Prefix {
                        message_type: message.message_type,
                        version: message.version,
                        status: message.status,
                        attempt: message.attempt,
                        magic: message.magic,
                        exchange: message.exchange,
                        transaction: message.transaction,
                    }, )+
                }
            }

            /// The message's name, for example `QP_CREATE_REQ`.
            pub const fn name(&self) -> &'static str {
                match self {
                    $( Self::$variant(_) => <$variant as Header>::NAME, )+
                }
            }

            /// The message's fields in order.
            pub const fn fields(&self) -> &'static [FieldSpec] {
                match self {
                    $( Self::$variant(_) => <$variant as Header>::FIELDS, )+
                }
            }

            /// Calls `visitor` for every field, in order.
            pub fn visit(&self, visitor: &mut dyn FnMut(&'static FieldSpec, &dyn Show)) {
                match self {
                    $( Self::$variant(message) => Header::visit(message, visitor), )+
                }
            }
        }

        $(impl From<$variant> for SetupMessage {
            fn from(message: $variant) -> Self {
                Self::$variant(message)
            }
        })+
    };
}

messages! {
    DeviceDiscoveryReq,
    DeviceDiscoveryResp,
    QpCreateReq,
    QpCreateResp,
    MrRegisterReq,
    MrRegisterResp,
    ConnectionReq,
    ConnectionAccept,
    ConnectionConfirm,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(found) => write!(
                f,
                "set-up message has a prefix of {} bytes, the datagram only {found}",
                Prefix::LEN
            ),
            Self::Magic(found) => {
                write!(f, "not a set-up message: magic number {found}, not {}", Magic::SETUP)
            }
            Self::Version(found) => write!(f, "set-up message of version {found}, not {VERSION}"),
            Self::Type(found) => write!(f, "set-up message of unknown type {found}"),
            Self::Length { message_type, expected, found } => {
                write!(f, "set-up message of type {message_type} has {expected} bytes, not {found}")
            }
        }
    }
}

impl core::error::Error for ParseError {}
