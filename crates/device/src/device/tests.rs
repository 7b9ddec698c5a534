//! Two devices in one thread, between which every way out is random: QPs of RC and UD send through transmit queues of a few
//! packets, or over a link that is full after a few frames and loses some.

mod arrivals;
mod nodes;

use std::rc::Rc;
use std::time::Duration;
use std::vec::Vec;

use ferroce_proto::qp::{QueuePairAttributes, State};
use ferroce_proto::ud;
use ferroce_proto::work::{Data, Operation, SendRequest, SgList, Status, WorkId};
use ferroce_wire::number::{Psn, QKey};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::syndrome::Syndrome;
use ferroce_wire::transport::{Aeth, Bth};
use proptest::prelude::*;

use super::*;
use nodes::{DATAGRAMS, Node, QUEUE_PAIRS, nodes, number, sge};

#[derive(Clone, Copy, Debug)]
enum Step {
    Post(usize, usize, u32),
    Serve(usize),
    /// So many packets of the other side's transmit queue, or of its link, arrive.
    Receive(usize, bool, usize),
    /// A frame of a link is lost.
    Lose(usize),
    /// Time passes, in microseconds, and timers run.
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..2usize, 0..QUEUE_PAIRS, 0..5000u32).prop_map(|(on, qp, length)| Step::Post(on, qp, length)),
        6 => (0..2usize).prop_map(Step::Serve),
        6 => (0..2usize, any::<bool>(), 1..8usize).prop_map(|(on, queue, most)| Step::Receive(on, queue, most)),
        1 => (0..2usize).prop_map(Step::Lose),
        2 => (1..400u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..150)
}

fn post(node: &mut Node, index: usize, length: u32) -> bool {
    let handle = Rc::clone(&node.side.queue_pairs[index]);
    let mut inner = handle.state().lock();
    let (id, endpoint) = (WorkId(0), &mut inner.queue_pair.endpoint);
    let posted = if index < DATAGRAMS {
        let data = Data::SgList(SgList::from(sge(length)));
        endpoint.post_send(SendRequest::new(id, Operation::SEND, data)).is_ok()
    } else {
        let data = Data::SgList(SgList::from(sge(length % 1024)));
        let address = ud::AddressHandle {
            route: 1 - node.side.index,
            destination: number(index),
            queue_key: QKey(7),
        };
        let request = ud::SendRequest {
            id,
            address,
            immediate: None,
            data,
            signaled: true,
            solicited: false,
        };
        endpoint.post_datagram(request).is_ok()
    };
    node.side.tables.posted.push(&handle, handle.marks.queued());
    posted
}

fn receive(nodes: &mut [Node; 2], on: usize, queue: bool, most: usize, now: Instant) -> usize {
    let (from, mut count) = (1 - on, 0);
    while count < most {
        let next = match queue {
            true => nodes[from].side.queue.pop().map(|record| (record.bytes, record.packets)),
            false => nodes[from].link.frames.pop_front().map(|frame| (frame, 1)),
        };
        let Some((bytes, packets)) = next else { break };
        nodes[on].receive(&bytes, packets, now);
        count += 1;
    }
    count
}

fn wait(nodes: &mut [Node; 2], now: Instant) {
    for Node { side, device, .. } in nodes {
        device.run_timers(side, now);
    }
}

/// An RNR wait that ends while the transmit queue is full: the timer would expire again and again.
#[test]
fn a_timer_that_expires_without_room_waits_for_it() {
    let mut nodes = nodes(0b11, 1);
    let [node, _] = &mut nodes;
    assert!(post(node, 0, 8));
    node.serve(Instant::ZERO);
    assert!(node.side.queue.pop().is_some());
    let nak = Aeth { syndrome: Syndrome(0b001_00001), ..Aeth::default() };
    let opcode = Opcode::RC_ACKNOWLEDGE;
    let bth = Bth { opcode, destination: number(0), psn: Psn(5), ..Bth::default() };
    node.receive(&[&bth.to_bytes()[..], &nak.to_bytes(), &[0; 4]].concat(), 1, Instant::ZERO);
    (0..8).for_each(|_| assert!(post(node, 1, 8)));
    node.serve(Instant::ZERO);
    assert_eq!(node.side.queue.room(), 0);
    let due = node.device.next_timer().unwrap();
    for _ in 0..3 {
        node.device.run_timers(&node.side, due);
        node.serve(due);
    }
    assert!(node.device.next_timer().is_none_or(|next| next > due), "it expires again");
    while node.side.queue.pop().is_some() {
        node.serve(due);
    }
    let inner = node.side.queue_pairs[0].state().lock();
    assert!(inner.queue_pair.endpoint.has_unacknowledged() && inner.sent.is_empty());
    assert_eq!(node.device.credit.waiting(), 0);
}

