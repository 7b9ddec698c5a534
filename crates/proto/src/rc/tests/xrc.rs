//! XRC: initiator and target, and messages that name an SRQ (IBA A14).

use std::vec::Vec;

use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Transport;
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::{NakCode, SyndromeKind};

use super::helpers::{REMOTE_OFFSET, read, remote, request, statuses, syndromes, write};
use super::pair::{DOMAIN, Faults, Pair};
use crate::memory::PdId;
use crate::rc::{Fault, PostError, Role};
use crate::receive::{ReceiveQueue, XrcDomain, XrcProperties};
use crate::work::{CompletionKind, Operation, SendRequest, Status};

const XRC: XrcDomain = XrcDomain(7);
const QUEUE: Qpn = Qpn(0x5a5a);

/// An initiator on side 0, and a target on side 1 with one SRQ.
fn xrc_pair(seed: u64, faults: Faults, queue: XrcProperties) -> Pair {
    let mut pair = Pair::with(seed, faults, 256, |_| ());
    for (side, role) in [Role::Initiator, Role::Target(XRC)].into_iter().enumerate() {
        let mut config = pair.hosts[side].qp.config().clone();
        config.role = role;
        // A target has no PD of its own.
        config.pd = if side == 0 { DOMAIN } else { PdId(99) };
        pair.hosts[side].qp = crate::rc::QueuePair::new(config);
    }
    pair.hosts[1].receives = ReceiveQueue::with_xrc(16, queue);
    pair
}

fn clean() -> Pair {
    xrc_pair(1, Faults::default(), XrcProperties { xrc: XRC, pd: DOMAIN })
}

fn to_queue(request: SendRequest) -> SendRequest {
    SendRequest { receive_queue: Some(QUEUE), ..request }
}

#[test]
fn a_message_goes_to_the_named_srq() {
    let mut pair = clean();
    pair.post_receive(1, 42, REMOTE_OFFSET, 700);
    pair.hosts[0].qp.post_send(to_queue(request(1, Operation::SEND, 700))).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    let received = &pair.hosts[1].received;
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].id.0, received[0].length), (42, 700));
    assert_eq!(
        (received[0].kind, received[0].receive_queue),
        (CompletionKind::Receive, Some(QUEUE))
    );
    assert_eq!(pair.hosts[1].memory.part(REMOTE_OFFSET, 700), pair.hosts[0].memory.part(0, 700));
    for (side, bytes) in &pair.log {
        let packet = Packet::parse(bytes).unwrap();
        let info = packet.bth.opcode.info().unwrap();
        assert_eq!(info.transport, Transport::ExtendedReliableConnection);
        let named = packet.extensions.xrceth.map(|header| header.receive_queue.into());
        assert_eq!(named, (*side == 0).then_some(QUEUE), "requests name it, answers do not");
    }
}

#[test]
fn memory_is_looked_up_in_the_srqs_pd() {
    let mut pair = clean();
    pair.hosts[0].qp.post_send(to_queue(write(1, 600))).unwrap();
    pair.hosts[0].qp.post_send(to_queue(read(2, 600))).unwrap();
    let add = Operation::FetchAdd { remote: remote(REMOTE_OFFSET), add: 1 };
    pair.hosts[0].qp.post_send(to_queue(request(3, add, 8))).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success), (3, Status::Success)]);

    let elsewhere = XrcProperties { xrc: XRC, pd: PdId(2) };
    let mut pair = xrc_pair(1, Faults::default(), elsewhere);
    pair.hosts[0].qp.post_send(to_queue(write(1, 600))).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RemoteAccess)]);
}

#[test]
fn refuses_an_srq_of_another_xrc_domain() {
    let mut pair = xrc_pair(1, Faults::default(), XrcProperties { xrc: XrcDomain(8), pd: DOMAIN });
    pair.post_receive(1, 42, REMOTE_OFFSET, 700);
    pair.hosts[0].qp.post_send(to_queue(request(1, Operation::SEND, 8))).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::RemoteInvalidRequest)]);
    assert_eq!(syndromes(&pair), [SyndromeKind::Nak(NakCode::InvalidRequest)]);
    assert_eq!(pair.hosts[1].receives.len(), 1, "its request is still there");
    assert_eq!(pair.hosts[1].qp.fault(), Some(Fault::Responder));
}

