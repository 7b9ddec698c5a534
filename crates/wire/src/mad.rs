//! Management datagrams (MADs), the envelope of CM messages (IBA 13.4).
//!
//! A MAD always has 256 bytes: 24 of header and 232 of class-specific data. This module validates only the envelope;
//! [`crate::cm`] parses the data of the communication-management class.

use core::fmt;

use crate::field::header;
use crate::number::{Hex16, Hex32, codes, numbers};

/// Bytes of a MAD (IBA 13.4.2).
pub const MAD_LEN: usize = 256;

/// Bytes after the common header.
pub const DATA_LEN: usize = MAD_LEN - MadHeader::LEN;

/// The only base version (IBA 13.4.3).
pub const BASE_VERSION: u8 = 1;

header! {
    /// The common MAD header (IBA 13.4.3).
    pub struct MadHeader("MAD", 24) {
        /// Version of this header, 1.
        base_version: u8 = 8,
        /// Management class.
        class: ManagementClass = 8,
        /// Version of the class format; 2 for communication management.
        class_version: u8 = 8,
        /// Method; the top bit marks a response.
        method: Method = 8,
        /// Outcome of a request.
        status: MadStatus = 16,
        /// Class-specific.
        class_specific: Hex16 = 16,
        /// Matches a response to its request; retransmissions keep it.
        transaction: TransactionId = 64,
        /// Type of the data; identifies the messages of communication management.
        attribute: AttributeId = 16,
        /// Reserved.
        reserved: Hex16 = 16,
        /// Scope of the attribute. In REQ and REP: options for vendor-specific enhancements.
        modifier: Hex32 = 32,
    }
}

codes! {
    /// Management class of a MAD (IBA 13.4.4).
    pub struct ManagementClass(u8), 4 {
        SUBNET_LID_ROUTED = 0x01 => "subnet management, LID routed",
        SUBNET_ADMINISTRATION = 0x03 => "subnet administration",
        PERFORMANCE = 0x04 => "performance",
        BASEBOARD = 0x05 => "baseboard",
        DEVICE = 0x06 => "device management",
        COMMUNICATION = 0x07 => "communication management",
        SNMP = 0x08 => "SNMP tunnelling",
        CONGESTION_CONTROL = 0x21 => "congestion control",
        SUBNET_DIRECTED_ROUTE = 0x81 => "subnet management, directed route",
        _ => "vendor, application or reserved",
    }

    /// Method of a MAD (IBA 13.4.5).
    pub struct Method(u8), 4 {
        GET = 0x01 => "get",
        SET = 0x02 => "set",
        SEND = 0x03 => "send",
        TRAP = 0x05 => "trap",
        REPORT = 0x06 => "report",
        TRAP_REPRESS = 0x07 => "trap repress",
        GET_RESPONSE = 0x81 => "get response",
        REPORT_RESPONSE = 0x86 => "report response",
        _ => "class-specific",
    }

    /// Attribute ID. All but these are class-specific (IBA 13.4.8).
    pub struct AttributeId(u16), 6 {
        CLASS_PORT_INFO = 0x0001 => "class port information",
        NOTICE = 0x0002 => "notice",
        INFORM_INFO = 0x0003 => "event subscription",
        _ => "",
    }
}

numbers! {
    /// Matches responses to requests.
    pub struct TransactionId(u64), 18;
    /// The outcome of a request (IBA 13.4.7). The upper byte is class-specific.
    pub struct MadStatus(u16), 6, |status| match status.0 {
        0 => "success",
        status if status & 1 != 0 => "busy",
        status if status & 2 != 0 => "redirection required",
        status => match status >> 2 & 7 {
            0 => "class-specific",
            1 => "version not supported",
            2 => "method not supported",
            3 => "unsupported combination of method and attribute",
            7 => "invalid value in attribute or modifier",
            _ => "reserved",
        },
    };
}

impl Method {
    /// Whether the response bit is set.
    pub const fn is_response(self) -> bool {
        self.0 & 0x80 != 0
    }
}

/// A MAD on borrowed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mad<'a> {
    /// The common header.
    pub header: MadHeader,
    /// Class-specific data.
    pub data: &'a [u8; DATA_LEN],
}

/// Error of parsing a MAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadError {
    /// The length is not 256 bytes.
    Length(usize),
    /// The base version is not 1.
    BaseVersion(u8),
}

impl<'a> Mad<'a> {
    /// Parses a MAD: the whole payload of a datagram to QP 0 or QP 1.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MadError> {
        let whole: &[u8; MAD_LEN] = bytes.try_into().map_err(|_| MadError::Length(bytes.len()))?;
        let (header, data) = MadHeader::split(whole).ok_or(MadError::Length(bytes.len()))?;
        if header.base_version != BASE_VERSION {
            return Err(MadError::BaseVersion(header.base_version));
        }
        let data = data.try_into().map_err(|_| MadError::Length(bytes.len()))?;
        Ok(Self { header, data })
    }

    /// The MAD's bytes: the inverse of [`Mad::parse`].
    pub fn to_bytes(&self) -> [u8; MAD_LEN] {
        let mut bytes = [0; MAD_LEN];
        let (header, data) = bytes.split_at_mut(MadHeader::LEN);
        header.copy_from_slice(&self.header.to_bytes());
        data.copy_from_slice(self.data);
        bytes
    }
}

impl fmt::Display for MadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(found) => {
                write!(f, "a management datagram has {MAD_LEN} bytes, not {found}")
            }
            Self::BaseVersion(found) => {
                write!(f, "management datagram of base version {found}, not {BASE_VERSION}")
            }
        }
    }
}

impl core::error::Error for MadError {}
