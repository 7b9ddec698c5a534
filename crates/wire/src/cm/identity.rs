//! Identifiers of the CM: connections, services, contexts, vendors.

use crate::number::numbers;
use crate::rdmacm;

numbers! {
    /// Communication ID: identifies a connection at one side. Each message carries that of the sender and, once known, that
    /// of the receiver (IBA 12.6.5). Also the request ID of service resolution.
    pub struct CommId(u32), 10;
    /// Service ID (IBA 12.7, annex A3): destination of a REQ or SIDR_REQ.
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
    /// End-to-end context number of reliable datagrams, 24 bits. XRC uses the field for the target's queue pair.
    pub struct Eecn(u32), 8;
    /// Vendor of connection enhancements, 24 bits, or 0 for none. Devices use their PCI vendor ID.
    pub struct VendorId(u32), 8, |vendor| match vendor.0 {
        0 => "none",
        0x00_15b3 => "Mellanox",
        _ => "",
    };
}

impl VendorId {
    /// The vendor from three bytes, most significant first.
    pub const fn from_bytes([high, middle, low]: [u8; 3]) -> Self {
        Self(u32::from_be_bytes([0, high, middle, low]))
    }

    /// Its three bytes, most significant first.
    pub const fn to_bytes(self) -> [u8; 3] {
        let [_, high, middle, low] = self.0.to_be_bytes();
        [high, middle, low]
    }
}
