//! Rejections.

use super::super::{
    ConnectParameters, ConnectionId, ConnectionManager, Disconnection, DrepData, DreqData, Event,
    Failure, Ignored, Loss, Rejection, RtuData, State, private_data,
};
use super::handshake::{Pair, accepted, established, requested};
use super::{SERVICE, at, carry, connect_parameters, events, gid, manager, only, transmits};
use ferroce_wire::cm::{
    CmMessage, CommId, ExtendedTransport, PathMtu, Rej, RejectReason, RejectedMessage, Rep, Req,
    Rtu, ServiceId, TransportService,
};
use ferroce_wire::field::Octets;
use ferroce_wire::mad::TransactionId;
use ferroce_wire::number::{Psn, Qpn};
use std::vec;

#[test]
fn every_reject_reason_is_delivered_with_its_data() {
    for &reason in RejectReason::ALL {
        let Pair { mut a, mut b, at_a, at_b } = requested(&connect_parameters());
        let rejection = Rejection {
            reason,
            information: Octets::padded(&[1, 2, 3]).unwrap(),
            information_length: 3,
            private_data: private_data(b"because").unwrap(),
            ..Rejection::new(reason)
        };
        b.reject(at(2), at_b, &rejection).unwrap();
        assert_eq!((b.connections(), b.poll_timeout()), (0, None));
        let messages = carry(at(3), (11, &mut b), &mut a);
        let CmMessage::Rej(rej) = messages[0] else { panic!("no REJ") };
        assert_eq!((rej.local_comm_id, rej.remote_comm_id), (CommId(0), at_a.comm_id()));
        assert_eq!(rej.information(), [1, 2, 3]);
        assert_eq!(events(&mut a), [Event::Rejected(at_a, rejection.into())]);
        // A QP that the peer considers part of an old connection goes through TimeWait first.
        let rests = reason == RejectReason::STALE_CONNECTION;
        let expected = if rests { State::TimeWait } else { State::Idle };
        assert_eq!(a.state(at_a), expected);
    }
}

#[test]
fn active_side_rejects_a_rep() {
    let Pair { mut a, mut b, at_a, at_b } = accepted(&connect_parameters());
    carry(at(3), (11, &mut b), &mut a);
    let rejection = Rejection::by_consumer(private_data(b"no").unwrap());
    a.reject(at(4), at_a, &rejection).unwrap();
    let CmMessage::Rej(rej) = carry(at(5), (12, &mut a), &mut b)[0] else { panic!("no REJ") };
    assert_eq!((rej.message, rej.reason.0), (RejectedMessage::REP, 28));
    assert_eq!((a.connections(), b.connections()), (0, 0));
    let Some(Event::Rejected(id, rejection)) = b.poll_event() else { panic!("not rejected") };
    assert_eq!((id, rejection.message), (at_b, RejectedMessage::REP));
}

