//! QP attributes of a connection, derived from the CM messages as Linux's `ib_cm` does.

use ferroce_proto::cm::{Reply, Request};
use ferroce_proto::memory::AccessFlags;
use ferroce_proto::qp::{
    AckTimeout, AddressVector, QueuePairAttributes, RnrTimer, ServiceType, State,
};
use ferroce_wire::cm::{Path, ResponseTimeout};
use ferroce_wire::number::Psn;

use crate::error::CmError as Error;
use crate::queue_pair::{QueuePair, required};
use ferroce_sys::random::number as random;

/// Adds the attributes that need no peer. INIT grants no access.
pub(super) fn complete(negotiated: &QueuePairAttributes) -> QueuePairAttributes {
    QueuePairAttributes {
        partition: Some(0),
        port: Some(1),
        access: Some(AccessFlags::empty()),
        queue_key: Some(super::DATAGRAM_QUEUE_KEY),
        send_psn: negotiated.send_psn.or(Some(Psn(0))),
        ..*negotiated
    }
}

/// Returns a starting PSN that an attacker cannot guess.
pub(super) fn random_psn() -> Psn {
    Psn(random() as u32 & 0x00ff_ffff)
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

/// Returns the attributes of the passive side, from a REQ.
pub(super) fn of_request(source_index: u8, request: &Request) -> QueuePairAttributes {
    // Responses and packets go to the source address of the request.
    let path = AddressVector { destination: request.from, ..vector(source_index, &request.path) };
    QueuePairAttributes {
        destination: Some(request.remote_qpn),
        receive_psn: Some(random_psn()),
        send_psn: Some(request.starting_psn),
        path: Some(path),
        path_mtu: Some(request.path_mtu),
        max_dest_rd_atomic: Some(request.responder_resources),
        max_rd_atomic: Some(request.initiator_depth),
        timeout: Some(request.path.ack_timeout),
        retry_count: Some(request.retry_count),
        rnr_retry: Some(request.rnr_retry_count),
        min_rnr_timer: Some(RnrTimer::default()),
        ..QueuePairAttributes::default()
    }
}

/// Limits the outstanding READs and atomics of both sides.
pub(super) fn limit(
    negotiated: &mut QueuePairAttributes,
    responder_resources: u8,
    initiator_depth: u8,
) {
    negotiated.max_dest_rd_atomic = negotiated.max_dest_rd_atomic.min(Some(responder_resources));
    negotiated.max_rd_atomic = negotiated.max_rd_atomic.min(Some(initiator_depth));
}

/// Applies a REP on the active side.
pub(super) fn learn(negotiated: &mut QueuePairAttributes, reply: &Reply) {
    negotiated.destination = Some(reply.remote_qpn);
    negotiated.send_psn = Some(reply.starting_psn);
    // Not more than we requested, whatever the REP contains.
    limit(negotiated, reply.responder_resources, reply.initiator_depth);
    negotiated.rnr_retry = Some(reply.rnr_retry_count);
    let delay = reply.target_ack_delay;
    negotiated.timeout = negotiated.timeout.map(|of_path| ack_timeout(of_path, delay));
}

/// Returns the attributes of the transition into a state.
pub(super) fn change(
    negotiated: &QueuePairAttributes,
    service: ServiceType,
    state: State,
) -> Result<QueuePairAttributes, Error> {
    let change = required(service, state, &complete(negotiated));
    Ok(match state {
        State::Init | State::ReadyToSend => change,
        State::ReadyToReceive if service == ServiceType::UnreliableDatagram => change,
        State::ReadyToReceive => {
            // READs and atomics only if responder resources were negotiated.
            let reads = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
            let has_reads = negotiated.max_dest_rd_atomic > Some(0);
            let reads = if has_reads { reads } else { AccessFlags::empty() };
            QueuePairAttributes { access: Some(AccessFlags::REMOTE_WRITE | reads), ..change }
        }
        State::Error | State::Reset => to(state),
        _ => return Err(Error::NoAttributes { state }),
    })
}

/// Brings a QP from INIT to RTS.
pub(super) fn bring_up(
    negotiated: &QueuePairAttributes,
    queue_pair: &QueuePair,
) -> Result<(), Error> {
    for state in [State::ReadyToReceive, State::ReadyToSend] {
        queue_pair.modify(&change(negotiated, queue_pair.service(), state)?)?;
    }
    Ok(())
}

/// Returns a change of the state alone.
fn to(state: State) -> QueuePairAttributes {
    QueuePairAttributes { state: Some(state), ..QueuePairAttributes::default() }
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