#[test]
fn refuses_an_unknown_srq() {
    let mut pair = clean();
    pair.hosts[0].qp.post_send(to_queue(write(1, 8))).unwrap();
    pair.drain();
    let (_, bytes) = pair.log[0].clone();
    let packet = Packet::parse(&bytes).unwrap();
    let host = &mut pair.hosts[1];
    host.qp.handle_packet(pair.now, &packet, false, None, &mut host.memory);
    assert_eq!(host.qp.fault(), Some(Fault::Responder));
}

#[test]
fn all_packets_of_a_message_name_one_srq() {
    let mut pair = clean();
    pair.post_receive(1, 42, REMOTE_OFFSET, 700);
    pair.hosts[0].qp.post_send(to_queue(request(1, Operation::SEND, 700))).unwrap();
    pair.drain();
    let sent: Vec<_> = pair.log.iter().map(|(_, bytes)| bytes.clone()).collect();
    let host = &mut pair.hosts[1];
    for (index, bytes) in sent.iter().enumerate() {
        let mut packet = Packet::parse(bytes).unwrap();
        if index == 1 {
            packet.extensions.xrceth.as_mut().unwrap().receive_queue = Qpn(1).into();
        }
        let receives = Some(&mut host.receives);
        host.qp.handle_packet(pair.now, &packet, false, receives, &mut host.memory);
    }
    assert_eq!(host.qp.fault(), Some(Fault::Responder));
    // The receive was consumed by the message, and completes with it on the CQ of its SRQ.
    let ended = host.qp.poll_receive_completion().unwrap();
    assert_eq!((ended.id.0, ended.receive_queue), (42, Some(QUEUE)));
}

#[test]
fn targets_send_no_requests_and_initiators_accept_none() {
    let mut pair = clean();
    assert_eq!(pair.hosts[1].qp.post_send(to_queue(write(1, 8))), Err(PostError::State));
    assert_eq!(pair.hosts[0].qp.post_send(write(1, 8)), Err(PostError::Address));
    let mut ordinary = Pair::new(1, Faults::default(), 256);
    assert_eq!(ordinary.hosts[0].qp.post_send(to_queue(write(1, 8))), Err(PostError::Address));

    // A request to the initiator, and an RC request to the target.
    pair.hosts[0].qp.post_send(to_queue(write(1, 8))).unwrap();
    pair.drain();
    let (_, bytes) = pair.log[0].clone();
    let mut packet = Packet::parse(&bytes).unwrap();
    packet.bth.psn = pair.hosts[0].qp.config().receive_psn;
    let host = &mut pair.hosts[0];
    host.qp.handle_packet(pair.now, &packet, false, Some(&mut host.receives), &mut host.memory);
    assert!(host.poll(pair.now).is_none(), "no answer, and nothing more to send");
    ordinary.hosts[0].qp.post_send(write(1, 8)).unwrap();
    ordinary.drain();
    let (_, bytes) = ordinary.log[0].clone();
    let mut packet = Packet::parse(&bytes).unwrap();
    packet.bth.psn = pair.hosts[1].qp.config().receive_psn;
    let host = &mut pair.hosts[1];
    host.qp.handle_packet(pair.now, &packet, false, Some(&mut host.receives), &mut host.memory);
    assert!(host.poll(pair.now).is_none(), "of another service: dropped");
}

#[test]
fn recovers_from_losses() {
    for seed in 0..300 {
        let mut pair = xrc_pair(seed, Faults::of(seed), XrcProperties { xrc: XRC, pd: DOMAIN });
        for id in 0..8 {
            pair.post_receive(1, id, REMOTE_OFFSET + 0x1000 * id, 3000);
            let send = request(id, Operation::SEND, 100 + 300 * id as u32);
            pair.hosts[0].qp.post_send(to_queue(send)).unwrap();
        }
        pair.run();
        if pair.hosts[0].qp.fault().is_some() {
            continue; // Too many consecutive losses; see `programs`.
        }
        assert_eq!(pair.hosts[1].received.len(), 8, "seed {seed}");
        for id in 0..8 {
            let length = 100 + 300 * id as u32;
            let there = pair.hosts[1].memory.part(REMOTE_OFFSET + 0x1000 * id, length);
            assert_eq!(there, pair.hosts[0].memory.part(0, length), "seed {seed}");
        }
    }
}