/// The response of a listening manager to a modified REQ, and its return value.
fn response_to(change: impl Fn(&mut Req)) -> (Rej, Ignored) {
    let (mut a, mut b) = (manager(12), manager(11));
    b.listen(SERVICE, 1).unwrap();
    a.connect(at(0), &connect_parameters()).unwrap();
    let CmMessage::Req(mut req) = only(&mut a).message else { panic!("no REQ") };
    change(&mut req);
    let ignored = b.handle_message(at(1), gid(12), TransactionId(5), &req.into()).unwrap_err();
    let answer = only(&mut b);
    assert_eq!((answer.destination, answer.transaction), (gid(12), TransactionId(5)));
    assert_eq!((b.connections(), events(&mut b).len()), (0, 0));
    match answer.message {
        CmMessage::Rej(rej) => {
            assert_eq!(rej.remote_comm_id, req.local_comm_id);
            assert_eq!(rej.message, RejectedMessage::REQ);
            (rej, ignored)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn rejects_invalid_reqs() {
    let (rej, ignored) = response_to(|req| req.service_id = ServiceId(1));
    assert_eq!(rej.reason, RejectReason::INVALID_SERVICE_ID);
    assert_eq!(ignored, Ignored::NoListener(ServiceId(1)));
    let (rej, _) = response_to(|req| req.transport_service = TransportService::RD);
    assert_eq!(rej.reason, RejectReason::INVALID_TRANSPORT_TYPE);
    let (rej, _) = response_to(|req| {
        req.transport_service = TransportService::EXTENDED;
        req.extended_transport = ExtendedTransport(5);
    });
    assert_eq!(rej.reason, RejectReason::INVALID_TRANSPORT_TYPE);
    for code in [0, 6, 15] {
        let (rej, _) = response_to(|req| req.path_mtu = PathMtu(code));
        assert_eq!(rej.reason, RejectReason::INVALID_PATH_MTU);
    }
}

#[test]
fn rejects_a_req_of_another_class_version() {
    let mut a = manager(12);
    a.connect(at(0), &connect_parameters()).unwrap();
    let mut mad = only(&mut a).to_mad();
    mad[2] = 3;
    let mut b = manager(11);
    assert!(matches!(b.handle_mad(at(1), gid(12), &mad), Err(Ignored::NotMessage(_))));
    let CmMessage::Rej(rej) = only(&mut b).message else { panic!("no REJ") };
    assert_eq!(rej.reason, RejectReason::UNSUPPORTED_CLASS_VERSION);
    assert_eq!(
        (rej.information(), rej.remote_comm_id.0.to_be_bytes()),
        ([2].as_slice(), [mad[24], mad[25], mad[26], mad[27]],)
    );
    // Only requests are rejected: other messages of another version are dropped.
    mad[17] = 0x14;
    assert!(b.handle_mad(at(1), gid(12), &mad).is_err());
    assert_eq!(b.poll_transmit(), None);
}

#[test]
fn rejects_two_reqs_with_one_comm_id() {
    let Pair { mut a, mut b, at_b, .. } = requested(&connect_parameters());
    let end = a.poll_timeout().unwrap();
    a.handle_timeout(end);
    let CmMessage::Req(req) = only(&mut a).message else { panic!("no REQ") };
    let other = Req { starting_psn: Psn(1), ..req };
    let result = b.handle_message(at(9), gid(12), TransactionId(1), &other.into());
    assert_eq!(result, Err(Ignored::BadRequest));
    let CmMessage::Rej(rej) = only(&mut b).message else { panic!("no REJ") };
    assert_eq!(rej.reason, RejectReason::DUPLICATE_LOCAL_COMM_ID);
    assert_eq!(b.state(at_b), State::ReqReceived);
}

#[test]
fn a_rep_from_a_qp_in_use_waits_for_a_probe() {
    let Pair { mut a, mut b, at_a, .. } = established();
    let parameters = ConnectParameters { local_qpn: Qpn(0x99), ..connect_parameters() };
    let second = a.connect(at(10), &parameters).unwrap();
    carry(at(11), (12, &mut a), &mut b);
    let Some(Event::Request(id, _)) = b.poll_event() else { panic!("no request") };
    let used = super::super::AcceptParameters::new(Qpn(0x2b), Psn(1));
    b.accept(at(12), id, &used).unwrap();
    let rep = only(&mut b).to_mad();
    assert_eq!(a.handle_mad(at(13), gid(11), &rep), Err(Ignored::Probing));
    assert_eq!((a.state(at_a), a.state(second)), (State::Established, State::ReqSent));
    // The peer has both connections: its APR keeps the old one.
    let messages = carry(at(14), (12, &mut a), &mut b);
    assert!(matches!(messages[..], [CmMessage::Lap(_)]), "{messages:?}");
    carry(at(15), (11, &mut b), &mut a);
    assert_eq!((events(&mut a), a.state(at_a)), (vec![], State::Established));
    // A peer that has lost the old one reports this, and the retransmitted REP is accepted.
    assert_eq!(a.handle_mad(at(16), gid(11), &rep), Err(Ignored::Probing));
    let mut restarted = super::manager(11);
    carry(at(17), (12, &mut a), &mut restarted);
    carry(at(18), (11, &mut restarted), &mut a);
    assert_eq!(
        events(&mut a),
        [Event::Disconnected(at_a, Disconnection::Lost(Loss::UnknownToPeer))]
    );
    a.handle_mad(at(19), gid(11), &rep).unwrap();
    assert!(matches!(events(&mut a)[..], [Event::Reply(id, _)] if id == second));
}

/// The REP of a second connection whose peer uses the QPN of the first.
fn reply_from_the_same_queue_pair(
    a: &mut ConnectionManager,
    b: &mut ConnectionManager,
) -> (ConnectionId, Result<(), Ignored>) {
    let parameters = ConnectParameters { local_qpn: Qpn(0x99), ..connect_parameters() };
    let second = a.connect(at(10), &parameters).unwrap();
    carry(at(11), (12, a), b);
    let Some(Event::Request(id, _)) = b.poll_event() else { panic!("no request") };
    let used = super::super::AcceptParameters::new(Qpn(0x2b), Psn(1));
    b.accept(at(12), id, &used).unwrap();
    let rep = only(b).to_mad();
    (second, a.handle_mad(at(13), gid(11), &rep))
}

#[test]
fn a_rep_from_a_qp_in_another_handshake_is_stale() {
    let Pair { mut a, mut b, .. } = accepted(&connect_parameters());
    carry(at(3), (11, &mut b), &mut a);
    events(&mut a);
    let (second, result) = reply_from_the_same_queue_pair(&mut a, &mut b);
    assert_eq!(result, Err(Ignored::Stale));
    assert_eq!(events(&mut a), [Event::Failed(second, Failure::StaleReply)]);
    let CmMessage::Rej(rej) = only(&mut a).message else { panic!("no REJ") };
    assert_eq!(rej.reason, RejectReason::STALE_CONNECTION);
}

/// A peer with random QPNs may reuse one soon.
#[test]
fn accepts_a_rep_from_a_qp_whose_connection_ended() {
    let Pair { mut a, mut b, at_a, .. } = established();
    a.disconnect(at(5), at_a, DreqData::default()).unwrap();
    transmits(&mut a);
    let (second, result) = reply_from_the_same_queue_pair(&mut a, &mut b);
    assert_eq!(result, Ok(()));
    assert!(matches!(events(&mut a)[..], [Event::Reply(id, _)] if id == second));
}

#[test]
fn accepts_a_req_from_a_qp_whose_connection_ended() {
    let Pair { mut a, mut b, at_a, at_b } = established();
    a.disconnect(at(5), at_a, DreqData::default()).unwrap();
    carry(at(6), (12, &mut a), &mut b);
    events(&mut b);
    for (time, state) in [(7, State::DreqReceived), (20, State::TimeWait)] {
        if state == State::TimeWait {
            b.confirm_disconnect(at(time), at_b, DrepData::default()).unwrap();
            transmits(&mut b);
            assert_eq!(events(&mut b), [Event::Disconnected(at_b, Disconnection::ByPeer)]);
        }
        assert_eq!(b.state(at_b), state);
        a.connect(at(time), &connect_parameters()).unwrap();
        let messages = carry(at(time + 1), (12, &mut a), &mut b);
        assert!(matches!(messages[..], [CmMessage::Req(_)]), "{messages:?}");
        let told = events(&mut b);
        let [Event::Request(id, _)] = told[..] else { panic!("{state:?}: {told:?}") };
        b.reject(at(time + 2), id, &Rejection::new(RejectReason::NO_RESOURCES)).unwrap();
        transmits(&mut b);
    }
}

#[test]
fn responds_to_messages_for_unknown_connections() {
    let mut b = manager(11);
    let (ours, theirs) = (CommId(0x77), CommId(0x88));
    let rep = Rep { local_comm_id: theirs, remote_comm_id: ours, ..Rep::default() };
    let rtu = Rtu { local_comm_id: theirs, remote_comm_id: ours, ..Rtu::default() };
    let cases = [(rep.into(), RejectedMessage::REP), (rtu.into(), RejectedMessage::NONE)];
    for (message, rejected) in cases {
        let result = b.handle_message(at(0), gid(12), TransactionId(3), &message);
        assert_eq!(result, Err(Ignored::Unknown(ours)));
        let CmMessage::Rej(rej) = only(&mut b).message else { panic!("no REJ") };
        assert_eq!((rej.local_comm_id, rej.remote_comm_id), (ours, theirs));
        assert_eq!((rej.reason, rej.message), (RejectReason::INVALID_COMM_ID, rejected));
        // A REJ is never answered by a REJ.
        assert!(b.handle_message(at(0), gid(12), TransactionId(3), &rej.into()).is_err());
        assert_eq!(b.poll_transmit(), None);
    }
}

#[test]
fn a_rej_ends_an_established_connection() {
    // Every RTU is lost: the passive side gives up, and its REJ reaches an active side in Established.
    let Pair { mut a, mut b, at_a, .. } = accepted(&connect_parameters());
    carry(at(3), (11, &mut b), &mut a);
    a.ready(at_a, RtuData::default()).unwrap();
    while let Some(end) = b.poll_timeout() {
        b.handle_timeout(end);
    }
    events(&mut a);
    let messages = carry(at(200_000), (11, &mut b), &mut a);
    let Some(CmMessage::Rej(rej)) = messages.last() else { panic!("no REJ") };
    assert_eq!(rej.reason, RejectReason::TIMEOUT);
    let Some(Event::Disconnected(id, Disconnection::Rejected(rejection))) = a.poll_event() else {
        panic!("not over")
    };
    assert_eq!((id, rejection.reason), (at_a, RejectReason::TIMEOUT));
    assert_eq!(a.state(at_a), State::TimeWait);
}

#[test]
fn finds_an_abandoned_attempt_by_the_peers_comm_id() {
    let Pair { mut a, mut b, at_a, at_b } = requested(&connect_parameters());
    a.close(at(2), at_a).unwrap();
    assert_eq!(a.connections(), 0);
    let CmMessage::Rej(rej) = carry(at(3), (12, &mut a), &mut b)[0] else { panic!("no REJ") };
    assert_eq!((rej.remote_comm_id, rej.reason), (CommId(0), RejectReason::TIMEOUT));
    assert_eq!(rej.information(), 0x5054_00ff_fe77_000c_u64.to_be_bytes());
    assert!(matches!(b.poll_event(), Some(Event::Rejected(id, _)) if id == at_b));
    assert_eq!(b.connections(), 0);
}
