use std::net::Ipv4Addr;

use ferroce_proto::budget::Budget;
use ferroce_proto::doorbell::Ring;
use ferroce_proto::qp::{AckTimeout, QueuePairAttributes, ServiceType, State};
use ferroce_proto::time::Instant;
use ferroce_proto::work::{Data, Operation, SendRequest, SgList, WorkId};
use ferroce_wire::number::{LKey, Psn};

use crate::rdma::host::{Endpoint, EndpointRq, QpConfig};
use crate::rdma::layout::qpn;
use crate::rdma::memory::{Regions, local};

fn send(id: u64) -> SendRequest {
    SendRequest::new(WorkId(id), Operation::SEND, Data::SgList(SgList::from(local(LKey(0), 0, 8))))
}

/// An RC endpoint without an ACK timeout, so that no timer sends what is held back.
fn endpoint() -> Endpoint {
    let endpoint = Endpoint::new(qpn(0), 0, Ipv4Addr::LOCALHOST, EndpointRq::Own(0), &[]);
    let mut config = QpConfig::new(ServiceType::ReliableConnection, qpn(0), 1024, Psn(0));
    config.attributes.timeout = Some(AckTimeout::NEVER);
    config.set_peer(qpn(0), Psn(0), 1024);
    endpoint.lock().queue_pair.endpoint = config.build();
    endpoint
}

/// Posts a request; `holds` overrules the state of the QP.
fn post(endpoint: &Endpoint, holds: bool) {
    let qp = &mut endpoint.lock().queue_pair;
    qp.endpoint.post_send(send(1)).unwrap();
    assert_eq!(qp.doorbell.post(1, 0, holds) == Ring::Later, holds);
}

#[test]
fn a_request_that_is_held_back_on_its_own_is_stranded() {
    let endpoint = endpoint();
    assert_eq!(endpoint.stranded(), None);
    post(&endpoint, true);
    post(&endpoint, true);
    assert_eq!(endpoint.stranded(), Some(2));
    endpoint.lock().queue_pair.doorbell.release();
    assert_eq!(endpoint.stranded(), None, "it is polled");
}

#[test]
fn a_request_behind_one_in_flight_is_not_stranded() {
    let endpoint = endpoint();
    post(&endpoint, false);
    let regions = Regions::new(0, 1);
    let mut memory = regions.registered().access(Instant::ZERO);
    let mut budget = Budget::UNLIMITED;
    while endpoint
        .lock()
        .queue_pair
        .endpoint
        .poll_transmit(Instant::ZERO, &mut budget, &mut memory)
        .is_some()
    {}
    endpoint.lock().queue_pair.doorbell.release();
    post(&endpoint, true);
    assert_eq!(endpoint.stranded(), None, "an ACK is due");
    let ended = QueuePairAttributes { state: Some(State::Error), ..Default::default() };
    endpoint.lock().queue_pair.endpoint.modify(&ended).unwrap();
    assert_eq!(endpoint.stranded(), None, "it was flushed");
}
