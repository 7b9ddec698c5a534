//! REQ: the wish to connect.

use crate::address::Gid;
use crate::cm::{
    AckTimeout, CommId, Eecn, ExtendedTransport, PacketRate, Path, PathMtu, ResponseTimeout,
    RnrRetry, ServiceId, Transport, TransportService, VendorId,
};
use crate::field::{Octets, header};
use crate::mad::DATA_LEN;
use crate::number::{Guid, Hex8, Hex32, Lid, PKey, Psn, QKey, Qpn};

header! {
    /// Request for communication (IBA 12.6.5, table 106): the active side describes itself and the path.
    pub struct Req("CM REQ", 232) {
        /// The sender's name for this connection.
        local_comm_id: CommId = 32,
        /// Reserved.
        reserved1: Hex8 = 8,
        /// Whose enhancements the MAD's attribute modifier offers; 0 for none.
        vendor_id: VendorId = 24,
        /// The service that is asked for.
        service_id: ServiceId = 64,
        /// The sender's device.
        local_ca_guid: Guid = 64,
        /// Reserved.
        reserved2: Hex32 = 32,
        /// The sender's queue key; reliable datagram only.
        local_q_key: QKey = 32,
        /// The sender's queue pair.
        local_qpn: Qpn = 24,
        /// How many RDMA reads and atomics the sender can have under way as responder.
        responder_resources: u8 = 8,
        /// The sender's end-to-end context; reliable datagram only.
        local_eecn: Eecn = 24,
        /// How many RDMA reads and atomics the sender will have under way as requester.
        initiator_depth: u8 = 8,
        /// The receiver's end-to-end context, when it is known; reliable datagram only.
        remote_eecn: Eecn = 24,
        /// How long the receiver may take to answer a message.
        remote_response_timeout: ResponseTimeout = 5,
        /// Kind of transport.
        transport_service: TransportService = 2,
        /// The sender's receive queue hands out end-to-end credits.
        end_to_end_flow_control: bool = 1,
        /// The sequence number with which the receiver of this message is to begin sending (IBA 12.7).
        starting_psn: Psn = 24,
        /// How long the sender may take to answer a message.
        local_response_timeout: ResponseTimeout = 5,
        /// How often the receiver shall repeat a request that is not acknowledged.
        retry_count: u8 = 3,
        /// The partition that both belong to.
        partition: PKey = 16,
        /// The largest packet payload of the path.
        path_mtu: PathMtu = 4,
        /// A reliable datagram channel exists already.
        rdc_exists: bool = 1,
        /// How often the receiver shall repeat a request after "receiver not ready".
        rnr_retry_count: RnrRetry = 3,
        /// How often either side repeats a message of the connection manager.
        max_cm_retries: u8 = 4,
        /// The sender receives from a shared receive queue.
        shared_receive_queue: bool = 1,
        /// Kind of transport, when the transport service says "extended".
        extended_transport: ExtendedTransport = 3,

        /// Primary path: the sender's port in its subnet.
        primary_local_lid: Lid = 16,
        /// Primary path: the receiver's port in its subnet.
        primary_remote_lid: Lid = 16,
        /// Primary path: the sender's address.
        primary_local_gid: Gid = 128,
        /// Primary path: the receiver's address.
        primary_remote_gid: Gid = 128,
        /// Primary path: flow label.
        primary_flow_label: u32 = 20,
        /// Reserved.
        reserved3: u8 = 6,
        /// Primary path: the fastest that either side may send.
        primary_packet_rate: PacketRate = 6,
        /// Primary path: traffic class.
        primary_traffic_class: Hex8 = 8,
        /// Primary path: hop limit.
        primary_hop_limit: u8 = 8,
        /// Primary path: service level.
        primary_service_level: u8 = 4,
        /// Primary path: both ports are in one subnet.
        primary_subnet_local: bool = 1,
        /// Reserved.
        reserved4: u8 = 3,
        /// Primary path: how long the sender waits for an acknowledge.
        primary_ack_timeout: AckTimeout = 5,
        /// Reserved.
        reserved5: u8 = 3,

        /// Alternate path: the sender's port in its subnet. All zero when there is no alternate path.
        alternate_local_lid: Lid = 16,
        /// Alternate path: the receiver's port in its subnet.
        alternate_remote_lid: Lid = 16,
        /// Alternate path: the sender's address.
        alternate_local_gid: Gid = 128,
        /// Alternate path: the receiver's address.
        alternate_remote_gid: Gid = 128,
        /// Alternate path: flow label.
        alternate_flow_label: u32 = 20,
        /// Reserved.
        reserved6: u8 = 6,
        /// Alternate path: the fastest that either side may send.
        alternate_packet_rate: PacketRate = 6,
        /// Alternate path: traffic class.
        alternate_traffic_class: Hex8 = 8,
        /// Alternate path: hop limit.
        alternate_hop_limit: u8 = 8,
        /// Alternate path: service level.
        alternate_service_level: u8 = 4,
        /// Alternate path: both ports are in one subnet.
        alternate_subnet_local: bool = 1,
        /// Reserved.
        reserved7: u8 = 3,
        /// Alternate path: how long the sender waits for an acknowledge.
        alternate_ack_timeout: AckTimeout = 5,
        /// The sender takes suggestions of another alternate path.
        suggested_path_supported: bool = 1,
        /// Reserved.
        reserved8: u8 = 2,

        /// The consumer's bytes; RDMA-CM's IP header comes first in them.
        private_data: Octets<92> = 736,
    }
}

/// Where the two paths begin in a REQ (IBA table 106).
const PRIMARY: usize = 52;
const ALTERNATE: usize = PRIMARY + Path::LEN;

impl Req {
    /// The transport asked for, `None` when the codes are reserved ones.
    pub fn transport(&self) -> Option<Transport> {
        Transport::from_codes(self.transport_service, self.extended_transport)
    }

    /// The path the connection starts on.
    pub fn primary_path(&self) -> Path {
        self.path_at(PRIMARY)
    }

    /// The path to migrate to, `None` when none is given: it has no addresses then.
    pub fn alternate_path(&self) -> Option<Path> {
        let path = self.path_at(ALTERNATE);
        let addresses = (path.local_lid, path.remote_lid, path.local_gid, path.remote_gid);
        (addresses != Default::default()).then_some(path)
    }

    /// This REQ with another primary path.
    #[must_use]
    pub fn with_primary_path(&self, path: &Path) -> Self {
        self.with_path_at(PRIMARY, path)
    }

    /// This REQ with another alternate path.
    #[must_use]
    pub fn with_alternate_path(&self, path: &Path) -> Self {
        self.with_path_at(ALTERNATE, path)
    }

    // Both go by the bytes: `Path` lays out the same bits, so no field can be forgotten or crossed.
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
