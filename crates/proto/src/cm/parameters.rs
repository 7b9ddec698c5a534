//! What a consumer asks for and answers.

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{
    AckTimeout, CommId, Failover, Path, PathMtu, RejectReason, RejectedMessage, ResponseTimeout,
    RnrRetry, ServiceId, SidrStatus, Transport, VendorId,
};
use ferroce_wire::number::{Lid, PKey, Psn, QKey, Qpn};

use super::private_data::{Information, RejData, RepData, ReqData, SidrRepData, SidrReqData};

/// A connection in a manager, until its time-wait ends. The name is not given to another one
/// for as many connections as there are names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(super) CommId);

/// A question for a service that this manager asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResolutionId(pub(super) CommId);

/// A question for a service that a peer asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueryId(pub(super) CommId);

impl ConnectionId {
    /// This side's name for the connection, as it stands in its messages.
    pub const fn comm_id(self) -> CommId {
        self.0
    }
}

/// Vendor's enhancements of a connection: what REQ offers and REP accepts, with the MAD's attribute modifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhancements {
    /// Whose they are; 0 for none.
    pub vendor: VendorId,
    /// What they are.
    pub options: u32,
}

/// What the active side asks for (IBA 12.6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectParameters {
    /// The service to connect to.
    pub service_id: ServiceId,
    /// The kind of connection.
    pub transport: Transport,
    /// Our queue pair.
    pub local_qpn: Qpn,
    /// The first packet that we expect of the peer has this number (IBA 12.7: where the *remote* node shall begin).
    pub starting_psn: Psn,
    /// The largest payload of a packet.
    pub path_mtu: PathMtu,
    /// The path, from our side. Its remote GID is where the messages go.
    pub path: Path,
    /// The path to migrate to.
    pub alternate_path: Option<Path>,
    /// The partition.
    pub partition: PKey,
    /// How many RDMA reads and atomics of the peer's we can have under way.
    pub responder_resources: u8,
    /// How many we want to have under way ourselves.
    pub initiator_depth: u8,
    /// How often the peer shall repeat a packet that is not acknowledged.
    pub retry_count: u8,
    /// How often the peer shall repeat one after "receiver not ready".
    pub rnr_retry_count: RnrRetry,
    /// Our receive queue hands out credits.
    pub end_to_end_flow_control: bool,
    /// Our queue pair receives from a shared queue.
    pub shared_receive_queue: bool,
    /// How long our side may take to answer a message.
    pub local_response_timeout: ResponseTimeout,
    /// How long the peer may take.
    pub remote_response_timeout: ResponseTimeout,
    /// How often either side repeats a message.
    pub max_cm_retries: u8,
    /// Enhancements to offer.
    pub enhancements: Enhancements,
    /// The consumer's bytes: see [`super::private_data()`] and [`super::rdmacm_private_data()`].
    pub private_data: ReqData,
}

impl ConnectParameters {
    /// A reliable connection with the numbers that librdmacm and Linux choose.
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

/// The path between two RoCE addresses as Linux describes it: LIDs mean nothing (IBA A17), the acknowledge timeout is
/// 2.1 s.
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

/// What the passive side answers (IBA 12.6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptParameters {
    /// Our queue pair.
    pub local_qpn: Qpn,
    /// The first packet that we expect of the peer has this number (IBA 12.7: where the *remote* node shall begin).
    pub starting_psn: Psn,
    /// How many RDMA reads and atomics of the peer's we can have under way.
    pub responder_resources: u8,
    /// How many we will have under way ourselves.
    pub initiator_depth: u8,
    /// What became of the alternate path.
    pub failover: Failover,
    /// Our receive queue hands out credits.
    pub end_to_end_flow_control: bool,
    /// How often the peer shall repeat a packet after "receiver not ready".
    pub rnr_retry_count: RnrRetry,
    /// Our queue pair receives from a shared queue.
    pub shared_receive_queue: bool,
    /// Enhancements that are accepted.
    pub enhancements: Enhancements,
    /// The consumer's bytes.
    pub private_data: RepData,
}

impl AcceptParameters {
    /// Accepts with one RDMA read each way, no alternate path and no credits, as rdma_rxe does.
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

/// A no, sent or received (IBA 12.6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Why.
    pub reason: RejectReason,
    /// What was rejected. The manager fills it in when it sends.
    pub message: RejectedMessage,
    /// What would have been acceptable, by reason, then zeroes.
    pub information: Information,
    /// How many bytes of the information count.
    pub information_length: u8,
    /// The consumer's bytes.
    pub private_data: RejData,
}

impl Rejection {
    /// A no for this reason.
    pub fn new(reason: RejectReason) -> Self {
        Self {
            reason,
            message: RejectedMessage::REQ,
            information: Information::default(),
            information_length: 0,
            private_data: RejData::default(),
        }
    }

    /// The consumer's own no ([`RejectReason::CONSUMER_REJECT`]), with its bytes.
    pub fn by_consumer(private_data: RejData) -> Self {
        Self { private_data, ..Self::new(RejectReason::CONSUMER_REJECT) }
    }
}

/// A question for the datagram queue pair of a service (IBA 12.11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolveParameters {
    /// Who is asked.
    pub destination: Gid,
    /// The service.
    pub service_id: ServiceId,
    /// The partition.
    pub partition: PKey,
    /// What the question is sent with.
    pub traffic_class: u8,
    /// How long to wait for an answer before asking again.
    pub response_timeout: ResponseTimeout,
    /// How often to ask again.
    pub max_retries: u8,
    /// The consumer's bytes.
    pub private_data: SidrReqData,
}

impl ResolveParameters {
    /// The numbers that Linux chooses.
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

/// A peer's question for a datagram queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Who asks.
    pub from: Gid,
    /// The service.
    pub service_id: ServiceId,
    /// The partition.
    pub partition: PKey,
    /// The consumer's bytes.
    pub private_data: SidrReqData,
}

/// The answer to such a question, sent or received (IBA 12.11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Whether there is a queue pair, and why not.
    pub status: SidrStatus,
    /// The queue pair that offers the service.
    pub qpn: Qpn,
    /// The key that its datagrams must carry.
    pub q_key: QKey,
    /// Where to ask instead, by status, then zeroes.
    pub information: Information,
    /// How many bytes of the information count.
    pub information_length: u8,
    /// Enhancements of the peer's.
    pub enhancements: Enhancements,
    /// The consumer's bytes.
    pub private_data: SidrRepData,
}

impl Resolution {
    /// The queue pair and its key.
    pub fn valid(qpn: Qpn, q_key: QKey, private_data: SidrRepData) -> Self {
        Self { qpn, q_key, private_data, ..Self::refused(SidrStatus::VALID) }
    }

    /// No queue pair, and why.
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
