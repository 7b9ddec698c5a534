//! Private data: each message has a fixed maximum.

use core::fmt;

use ferroce_wire::field::Octets;
use ferroce_wire::rdmacm::{self, IpHeader};

/// Private data of a REQ.
pub type ReqData = Octets<92>;
/// Private data of a REP.
pub type RepData = Octets<196>;
/// Private data of an RTU.
pub type RtuData = Octets<224>;
/// Private data of a REJ.
pub type RejData = Octets<148>;
/// Private data of an MRA.
pub type MraData = Octets<222>;
/// Private data of a DREQ.
pub type DreqData = Octets<220>;
/// Private data of a DREP.
pub type DrepData = Octets<224>;
/// Private data of a SIDR_REQ.
pub type SidrReqData = Octets<216>;
/// Private data of a SIDR_REP.
pub type SidrRepData = Octets<136>;
/// Additional information of a REJ or SIDR_REP.
pub type Information = Octets<72>;

/// The private data does not fit the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateDataTooLong {
    /// Its length.
    pub length: usize,
    /// The maximum length.
    pub capacity: usize,
}

/// Pads private data with zeros to the message's size, which the return type determines.
pub fn private_data<const N: usize>(bytes: &[u8]) -> Result<Octets<N>, PrivateDataTooLong> {
    Octets::padded(bytes).ok_or(PrivateDataTooLong { length: bytes.len(), capacity: N })
}

/// Private data of an RDMA-CM REQ or SIDR_REQ: the IP header, then `bytes`, padded with zeros (IBA A11.2). The
/// consumer has 56 bytes of a REQ and 180 of a SIDR_REQ.
pub fn rdmacm_private_data<const N: usize>(
    header: &IpHeader,
    bytes: &[u8],
) -> Result<Octets<N>, PrivateDataTooLong> {
    let capacity = N.saturating_sub(IpHeader::LEN);
    rdmacm::private_data(header, bytes).ok_or(PrivateDataTooLong { length: bytes.len(), capacity })
}

impl fmt::Display for PrivateDataTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of private data exceed the limit of {}", self.length, self.capacity)
    }
}

impl core::error::Error for PrivateDataTooLong {}
