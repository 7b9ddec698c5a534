//! LAP and APR: alternate path of an established connection.

use crate::address::Gid;
use crate::cm::{AckTimeout, ApStatus, CommId, PacketRate, Path, ResponseTimeout};
use crate::field::{Octets, header};
use crate::number::{Hex8, Hex16, Hex32, Lid, Qpn};

header! {
    /// Load alternate path (IBA 12.8.1, table 115). The path has the fields of a REQ in a different order.
    pub struct Lap("CM LAP", 232) {
        /// Communication ID of the sender.
        local_comm_id: CommId = 32,
        /// Communication ID of the receiver.
        remote_comm_id: CommId = 32,
        /// Reserved.
        reserved1: Hex32 = 32,
        /// The receiver's queue pair or end-to-end context.
        remote_qpn: Qpn = 24,
        /// Maximum response time of the receiver.
        remote_response_timeout: ResponseTimeout = 5,
        /// Reserved.
        reserved2: u8 = 3,
        /// Reserved.
        reserved3: Hex32 = 32,
        /// Local LID.
        alternate_local_lid: Lid = 16,
        /// Remote LID.
        alternate_remote_lid: Lid = 16,
        /// Local GID.
        alternate_local_gid: Gid = 128,
        /// Remote GID.
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
        /// Maximum packet rate.
        alternate_packet_rate: PacketRate = 6,
        /// Service level.
        alternate_service_level: u8 = 4,
        /// Both ports are in the same subnet.
        alternate_subnet_local: bool = 1,
        /// Reserved.
        reserved6: u8 = 3,
        /// Local ACK timeout of the sender.
        alternate_ack_timeout: AckTimeout = 5,
        /// Reserved.
        reserved7: u8 = 3,
        /// Private data of the consumer.
        private_data: Octets<168> = 1344,
    }

    /// Alternate path response (IBA 12.8.2, table 116).
    pub struct Apr("CM APR", 232) {
        /// Communication ID of the sender.
        local_comm_id: CommId = 32,
        /// Communication ID of the receiver.
        remote_comm_id: CommId = 32,
        /// Length of the additional information in bytes.
        information_length: u8 = 8,
        /// Outcome of the LAP.
        status: ApStatus = 8,
        /// Reserved.
        reserved: Hex16 = 16,
        /// Additional information, such as acceptable values, depending on the status.
        information: Octets<72> = 576,
        /// Private data of the consumer.
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

    /// Returns the LAP with another path.
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
    /// The valid part of the additional information; the length is limited to the field.
    pub fn information(&self) -> &[u8] {
        super::counted(&self.information.0, self.information_length)
    }
}
