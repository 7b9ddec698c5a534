//! Connecting and disconnecting, step by step.

use super::super::{
    AcceptParameters, CallError, ConnectParameters, ConnectionId, ConnectionManager, Disconnection,
    DrepData, DreqData, Event, Ignored, MraData, RtuData, State, private_data,
};
use super::{SERVICE, at, carry, connect_parameters, events, gid, manager, only, transmits};
use ferroce_wire::cm::{
    ApStatus, CmMessage, Lap, ReceivedMessage, ResponseTimeout, Rtu, Transport,
};
use ferroce_wire::mad::TransactionId;
use ferroce_wire::number::{Psn, Qpn};

/// Two managers and the IDs of their connection.
pub(super) struct Pair {
    pub(super) a: ConnectionManager,
    pub(super) b: ConnectionManager,
    pub(super) at_a: ConnectionId,
    pub(super) at_b: ConnectionId,
}

/// REQ received.
pub(super) fn requested(parameters: &ConnectParameters) -> Pair {
    let (mut a, mut b) = (manager(12), manager(11));
    b.listen(SERVICE, 8).unwrap();
    let at_a = a.connect(at(0), parameters).unwrap();
    carry(at(1), (12, &mut a), &mut b);
    let Some(Event::Request(at_b, _)) = b.poll_event() else { panic!("no request") };
    Pair { a, b, at_a, at_b }
}

/// REP sent.
pub(super) fn accepted(parameters: &ConnectParameters) -> Pair {
    let mut pair = requested(parameters);
    let parameters = AcceptParameters::new(Qpn(0x2b), Psn(0x71_75ab));
    pair.b.accept(at(2), pair.at_b, &parameters).unwrap();
    pair
}

/// Established.
pub(super) fn established() -> Pair {
    let mut pair = accepted(&connect_parameters());
    carry(at(3), (11, &mut pair.b), &mut pair.a);
    assert!(matches!(events(&mut pair.a)[..], [Event::Reply(..)]));
    pair.a.ready(pair.at_a, private_data(b"go").unwrap()).unwrap();
    carry(at(4), (12, &mut pair.a), &mut pair.b);
    let expected = [Event::Established(pair.at_b, Some(private_data(b"go").unwrap().into()))];
    assert_eq!(events(&mut pair.b), expected);
    pair
}

#[test]
fn connects_and_disconnects() {
    let Pair { mut a, mut b, at_a, at_b } = established();
    assert_eq!((a.state(at_a), b.state(at_b)), (State::Established, State::Established));
    assert_eq!((a.poll_timeout(), b.poll_timeout()), (None, None));
    a.disconnect(at(10), at_a, private_data(b"bye").unwrap()).unwrap();
    assert_eq!(a.state(at_a), State::DreqSent);
    carry(at(11), (12, &mut a), &mut b);
    let bye = private_data(b"bye").unwrap().into();
    assert_eq!(events(&mut b), [Event::DisconnectRequest(at_b, bye)]);
    b.confirm_disconnect(at(12), at_b, private_data(b"well").unwrap()).unwrap();
    assert_eq!(events(&mut b), [Event::Disconnected(at_b, Disconnection::ByPeer)]);
    carry(at(13), (11, &mut b), &mut a);
    let well = Disconnection::Confirmed(private_data(b"well").unwrap().into());
    assert_eq!(events(&mut a), [Event::Disconnected(at_a, well)]);
    // TimeWait lasts 2 × packet lifetime plus the ACK delay: 2^19 and 2^15 times 4.096 µs.
    let rest = (4096u64 << 19) + (4096 << 15);
    assert_eq!(a.poll_timeout().unwrap().as_nanos(), at(13).as_nanos() + rest);
    assert_eq!(b.poll_timeout().unwrap().as_nanos(), at(12).as_nanos() + rest);
    for (manager, id) in [(&mut a, at_a), (&mut b, at_b)] {
        let end = manager.poll_timeout().unwrap();
        manager.handle_timeout(at(14));
        assert_eq!(manager.state(id), State::TimeWait);
        manager.handle_timeout(end);
        assert_eq!(events(manager), [Event::TimeWaitEnded(id)]);
        assert_eq!((manager.state(id), manager.connections()), (State::Idle, 0));
    }
}

