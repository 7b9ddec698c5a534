//! Connection manager (CM) messages (IBA chapter 12): the 232 data bytes of a MAD of class 7.
//!
//! Each message is a table of fields; [`CmMessage`] is any of them. Parsing does not validate: every bit pattern of a known
//! attribute is a message, and emitting it yields the same bytes, including reserved bits. Whether a message is valid in
//! the state of a connection is decided elsewhere.

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

/// Defines [`CmMessage`] with its variants, attributes, parser and emitter.
macro_rules! messages {
    ($( $variant:ident = $constant:ident, $attribute:literal; )+) => {
        /// Any CM message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // Each variant is the message of its name.
        pub enum CmMessage {
            $( $variant($variant), )+
        }

        /// Attributes of communication management (IBA 16.7). Other classes use these numbers differently.
        impl AttributeId {
            $(
                #[doc = concat!("The connection manager's ", stringify!($constant), ".")]
                pub const $constant: Self = Self($attribute);
            )+
        }

        impl CmMessage {
            /// The attributes of all messages, in order.
            pub const ATTRIBUTES: &[AttributeId] = &[$( AttributeId::$constant ),+];

            /// Parses the message with this attribute.
            pub fn parse(
                attribute: AttributeId,
                data: &[u8; DATA_LEN],
            ) -> Result<Self, MessageError> {
                match attribute {
                    $( AttributeId::$constant => Ok(Self::$variant($variant::parse(data))), )+
                    _ => Err(MessageError::Attribute(attribute)),
                }
            }

            /// The message's bytes: the inverse of [`CmMessage::parse`].
            pub fn to_bytes(&self) -> [u8; DATA_LEN] {
                match self {
                    $( Self::$variant(message) => message.to_bytes(), )+
                }
            }

            /// The attribute of the message in its MAD.
            pub const fn attribute(&self) -> AttributeId {
                match self {
                    $( Self::$variant(_) => AttributeId::$constant, )+
                }
            }

            /// Private data of the consumer. Its length depends on the message; unused bytes are zero.
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

        $(impl From<$variant> for CmMessage {
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

/// Why a MAD is not a CM message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// Another management class.
    Class(ManagementClass),
    /// Unsupported class version. Such a REQ is rejected with [`RejectReason::UNSUPPORTED_CLASS_VERSION`].
    ClassVersion(u8),
    /// The method is not "send".
    Method(Method),
    /// Unknown attribute.
    Attribute(AttributeId),
}

impl CmMessage {
    /// Parses the message in a MAD.
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

    /// The header of the MAD that carries this message. Messages are matched by their communication IDs, so the method is
    /// always "send". REQ, REP, RTU and REJ of one handshake share a transaction, and so do DREQ and
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

    /// The complete MAD that carries this message, without vendor enhancements.
    pub fn to_mad(&self, transaction: TransactionId) -> [u8; MAD_LEN] {
        Mad { header: self.mad_header(transaction), data: &self.to_bytes() }.to_bytes()
    }

    /// Communication ID of the sender, or the request ID of a SIDR_REQ.
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

    /// Communication ID of the receiver, or the request ID in a SIDR_REP.
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

    /// The service ID of a REQ, SIDR_REQ or SIDR_REP.
    pub const fn service_id(&self) -> Option<ServiceId> {
        match self {
            Self::Req(message) => Some(message.service_id),
            Self::SidrReq(message) => Some(message.service_id),
            Self::SidrRep(message) => Some(message.service_id),
            _ => None,
        }
    }
}

/// The valid part of the additional information.
fn counted(information: &[u8], length: u8) -> &[u8] {
    information.get(..usize::from(length)).unwrap_or(information)
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(class) => {
                write!(f, "management class {class}, not communication management")
            }
            Self::ClassVersion(version) => {
                write!(f, "CM class version {version}, not {CLASS_VERSION}")
            }
            Self::Method(method) => write!(f, "CM method {method}, not send"),
            Self::Attribute(attribute) => {
                write!(f, "unknown CM attribute {attribute}")
            }
        }
    }
}

impl core::error::Error for MessageError {}
