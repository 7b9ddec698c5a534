//! Parameters of requests and responses.

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{
    AckTimeout, CommId, Failover, Path, PathMtu, RejectReason, RejectedMessage, ResponseTimeout,
    RnrRetry, ServiceId, SidrStatus, Transport, VendorId,
};
use ferroce_wire::number::{Lid, PKey, Psn, QKey, Qpn};

use super::private_data::{Information, RejData, RepData, ReqData, SidrRepData, SidrReqData};

/// A connection of a manager, until the end of TimeWait. The ID is not reused before all other IDs have been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(super) CommId);

/// A service resolution started locally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResolutionId(pub(super) CommId);

/// A service resolution requested by a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueryId(pub(super) CommId);

impl ConnectionId {
    /// The local communication ID.
    pub const fn comm_id(self) -> CommId {
        self.0
    }
}

/// Vendor enhancements, offered in REQ and accepted in REP, with the MAD's attribute modifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhancements {
    /// The vendor; 0 for none.
    pub vendor: VendorId,
    /// The options.
    pub options: u32,
}

/// Declares a struct with the fields of a REQ that both sides see alike, besides its own.
macro_rules! req_parameters {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
            /// The service to connect to.
            pub service_id: ServiceId,
            /// The transport service.
            pub transport: Transport,
            /// PSN of the first packet that the receiver of the REQ sends (IBA 12.7).
            pub starting_psn: Psn,
            /// The path MTU.
            pub path_mtu: PathMtu,
            /// The path as seen locally.
            pub path: Path,
            /// The alternate path as seen locally.
            pub alternate_path: Option<Path>,
            /// The P_Key.
            pub partition: PKey,
            /// Maximum outstanding RDMA READs and atomics of the peer, which the local responder must handle.
            pub responder_resources: u8,
            /// Maximum outstanding RDMA READs and atomics of the local requester.
            pub initiator_depth: u8,
            /// Retry count for the receiver of the REQ.
            pub retry_count: u8,
            /// RNR retry count for the receiver of the REQ.
            pub rnr_retry_count: RnrRetry,
            /// Whether the RQ of the sender of the REQ issues credits.
            pub end_to_end_flow_control: bool,
            /// Whether the QP of the sender of the REQ uses an SRQ.
            pub shared_receive_queue: bool,
            /// Local CM response timeout.
            pub local_response_timeout: ResponseTimeout,
            /// Remote CM response timeout.
            pub remote_response_timeout: ResponseTimeout,
            /// Maximum CM retransmissions of either side.
            pub max_cm_retries: u8,
            /// The enhancements that the sender of the REQ offers.
            pub enhancements: Enhancements,
            /// Private data: see [`private_data()`](super::private_data()) and
            /// [`rdmacm_private_data()`](super::rdmacm_private_data()).
            pub private_data: ReqData,
        }
    };
}

/// Declares a struct with the fields of a REP that both sides see alike, besides its own.
macro_rules! rep_parameters {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
            /// PSN of the first packet that the receiver of the REP sends (IBA 12.7).
            pub starting_psn: Psn,
            /// Maximum outstanding RDMA READs and atomics of the peer, which the local responder must handle.
            pub responder_resources: u8,
            /// Maximum outstanding RDMA READs and atomics of the local requester.
            pub initiator_depth: u8,
            /// Result for the alternate path.
            pub failover: Failover,
            /// Whether the RQ of the sender of the REP issues credits.
            pub end_to_end_flow_control: bool,
            /// RNR retry count for the receiver of the REP.
            pub rnr_retry_count: RnrRetry,
            /// Whether the QP of the sender of the REP uses an SRQ.
            pub shared_receive_queue: bool,
            /// The accepted enhancements.
            pub enhancements: Enhancements,
            /// Private data.
            pub private_data: RepData,
        }
    };
}

pub(super) use {rep_parameters, req_parameters};

req_parameters! {
    /// Parameters of a REQ to send (IBA 12.6.5). The remote GID of the path is the destination of the messages.
    pub struct ConnectParameters {
        /// The local QPN.
        pub local_qpn: Qpn,
    }
}

impl ConnectParameters {
    /// Parameters of an RC connection with the defaults of librdmacm and Linux.
    pub fn new(service_id: ServiceId, local_qpn: Qpn, starting_psn: Psn, path: Path) -> Self {
        Self {
            service_id,
            transport: Transport::Rc,
            local_qpn,
            starting_psn,
            path_mtu: PathMtu::MTU_1024,
            path,
            alternate_path: None,
            partition: PKey(0xffff),
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 7,
            rnr_retry_count: RnrRetry::FOR_EVER,
            end_to_end_flow_control: false,
            shared_receive_queue: false,
            local_response_timeout: ResponseTimeout(20),
            remote_response_timeout: ResponseTimeout(20),
            max_cm_retries: 15,
            enhancements: Enhancements::default(),
            private_data: ReqData::default(),
        }
    }
}

