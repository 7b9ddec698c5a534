//! One rule at a time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec::Vec;

use ferroce_wire::address::Gid;
use ferroce_wire::number::{Immediate, Psn, QKey, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;

use super::peer::{KEY, Peer, group, number, send};
use crate::testing::{REGION, sge};
use crate::ud::{
    AddressHandle, AttachError, Drops, Envelope, Fault, GRH_LEN, PostError, SendRequest,
};
use crate::work::{Completion, CompletionKind, Data, ReceiveRequest, SgList, Status, WorkId};

const REMOTE_OFFSET: u64 = 0x2_0000;

/// The only packet of a request.
fn packet(peer: &mut Peer, request: SendRequest<u8>) -> Vec<u8> {
    peer.qp.post_send(request).unwrap();
    let mut packets = peer.packets();
    assert_eq!(packets.len(), 1);
    packets.remove(0).1
}

fn summary(completions: &[Completion]) -> Vec<(u64, Status, u32)> {
    completions.iter().map(|one| (one.id.0, one.status, one.length)).collect()
}

#[test]
fn a_datagram_carries_source_qpn_and_q_key() {
    let mut peer = Peer::new(1, 1024);
    for (immediate, opcode) in
        [(None, Opcode::UD_SEND_ONLY), (Some(Immediate(5)), Opcode::UD_SEND_ONLY_WITH_IMMEDIATE)]
    {
        let bytes = packet(&mut peer, SendRequest { immediate, ..send(1, 2, 0, 13) });
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.bth.opcode, packet.bth.pad), (opcode, 3));
        assert_eq!(packet.bth.destination, number(2));
        let deth = packet.extensions.deth.unwrap();
        assert_eq!((deth.source, deth.queue_key), (number(1), KEY));
        assert_eq!(packet.extensions.immediate.map(|one| one.value), immediate);
        assert_eq!(packet.payload, peer.memory.part(0, 13));
    }
}

#[test]
fn a_controlled_q_key_is_replaced_by_the_qps_own() {
    let own = QKey::GENERAL_SERVICES;
    let mut peer = Peer::with(1, 256, |config| config.queue_key = own);
    for (asked, sent) in [(0x8000_0000, own.0), (u32::MAX, own.0), (0x7fff_ffff, 0x7fff_ffff)] {
        let address = AddressHandle { queue_key: QKey(asked), ..send(1, 2, 0, 0).address };
        let bytes = packet(&mut peer, SendRequest { address, ..send(1, 2, 0, 4) });
        assert_eq!(Packet::parse(&bytes).unwrap().extensions.deth.unwrap().queue_key, QKey(sent));
    }
}

#[test]
fn a_message_must_fit_one_packet() {
    let mut peer = Peer::with(1, 256, |config| config.send_capacity = 1);
    assert_eq!(peer.qp.post_send(send(1, 2, 0, 257)), Err(PostError::Length));
    assert_eq!(peer.qp.post_send(send(1, 2, 0, 256)), Ok(()));
    assert_eq!(peer.qp.post_send(send(2, 2, 0, 0)), Err(PostError::Full));
}

#[test]
fn a_request_completes_when_its_packet_is_handed_out() {
    let mut peer = Peer::new(1, 256);
    peer.qp.post_send(send(1, 2, 0, 1)).unwrap();
    peer.qp.post_send(SendRequest { signaled: false, ..send(2, 3, 0, 1) }).unwrap();
    assert!(peer.sent().is_empty());
    assert_eq!(
        peer.qp.poll_transmit(&mut peer.memory).map(|one| (one.route, one.transmit.bth.psn)),
        { Some((2, Psn(0xff_ffff))) }
    );
    assert_eq!((peer.qp.send_queue_len(), peer.sent()), (1, [(1, Status::Success)].into()));
    assert_eq!(
        peer.qp.poll_transmit(&mut peer.memory).map(|one| (one.route, one.transmit.bth.psn)),
        { Some((3, Psn(0))) }
    );
    assert_eq!((peer.qp.send_queue_len(), peer.sent()), (0, [].into()));
}

