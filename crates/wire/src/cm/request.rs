//! REQ: connection request.

use crate::address::Gid;
use crate::cm::{
    AckTimeout, CommId, Eecn, ExtendedTransport, PacketRate, Path, PathMtu, ResponseTimeout,
    RnrRetry, ServiceId, Transport, TransportService, VendorId,
};
use crate::field::{Octets, header};
use crate::mad::DATA_LEN;
use crate::number::{Guid, Hex8, Hex32, Lid, PKey, Psn, QKey, Qpn};

header! {
    /// Request for communication (IBA 12.6.5, table 106), sent by the active side.
    pub struct Req("CM REQ", 232) {
        /// Communication ID of the sender.
        local_comm_id: CommId = 32,
        /// Reserved.
        reserved1: Hex8 = 8,
        /// Vendor of the enhancements offered in the MAD's attribute modifier; 0 for none.
        vendor_id: VendorId = 24,
        /// The requested service.
        service_id: ServiceId = 64,
        /// GUID of the sender's device.
        local_ca_guid: Guid = 64,
        /// Reserved.
        reserved2: Hex32 = 32,
        /// Q_Key of the sender; reliable datagram only.
        local_q_key: QKey = 32,
        /// The sender's queue pair.
        local_qpn: Qpn = 24,
        /// Maximum RDMA READs and atomics in flight of the sender as responder.
        responder_resources: u8 = 8,
        /// The sender's end-to-end context; reliable datagram only.
        local_eecn: Eecn = 24,
        /// Maximum RDMA READs and atomics in flight of the sender as requester.
        initiator_depth: u8 = 8,
        /// The receiver's end-to-end context, when it is known; reliable datagram only.
        remote_eecn: Eecn = 24,
        /// Maximum response time of the receiver.
        remote_response_timeout: ResponseTimeout = 5,
        /// Transport service.
        transport_service: TransportService = 2,
        /// The sender's receive queue uses end-to-end credits.
        end_to_end_flow_control: bool = 1,
        /// Starting PSN that the receiver of this message must use for sending (IBA 12.7).
        starting_psn: Psn = 24,
        /// Maximum response time of the sender.
        local_response_timeout: ResponseTimeout = 5,
        /// Retry count of the receiver for unacknowledged requests.
        retry_count: u8 = 3,
        /// Partition key.
        partition: PKey = 16,
        /// Path MTU.
        path_mtu: PathMtu = 4,
        /// A reliable datagram channel exists already.
        rdc_exists: bool = 1,
        /// Retry count of the receiver after RNR NAKs.
        rnr_retry_count: RnrRetry = 3,
        /// Maximum retransmissions of a CM message by either side.
        max_cm_retries: u8 = 4,
        /// The sender uses an SRQ.
        shared_receive_queue: bool = 1,
        /// Extended transport, if the transport service is "extended".
        extended_transport: ExtendedTransport = 3,

        /// Primary path: local LID.
        primary_local_lid: Lid = 16,
        /// Primary path: remote LID.
        primary_remote_lid: Lid = 16,
        /// Primary path: local GID.
        primary_local_gid: Gid = 128,
        /// Primary path: remote GID.
        primary_remote_gid: Gid = 128,
        /// Primary path: flow label.
        primary_flow_label: u32 = 20,
        /// Reserved.
        reserved3: u8 = 6,
        /// Primary path: maximum packet rate.
        primary_packet_rate: PacketRate = 6,
        /// Primary path: traffic class.
        primary_traffic_class: Hex8 = 8,
        /// Primary path: hop limit.
        primary_hop_limit: u8 = 8,
        /// Primary path: service level.
        primary_service_level: u8 = 4,
        /// Primary path: both ports are in the same subnet.
        primary_subnet_local: bool = 1,
        /// Reserved.
        reserved4: u8 = 3,
        /// Primary path: local ACK timeout of the sender.
        primary_ack_timeout: AckTimeout = 5,
        /// Reserved.
        reserved5: u8 = 3,

        /// Alternate path: local LID. All zero if there is no alternate path.
        alternate_local_lid: Lid = 16,
        /// Alternate path: remote LID.
        alternate_remote_lid: Lid = 16,
        /// Alternate path: local GID.
        alternate_local_gid: Gid = 128,
        /// Alternate path: remote GID.
        alternate_remote_gid: Gid = 128,
        /// Alternate path: flow label.
        alternate_flow_label: u32 = 20,
        /// Reserved.
        reserved6: u8 = 6,
        /// Alternate path: maximum packet rate.
        alternate_packet_rate: PacketRate = 6,
        /// Alternate path: traffic class.
        alternate_traffic_class: Hex8 = 8,
        /// Alternate path: hop limit.
        alternate_hop_limit: u8 = 8,
        /// Alternate path: service level.
        alternate_service_level: u8 = 4,
        /// Alternate path: both ports are in the same subnet.
        alternate_subnet_local: bool = 1,
        /// Reserved.
        reserved7: u8 = 3,
        /// Alternate path: local ACK timeout of the sender.
        alternate_ack_timeout: AckTimeout = 5,
        /// The sender accepts suggestions of another alternate path.
        suggested_path_supported: bool = 1,
        /// Reserved.
        reserved8: u8 = 2,

        /// Private data of the consumer, starting with the RDMA-CM IP header.
        private_data: Octets<92> = 736,
    }
}

/// Offsets of the two paths in a REQ (IBA table 106).
const PRIMARY: usize = 52;
const ALTERNATE: usize = PRIMARY + Path::LEN;

impl Req {
    /// The requested transport; `None` if the codes are reserved.
    pub fn transport(&self) -> Option<Transport> {
        Transport::from_codes(self.transport_service, self.extended_transport)
    }

    /// The primary path.
    pub fn primary_path(&self) -> Path {
        self.path_at(PRIMARY)
    }

    /// The alternate path; `None` if it has no addresses.
    pub fn alternate_path(&self) -> Option<Path> {
        let path = self.path_at(ALTERNATE);
        let addresses = (path.local_lid, path.remote_lid, path.local_gid, path.remote_gid);
        (addresses != Default::default()).then_some(path)
    }

    /// Returns the REQ with another primary path.
    #[must_use]
    pub fn with_primary_path(&self, path: &Path) -> Self {
        self.with_path_at(PRIMARY, path)
    }

    /// Returns the REQ with another alternate path.
    #[must_use]
    pub fn with_alternate_path(&self, path: &Path) -> Self {
        self.with_path_at(ALTERNATE, path)
    }

    // Both convert through bytes: `Path` has the same layout, so no field can be missed or swapped.
    fn path_at(&self, at: usize) -> Path {
        let mut path = [0; Path::LEN];
        path.copy_from_slice(&self.to_bytes()[at..at + Path::LEN]);
        Path::parse(&path)
    }

    fn with_path_at(&self, at: usize, path: &Path) -> Self {
        let mut bytes: [u8; DATA_LEN] = self.to_bytes();
        bytes[at..at + Path::LEN].copy_from_slice(&path.to_bytes());
        Self::parse(&bytes)
    }
}