/// The path between two RoCE addresses as Linux describes it: LIDs are unused (IBA A17), the ACK timeout is 2.1 s.
pub fn roce_path(local: Gid, remote: Gid, flow_label: u32) -> Path {
    Path {
        local_lid: Lid(0xffff),
        remote_lid: Lid(0xffff),
        local_gid: local,
        remote_gid: remote,
        flow_label,
        hop_limit: 64,
        ack_timeout: AckTimeout(19),
        ..Path::default()
    }
}

rep_parameters! {
    /// Parameters of a REP to send (IBA 12.6.8).
    pub struct AcceptParameters {
        /// The local QPN.
        pub local_qpn: Qpn,
    }
}

impl AcceptParameters {
    /// Accepts with one RDMA READ in each direction, no alternate path and no credits, as rdma_rxe does.
    pub fn new(local_qpn: Qpn, starting_psn: Psn) -> Self {
        Self {
            local_qpn,
            starting_psn,
            responder_resources: 1,
            initiator_depth: 1,
            failover: Failover::ACCEPTED,
            end_to_end_flow_control: false,
            rnr_retry_count: RnrRetry::FOR_EVER,
            shared_receive_queue: false,
            enhancements: Enhancements::default(),
            private_data: RepData::default(),
        }
    }
}

/// A rejection, sent or received (IBA 12.6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason.
    pub reason: RejectReason,
    /// The rejected message. The manager sets it when it sends.
    pub message: RejectedMessage,
    /// Additional information, depending on the reason, padded with zeros.
    pub information: Information,
    /// Length of the additional information.
    pub information_length: u8,
    /// Private data.
    pub private_data: RejData,
}

impl Rejection {
    /// Creates a rejection with this reason.
    pub fn new(reason: RejectReason) -> Self {
        Self {
            reason,
            message: RejectedMessage::REQ,
            information: Information::default(),
            information_length: 0,
            private_data: RejData::default(),
        }
    }

    /// Creates a consumer rejection ([`RejectReason::CONSUMER_REJECT`]) with private data.
    pub fn by_consumer(private_data: RejData) -> Self {
        Self { private_data, ..Self::new(RejectReason::CONSUMER_REJECT) }
    }
}

/// Parameters of a SIDR_REQ: asks for the UD QP of a service (IBA 12.11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolveParameters {
    /// The destination.
    pub destination: Gid,
    /// The service.
    pub service_id: ServiceId,
    /// The P_Key.
    pub partition: PKey,
    /// Traffic class of the SIDR_REQ.
    pub traffic_class: u8,
    /// Time before a retransmission.
    pub response_timeout: ResponseTimeout,
    /// Maximum retransmissions.
    pub max_retries: u8,
    /// Private data.
    pub private_data: SidrReqData,
}

impl ResolveParameters {
    /// Parameters with the defaults of Linux.
    pub fn new(destination: Gid, service_id: ServiceId) -> Self {
        Self {
            destination,
            service_id,
            partition: PKey(0xffff),
            traffic_class: 0,
            response_timeout: ResponseTimeout(20),
            max_retries: 15,
            private_data: SidrReqData::default(),
        }
    }
}

/// A peer's SIDR_REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The source address.
    pub from: Gid,
    /// The service.
    pub service_id: ServiceId,
    /// The P_Key.
    pub partition: PKey,
    /// Private data.
    pub private_data: SidrReqData,
}

/// A SIDR_REP, sent or received (IBA 12.11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The status.
    pub status: SidrStatus,
    /// The UD QPN of the service.
    pub qpn: Qpn,
    /// The Q_Key for its datagrams.
    pub q_key: QKey,
    /// Additional information, depending on the status, padded with zeros.
    pub information: Information,
    /// Length of the additional information.
    pub information_length: u8,
    /// Enhancements of the peer.
    pub enhancements: Enhancements,
    /// Private data.
    pub private_data: SidrRepData,
}

impl Resolution {
    /// A successful response.
    pub fn valid(qpn: Qpn, q_key: QKey, private_data: SidrRepData) -> Self {
        Self { qpn, q_key, private_data, ..Self::refused(SidrStatus::VALID) }
    }

    /// A refusal.
    pub fn refused(status: SidrStatus) -> Self {
        Self {
            status,
            qpn: Qpn(0),
            q_key: QKey(0),
            information: Information::default(),
            information_length: 0,
            enhancements: Enhancements::default(),
            private_data: SidrRepData::default(),
        }
    }
}
