//! Forged messages, and peers that are really lost.

use std::time::Duration;
use std::vec;
use std::vec::Vec;

use super::super::{
    ConnectParameters, ConnectionManager, Disconnection, Event, Ignored, Loss, State,
};
use super::handshake::{Pair, established};
use super::{SERVICE, at, carry, config, connect_parameters, events, gid, only, transmits};
use crate::cm::{AcceptParameters, ConnectionId, RtuData};
use crate::time::Instant;
use ferroce_wire::cm::{
    CmMessage, CommId, Dreq, Rej, RejectReason, Req, Rtu, ServiceId, TransportService,
};
use ferroce_wire::mad::TransactionId;
use ferroce_wire::number::{Guid, Psn, Qpn};

const TRANSACTION: TransactionId = TransactionId(0x666);

/// A REQ as the peer of `established` would send it for a new connection.
fn forged_req(comm_id: u32, qpn: u32, service_id: ServiceId) -> CmMessage {
    CmMessage::Req(Req {
        local_comm_id: CommId(comm_id),
        service_id,
        local_ca_guid: Guid(0x5054_00ff_fe77_000c),
        local_qpn: Qpn(qpn),
        transport_service: TransportService::RC,
        starting_psn: Psn(comm_id & 0xff_ffff),
        path_mtu: ferroce_wire::cm::PathMtu::MTU_1024,
        ..Req::default()
    })
}

/// Exchanges messages between two managers for a while, with their timers.
pub(super) fn run(
    a: &mut ConnectionManager,
    b: &mut ConnectionManager,
    from: Instant,
    to: Instant,
) {
    let mut now = from;
    loop {
        carry(now, (12, a), b);
        carry(now, (11, b), a);
        carry(now, (12, a), b);
        let next = [a.poll_timeout(), b.poll_timeout()].into_iter().flatten().min();
        match next.filter(|&next| next <= to) {
            Some(next) => now = now.max(next),
            None => return,
        }
        a.handle_timeout(now);
        b.handle_timeout(now);
    }
}

#[test]
fn forged_reqs_for_many_qpns_end_no_connection() {
    let Pair { mut a, mut b, at_a, at_b } = established();
    // A range of QPNs including the peer's; existing and unknown services; many communication IDs.
    let (mut probed, mut time) = (0, 10);
    for round in 0..40 {
        for qpn in 0..64 {
            let service = if qpn % 2 == 0 { SERVICE } else { ServiceId(77) };
            let req = forged_req(0x4000 + round * 64 + qpn, qpn, service);
            let result = b.handle_message(at(time), gid(12), TRANSACTION, &req);
            probed += usize::from(result == Err(Ignored::Probing));
            if qpn == 0x1a {
                assert_eq!(result, Err(Ignored::Probing));
            }
        }
        // Those for unused QPNs are ordinary requests: the consumer rejects them.
        for event in events(&mut b) {
            let Event::Request(id, _) = event else { panic!("{event:?}") };
            b.close(at(time), id).unwrap();
        }
        time += 1;
        run(&mut a, &mut b, at(time), at(time + 7_000));
        time += 7_001;
        assert_eq!((a.state(at_a), b.state(at_b)), (State::Established, State::Established));
    }
    assert_eq!(probed, 40);
    assert_eq!((events(&mut a), events(&mut b)), (vec![], vec![]));
}

#[test]
fn forged_reqs_to_the_active_side_end_no_connection() {
    let Pair { mut a, mut b, at_a, at_b } = established();
    let CmMessage::Req(req) = forged_req(0x4001, 0x2b, SERVICE) else { panic!("no REQ") };
    let req = CmMessage::Req(Req { local_ca_guid: config(11).ca_guid, ..req });
    for round in 0..20 {
        let time = 10 + round * 10_000;
        let result = a.handle_message(at(time), gid(11), TRANSACTION, &req);
        assert_eq!(result, Err(Ignored::Probing));
        run(&mut a, &mut b, at(time), at(time + 9_999));
    }
    assert_eq!((a.state(at_a), b.state(at_b)), (State::Established, State::Established));
    // A Linux peer ignores LAPs: that proves nothing.
    a.handle_message(at(300_000), gid(11), TRANSACTION, &req).unwrap_err();
    let silent = |a: &mut ConnectionManager| {
        while let Some(time) = a.poll_timeout() {
            a.handle_timeout(time);
            transmits(a);
        }
        events(a)
    };
    // This peer has responded before, so no response counts.
    assert_eq!(silent(&mut a), [Event::Unanswered(at_a, at(300_000))]);
    let Pair { mut a, at_a, .. } = established();
    a.handle_message(at(10), gid(11), TRANSACTION, &req).unwrap_err();
    assert_eq!((silent(&mut a), a.state(at_a)), (vec![], State::Established));
}

