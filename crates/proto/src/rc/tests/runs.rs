//! Runs of MIDDLE packets that are sent and handled as one.

use std::vec::Vec;

use ferroce_wire::opcode::Opcode;

use super::helpers::{REMOTE_OFFSET, clean, opcodes, read, statuses, write};
use super::pair::Pair;
use crate::work::{Operation, Status};

const MTU: u16 = 256;
const PACKETS: u32 = 16;
const LENGTH: u32 = PACKETS * MTU as u32;

/// All packets may be in one run.
fn in_runs() -> Pair {
    let mut pair = clean(MTU);
    pair.max_run = 1;
    pair.hosts.iter_mut().for_each(|host| host.qp.set_max_run(1000));
    pair
}

fn written(pair: &Pair) -> bool {
    let [from, to] = [&pair.hosts[0].memory.bytes, &pair.hosts[1].memory.bytes];
    from[..LENGTH as usize] == to[REMOTE_OFFSET as usize..][..LENGTH as usize]
}

#[test]
fn a_message_is_three_packets_and_takes_as_many_psns() {
    let mut pair = in_runs();
    pair.hosts[0].qp.post_send(write(1, LENGTH)).unwrap();
    pair.hosts[0].qp.post_send(write(2, 1)).unwrap();
    pair.run_in_runs();
    let sent: Vec<_> = pair.sent_packets().into_iter().filter(|packet| packet.0 == 0).collect();
    let expected = [
        (0, Opcode::RC_RDMA_WRITE_FIRST, 0),
        (0, Opcode::RC_RDMA_WRITE_MIDDLE, 1),
        (0, Opcode::RC_RDMA_WRITE_LAST, PACKETS - 1),
        (0, Opcode::RC_RDMA_WRITE_ONLY, PACKETS),
    ];
    assert_eq!(sent, expected);
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)]);
    let acknowledged = pair.sent_packets().into_iter().filter(|packet| packet.0 == 1);
    assert_eq!(acknowledged.map(|packet| packet.2).max(), Some(PACKETS));
}

#[test]
fn a_send_and_a_read_response_arrive_in_runs() {
    let mut pair = in_runs();
    pair.post_receive(1, 7, REMOTE_OFFSET, LENGTH);
    let send = Operation::Send { immediate: None, invalidate: None };
    pair.hosts[0].qp.post_send(super::helpers::request(1, send, LENGTH)).unwrap();
    pair.run_in_runs();
    assert!(written(&pair));
    assert_eq!(pair.hosts[1].received[0].length, LENGTH);
    pair.hosts[0].memory.bytes[..LENGTH as usize].fill(0);
    pair.hosts[0].qp.post_send(read(2, LENGTH)).unwrap();
    pair.run_in_runs();
    assert!(written(&pair));
    let responses = |pair: &Pair| -> Vec<_> {
        let all = opcodes(pair, 1).into_iter();
        all.filter(|opcode| *opcode != Opcode::RC_ACKNOWLEDGE).collect()
    };
    assert_eq!(responses(&pair), [Opcode::RC_RDMA_READ_RESPONSE_ONLY]);
    pair.hosts[0].memory.bytes[..LENGTH as usize].fill(0);
    pair.hosts[1].qp.set_max_run(PACKETS - 1);
    pair.hosts[0].qp.post_send(read(3, LENGTH)).unwrap();
    pair.run_in_runs();
    assert!(written(&pair));
    let [first, middle, last] = [
        Opcode::RC_RDMA_READ_RESPONSE_FIRST,
        Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
        Opcode::RC_RDMA_READ_RESPONSE_LAST,
    ];
    assert!(responses(&pair).ends_with(&[first, middle, last]));
}

/// A requester that goes back may divide its packets into other runs than before.
#[test]
fn the_rest_of_a_run_that_begins_with_duplicates_is_executed() {
    let mut pair = in_runs();
    pair.hosts[0].qp.post_send(write(1, LENGTH)).unwrap();
    pair.drain();
    let all = pair.log.clone();
    let [first, middle, last] = [0, 1, 2].map(|index| all[index].1.clone());
    pair.deliver_run(1, &first);
    // Only the first five packets of the run.
    let payload = 12 + 5 * usize::from(MTU);
    let short = [&middle[..payload], &[0; 4]].concat();
    pair.deliver_run(1, &short);
    pair.deliver_run(1, &middle);
    pair.deliver_run(1, &last);
    assert!(written(&pair));
    assert_eq!(pair.hosts[1].qp.take_counters().duplicate_request, 5);
    assert!(pair.hosts[1].qp.fault().is_none());
}

#[test]
fn a_run_that_is_no_multiple_of_the_mtu_or_too_long_is_refused() {
    // The middle has 14 packets, and one follows it.
    for payload in [14 * 256 - 4, 15 * 256, 16 * 256] {
        let mut pair = in_runs();
        pair.hosts[0].qp.post_send(write(1, LENGTH)).unwrap();
        pair.drain();
        let [first, mut middle] = [0, 1].map(|index| pair.log[index].1.clone());
        pair.deliver_run(1, &first);
        middle.resize(12 + payload + 4, 0);
        pair.deliver_run(1, &middle);
        assert!(pair.hosts[1].qp.fault().is_some(), "{payload}");
    }
}

#[test]
fn memory_that_cannot_be_read_fails_the_whole_run() {
    let mut pair = in_runs();
    let mut request = write(1, LENGTH);
    let part = super::pair::sge(0, LENGTH / 2);
    let outside = super::pair::sge(super::pair::REGION, LENGTH / 2);
    request.data = crate::work::Data::SgList(crate::work::SgList::from(&[part, outside][..]));
    pair.hosts[0].qp.post_send(write(0, LENGTH)).unwrap();
    pair.hosts[0].qp.post_send(request).unwrap();
    pair.run_in_runs();
    assert_eq!(statuses(&pair), [(0, Status::Success), (1, Status::LocalProtection)]);
}
