//! A path between two ports, as REQ describes it.

use crate::address::Gid;
use crate::cm::{AckTimeout, PacketRate};
use crate::field::header;
use crate::number::{Hex8, Lid};

header! {
    /// A path as it stands twice in a REQ (IBA 12.6.5): the primary and the alternate one. Over RoCE the LIDs mean
    /// nothing and the GIDs are the IP addresses.
    pub struct Path("CM path", 44) {
        /// The sender's port in its subnet; 0xffff over RoCE.
        local_lid: Lid = 16,
        /// The receiver's port in its subnet; 0xffff over RoCE.
        remote_lid: Lid = 16,
        /// The sender's address.
        local_gid: Gid = 128,
        /// The receiver's address.
        remote_gid: Gid = 128,
        /// Flow label.
        flow_label: u32 = 20,
        /// Reserved.
        reserved1: u8 = 6,
        /// The fastest that either side may send.
        packet_rate: PacketRate = 6,
        /// Traffic class: the IP header's type of service.
        traffic_class: Hex8 = 8,
        /// Hop limit.
        hop_limit: u8 = 8,
        /// Service level; over RoCE the VLAN priority.
        service_level: u8 = 4,
        /// Both ports are in one subnet, so that the path needs no GRH.
        subnet_local: bool = 1,
        /// Reserved.
        reserved2: u8 = 3,
        /// How long the sender waits for an acknowledge.
        ack_timeout: AckTimeout = 5,
        /// The alternate path's first bit says whether suggesting another path is supported; reserved otherwise.
        reserved3: u8 = 3,
    }
}
