//! What the connection manager calls things: connections, services, contexts, vendors.

use crate::number::numbers;
use crate::rdmacm;

numbers! {
    /// Communication ID: one side's name for a connection. Each message carries the sender's and, once it is known,
    /// the receiver's (IBA 12.6.5). Service resolution uses it for its request ID.
    pub struct CommId(u32), 10;
    /// Service ID (IBA 12.7, annex A3): what a REQ or SIDR_REQ is addressed to.
    pub struct ServiceId(u64), 18 => |id, f| match rdmacm::split_service_id(*id) {
        Some((space, port)) => write!(f, "RDMA-CM, {space} port {port}"),
        None => f.write_str(match id.0 >> 56 {
            0x00 => "IBTA",
            0x01 => "IETF",
            0x02 => "locally administered",
            0x10..=0x1f => "external organisation",
            _ => "",
        }),
    };
    /// End-to-end context number, 24 bits: reliable datagram's. XRC puts the target's queue pair in its place.
    pub struct Eecn(u32), 8;
    /// Vendor of connection enhancements, 24 bits, or 0 for none. Devices put their PCI vendor number here.
    pub struct VendorId(u32), 8, |vendor| match vendor.0 {
        0 => "none",
        0x00_15b3 => "Mellanox",
        _ => "",
    };
}

impl VendorId {
    /// The vendor from three bytes, the highest first.
    pub const fn from_bytes([high, middle, low]: [u8; 3]) -> Self {
        Self(u32::from_be_bytes([0, high, middle, low]))
    }

    /// Its three bytes, the highest first.
    pub const fn to_bytes(self) -> [u8; 3] {
        let [_, high, middle, low] = self.0.to_be_bytes();
        [high, middle, low]
    }
}