#[test]
fn a_datagram_is_written_behind_the_grh() {
    let (mut from, mut to) = (Peer::new(1, 256), Peer::new(2, 256));
    let request =
        SendRequest { immediate: Some(Immediate(9)), solicited: true, ..send(1, 2, 0, 100) };
    let bytes = packet(&mut from, request);
    let front = to.memory.part(REMOTE_OFFSET, 40).to_vec();
    for header in [None, Some([7; GRH_LEN])] {
        // SGE boundaries within the header and within the payload.
        let parts =
            [sge(REMOTE_OFFSET, 30), sge(REMOTE_OFFSET + 30, 20), sge(REMOTE_OFFSET + 50, 90)];
        let sg_list = SgList::from(&parts[..]);
        to.receives.post(ReceiveRequest { id: WorkId(10), sg_list }).unwrap();
        let over_ipv4 = header.is_some();
        let ours: IpAddr = if over_ipv4 { [192, 0, 2, 1].into() } else { [9; 16].into() };
        to.handle(&bytes, &Envelope { header, destination: Gid::from_ip(ours) });
        let expected = Completion {
            id: WorkId(10),
            status: Status::Success,
            kind: CompletionKind::Receive,
            length: 140,
            immediate: Some(Immediate(9)),
            invalidated: None,
            solicited: true,
            receive_queue: None,
            source: Some(number(1)),
            over_ipv4,
            vendor_error: 0,
        };
        assert_eq!(to.received(), [expected]);
        assert_eq!(
            to.memory.part(REMOTE_OFFSET, 40),
            header.map_or(front.clone(), |one| one.to_vec())
        );
        assert_eq!(to.memory.part(REMOTE_OFFSET + 40, 100), from.memory.part(0, 100));
    }
}

#[test]
fn drops_and_counts_unacceptable_datagrams() {
    let (mut from, mut to) = (Peer::new(1, 1024), Peer::new(2, 256));
    let envelope = Envelope::default();
    let good = packet(&mut from, send(1, 2, 0, 256));
    to.handle(&good, &envelope);
    assert_eq!(*to.qp.drops(), Drops { no_receive: 1, ..Drops::default() });
    to.post_receive(10, REMOTE_OFFSET, 4000);
    let before = to.memory.bytes.clone();
    let wrong_queue_pair = packet(&mut from, send(1, 3, 0, 8));
    to.handle(&wrong_queue_pair, &envelope);
    let address = AddressHandle { queue_key: QKey(KEY.0 ^ 1), ..send(1, 2, 0, 0).address };
    let wrong_key = packet(&mut from, SendRequest { address, ..send(1, 2, 0, 8) });
    to.handle(&wrong_key, &envelope);
    let too_long = packet(&mut from, send(1, 2, 0, 257));
    to.handle(&too_long, &envelope);
    let mut foreign = good.clone();
    foreign[0] = Opcode::RC_SEND_ONLY.0;
    to.handle(&foreign, &envelope);
    let one_each = Drops { foreign: 1, destination: 1, queue_key: 1, length: 1, no_receive: 1 };
    assert_eq!(*to.qp.drops(), one_each);
    assert!(to.received().is_empty() && to.memory.bytes == before);
    to.handle(&good, &envelope);
    assert_eq!(summary(&to.received()), [(10, Status::Success, 296)]);
}

#[test]
fn a_small_buffer_fails_only_its_request() {
    let (mut from, mut to) = (Peer::new(1, 256), Peer::new(2, 256));
    let bytes = packet(&mut from, send(1, 2, 0, 100));
    let before = to.memory.bytes.clone();
    for (id, room) in [(10, 139), (11, 39), (12, 0)] {
        to.post_receive(id, REMOTE_OFFSET, room);
        to.handle(&bytes, &Envelope { header: Some([1; GRH_LEN]), ..Envelope::default() });
        assert_eq!(summary(&to.received()), [(id, Status::LocalLength, 0)]);
    }
    assert!(to.memory.bytes == before && to.qp.fault().is_none());
    to.post_receive(13, REMOTE_OFFSET, 140);
    to.handle(&bytes, &Envelope::default());
    assert_eq!(summary(&to.received()), [(13, Status::Success, 140)]);
}

