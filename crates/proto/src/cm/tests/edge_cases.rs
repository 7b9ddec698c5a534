//! Edge cases that no legitimate exchange reaches.

use std::collections::BTreeSet;
use std::string::{String, ToString};

use super::super::comm_id::CommIds;
use super::super::{
    CallError, Config, ConnectionManager, DrepData, DreqData, Event, Ignored, ResolveParameters,
    RtuData, ServiceInUse, State, TooMany,
};
use super::handshake::{Pair, accepted, established, requested};
use super::{
    SERVICE, at, carry, config, connect_parameters, events, gid, manager, only, transmits,
};
use ferroce_wire::cm::{
    CmMessage, CommId, MessageError, Mra, ReceivedMessage, RejectReason, Rep, Req, ResponseTimeout,
    ServiceId,
};
use ferroce_wire::mad::{MadError, TransactionId};
use ferroce_wire::number::Qpn;

const TRANSACTION: TransactionId = TransactionId(0x77);

/// The REQ of a pair, as retransmitted by its active side.
fn repeated_req(pair: &mut Pair) -> Req {
    let end = pair.a.poll_timeout().unwrap();
    pair.a.handle_timeout(end);
    let CmMessage::Req(req) = only(&mut pair.a).message else { panic!("no REQ") };
    req
}

#[test]
fn ignores_an_mra_for_another_message() {
    let Pair { mut a, at_a, at_b, .. } = requested(&connect_parameters());
    for message in [ReceivedMessage::REP, ReceivedMessage::LAP] {
        let mra = Mra {
            local_comm_id: at_b.comm_id(),
            remote_comm_id: at_a.comm_id(),
            message,
            ..Mra::default()
        };
        let result = a.handle_message(at(2), gid(11), TRANSACTION, &mra.into());
        assert_eq!(result, Err(Ignored::OutOfPlace(State::ReqSent)));
    }
}

#[test]
fn rejects_a_repeated_req_with_other_contents() {
    let mut pair = requested(&connect_parameters());
    pair.b.listen(ServiceId(5), 1).unwrap();
    let req = repeated_req(&mut pair);
    let Pair { b, .. } = &mut pair;
    let others = [Req { local_qpn: Qpn(0x55), ..req }, Req { service_id: ServiceId(5), ..req }];
    for other in others {
        let result = b.handle_message(at(9), gid(12), TRANSACTION, &other.into());
        assert_eq!(result, Err(Ignored::BadRequest));
        let CmMessage::Rej(rej) = only(b).message else { panic!("no REJ") };
        assert_eq!(rej.reason, RejectReason::DUPLICATE_LOCAL_COMM_ID);
    }
    assert_eq!(b.connections(), 1);
}

#[test]
fn the_local_comm_id_does_not_identify_the_peers_request() {
    let Pair { mut a, mut b, at_a, at_b } = established();
    a.listen(SERVICE, 1).unwrap();
    b.connect(
        at(5),
        &super::super::ConnectParameters {
            path: super::super::roce_path(gid(11), gid(12), 0),
            local_qpn: Qpn(0x2b),
            ..connect_parameters()
        },
    )
    .unwrap();
    let CmMessage::Req(req) = only(&mut b).message else { panic!("no REQ") };
    let req = Req { local_comm_id: at_b.comm_id(), ..req };
    let result = a.handle_message(at(6), gid(11), TRANSACTION, &req.into());
    assert_eq!((result, a.state(at_a)), (Err(Ignored::BadRequest), State::Established));
}

#[test]
fn refuses_a_rep_to_the_passive_side() {
    let Pair { mut b, at_a, at_b, .. } = accepted(&connect_parameters());
    transmits(&mut b);
    let rep =
        Rep { local_comm_id: at_a.comm_id(), remote_comm_id: at_b.comm_id(), ..Rep::default() };
    let result = b.handle_message(at(3), gid(12), TRANSACTION, &rep.into());
    assert_eq!(result, Err(Ignored::Unknown(at_b.comm_id())));
    let CmMessage::Rej(rej) = only(&mut b).message else { panic!("no REJ") };
    assert_eq!(rej.reason, RejectReason::INVALID_COMM_ID);
}

#[test]
fn a_req_for_a_connection_in_time_wait_is_stale() {
    let mut pair = requested(&connect_parameters());
    let req = repeated_req(&mut pair);
    let Pair { b, at_b, .. } = &mut pair;
    b.accept(at(9), *at_b, &super::super::AcceptParameters::new(Qpn(1), req.starting_psn)).unwrap();
    b.close(at(10), *at_b).unwrap();
    transmits(b);
    assert_eq!(b.state(*at_b), State::TimeWait);
    let result = b.handle_message(at(11), gid(12), TRANSACTION, &req.into());
    assert_eq!(result, Err(Ignored::Stale));
    let CmMessage::Rej(rej) = only(b).message else { panic!("no REJ") };
    assert_eq!(rej.reason, RejectReason::STALE_CONNECTION);
}

#[test]
fn every_message_has_its_own_retry_count() {
    let mut pair = requested(&connect_parameters());
    // Two retries of the REQ are used.
    repeated_req(&mut pair);
    repeated_req(&mut pair);
    let Pair { mut a, mut b, at_a, at_b } = pair;
    b.accept(
        at(9),
        at_b,
        &super::super::AcceptParameters::new(Qpn(1), connect_parameters().starting_psn),
    )
    .unwrap();
    carry(at(10), (11, &mut b), &mut a);
    a.ready(at_a, RtuData::default()).unwrap();
    transmits(&mut a);
    a.disconnect(at(11), at_a, DreqData::default()).unwrap();
    let mut sent = transmits(&mut a).len();
    while a.state(at_a) == State::DreqSent {
        let end = a.poll_timeout().unwrap();
        a.handle_timeout(end);
        sent += transmits(&mut a).len();
    }
    assert_eq!(sent, 16);
}

