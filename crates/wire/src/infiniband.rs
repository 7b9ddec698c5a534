//! Native InfiniBand's routing headers. RoCEv1 keeps the GRH, RoCEv2 replaces both by IP and UDP.

use crate::address::Gid;
use crate::field::header;
use crate::ip::IpProtocol;
use crate::number::{Lid, numbers};

header! {
    /// Local route header (IBA 7.7).
    pub struct Lrh("LRH", 8) {
        /// Virtual lane: may change on the way, so the ICRC takes it as ones.
        virtual_lane: u8 = 4,
        /// Link version.
        version: u8 = 4,
        /// Service level.
        service_level: u8 = 4,
        /// Reserved.
        reserved1: u8 = 2,
        /// What follows.
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

    /// Global route header (IBA 8.3): an IPv6 header in all but name.
    pub struct Grh("GRH", 40) {
        /// Always 6.
        version: u8 = 4,
        /// Traffic class.
        traffic_class: u8 = 8,
        /// Flow label.
        flow_label: u32 = 20,
        /// Bytes from behind this header up to and with the ICRC.
        payload_length: u16 = 16,
        /// What follows: 0x1b for a BTH.
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
    /// What follows an LRH (IBA 7.7.5).
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
