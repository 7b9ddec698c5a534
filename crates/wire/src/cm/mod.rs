//! The connection manager's messages (IBA chapter 12): what stands in the 232 data bytes of a MAD of class 7.
//!
//! Each message is one table of fields; [`Message`] is any of them. Reading never judges: every bit pattern of a known
//! attribute is a message, and emitting it gives the same bytes back, reserved bits included. Whether a message makes
//! sense in the state of a connection is not this crate's question.

mod alternate;
mod code;
mod disconnect;
mod identity;
mod path;
mod reject;
mod reply;
mod request;
mod resolution;
mod time;

#[cfg(test)]
pub(crate) mod captured;
#[cfg(test)]
mod tests;

use core::fmt;

pub use alternate::{Apr, Lap};
pub use code::{
    ApStatus, ExtendedTransport, Failover, PacketRate, PathMtu, ReceivedMessage, RejectReason,
    RejectedMessage, RnrRetry, SidrStatus, Transport, TransportService,
};
pub use disconnect::{Drep, Dreq};
pub use identity::{CommId, Eecn, ServiceId, VendorId};
pub use path::Path;
pub use reject::{Mra, Rej};
pub use reply::{Rep, Rtu};
pub use request::Req;
pub use resolution::{SidrRep, SidrReq};
pub use time::{AckTimeout, ResponseTimeout};

use crate::field::{FieldSpec, Header, Show};
use crate::mad::{
    AttributeId, BASE_VERSION, DATA_LEN, MAD_LEN, Mad, MadHeader, ManagementClass, Method,
    TransactionId,
};

/// The class version of these formats (IBA 12.6, 16.7.1).
pub const CLASS_VERSION: u8 = 2;

/// Any message: one table gives the variants, the attributes that name them and the way to bytes and back.
macro_rules! messages {
    ($( $variant:ident = $constant:ident, $attribute:literal; )+) => {
        /// Any message of the connection manager.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // Each variant is the message of its name.
        pub enum Message {
            $( $variant($variant), )+
        }

        /// The attributes of communication management (IBA 16.7). Other classes give these numbers other meanings.
        impl AttributeId {
            $(
                #[doc = concat!("The connection manager's ", stringify!($constant), ".")]
                pub const $constant: Self = Self($attribute);
            )+
        }

        impl Message {
            /// The attributes that name messages, in order.
            pub const ATTRIBUTES: &[AttributeId] = &[$( AttributeId::$constant ),+];

            /// Reads the message that `attribute` names.
            pub fn parse(
                attribute: AttributeId,
                data: &[u8; DATA_LEN],
            ) -> Result<Self, MessageError> {
                match attribute {
                    $( AttributeId::$constant => Ok(Self::$variant($variant::parse(data))), )+
                    _ => Err(MessageError::Attribute(attribute)),
                }
            }

            /// The message's bytes: the inverse of [`Message::parse`].
            pub fn to_bytes(&self) -> [u8; DATA_LEN] {
                match self {
                    $( Self::$variant(message) => message.to_bytes(), )+
                }
            }

            /// The attribute that names the message in its MAD.
            pub const fn attribute(&self) -> AttributeId {
                match self {
                    $( Self::$variant(_) => AttributeId::$constant, )+
                }
            }

            /// The consumer's bytes. Their length is the message's own; unused ones are zero.
            pub fn private_data(&self) -> &[u8] {
                match self {
                    $( Self::$variant(message) => &message.private_data.0, )+
                }
            }

            /// The specification's name, for example `CM REQ`.
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

        $(impl From<$variant> for Message {
            fn from(message: $variant) -> Self {
                Self::$variant(message)
            }
        })+
    };
}

messages! {
    Req = REQ, 0x0010;
    Mra = MRA, 0x0011;
    Rej = REJ, 0x0012;
    Rep = REP, 0x0013;
    Rtu = RTU, 0x0014;
    Dreq = DREQ, 0x0015;
    Drep = DREP, 0x0016;
    SidrReq = SIDR_REQ, 0x0017;
    SidrRep = SIDR_REP, 0x0018;
    Lap = LAP, 0x0019;
    Apr = APR, 0x001a;
}

/// Why a MAD is not a message of the connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// It is for another service.
    Class(ManagementClass),
    /// Its format is of another version. A REQ of such a version is answered by
    /// [`RejectReason::UNSUPPORTED_CLASS_VERSION`].
    ClassVersion(u8),
    /// It is not sent as a message, but asks for or answers something.
    Method(Method),
    /// No message has this attribute.
    Attribute(AttributeId),
}