#[test]
fn repeat_disconnects_retransmits_dreqs_immediately() {
    let Pair { mut a, mut b, at_a, at_b } = established();
    assert_eq!(a.unconfirmed(), 0);
    a.repeat_disconnects();
    assert!(a.poll_transmit().is_none());
    a.disconnect(at(10), at_a, DreqData::default()).unwrap();
    let lost = only(&mut a);
    assert_eq!(a.unconfirmed(), 1);
    a.repeat_disconnects();
    let retransmission = only(&mut a);
    assert_eq!(retransmission.to_mad(), lost.to_mad());
    b.handle_mad(at(11), gid(12), &retransmission.to_mad()).unwrap();
    b.confirm_disconnect(at(11), at_b, DrepData::default()).unwrap();
    a.handle_mad(at(12), gid(11), &only(&mut b).to_mad()).unwrap();
    assert_eq!(a.unconfirmed(), 0);
    a.repeat_disconnects();
    assert!(a.poll_transmit().is_none());
}

#[test]
fn both_sides_disconnect_simultaneously() {
    let Pair { mut a, mut b, at_a, at_b } = established();
    a.disconnect(at(10), at_a, DreqData::default()).unwrap();
    b.disconnect(at(10), at_b, DreqData::default()).unwrap();
    let (from_a, from_b) = (only(&mut a), only(&mut b));
    b.handle_mad(at(11), gid(12), &from_a.to_mad()).unwrap();
    a.handle_mad(at(11), gid(11), &from_b.to_mad()).unwrap();
    assert_eq!(events(&mut a), [Event::Disconnected(at_a, Disconnection::Simultaneous)]);
    assert_eq!(events(&mut b), [Event::Disconnected(at_b, Disconnection::Simultaneous)]);
    // Both respond in the other's transaction, and both ignore the response.
    let (from_a, from_b) = (only(&mut a), only(&mut b));
    assert_eq!(from_a.transaction.0 as u32, at_b.comm_id().0);
    assert!(matches!((from_a.message, from_b.message), (CmMessage::Drep(_), CmMessage::Drep(_))));
    let late = Err(Ignored::OutOfPlace(State::TimeWait));
    assert_eq!(b.handle_mad(at(12), gid(12), &from_a.to_mad()), late);
}

#[test]
fn responds_to_duplicates_as_to_the_originals() {
    let mut pair = requested(&connect_parameters());
    let Pair { a, b, at_a, at_b } = &mut pair;
    let req = {
        let end = a.poll_timeout().unwrap();
        a.handle_timeout(end);
        only(a).to_mad()
    };
    // Retransmitted REQs: the consumer is slow, so an MRA is sent.
    for _ in 0..2 {
        assert_eq!(b.handle_mad(at(5), gid(12), &req), Err(Ignored::Duplicate));
        let CmMessage::Mra(mra) = only(b).message else { panic!("no MRA") };
        assert_eq!((mra.message, mra.service_timeout), (ReceivedMessage::REQ, ResponseTimeout(24)));
        assert_eq!(b.state(*at_b), State::MraReqSent);
    }
    b.accept(at(6), *at_b, &AcceptParameters::new(Qpn(0x2b), Psn(1))).unwrap();
    let rep = only(b);
    // REQ again: the same REP.
    assert_eq!(b.handle_mad(at(7), gid(12), &req), Err(Ignored::Duplicate));
    assert_eq!(only(b), rep);
    a.handle_mad(at(8), gid(11), &rep.to_mad()).unwrap();
    // REP again: the active consumer is slow.
    assert_eq!(a.handle_mad(at(9), gid(11), &rep.to_mad()), Err(Ignored::Duplicate));
    let CmMessage::Mra(mra) = only(a).message else { panic!("no MRA") };
    assert_eq!(mra.message, ReceivedMessage::REP);
    a.ready(*at_a, private_data(b"go").unwrap()).unwrap();
    let rtu = only(a);
    // REP again: the same RTU, with its private data.
    assert_eq!(a.handle_mad(at(10), gid(11), &rep.to_mad()), Err(Ignored::Duplicate));
    assert_eq!(only(a), rtu);
    b.handle_mad(at(11), gid(12), &rtu.to_mad()).unwrap();
    let out_of_place = Err(Ignored::OutOfPlace(State::Established));
    assert_eq!(b.handle_mad(at(12), gid(12), &rtu.to_mad()), out_of_place);
    assert_eq!(b.handle_mad(at(12), gid(12), &req), out_of_place);
    a.disconnect(at(20), *at_a, DreqData::default()).unwrap();
    let dreq = only(a).to_mad();
    b.handle_mad(at(21), gid(12), &dreq).unwrap();
    let waiting = Err(Ignored::OutOfPlace(State::DreqReceived));
    assert_eq!(b.handle_mad(at(22), gid(12), &dreq), waiting);
    b.confirm_disconnect(at(23), *at_b, private_data(b"well").unwrap()).unwrap();
    let drep = only(b);
    // DREQ again, in TimeWait: the same DREP.
    assert_eq!(b.handle_mad(at(24), gid(12), &dreq), Err(Ignored::Duplicate));
    assert_eq!(only(b).to_mad(), drep.to_mad());
    // After TimeWait, without state: still a DREP.
    b.handle_timeout(at(60_000));
    assert_eq!((b.connections(), events(b).len()), (0, 4));
    assert!(b.handle_mad(at(60_001), gid(12), &dreq).is_err());
    let CmMessage::Drep(drep) = only(b).message else { panic!("no DREP") };
    assert_eq!((drep.local_comm_id, drep.remote_comm_id), (at_b.comm_id(), at_a.comm_id()));
}

