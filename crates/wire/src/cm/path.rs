//! A path between two ports, as in a REQ.

use crate::address::Gid;
use crate::cm::{AckTimeout, PacketRate};
use crate::field::header;
use crate::number::{Hex8, Lid};

header! {
    /// The primary or alternate path in a REQ (IBA 12.6.5). Over RoCE the LIDs are unused and the GIDs are IP addresses.
    pub struct Path("CM path", 44) {
        /// Local LID; 0xffff over RoCE.
        local_lid: Lid = 16,
        /// Remote LID; 0xffff over RoCE.
        remote_lid: Lid = 16,
        /// Local GID.
        local_gid: Gid = 128,
        /// Remote GID.
        remote_gid: Gid = 128,
        /// Flow label.
        flow_label: u32 = 20,
        /// Reserved.
        reserved1: u8 = 6,
        /// Maximum packet rate.
        packet_rate: PacketRate = 6,
        /// Traffic class: the IP header's type of service.
        traffic_class: Hex8 = 8,
        /// Hop limit.
        hop_limit: u8 = 8,
        /// Service level; over RoCE the VLAN priority.
        service_level: u8 = 4,
        /// Both ports are in the same subnet, so the path needs no GRH.
        subnet_local: bool = 1,
        /// Reserved.
        reserved2: u8 = 3,
        /// Local ACK timeout of the sender.
        ack_timeout: AckTimeout = 5,
        /// In the alternate path, the first bit indicates support for suggested paths; otherwise reserved.
        reserved3: u8 = 3,
    }
}