/// Only the requests of QPs that send through the queue that has ended fail, and a destroyed QP reports nothing.
#[test]
fn requests_fail_when_their_transmit_queue_has_ended() {
    let mut nodes = nodes(0b101, 1);
    let [node, _] = &mut nodes;
    (0..3).for_each(|index| assert!(post(node, index, 8)));
    node.serve(Instant::ZERO);
    let handles = node.side.queue_pairs.clone();
    node.device.forget(&handles[2], &mut handles[2].state().lock().queue_pair);
    assert!(!node.device.end_queues(&node.side, |_| false, Instant::ZERO));
    // Each time takes one of the retries.
    for retries in (0..=7).rev() {
        let completed = node.device.end_queues(&node.side, |_| true, Instant::ZERO);
        assert_eq!(completed, retries == 0, "{retries}");
        while node.side.queue.pop().is_some() {}
        assert!(handles[0].marks.is_queued(), "it is not served");
        node.serve(Instant::ZERO);
    }
    let sent = |index: usize| handles[index].state().lock().sent.clone();
    assert_eq!(sent(0), [Status::RetryExceeded]);
    assert!(sent(1).is_empty() && sent(2).is_empty());
}

/// A drained QP has datagrams, and gives out none: its turn ends, also while its transmit queue is stalled.
#[test]
fn a_turn_without_a_datagram_ends_at_a_stalled_queue() {
    let mut nodes = nodes(0b1_0000, 1);
    let [node, _] = &mut nodes;
    (0..8).for_each(|_| assert!(post(node, DATAGRAMS, 8)));
    node.serve(Instant::ZERO);
    node.serve(Instant::ZERO);
    assert_eq!(node.side.queue.room(), 0);
    let now = Instant::ZERO + Duration::from_millis(21);
    let handle = Rc::clone(&node.side.queue_pairs[DATAGRAMS]);
    let drained = QueuePairAttributes { state: Some(State::SendQueueDrain), ..Default::default() };
    handle.state().lock().queue_pair.endpoint.modify(&drained).unwrap();
    node.device.schedule.push(handle);
    node.serve(now);
    assert!(!node.device.schedule.has_ready(), "it is served again and again");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Everything that was posted completes, and then nobody waits and no credit is in use.
    #[test]
    fn what_is_posted_completes(
        queued in any::<u8>(),
        max_packets in 1..9_u32,
        steps in steps(),
    ) {
        let mut nodes = nodes(queued, max_packets);
        let mut now = Instant::ZERO;
        let mut posted = [[0; QUEUE_PAIRS]; 2];
        for step in steps {
            match step {
                // As many as there are receive requests.
                Step::Post(on, qp, length) if posted[on][qp] < 60 => {
                    posted[on][qp] += usize::from(post(&mut nodes[on], qp, length));
                }
                Step::Post(..) => {}
                Step::Serve(on) => nodes[on].serve(now),
                Step::Receive(on, queue, most) => _ = receive(&mut nodes, on, queue, most, now),
                Step::Lose(on) => _ = nodes[on].link.frames.pop_front(),
                Step::Wait(time) => {
                    now = now + Duration::from_micros(time);
                    wait(&mut nodes, now);
                }
            }
        }
        // Nothing is lost any more: a bounded time ends all of it.
        for _ in 0..20_000 {
            let mut some = 0;
            for on in [0, 1] {
                nodes[on].serve(now);
                some += receive(&mut nodes, on, true, 8, now) + receive(&mut nodes, on, false, 8, now);
            }
            if some == 0 {
                let timers = nodes.iter().filter_map(|node| node.device.next_timer()).min();
                let Some(next) = timers else { break };
                now = now.max(next);
                wait(&mut nodes, now);
            }
        }
        for (node, posted) in nodes.iter_mut().zip(posted) {
            for (index, handle) in node.side.queue_pairs.clone().iter().enumerate() {
                let mut inner = handle.state().lock();
                prop_assert_eq!(inner.sent.len(), posted[index], "QP {} of side {}", index, node.side.index);
                prop_assert!(inner.sent.iter().all(|status| *status == Status::Success), "{:?}", inner.sent);
                node.device.forget(handle, &mut inner.queue_pair);
            }
            prop_assert_eq!(node.device.credit.waiting(), 0);
            prop_assert_eq!(node.device.credit.in_use(), 0);
        }
        for (on, all) in posted.iter().enumerate() {
            for (index, &count) in all.iter().enumerate().take(DATAGRAMS) {
                let received = nodes[1 - on].side.queue_pairs[index].state().lock().received;
                prop_assert_eq!(received, count, "RC {}", index);
            }
        }
    }
}