#[test]
fn data_before_the_rtu_establishes_the_connection() {
    let Pair { mut a, mut b, at_a, at_b } = accepted(&connect_parameters());
    assert_eq!(b.half_open(), 1);
    carry(at(3), (11, &mut b), &mut a);
    b.handle_data_received(at_b).unwrap();
    assert_eq!(events(&mut b), [Event::Established(at_b, None)]);
    assert_eq!((b.state(at_b), b.half_open()), (State::Established, 0));
    assert_eq!(b.handle_data_received(at_b), Err(CallError::State(State::Established)));
    // The REP is not retransmitted any more, and the RTU is too late to matter.
    assert_eq!(b.poll_timeout(), None);
    a.ready(at_a, RtuData::default()).unwrap();
    carry(at(5), (12, &mut a), &mut b);
    assert_eq!(events(&mut b), []);
}

#[test]
fn an_mra_extends_the_timeout() {
    let Pair { mut a, mut b, at_a, at_b } = requested(&connect_parameters());
    b.prolong(at(2), at_b, ResponseTimeout(22), MraData::default()).unwrap();
    carry(at(3), (11, &mut b), &mut a);
    assert_eq!(a.state(at_a), State::MraReqReceived);
    // After the MRA: the requested time plus the round trip.
    let wait = (4096u64 << 22) + (4096 << 19);
    assert_eq!(a.poll_timeout().unwrap().as_nanos(), at(3).as_nanos() + wait);
    // One MRA per REQ, or a peer could delay us indefinitely.
    b.prolong(at(4), at_b, ResponseTimeout(22), MraData::default()).unwrap();
    carry(at(5), (11, &mut b), &mut a);
    assert_eq!(a.poll_timeout().unwrap().as_nanos(), at(3).as_nanos() + wait);
    let end = a.poll_timeout().unwrap();
    a.handle_timeout(end);
    assert!(matches!(only(&mut a).message, CmMessage::Req(_)));
    assert_eq!(a.state(at_a), State::ReqSent);
    // The same for REP.
    b.accept(at(20_000), at_b, &AcceptParameters::new(Qpn(1), Psn(2))).unwrap();
    carry(at(20_001), (11, &mut b), &mut a);
    a.prolong(at(20_002), at_a, ResponseTimeout(23), MraData::default()).unwrap();
    carry(at(20_003), (12, &mut a), &mut b);
    assert_eq!(b.state(at_b), State::MraRepReceived);
    let wait = (4096u64 << 23) + (4096 << 19);
    assert_eq!(b.poll_timeout().unwrap().as_nanos(), at(20_003).as_nanos() + wait);
    a.ready(at_a, RtuData::default()).unwrap();
    carry(at(20_004), (12, &mut a), &mut b);
    assert_eq!(b.state(at_b), State::Established);
}

#[test]
fn ignores_messages_from_other_addresses() {
    let Pair { a: _, mut b, at_a, at_b } = accepted(&connect_parameters());
    transmits(&mut b);
    let rtu =
        Rtu { local_comm_id: at_a.comm_id(), remote_comm_id: at_b.comm_id(), ..Rtu::default() };
    let unknown = Err(Ignored::Unknown(at_b.comm_id()));
    let transaction = TransactionId(1);
    assert_eq!(b.handle_message(at(3), gid(99), transaction, &rtu.into()), unknown);
    let wrong = Rtu { local_comm_id: at_b.comm_id(), ..rtu };
    assert_eq!(b.handle_message(at(3), gid(12), transaction, &wrong.into()), unknown);
    assert_eq!(b.state(at_b), State::RepSent);
    assert_eq!(b.handle_message(at(3), gid(12), transaction, &rtu.into()), Ok(()));
}

