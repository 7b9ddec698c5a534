//! Several managers on one address, distinguished by their communication IDs.

use std::collections::BTreeSet;

use super::super::comm_id::CommIds;
use super::super::{Config, ConnectionManager, Owner, ResolveParameters, Transmit};
use super::{SERVICE, at, config, connect_parameters, gid, manager, only};
use ferroce_wire::cm::{CmMessage, CommId, Rej, RejectReason};
use ferroce_wire::mad::TransactionId;

const TRANSACTION: TransactionId = TransactionId(0x77);

fn in_slot(host: u8, slot: u8) -> ConnectionManager {
    ConnectionManager::new(Config { slot: Some(slot), ..config(host) })
}

#[test]
fn comm_ids_of_a_slot_are_unique_and_start_with_it() {
    let mut names = CommIds::within(0x1234_5678_9abc_def0, Some(0x5a));
    let mut seen = BTreeSet::new();
    for _ in 0..100_000 {
        let id = names.next(|_| false);
        assert_eq!(id.0 >> 24, 0x5a);
        assert!(seen.insert(id.0));
    }
}

#[test]
fn every_comm_id_of_a_slot_is_used_once() {
    let mut names = CommIds::within(7, Some(0));
    let mut seen = std::vec![false; 1 << 24];
    // All but zero, which is never used.
    for _ in 1..1 << 24 {
        let id = names.next(|_| false).0 as usize;
        assert!(id != 0 && !std::mem::replace(&mut seen[id], true), "{id:#x}");
    }
}

#[test]
fn each_manager_recognizes_its_own_messages() {
    let (mut one, mut other) = (in_slot(12, 1), in_slot(12, 2));
    let mut peer = manager(11);
    peer.listen(SERVICE, 1).unwrap();
    one.connect(at(0), &connect_parameters()).unwrap();
    let req = only(&mut one);
    assert!(peer.concerns(gid(12), req.transaction, &req.message));
    // After `unlisten`, requests received before still belong to it.
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
    let sidr_req = only(&mut other);
    assert!(!peer.concerns(gid(12), sidr_req.transaction, &sidr_req.message));
    peer.listen_datagrams(SERVICE).unwrap();
    assert!(peer.concerns(gid(12), sidr_req.transaction, &sidr_req.message));
    peer.unlisten_datagrams(SERVICE);
    let _ = peer.handle_mad(at(1), gid(12), &sidr_req.to_mad());
    let answer = only(&mut peer);
    assert!(other.concerns(gid(11), answer.transaction, &answer.message));
    assert!(!one.concerns(gid(11), answer.transaction, &answer.message));
}

#[test]
fn a_message_names_its_process_by_slot_or_service() {
    let (mut one, other) = (in_slot(12, 1), in_slot(12, 2));
    let owner = |manager: &ConnectionManager, mad: &[u8], is_forwarded, is_served| {
        manager.owner(gid(11), mad, is_forwarded, |_| is_served)
    };
    one.connect(at(0), &connect_parameters()).unwrap();
    let req = only(&mut one);
    let mad = req.to_mad();
    assert_eq!(owner(&other, &mad, false, true), Owner::Us);
    assert_eq!(owner(&other, &mad, false, false), Owner::Service(SERVICE));

    let CmMessage::Req(request) = &req.message else { panic!("no REQ") };
    let rejection = |remote_comm_id| {
        let rej = Rej { remote_comm_id, reason: RejectReason::TIMEOUT, ..Rej::default() };
        Transmit { message: rej.into(), ..req }.to_mad()
    };
    let named = rejection(request.local_comm_id);
    assert_eq!(owner(&one, &named, false, false), Owner::Us);
    assert_eq!(owner(&other, &named, true, false), Owner::Slot(1));
    // Of a connection that has ended.
    assert_eq!(owner(&other, &rejection(CommId(0x0200_0007)), false, false), Owner::Us);
    // The peer has given up before it knew our ID. Forwarded once, so that it does not go round.
    assert_eq!(owner(&other, &rejection(CommId(0)), false, false), Owner::Unnamed);
    assert_eq!(owner(&other, &rejection(CommId(0)), true, false), Owner::Us);
    assert_eq!(owner(&other, b"no MAD", false, false), Owner::Us);
}