#[test]
fn messages_with_wrong_ids_or_source_end_no_connection() {
    let Pair { mut b, at_a, at_b, .. } = established();
    let (right, ours) = (at_a.comm_id(), at_b.comm_id());
    let names = [(CommId(right.0 ^ 1), ours), (right, CommId(ours.0 ^ 1)), (CommId(0), ours)];
    let mut cases: Vec<_> = names.map(|(local, remote)| (12, local, remote)).to_vec();
    cases.push((13, right, ours));
    for (host, local_comm_id, remote_comm_id) in cases {
        let dreq = Dreq { local_comm_id, remote_comm_id, remote_qpn: Qpn(0x2b), ..Dreq::default() };
        let rtu = Rtu { local_comm_id, remote_comm_id, ..Rtu::default() };
        let mut messages: Vec<CmMessage> = vec![dreq.into(), rtu.into()];
        for &reason in RejectReason::ALL {
            let rej = Rej { local_comm_id, remote_comm_id, reason, ..Rej::default() };
            messages.push(rej.into());
        }
        for message in messages {
            let result = b.handle_message(at(9), gid(host), TRANSACTION, &message);
            assert!(result.is_err(), "{message:?}");
            assert_eq!((b.state(at_b), events(&mut b)), (State::Established, vec![]));
        }
    }
    // A REJ with reason "timeout" and only the peer's ID is from a peer that has not received our REP. This peer has.
    let mut rej = Rej {
        local_comm_id: right,
        reason: RejectReason::TIMEOUT,
        information_length: 8,
        ..Rej::default()
    };
    rej.information.0[..8].copy_from_slice(&config(12).ca_guid.0.to_be_bytes());
    b.handle_message(at(9), gid(12), TRANSACTION, &rej.into()).unwrap_err();
    assert_eq!(b.state(at_b), State::Established);
}

#[test]
fn rejects_an_rtu_only_if_its_comm_id_is_unused() {
    let Pair { mut b, at_a, at_b, .. } = established();
    let (local_comm_id, remote_comm_id) = (at_a.comm_id(), at_b.comm_id());
    let rtu = Rtu { local_comm_id, remote_comm_id, ..Rtu::default() };
    b.handle_message(at(9), gid(13), TRANSACTION, &rtu.into()).unwrap_err();
    assert_eq!(transmits(&mut b), []);
    let free = Rtu { remote_comm_id: CommId(remote_comm_id.0 ^ 1), ..rtu };
    b.handle_message(at(9), gid(13), TRANSACTION, &free.into()).unwrap_err();
    assert!(matches!(only(&mut b).message, CmMessage::Rej(_)));
}

/// The same device and QPN after a restart; the seed differs like a random number.
fn restarted() -> ConnectionManager {
    ConnectionManager::new(super::Config { seed: 0x0bad_5eed, ..config(12) })
}

fn reconnect(a: &mut ConnectionManager, now: Instant) -> ConnectionId {
    a.connect(now, &ConnectParameters { ..connect_parameters() }).unwrap()
}

#[test]
fn a_restarted_peer_can_reconnect() {
    let Pair { mut b, at_b, .. } = established();
    let mut a = restarted();
    reconnect(&mut a, at(100));
    let req = only(&mut a).to_mad();
    assert_eq!(b.handle_mad(at(101), gid(12), &req), Err(Ignored::Probing));
    // The restarted peer does not know the connection of the retransmitted REP: its REJ ends it.
    carry(at(102), (11, &mut b), &mut a);
    carry(at(103), (12, &mut a), &mut b);
    let [Event::Disconnected(id, Disconnection::Rejected(_))] = &events(&mut b)[..] else {
        panic!("not over")
    };
    assert_eq!(*id, at_b);
    b.handle_mad(at(104), gid(12), &req).unwrap();
    assert!(matches!(events(&mut b)[..], [Event::Request(..)]));
}

#[test]
fn a_restarted_peer_that_ignores_probes_can_reconnect() {
    let Pair { mut b, at_b, .. } = established();
    let mut a = restarted();
    let again = reconnect(&mut a, at(100));
    let req = only(&mut a).to_mad();
    assert_eq!(b.handle_mad(at(100), gid(12), &req), Err(Ignored::Probing));
    // Linux ignores a REP of an unknown connection.
    let mut reps = transmits(&mut b).len();
    for _ in 0..4 {
        b.handle_timeout(b.poll_timeout().unwrap());
        assert_eq!(b.handle_mad(at(101), gid(12), &req), Err(Ignored::Probing));
        reps += transmits(&mut b).len();
    }
    assert_eq!((reps, events(&mut b)), (5, vec![]));
    let end = b.poll_timeout().unwrap();
    assert_eq!(end, at(100) + Duration::from_secs(5));
    b.handle_timeout(end);
    assert_eq!(events(&mut b), [Event::Unanswered(at_b, at(100))]);
    // A consumer without other evidence ends it.
    b.peer_is_lost(end, at_b, Loss::NoResponse).unwrap();
    assert_eq!(events(&mut b), [Event::Disconnected(at_b, Disconnection::Lost(Loss::NoResponse))]);
    assert!(matches!(only(&mut b).message, CmMessage::Dreq(_)));
    // The peer need not wait for TimeWait: its retransmitted REQ is accepted.
    b.handle_mad(end, gid(12), &req).unwrap();
    let [Event::Request(id, _)] = events(&mut b)[..] else { panic!("no request") };
    b.accept(end, id, &AcceptParameters::new(Qpn(0x30), Psn(7))).unwrap();
    carry(end, (11, &mut b), &mut a);
    assert!(matches!(events(&mut a)[..], [Event::Reply(..)]));
    a.ready(again, RtuData::default()).unwrap();
    carry(end, (12, &mut a), &mut b);
    // The end of the old connection's TimeWait does not affect the new one.
    while let Some(time) = b.poll_timeout() {
        b.handle_timeout(time);
    }
    assert_eq!((b.state(at_b), b.state(id)), (State::Idle, State::Established));
}