#[test]
fn a_drep_uses_the_transaction_of_its_dreq() {
    let Pair { mut a, mut b, at_a, at_b } = established();
    b.disconnect(at(5), at_b, DreqData::default()).unwrap();
    let dreq = only(&mut b);
    a.handle_mad(at(6), gid(11), &dreq.to_mad()).unwrap();
    a.confirm_disconnect(at(7), at_a, DrepData::default()).unwrap();
    assert_eq!(only(&mut a).transaction, dreq.transaction);
}

#[test]
fn an_expired_query_can_be_repeated() {
    let (mut a, mut b) = (manager(12), manager(11));
    b.listen_datagrams(SERVICE).unwrap();
    a.resolve(at(0), &ResolveParameters::new(gid(11), SERVICE)).unwrap();
    let request = only(&mut a).to_mad();
    for time in [1, 60_000] {
        b.handle_timeout(at(time));
        b.handle_mad(at(time), gid(12), &request).unwrap();
        assert!(matches!(events(&mut b)[..], [Event::Query(..)]));
    }
}

#[test]
fn timeouts_in_mra_and_rep_are_limited() {
    let longest = super::config(12).longest_wait.as_nanos() as u64;
    let way = 4096 << 19;
    let Pair { mut a, mut b, at_a, at_b } = requested(&connect_parameters());
    let mra = Mra {
        local_comm_id: at_b.comm_id(),
        remote_comm_id: at_a.comm_id(),
        service_timeout: ResponseTimeout(31),
        ..Mra::default()
    };
    a.handle_message(at(2), gid(11), TRANSACTION, &mra.into()).unwrap();
    assert_eq!(a.poll_timeout().unwrap().as_nanos(), at(2).as_nanos() + longest + way);
    b.accept(
        at(3),
        at_b,
        &super::super::AcceptParameters::new(Qpn(1), connect_parameters().starting_psn),
    )
    .unwrap();
    let CmMessage::Rep(rep) = only(&mut b).message else { panic!("no REP") };
    let rep = Rep { target_ack_delay: ResponseTimeout(31), ..rep };
    a.handle_message(at(4), gid(11), TRANSACTION, &rep.into()).unwrap();
    a.ready(at_a, RtuData::default()).unwrap();
    a.disconnect(at(5), at_a, DreqData::default()).unwrap();
    while a.state(at_a) != State::TimeWait {
        let end = a.poll_timeout().unwrap();
        a.handle_timeout(end);
    }
    transmits(&mut a);
    let over = 16 * ((4096 << 20) + way);
    assert_eq!(a.poll_timeout().unwrap().as_nanos(), at(5).as_nanos() + over + way + longest);
}

#[test]
fn skips_comm_ids_in_use() {
    let (mut free, mut taken) = (CommIds::new(9), CommIds::new(9));
    let first: std::vec::Vec<_> = (0..10).map(|_| free.next(|_| false)).collect();
    let next = taken.next(|id| first[..9].contains(&id));
    assert_eq!(next, first[9]);
    // Another seed gives other IDs.
    assert_ne!(CommIds::new(10).next(|_| false), first[0]);
}

#[test]
fn without_automatic_mra_a_repeated_req_is_ignored() {
    let (mut a, mut b) = (manager(12), ConnectionManager::new(without_automatic_mra()));
    b.listen(SERVICE, 1).unwrap();
    let id = a.connect(at(0), &connect_parameters()).unwrap();
    let mad = only(&mut a).to_mad();
    b.handle_mad(at(1), gid(12), &mad).unwrap();
    assert_eq!(events(&mut b).len(), 1);
    for _ in 0..3 {
        let ignored = b.handle_mad(at(2), gid(12), &mad);
        assert_eq!(ignored, Err(Ignored::OutOfPlace(State::ReqReceived)));
        assert!(transmits(&mut b).is_empty() && events(&mut b).is_empty());
    }
    assert_eq!(a.state(id), State::ReqSent);
}

/// A configuration that leaves MRAs to the consumer.
fn without_automatic_mra() -> Config {
    Config { automatic_mra: None, ..config(11) }
}

#[test]
fn every_error_has_a_distinct_text() {
    let comm_id = CommId(7);
    let ignored = [
        Ignored::NotMad(MadError::Length(3)),
        Ignored::NotMessage(MessageError::ClassVersion(9)),
        Ignored::Unknown(comm_id),
        Ignored::NoListener(SERVICE),
        Ignored::BadRequest,
        Ignored::Stale,
        Ignored::Probing,
        Ignored::WrongQueuePair,
        Ignored::OutOfPlace(State::Established),
        Ignored::Duplicate,
        Ignored::LimitReached,
        Ignored::Backlog,
        Ignored::Undrained,
        Ignored::Unsolicited,
    ];
    let mut texts: BTreeSet<String> = ignored.iter().map(Ignored::to_string).collect();
    assert!(texts.contains("message not valid in state Established"));
    texts.extend([CallError::Gone, CallError::State(State::Idle)].map(|one| one.to_string()));
    texts.insert(TooMany { limit: 5 }.to_string());
    texts.insert(ServiceInUse(SERVICE).to_string());
    assert_eq!(texts.len(), ignored.len() + 4, "{texts:?}");
    assert!(texts.iter().all(|text| !text.is_empty()));
}