#[test]
fn attaches_and_detaches_groups() {
    let mut peer = Peer::new(1, 256);
    let host = Gid::from_ip(Ipv4Addr::LOCALHOST.into());
    let v6 = Gid::from_ip(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1).into());
    assert_eq!(peer.qp.attach(host), Err(AttachError::NotMulticast));
    assert_eq!(peer.qp.attach(group(1)), Ok(()));
    assert_eq!(peer.qp.attach(v6), Ok(()));
    assert_eq!(peer.qp.attach(group(1)), Ok(()), "once more changes nothing");
    assert_eq!(peer.qp.attach(group(2)), Err(AttachError::Full));
    assert!(peer.qp.accepts(group(1)) && peer.qp.accepts(v6) && !peer.qp.accepts(group(2)));
    assert!(peer.qp.is_attached());
    assert!(peer.qp.detach(v6) && !peer.qp.detach(v6) && !peer.qp.accepts(v6));
    assert_eq!(peer.qp.attach(group(2)), Ok(()));
}

#[test]
fn multicast_reaches_attached_qps() {
    let (mut from, mut to) = (Peer::new(1, 256), Peer::new(2, 256));
    let address = AddressHandle { route: 0, destination: Qpn::MULTICAST, queue_key: KEY };
    let bytes = packet(&mut from, SendRequest { address, ..send(1, 2, 0, 10) });
    let envelope = Envelope { destination: group(1), header: None };
    to.post_receive(10, REMOTE_OFFSET, 100);
    to.handle(&bytes, &envelope);
    assert_eq!(to.qp.drops().destination, 1);
    to.qp.attach(group(1)).unwrap();
    to.handle(&bytes, &Envelope { destination: group(2), header: None });
    assert_eq!(to.qp.drops().destination, 2);
    to.handle(&bytes, &envelope);
    assert_eq!(summary(&to.received()), [(10, Status::Success, 50)]);
}

#[test]
fn a_receive_with_a_bad_lkey_enters_err() {
    let (mut from, mut to) = (Peer::new(1, 256), Peer::new(2, 256));
    let bytes = packet(&mut from, send(1, 2, 0, 100));
    to.post_receive(10, REGION - 50, 200);
    to.post_receive(11, REMOTE_OFFSET, 200);
    to.qp.post_send(send(5, 1, 0, 1)).unwrap();
    to.handle(&bytes, &Envelope::default());
    assert_eq!(to.qp.fault(), Some(Fault::Responder));
    to.handle(&bytes, &Envelope::default());
    to.qp.flush_receives(&mut to.receives);
    let expected = [(10, Status::LocalProtection, 0), (11, Status::Flushed, 0)];
    assert_eq!(summary(&to.received()), expected);
    assert_eq!(to.sent(), [(5, Status::Flushed)]);
    assert!(!to.qp.resume_send());
}

#[test]
fn a_send_with_a_bad_lkey_enters_sqe() {
    let mut peer = Peer::new(1, 256);
    for (id, from) in [(1, 0), (2, REGION), (3, 0)] {
        peer.qp.post_send(SendRequest { signaled: false, ..send(id, 1, from, 8) }).unwrap();
    }
    let packets = peer.packets();
    assert_eq!((packets.len(), peer.qp.fault()), (1, Some(Fault::Requester)));
    peer.qp.post_send(send(4, 1, 0, 8)).unwrap();
    let flushed = [3, 4].map(|id| (id, Status::Flushed));
    assert_eq!(peer.sent(), [&[(2, Status::LocalProtection)], &flushed[..]].concat());
    peer.post_receive(10, REMOTE_OFFSET, 48);
    peer.handle(&packets[0].1, &Envelope::default());
    assert_eq!(summary(&peer.received()), [(10, Status::Success, 48)]);
    assert!(peer.qp.resume_send() && !peer.qp.resume_send());
    let data = Data::Inline([1, 2, 3].into());
    peer.qp.post_send(SendRequest { data, ..send(5, 1, 0, 0) }).unwrap();
    assert_eq!(peer.packets().len(), 1);
    peer.qp.handle_error();
    assert_eq!((peer.sent(), peer.qp.fault()), ([(5, Status::Success)].into(), Some(Fault::Owner)));
}

#[test]
fn an_unreadable_packet_of_a_completed_request_is_lost() {
    let mut peer = Peer::new(1, 256);
    peer.qp.post_send(send(1, 2, 0, 1)).unwrap();
    peer.qp.post_send(send(2, 2, 0, 1)).unwrap();
    assert!(peer.qp.poll_transmit(&mut peer.memory).is_some());
    assert_eq!(peer.sent(), [(1, Status::Success)]);
    peer.qp.handle_denied(Psn(0xff_ffff), crate::testing::DENIED);
    assert_eq!((peer.qp.fault(), peer.sent()), (None, [].into()));
}