impl Message {
    /// Reads the message in a MAD.
    pub fn from_mad(mad: &Mad<'_>) -> Result<Self, MessageError> {
        let header = &mad.header;
        if header.class != ManagementClass::COMMUNICATION {
            return Err(MessageError::Class(header.class));
        }
        if header.class_version != CLASS_VERSION {
            return Err(MessageError::ClassVersion(header.class_version));
        }
        if header.method != Method::SEND {
            return Err(MessageError::Method(header.method));
        }
        Self::parse(header.attribute, mad.data)
    }

    /// The header of the MAD that carries this message. Messages answer each other by their communication IDs, so
    /// that every method is "send". REQ, REP, RTU and REJ of one handshake share a transaction, and so do DREQ and
    /// DREP; a retransmission keeps it.
    pub fn mad_header(&self, transaction: TransactionId) -> MadHeader {
        MadHeader {
            base_version: BASE_VERSION,
            class: ManagementClass::COMMUNICATION,
            class_version: CLASS_VERSION,
            method: Method::SEND,
            transaction,
            attribute: self.attribute(),
            ..MadHeader::default()
        }
    }

    /// The whole MAD that carries this message, with no enhancements offered.
    pub fn to_mad(&self, transaction: TransactionId) -> [u8; MAD_LEN] {
        Mad { header: self.mad_header(transaction), data: &self.to_bytes() }.to_bytes()
    }

    /// The sender's name for the connection, or for the question of a SIDR_REQ.
    pub const fn local_comm_id(&self) -> Option<CommId> {
        match self {
            Self::Req(message) => Some(message.local_comm_id),
            Self::Mra(message) => Some(message.local_comm_id),
            Self::Rej(message) => Some(message.local_comm_id),
            Self::Rep(message) => Some(message.local_comm_id),
            Self::Rtu(message) => Some(message.local_comm_id),
            Self::Dreq(message) => Some(message.local_comm_id),
            Self::Drep(message) => Some(message.local_comm_id),
            Self::Lap(message) => Some(message.local_comm_id),
            Self::Apr(message) => Some(message.local_comm_id),
            Self::SidrReq(message) => Some(message.request_id),
            Self::SidrRep(_) => None,
        }
    }

    /// The receiver's name for the connection: what it finds its state by. In a SIDR_REP, the question's name.
    pub const fn remote_comm_id(&self) -> Option<CommId> {
        match self {
            Self::Req(_) | Self::SidrReq(_) => None,
            Self::Mra(message) => Some(message.remote_comm_id),
            Self::Rej(message) => Some(message.remote_comm_id),
            Self::Rep(message) => Some(message.remote_comm_id),
            Self::Rtu(message) => Some(message.remote_comm_id),
            Self::Dreq(message) => Some(message.remote_comm_id),
            Self::Drep(message) => Some(message.remote_comm_id),
            Self::Lap(message) => Some(message.remote_comm_id),
            Self::Apr(message) => Some(message.remote_comm_id),
            Self::SidrRep(message) => Some(message.request_id),
        }
    }

    /// The service asked for, in a REQ, SIDR_REQ or SIDR_REP.
    pub const fn service_id(&self) -> Option<ServiceId> {
        match self {
            Self::Req(message) => Some(message.service_id),
            Self::SidrReq(message) => Some(message.service_id),
            Self::SidrRep(message) => Some(message.service_id),
            _ => None,
        }
    }
}

/// The part of a field of additional information that its length field counts.
fn counted(information: &[u8], length: u8) -> &[u8] {
    information.get(..usize::from(length)).unwrap_or(information)
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(class) => {
                write!(f, "management class {class}, not the connection manager's")
            }
            Self::ClassVersion(version) => {
                write!(f, "connection manager's class version {version}, not {CLASS_VERSION}")
            }
            Self::Method(method) => write!(f, "connection manager's method {method}, not send"),
            Self::Attribute(attribute) => {
                write!(f, "no message of the connection manager has attribute {attribute}")
            }
        }
    }
}

impl core::error::Error for MessageError {}
