//! The peer's REQ or REP, as needed to bring up the local QP.

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{
    Failover, Path, PathMtu, Rep, Req, ResponseTimeout, RnrRetry, ServiceId, Transport,
};
use ferroce_wire::number::{Guid, PKey, Psn, Qpn};

use super::parameters::Enhancements;
use super::private_data::{RepData, ReqData};

/// A received REQ. "Local" is this side, "remote" is the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Source address of the REQ, and destination of the responses.
    pub from: Gid,
    /// The requested service.
    pub service_id: ServiceId,
    /// The peer's CA GUID.
    pub remote_ca_guid: Guid,
    /// The transport service.
    pub transport: Transport,
    /// The peer's QPN.
    pub remote_qpn: Qpn,
    /// PSN of the first packet that we send (IBA 12.7).
    pub starting_psn: Psn,
    /// The path MTU.
    pub path_mtu: PathMtu,
    /// The path as seen locally, from the contents of the REQ, not from its source address.
    pub path: Path,
    /// The alternate path as seen locally.
    pub alternate_path: Option<Path>,
    /// The P_Key.
    pub partition: PKey,
    /// Outstanding RDMA READs and atomics that the peer wants: our responder needs as many resources.
    pub responder_resources: u8,
    /// Maximum of our own outstanding READs and atomics.
    pub initiator_depth: u8,
    /// Retry count for us.
    pub retry_count: u8,
    /// RNR retry count for us.
    pub rnr_retry_count: RnrRetry,
    /// Whether the peer's RQ issues credits.
    pub end_to_end_flow_control: bool,
    /// Whether the peer's QP uses an SRQ.
    pub shared_receive_queue: bool,
    /// Local CM response timeout.
    pub local_response_timeout: ResponseTimeout,
    /// Remote CM response timeout.
    pub remote_response_timeout: ResponseTimeout,
    /// Maximum CM retransmissions of either side.
    pub max_cm_retries: u8,
    /// Offered enhancements.
    pub enhancements: Enhancements,
    /// Private data, starting with the RDMA-CM header when the service is an RDMA-CM port.
    pub private_data: ReqData,
}

/// The path as seen from its other end.
fn reversed(path: Path) -> Path {
    Path {
        local_lid: path.remote_lid,
        remote_lid: path.local_lid,
        local_gid: path.remote_gid,
        remote_gid: path.local_gid,
        ..path
    }
}

impl Request {
    pub(super) fn new(from: Gid, req: &Req, transport: Transport, options: u32) -> Self {
        Self {
            from,
            service_id: req.service_id,
            remote_ca_guid: req.local_ca_guid,
            transport,
            remote_qpn: req.local_qpn,
            starting_psn: req.starting_psn,
            path_mtu: req.path_mtu,
            path: reversed(req.primary_path()),
            alternate_path: req.alternate_path().map(reversed),
            partition: req.partition,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            end_to_end_flow_control: req.end_to_end_flow_control,
            shared_receive_queue: req.shared_receive_queue,
            local_response_timeout: req.remote_response_timeout,
            remote_response_timeout: req.local_response_timeout,
            max_cm_retries: req.max_cm_retries,
            enhancements: Enhancements { vendor: req.vendor_id, options },
            private_data: req.private_data,
        }
    }
}

/// A received REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The peer's CA GUID.
    pub remote_ca_guid: Guid,
    /// The peer's QPN.
    pub remote_qpn: Qpn,
    /// PSN of the first packet that we send (IBA 12.7).
    pub starting_psn: Psn,
    /// Outstanding RDMA READs and atomics of the peer: our responder needs as many resources.
    pub responder_resources: u8,
    /// Maximum of our own outstanding READs and atomics.
    pub initiator_depth: u8,
    /// ACK delay of the peer, to be added to our ACK timeout.
    pub target_ack_delay: ResponseTimeout,
    /// Result for the alternate path.
    pub failover: Failover,
    /// Whether the peer's RQ issues credits.
    pub end_to_end_flow_control: bool,
    /// RNR retry count for us.
    pub rnr_retry_count: RnrRetry,
    /// Whether the peer's QP uses an SRQ.
    pub shared_receive_queue: bool,
    /// Accepted enhancements.
    pub enhancements: Enhancements,
    /// Private data.
    pub private_data: RepData,
}

impl Reply {
    pub(super) fn new(rep: &Rep, transport: Transport, options: u32) -> Self {
        Self {
            remote_ca_guid: rep.local_ca_guid,
            remote_qpn: rep_qpn(rep, transport),
            starting_psn: rep.starting_psn,
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            target_ack_delay: rep.target_ack_delay,
            failover: rep.failover,
            end_to_end_flow_control: rep.end_to_end_flow_control,
            rnr_retry_count: rep.rnr_retry_count,
            shared_receive_queue: rep.shared_receive_queue,
            enhancements: Enhancements { vendor: rep.vendor_id(), options },
            private_data: rep.private_data,
        }
    }
}

/// The QPN in a REP: for XRC it is in the field of the EE context (IBA A14).
pub(super) const fn rep_qpn(rep: &Rep, transport: Transport) -> Qpn {
    match transport {
        Transport::Xrc => Qpn(rep.local_eecn.0),
        _ => rep.local_qpn,
    }
}
