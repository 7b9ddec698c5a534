//! LAP and APR: another path for a connection that is up.

use crate::address::Gid;
use crate::cm::{AckTimeout, ApStatus, CommId, PacketRate, Path, ResponseTimeout};
use crate::field::{Octets, header};
use crate::number::{Hex8, Hex16, Hex32, Lid, Qpn};

header! {
    /// Load alternate path (IBA 12.8.1, table 115). The path has REQ's fields, but not quite in their order.
    pub struct Lap("CM LAP", 232) {
        /// The sender's name for this connection.
        local_comm_id: CommId = 32,
        /// The receiver's name for it.
        remote_comm_id: CommId = 32,
        /// Reserved.
        reserved1: Hex32 = 32,
        /// The receiver's queue pair or end-to-end context.
        remote_qpn: Qpn = 24,
        /// How long the receiver may take to answer.
        remote_response_timeout: ResponseTimeout = 5,
        /// Reserved.
        reserved2: u8 = 3,
        /// Reserved.
        reserved3: Hex32 = 32,
        /// The sender's port in its subnet.
        alternate_local_lid: Lid = 16,
        /// The receiver's port in its subnet.
        alternate_remote_lid: Lid = 16,
        /// The sender's address.
        alternate_local_gid: Gid = 128,
        /// The receiver's address.
        alternate_remote_gid: Gid = 128,
        /// Flow label.
        alternate_flow_label: u32 = 20,
        /// Reserved.
        reserved4: u8 = 4,
        /// Traffic class.
        alternate_traffic_class: Hex8 = 8,
        /// Hop limit.
        alternate_hop_limit: u8 = 8,
        /// Reserved.
        reserved5: u8 = 2,
        /// The fastest that either side may send.
        alternate_packet_rate: PacketRate = 6,
        /// Service level.
        alternate_service_level: u8 = 4,
        /// Both ports are in one subnet.
        alternate_subnet_local: bool = 1,
        /// Reserved.
        reserved6: u8 = 3,
        /// How long the sender waits for an acknowledge.
        alternate_ack_timeout: AckTimeout = 5,
        /// Reserved.
        reserved7: u8 = 3,
        /// The consumer's bytes.
        private_data: Octets<168> = 1344,
    }

    /// Alternate path response (IBA 12.8.2, table 116).
    pub struct Apr("CM APR", 232) {
        /// The sender's name for this connection.
        local_comm_id: CommId = 32,
        /// The receiver's name for it.
        remote_comm_id: CommId = 32,
        /// How many bytes of the additional information count.
        information_length: u8 = 8,
        /// What became of the path.
        status: ApStatus = 8,
        /// Reserved.
        reserved: Hex16 = 16,
        /// What would have been acceptable, by status.
        information: Octets<72> = 576,
        /// The consumer's bytes.
        private_data: Octets<148> = 1184,
    }
}

impl Lap {
    /// The path to load.
    pub fn alternate_path(&self) -> Path {
        Path {
            local_lid: self.alternate_local_lid,
            remote_lid: self.alternate_remote_lid,
            local_gid: self.alternate_local_gid,
            remote_gid: self.alternate_remote_gid,
            flow_label: self.alternate_flow_label,
            packet_rate: self.alternate_packet_rate,
            traffic_class: self.alternate_traffic_class,
            hop_limit: self.alternate_hop_limit,
            service_level: self.alternate_service_level,
            subnet_local: self.alternate_subnet_local,
            ack_timeout: self.alternate_ack_timeout,
            ..Path::default()
        }
    }

    /// This LAP with another path.
    #[must_use]
    pub fn with_alternate_path(self, path: &Path) -> Self {
        Self {
            alternate_local_lid: path.local_lid,
            alternate_remote_lid: path.remote_lid,
            alternate_local_gid: path.local_gid,
            alternate_remote_gid: path.remote_gid,
            alternate_flow_label: path.flow_label,
            alternate_packet_rate: path.packet_rate,
            alternate_traffic_class: path.traffic_class,
            alternate_hop_limit: path.hop_limit,
            alternate_service_level: path.service_level,
            alternate_subnet_local: path.subnet_local,
            alternate_ack_timeout: path.ack_timeout,
            ..self
        }
    }
}

impl Apr {
    /// The additional information that counts. A length beyond the field is cut to it.
    pub fn information(&self) -> &[u8] {
        super::counted(&self.information.0, self.information_length)
    }
}
