//! Values of our fields, compared with tshark's text.

use std::net::IpAddr;

use ferroce_wire::address::{Gid, Ip4, Mac};
use ferroce_wire::cm;
use ferroce_wire::ethernet::EtherType;
use ferroce_wire::field::Octets;
use ferroce_wire::infiniband::LinkNextHeader;
use ferroce_wire::ip::{Checksum, Ecn, Identification, IpProtocol};
use ferroce_wire::mad;
use ferroce_wire::number::{
    Guid, Hex8, Hex16, Hex32, Immediate, Lid, Msn, PKey, Psn, QKey, Qpn, RKey, VirtualAddress, Word,
};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::syndrome::Syndrome;

/// A value, by the way tshark prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// In decimal, in hexadecimal with 0x, or as a word.
    Number(u64),
    /// In hexadecimal, separated by colons.
    Bytes(Vec<u8>),
    /// As an address.
    Address(IpAddr),
}

impl Value {
    /// Whether `show` is the same value.
    pub fn is_shown_as(&self, show: &str) -> bool {
        match self {
            Self::Number(number) => parse_number(show) == Some(*number),
            Self::Bytes(bytes) => parse_bytes(show).as_ref() == Some(bytes),
            Self::Address(address) => show.parse() == Ok(*address),
        }
    }
}

fn parse_number(show: &str) -> Option<u64> {
    match show {
        // tshark 4.0 prints flags as digits, 4.4 as words.
        "False" => Some(0),
        "True" => Some(1),
        _ => match show.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => show.parse().ok(),
        },
    }
}

fn parse_bytes(show: &str) -> Option<Vec<u8>> {
    if show.is_empty() {
        return Some(Vec::new());
    }
    show.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect()
}

/// A type of our fields.
pub trait FieldValue {
    fn value(&self) -> Value;
}

macro_rules! numbers {
    ($($plain:ty),+; $($newtype:ty),+ $(,)?) => {
        $(impl FieldValue for $plain {
            fn value(&self) -> Value {
                Value::Number(u64::from(*self))
            }
        })+
        $(impl FieldValue for $newtype {
            fn value(&self) -> Value {
                Value::Number(u64::from(self.0))
            }
        })+
    };
}

numbers! {
    bool, u8, u16, u32, u64;
    Checksum, Ecn, EtherType, Guid, Hex16, Hex32, Hex8, Identification, Immediate, IpProtocol, Lid,
    LinkNextHeader, Msn, Opcode, PKey, Psn, QKey, Qpn, RKey, Syndrome, VirtualAddress, Word,
    cm::AckTimeout, cm::CommId, cm::Eecn, cm::ExtendedTransport, cm::Failover, cm::PacketRate,
    cm::PathMtu, cm::RejectReason, cm::RejectedMessage, cm::ResponseTimeout, cm::RnrRetry,
    cm::ServiceId, cm::TransportService,
    mad::AttributeId, mad::MadStatus, mad::ManagementClass, mad::Method, mad::TransactionId,
}

impl FieldValue for Mac {
    fn value(&self) -> Value {
        Value::Bytes(self.0.to_vec())
    }
}

impl<const N: usize> FieldValue for Octets<N> {
    fn value(&self) -> Value {
        Value::Bytes(self.0.to_vec())
    }
}

impl FieldValue for Ip4 {
    fn value(&self) -> Value {
        Value::Address(self.0.into())
    }
}

impl FieldValue for Gid {
    fn value(&self) -> Value {
        Value::Address(self.0.into())
    }
}

impl FieldValue for IpAddr {
    fn value(&self) -> Value {
        Value::Address(*self)
    }
}
