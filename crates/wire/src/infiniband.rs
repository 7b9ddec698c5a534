//! Routing headers of native InfiniBand. RoCEv1 keeps the GRH, RoCEv2 replaces both by IP and UDP.

use crate::address::Gid;
use crate::field::header;
use crate::ip::IpProtocol;
use crate::number::{Lid, numbers};

header! {
    /// Local route header (IBA 7.7).
    pub struct Lrh("LRH", 8) {
        /// Virtual lane: may change in transit, replaced by ones in the ICRC.
        virtual_lane: u8 = 4,
        /// Link version.
        version: u8 = 4,
        /// Service level.
        service_level: u8 = 4,
        /// Reserved.
        reserved1: u8 = 2,
        /// Type of the next header.
        next_header: LinkNextHeader = 2,
        /// Destination in the subnet.
        destination: Lid = 16,
        /// Reserved.
        reserved2: u8 = 5,
        /// Words of 4 bytes from the LRH's first byte up to the variant CRC.
        packet_length: u16 = 11,
        /// Source in the subnet.
        source: Lid = 16,
    }

    /// Global route header (IBA 8.3), laid out like an IPv6 header.
    pub struct Grh("GRH", 40) {
        /// Always 6.
        version: u8 = 4,
        /// Traffic class.
        traffic_class: u8 = 8,
        /// Flow label.
        flow_label: u32 = 20,
        /// Bytes after this header up to and including the ICRC.
        payload_length: u16 = 16,
        /// Type of the next header: 0x1b for a BTH.
        next_header: IpProtocol = 8,
        /// Hop limit.
        hop_limit: u8 = 8,
        /// Source.
        source: Gid = 128,
        /// Destination.
        destination: Gid = 128,
    }
}

numbers! {
    /// Type of the header after an LRH (IBA 7.7.5).
    pub struct LinkNextHeader(u8), 3, |next| match next.0 {
        0 => "raw, EtherType",
        1 => "raw, IPv6",
        2 => "BTH",
        _ => "GRH",
    };
}

impl LinkNextHeader {
    /// A BTH follows: local packets.
    pub const BTH: Self = Self(2);
    /// A GRH follows.
    pub const GRH: Self = Self(3);
}
