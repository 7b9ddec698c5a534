//! What a consumer learns about its peer from a REQ or REP, to bring its own queue pair up.

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{
    Failover, Path, PathMtu, Rep, Req, ResponseTimeout, RnrRetry, ServiceId, Transport,
};
use ferroce_wire::number::{Guid, PKey, Psn, Qpn};

use super::parameters::Enhancements;
use super::private_data::{RepData, ReqData};

/// A peer's REQ, from the side that received it: "local" is here, "remote" is the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The address that the REQ came from, and that the answers go to.
    pub from: Gid,
    /// The service that is asked for.
    pub service_id: ServiceId,
    /// The peer's device.
    pub remote_ca_guid: Guid,
    /// The kind of connection.
    pub transport: Transport,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// The first packet that we send has this number (IBA 12.7): the peer expects it.
    pub starting_psn: Psn,
    /// The largest payload of a packet.
    pub path_mtu: PathMtu,
    /// The path, turned round. Its addresses are what the peer wrote, not where the REQ came from.
    pub path: Path,
    /// The path to migrate to, turned round.
    pub alternate_path: Option<Path>,
    /// The partition.
    pub partition: PKey,
    /// How many RDMA reads and atomics the peer wants to have under way: our responder must hold as many.
    pub responder_resources: u8,
    /// How many we can have under way to the peer.
    pub initiator_depth: u8,
    /// How often we shall repeat a packet that is not acknowledged.
    pub retry_count: u8,
    /// How often we shall repeat one after "receiver not ready".
    pub rnr_retry_count: RnrRetry,
    /// The peer hands out credits.
    pub end_to_end_flow_control: bool,
    /// The peer receives from a shared queue.
    pub shared_receive_queue: bool,
    /// How long our side may take to answer a message.
    pub local_response_timeout: ResponseTimeout,
    /// How long the peer may take.
    pub remote_response_timeout: ResponseTimeout,
    /// How often either side repeats a message.
    pub max_cm_retries: u8,
    /// Enhancements the peer offers.
    pub enhancements: Enhancements,
    /// The consumer's bytes; behind RDMA-CM's header when the service is one of its ports.
    pub private_data: ReqData,
}

/// The path from its other end.
fn turned(path: Path) -> Path {
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
            path: turned(req.primary_path()),
            alternate_path: req.alternate_path().map(turned),
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

/// A peer's REP, from the side that received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The peer's device.
    pub remote_ca_guid: Guid,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// The first packet that we send has this number (IBA 12.7): the peer expects it.
    pub starting_psn: Psn,
    /// How many RDMA reads and atomics the peer will have under way: our responder must hold as many.
    pub responder_resources: u8,
    /// How many we can have under way to the peer.
    pub initiator_depth: u8,
    /// How long the peer takes to acknowledge: to be added to our acknowledge timeout.
    pub target_ack_delay: ResponseTimeout,
    /// What became of the alternate path.
    pub failover: Failover,
    /// The peer hands out credits.
    pub end_to_end_flow_control: bool,
    /// How often we shall repeat a packet after "receiver not ready".
    pub rnr_retry_count: RnrRetry,
    /// The peer receives from a shared queue.
    pub shared_receive_queue: bool,
    /// Enhancements the peer accepted.
    pub enhancements: Enhancements,
    /// The consumer's bytes.
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

/// The queue pair in a REP: an XRC target's stands where reliable datagram has its context (IBA A14).
pub(super) const fn rep_qpn(rep: &Rep, transport: Transport) -> Qpn {
    match transport {
        Transport::Xrc => Qpn(rep.local_eecn.0),
        _ => rep.local_qpn,
    }
}
