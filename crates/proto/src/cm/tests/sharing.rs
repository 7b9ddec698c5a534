//! Several managers on one address: their names tell them apart, and each knows what is its own.

use std::collections::BTreeSet;

use super::super::comm_id::CommIds;
use super::super::{Config, ConnectionManager, ResolveParameters};
use super::{SERVICE, at, config, gid, manager, only, wish};
use ferroce_wire::cm::{CmMessage, Rej, RejectReason};
use ferroce_wire::mad::TransactionId;

const TRANSACTION: TransactionId = TransactionId(0x77);

fn in_slot(host: u8, slot: u8) -> ConnectionManager {
    ConnectionManager::new(Config { slot: Some(slot), ..config(host) })
}

#[test]
fn names_of_a_slot_begin_with_it_and_none_comes_twice() {
    let mut names = CommIds::within(0x1234_5678_9abc_def0, Some(0x5a));
    let mut seen = BTreeSet::new();
    for _ in 0..100_000 {
        let id = names.next(|_| false);
        assert_eq!(id.0 >> 24, 0x5a);
        assert!(seen.insert(id.0));
    }
}

#[test]
fn every_name_of_a_slot_is_given_once() {
    let mut names = CommIds::within(7, Some(0));
    let mut seen = std::vec![false; 1 << 24];
    // All but zero, which is none's.
    for _ in 1..1 << 24 {
        let id = names.next(|_| false).0 as usize;
        assert!(id != 0 && !std::mem::replace(&mut seen[id], true), "{id:#x}");
    }
}

#[test]
fn connections_and_questions_are_known_to_who_has_them() {
    let (mut one, mut other) = (in_slot(12, 1), in_slot(12, 2));
    let mut peer = manager(11);
    peer.listen(SERVICE, 1).unwrap();
    one.connect(at(0), &wish()).unwrap();
    let req = only(&mut one);
    assert!(peer.concerns(gid(12), req.transaction, &req.message));
    // A listener that is gone still knows what it took before.
    peer.handle_mad(at(1), gid(12), &req.to_mad()).unwrap();
    peer.unlisten(SERVICE);
    assert!(peer.concerns(gid(12), req.transaction, &req.message));
    assert!(!peer.concerns(gid(13), req.transaction, &req.message));
    let CmMessage::Req(request) = req.message else { panic!("no REQ") };
    let reason = RejectReason::CONSUMER_REJECT;
    let rej = Rej { remote_comm_id: request.local_comm_id, reason, ..Rej::default() }.into();
    assert!(one.concerns(gid(11), TRANSACTION, &rej));
    assert!(!other.concerns(gid(11), TRANSACTION, &rej));

    other.resolve(at(0), &ResolveParameters::new(gid(11), SERVICE)).unwrap();
    let question = only(&mut other);
    assert!(!peer.concerns(gid(12), question.transaction, &question.message));
    peer.listen_datagrams(SERVICE).unwrap();
    assert!(peer.concerns(gid(12), question.transaction, &question.message));
    peer.unlisten_datagrams(SERVICE);
    let _ = peer.handle_mad(at(1), gid(12), &question.to_mad());
    let answer = only(&mut peer);
    assert!(other.concerns(gid(11), answer.transaction, &answer.message));
    assert!(!one.concerns(gid(11), answer.transaction, &answer.message));
}
