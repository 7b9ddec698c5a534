//! Which packets reach the transport of a QP, and what becomes of the others.

use std::net::{IpAddr, Ipv4Addr};

use ferroce_proto::qp::{QueuePairAttributes, State as QpState};
use ferroce_wire::number::{PKey, Psn, QKey, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;
use ferroce_wire::transport::{Bth, Deth};

use super::nodes::{DATAGRAMS, Node, address, nodes, number};
use super::*;
use crate::arrival::Refusal;
use crate::queue_pair::ReceiveSource;

/// A SEND without payload to a QP of RC, the first one that it expects.
fn send_to(destination: Qpn) -> Bth {
    let (opcode, psn, partition) = (Opcode::RC_SEND_ONLY, Psn(5), PKey(0xffff));
    Bth { opcode, destination, psn, partition, ack_request: true, ..Bth::default() }
}

/// A datagram without payload.
fn datagram_to(destination: Qpn) -> std::vec::Vec<u8> {
    let bth = Bth { opcode: Opcode::UD_SEND_ONLY, ..send_to(destination) };
    let deth = Deth { queue_key: QKey(7), source: Qpn(99), ..Deth::default() };
    [&bth.to_bytes()[..], &deth.to_bytes(), &[0; 4]].concat()
}

fn arrive(node: &mut Node, bth: &Bth, from: IpAddr) {
    let bytes = [&bth.to_bytes()[..], &[0; 4]].concat();
    let to = IpAddr::V4(address(node.side.index));
    node.arrive(&Packet::parse(&bytes).unwrap(), 1, [from, to], Instant::ZERO);
}

fn received(node: &Node, index: usize) -> usize {
    node.side.queue_pairs[index].state().lock().received
}

#[test]
fn only_packets_of_the_peer_and_the_partition_reach_a_connected_queue_pair() {
    let [mut node, _] = nodes(0, 1);
    let peer = IpAddr::V4(address(1));
    let stranger = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
    let bth = send_to(number(0));
    arrive(&mut node, &bth, stranger);
    arrive(&mut node, &Bth { partition: PKey(0x8001), ..bth }, peer);
    arrive(&mut node, &Bth { opcode: Opcode(0xff), ..bth }, peer);
    assert_eq!(received(&node, 0), 0);
    assert_eq!(node.side.strangers.get(), 1);
    assert_eq!(*node.side.refused.borrow(), [Refusal::Partition, Refusal::Malformed]);
    // A limited member of the partition is one of it.
    arrive(&mut node, &Bth { partition: PKey(0x7fff), ..bth }, peer);
    assert_eq!(received(&node, 0), 1);
}

#[test]
fn packets_for_no_queue_pair_of_the_process_are_refused_or_forwarded() {
    let [mut node, _] = nodes(0, 1);
    let peer = IpAddr::V4(address(1));
    arrive(&mut node, &send_to(Qpn(0x4321)), peer);
    assert_eq!(*node.side.refused.borrow(), [Refusal::UnknownQueuePair]);
    arrive(&mut node, &send_to(Qpn(0x03_0010)), peer);
    assert_eq!(*node.side.forwarded.borrow(), [Qpn(0x03_0010)]);
}

#[test]
fn nothing_reaches_a_queue_pair_that_was_destroyed_although_it_was_the_last_one_found() {
    let [mut node, _] = nodes(0, 1);
    let peer = IpAddr::V4(address(1));
    arrive(&mut node, &send_to(number(0)), peer);
    assert_eq!(received(&node, 0), 1);
    let handle = Rc::clone(&node.side.queue_pairs[0]);
    node.device.forget(&handle, &mut handle.state().lock().queue_pair);
    arrive(&mut node, &Bth { psn: Psn(6), ..send_to(number(0)) }, peer);
    assert_eq!(received(&node, 0), 1);
    node.side.tables.remove_queue_pair(number(0));
    arrive(&mut node, &Bth { psn: Psn(6), ..send_to(number(0)) }, peer);
    assert_eq!(*node.side.refused.borrow(), [Refusal::UnknownQueuePair; 2]);
}

#[test]
fn each_member_of_a_group_gets_a_copy_of_a_datagram() {
    let [mut node, _] = nodes(0, 1);
    let group = Ipv4Addr::new(239, 1, 2, 3);
    node.side.members = std::vec![DATAGRAMS, DATAGRAMS + 1];
    for &member in &node.side.members {
        let mut inner = node.side.queue_pairs[member].state().lock();
        let datagram = inner.queue_pair.endpoint.datagram().unwrap();
        datagram.attach(ferroce_wire::address::Gid::from_ip(group.into())).unwrap();
    }
    let bytes = datagram_to(Qpn::MULTICAST);
    let packet = Packet::parse(&bytes).unwrap();
    node.arrive(&packet, 1, [IpAddr::V4(address(1)), group.into()], Instant::ZERO);
    assert_eq!([received(&node, DATAGRAMS), received(&node, DATAGRAMS + 1)], [1, 1]);
}

#[test]
fn the_receives_of_a_queue_pair_in_error_are_flushed_once() {
    let [mut node, _] = nodes(0, 1);
    let handle = Rc::clone(&node.side.queue_pairs[0]);
    let posted = handle.receives.queue().lock().len();
    let mut inner = handle.state().lock();
    let error = QueuePairAttributes { state: Some(QpState::Error), ..Default::default() };
    inner.queue_pair.endpoint.modify(&error).unwrap();
    for _ in 0..2 {
        crate::publish(&node.side, &handle, &mut inner, Instant::ZERO);
        assert_eq!((inner.flushed, handle.receives.queue().lock().len()), (posted, 0));
    }
    node.device.update(&handle, &mut inner.queue_pair, Loss::default());
}
