//! Where packets are received.

use core::net::IpAddr;

use ferroce_wire::number::Qpn;

/// A process that receives: an address, and the process's slot there, which is the upper byte of its QPNs (ADR 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receiver {
    /// The address.
    pub host: IpAddr,
    /// The slot.
    pub slot: u8,
}

impl Receiver {
    /// The receiver of packets to a QP of this address.
    #[inline]
    pub fn new(host: IpAddr, number: Qpn) -> Self {
        Self { host, slot: (number.0 >> 16) as u8 }
    }
}