#[test]
fn refuses_alternate_paths() {
    let Pair { a: _, mut b, at_a, at_b } = established();
    let lap = Lap {
        local_comm_id: at_a.comm_id(),
        remote_comm_id: at_b.comm_id(),
        remote_qpn: Qpn(0x2b),
        ..Lap::default()
    };
    let mut status = |lap: Lap| {
        let _ = b.handle_message(at(5), gid(12), TransactionId(9), &lap.into());
        let transmit = only(&mut b);
        assert_eq!(transmit.transaction, TransactionId(9));
        let CmMessage::Apr(apr) = transmit.message else { panic!("no APR") };
        assert_eq!(apr.remote_comm_id, at_a.comm_id());
        apr.status
    };
    assert_eq!(status(lap), ApStatus::NOT_SUPPORTED);
    assert_eq!(status(Lap { remote_qpn: Qpn(1), ..lap }), ApStatus::QPN_MISMATCH);
    let unknown = Lap { remote_comm_id: at_a.comm_id(), ..lap };
    assert_eq!(status(unknown), ApStatus::INVALID_COMM_ID);
}

#[test]
fn ignores_a_dreq_for_another_qpn() {
    let Pair { mut a, mut b, at_a, at_b } = established();
    a.disconnect(at(10), at_a, DreqData::default()).unwrap();
    let CmMessage::Dreq(mut dreq) = only(&mut a).message else { panic!("no DREQ") };
    assert_eq!(dreq.remote_qpn, Qpn(0x2b));
    dreq.remote_qpn = Qpn(0x2c);
    let result = b.handle_message(at(11), gid(12), TransactionId(1), &dreq.into());
    assert_eq!((result, b.state(at_b)), (Err(Ignored::WrongQueuePair), State::Established));
}

#[test]
fn an_xrc_target_sends_its_qpn_in_the_eecn_field() {
    let parameters = ConnectParameters { transport: Transport::Xrc, ..connect_parameters() };
    let Pair { mut a, mut b, .. } = accepted(&parameters);
    let CmMessage::Rep(rep) = carry(at(3), (11, &mut b), &mut a)[0] else { panic!("no REP") };
    assert_eq!((rep.local_qpn, rep.local_eecn.0), (Qpn(0), 0x2b));
    assert!(rep.shared_receive_queue);
    let Some(Event::Reply(_, reply)) = a.poll_event() else { panic!("no reply") };
    assert_eq!(reply.remote_qpn, Qpn(0x2b));
}

#[test]
fn a_manager_can_connect_to_itself() {
    let mut manager = manager(11);
    manager.listen(SERVICE, 1).unwrap();
    let parameters = ConnectParameters {
        path: super::super::roce_path(gid(11), gid(11), 0),
        ..connect_parameters()
    };
    let active = manager.connect(at(0), &parameters).unwrap();
    let mut passive = active;
    for step in 1..20 {
        while let Some(transmit) = manager.poll_transmit() {
            manager.handle_mad(at(step), gid(11), &transmit.to_mad()).unwrap();
        }
        match manager.poll_event() {
            Some(Event::Request(id, _)) => {
                passive = id;
                manager.accept(at(step), id, &AcceptParameters::new(Qpn(7), Psn(7))).unwrap();
            }
            Some(Event::Reply(id, _)) => manager.ready(id, RtuData::default()).unwrap(),
            Some(Event::Established(id, _)) => manager.close(at(step), id).unwrap(),
            Some(Event::DisconnectRequest(id, _)) => manager.close(at(step), id).unwrap(),
            _ => {}
        }
    }
    assert_ne!(active, passive);
    assert_eq!(manager.state(active), State::TimeWait);
    assert_eq!(manager.state(passive), State::TimeWait);
    manager.handle_timeout(at(10_000));
    assert_eq!(manager.connections(), 0);
}

#[test]
fn refuses_calls_in_the_wrong_state() {
    let Pair { mut a, mut b, at_a, at_b } = established();
    let wrong = Err(CallError::State(State::Established));
    assert_eq!(a.ready(at_a, RtuData::default()), wrong);
    assert_eq!(b.accept(at(9), at_b, &AcceptParameters::new(Qpn(1), Psn(1))), wrong);
    assert_eq!(a.confirm_disconnect(at(9), at_a, private_data(b"").unwrap()), wrong);
    assert_eq!(a.prolong(at(9), at_a, ResponseTimeout(1), MraData::default()), wrong);
    assert_eq!(a.ready(at_b, RtuData::default()), Err(CallError::Gone));
    assert_eq!(a.close(at(9), at_b), Err(CallError::Gone));
    assert_eq!(transmits(&mut a), []);
}
