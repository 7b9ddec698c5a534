use std::net::Ipv4Addr;

use ferroce_proto::budget::Budget;
use ferroce_proto::doorbell::Ring;
use ferroce_proto::qp::{AckTimeout, ServiceType};
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::work::{Data, Operation, SendRequest, SgList, WorkId};
use ferroce_wire::number::{LKey, Psn};

use super::Poster;
use crate::random::Random;
use crate::rdma::host::{Endpoint, EndpointRq, QpConfig};
use crate::rdma::layout::qpn;
use crate::rdma::memory::{Regions, local};

fn send(id: u64) -> SendRequest {
    SendRequest::new(WorkId(id), Operation::SEND, Data::SgList(SgList::from(local(LKey(0), 0, 8))))
}

/// An RC endpoint without an ACK timeout, so that no timer sends what is held back.
fn endpoint() -> Endpoint {
    let mut endpoint =
        Endpoint::new(qpn(0), Ipv4Addr::LOCALHOST, EndpointRq::Own(ReceiveQueue::new(0)));
    let mut config = QpConfig::new(ServiceType::ReliableConnection, qpn(0), 1024, Psn(0));
    config.attributes.timeout = Some(AckTimeout::NEVER);
    config.set_peer(qpn(0), Psn(0), 1024);
    endpoint.qp = Some(config.build());
    let poster = Poster::new(Vec::new(), Instant::ZERO, &mut Random::new(1));
    endpoint.poster = Some(Box::new(poster));
    endpoint
}

/// Posts a request; `holds` overrules the state of the QP.
fn post(endpoint: &mut Endpoint, holds: bool) {
    let (Some(poster), Some(qp)) = (&mut endpoint.poster, &mut endpoint.qp) else {
        panic!("the endpoint has both");
    };
    qp.post_send(send(1)).unwrap();
    assert_eq!(poster.doorbell.post(1, 0, holds) == Ring::Later, holds);
}

#[test]
fn a_request_that_is_held_back_on_its_own_is_stranded() {
    let mut endpoint = endpoint();
    assert_eq!(endpoint.stranded(), None);
    post(&mut endpoint, true);
    post(&mut endpoint, true);
    assert_eq!(endpoint.stranded(), Some(2));
    endpoint.release();
    assert_eq!(endpoint.stranded(), None, "it is polled");
}

#[test]
fn a_request_behind_one_in_flight_is_not_stranded() {
    let mut endpoint = endpoint();
    post(&mut endpoint, false);
    while endpoint
        .poll_transmit(
            Instant::ZERO,
            &mut { Budget::UNLIMITED },
            &mut Regions::new(0, 1).access(Instant::ZERO),
        )
        .is_some()
    {}
    endpoint.release();
    post(&mut endpoint, true);
    assert_eq!(endpoint.stranded(), None, "an ACK is due");
    endpoint.close();
    assert_eq!(endpoint.stranded(), None, "it was flushed");
}
