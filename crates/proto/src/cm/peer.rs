//! The peer's REQ or REP, as needed to bring up the local QP.

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{
    Failover, Path, PathMtu, Rep, Req, ResponseTimeout, RnrRetry, ServiceId, Transport,
};
use ferroce_wire::number::{Guid, PKey, Psn, Qpn};

use super::parameters::{Enhancements, rep_parameters, req_parameters};
use super::private_data::{RepData, ReqData};

req_parameters! {
    /// A received REQ. "Local" is this side, "remote" is the peer. The paths are taken from its contents, not from its
    /// source address.
    pub struct Request {
        /// Source address of the REQ, and destination of the responses.
        pub from: Gid,
        /// The peer's CA GUID.
        pub remote_ca_guid: Guid,
        /// The peer's QPN.
        pub remote_qpn: Qpn,
    }
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

rep_parameters! {
    /// A received REP.
    pub struct Reply {
        /// The peer's CA GUID.
        pub remote_ca_guid: Guid,
        /// The peer's QPN.
        pub remote_qpn: Qpn,
        /// ACK delay of the peer, to be added to the local ACK timeout.
        pub target_ack_delay: ResponseTimeout,
    }
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
