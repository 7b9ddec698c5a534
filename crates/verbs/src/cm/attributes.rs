//! QP attributes of a connection, derived from the CM messages as Linux's `ib_cm` does.

use ferroce_proto::cm::{Reply, Request};
use ferroce_proto::memory::AccessFlags;
use ferroce_proto::qp::{
    AckTimeout, AddressVector, PathMtu, QueuePairAttributes, RnrRetry, RnrTimer, ServiceType, State,
};
use ferroce_wire::cm::{Path, ResponseTimeout};
use ferroce_wire::number::{Psn, Qpn};

use crate::error::{CmError as Error, ModifyError};
use crate::queue_pair::QueuePair;

/// The negotiated attributes of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Negotiated {
    pub(super) destination: Qpn,
    /// PSN of the peer's first packet, which we chose.
    pub(super) receive_psn: Psn,
    /// PSN of our first packet, which the peer chose.
    pub(super) send_psn: Psn,
    pub(super) path: AddressVector,
    pub(super) path_mtu: PathMtu,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) timeout: AckTimeout,
    pub(super) retry_count: u8,
    pub(super) rnr_retry: RnrRetry,
    pub(super) min_rnr_timer: RnrTimer,
}

/// Returns the address vector of a path, from our side.
pub(super) fn vector(source_index: u8, path: &Path) -> AddressVector {
    AddressVector {
        port: 1,
        source_index,
        destination: path.remote_gid,
        flow_label: path.flow_label,
        traffic_class: path.traffic_class.0,
        hop_limit: path.hop_limit,
        service_level: path.service_level,
    }
}

/// Returns the ACK timeout: the larger of the packet lifetime plus 1, which the path contains, and the ACK delay of the
/// responder; one more if they differ by at most 1 (IBA 12.7, `cm_ack_timeout` of Linux).
pub(super) fn ack_timeout(of_path: AckTimeout, delay: ResponseTimeout) -> AckTimeout {
    let (path, delay) = (of_path.0, delay.0);
    if path == 0 {
        return of_path;
    }
    let close = path.abs_diff(delay) <= 1;
    AckTimeout((path.max(delay) + u8::from(close)).min(31))
}

impl Negotiated {
    /// Returns the attributes of the passive side, from a REQ.
    pub(super) fn of_request(source_index: u8, request: &Request) -> Self {
        let mut path = vector(source_index, &request.path);
        // Responses and packets go to the source address of the request.
        path.destination = request.from;
        Self {
            destination: request.remote_qpn,
            send_psn: request.starting_psn,
            path,
            path_mtu: request.path_mtu,
            responder_resources: request.responder_resources,
            initiator_depth: request.initiator_depth,
            timeout: request.path.ack_timeout,
            retry_count: request.retry_count,
            rnr_retry: request.rnr_retry_count,
            ..Self::default()
        }
    }

    /// Limits the outstanding READs and atomics of both sides.
    pub(super) fn limit(&mut self, responder_resources: u8, initiator_depth: u8) {
        self.responder_resources = self.responder_resources.min(responder_resources);
        self.initiator_depth = self.initiator_depth.min(initiator_depth);
    }

    /// Applies a REP on the active side.
    pub(super) fn learn(&mut self, reply: &Reply) {
        self.destination = reply.remote_qpn;
        self.send_psn = reply.starting_psn;
        // Not more than we requested, whatever the REP contains.
        self.limit(reply.responder_resources, reply.initiator_depth);
        self.rnr_retry = reply.rnr_retry_count;
        self.timeout = ack_timeout(self.timeout, reply.target_ack_delay);
    }

    /// Returns the attributes of the transition into a state.
    pub(super) fn attributes(
        &self,
        service: ServiceType,
        state: State,
    ) -> Result<QueuePairAttributes, Error> {
        use ServiceType::{ReliableConnection, XrcInitiator, XrcTarget};
        let requester = matches!(service, ReliableConnection | XrcInitiator);
        let responder = matches!(service, ReliableConnection | XrcTarget);
        let change = to(state);
        Ok(match state {
            State::Init => init(service),
            State::ReadyToReceive => QueuePairAttributes {
                path: Some(self.path),
                path_mtu: Some(self.path_mtu),
                destination: Some(self.destination),
                receive_psn: Some(self.receive_psn),
                access: Some(self.access()),
                max_dest_rd_atomic: responder.then_some(self.responder_resources),
                min_rnr_timer: responder.then_some(self.min_rnr_timer),
                ..change
            },
            State::ReadyToSend => QueuePairAttributes {
                send_psn: Some(self.send_psn),
                timeout: (requester || responder).then_some(self.timeout),
                retry_count: requester.then_some(self.retry_count),
                rnr_retry: requester.then_some(self.rnr_retry),
                max_rd_atomic: requester.then_some(self.initiator_depth),
                ..change
            },
            State::Error | State::Reset => change,
            _ => return Err(Error::NoAttributes { state }),
        })
    }

    /// Returns the remote access: READs and atomics only if responder resources were negotiated.
    fn access(&self) -> AccessFlags {
        let reads = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
        let reads = if self.responder_resources > 0 { reads } else { AccessFlags::empty() };
        AccessFlags::REMOTE_WRITE | reads
    }

    /// Brings a QP to RTS.
    pub(super) fn bring_up(&self, queue_pair: &QueuePair) -> Result<(), Error> {
        let service = queue_pair.service();
        for state in [State::ReadyToReceive, State::ReadyToSend] {
            queue_pair.modify(&self.attributes(service, state)?)?;
        }
        Ok(())
    }
}

/// Returns a change of the state alone.
fn to(state: State) -> QueuePairAttributes {
    QueuePairAttributes { state: Some(state), ..QueuePairAttributes::default() }
}

/// Returns the attributes of the transition to INIT.
fn init(service: ServiceType) -> QueuePairAttributes {
    let datagram = service == ServiceType::UnreliableDatagram;
    QueuePairAttributes {
        partition: Some(0),
        port: Some(1),
        access: (!datagram).then_some(AccessFlags::empty()),
        queue_key: datagram.then_some(super::DATAGRAM_QUEUE_KEY),
        ..to(State::Init)
    }
}

/// Brings a new QP to INIT, or to RTS if it is UD.
pub(super) fn prepare(queue_pair: &QueuePair) -> Result<(), ModifyError> {
    let init = init(queue_pair.service());
    match queue_pair.service() {
        ServiceType::UnreliableDatagram => {
            queue_pair.bring_up(&QueuePairAttributes { send_psn: Some(Psn(0)), ..init })
        }
        _ => queue_pair.modify(&init).map(drop),
    }
}

/// Moves a QP to the error state.
pub(super) fn fail(queue_pair: Option<&QueuePair>) {
    if let Some(queue_pair) = queue_pair {
        let _ = queue_pair.modify(&to(State::Error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cm_ack_timeout` of Linux.
    fn linux(delay: i32, lifetime: i32) -> i32 {
        let mut timeout = lifetime + 1;
        if timeout >= delay {
            timeout += i32::from(delay >= timeout - 1);
        } else {
            timeout = delay + i32::from(timeout >= delay - 1);
        }
        timeout.min(31)
    }

    #[test]
    fn ack_timeouts_equal_those_of_linux() {
        for lifetime in 0..31 {
            for delay in 0..32 {
                let ours = ack_timeout(AckTimeout(lifetime + 1), ResponseTimeout(delay));
                let theirs = linux(i32::from(delay), i32::from(lifetime));
                assert_eq!(i32::from(ours.0), theirs, "lifetime {lifetime}, delay {delay}");
            }
        }
    }
}
