//! When ACKs are sent through rings, and which QPs are resumed when a full ring has space again. The tests own both
//! devices, so that no other thread receives or transmits.

use std::sync::Arc;

use ferroce_device::tuning::shared_memory::SIZE as RING_SIZE;
use ferroce_links::ring::MAX_RECORD;
use ferroce_sync::Guard;
use ferroce_wire::number::{PKey, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::transport::{Bth, Reth};

use crate::engine::driver::Driver;
use crate::engine::support::{Side, attributes, bring_up, connect, gid_index, open_alone, side};
use crate::time::now;
use crate::{
    AddressVector, Congestion, Context, Local, Operation, Options, QKey, QueuePairAttributes,
    ServiceType, State, WorkId,
};

fn own(context: &Context) -> Guard<'_, Driver> {
    loop {
        match context.adapter().driver.try_own() {
            Some(guard) => return guard,
            None => std::thread::yield_now(),
        }
    }
}

/// Posts, and waits until the packet is in the ring.
fn post(side: &Side, operation: Operation) {
    let sent = || side.queue_pair.context().statistics().local_packets_out;
    let before = sent();
    side.post(0, operation, 0, 64);
    while sent() == before {
        std::thread::yield_now();
    }
}

/// Two devices with different options, which use rings like two processes.
fn contexts() -> [Context; 2] {
    let options = Options { local: Local::Memory, ..Options::default() };
    [options.clone(), Options { congestion: Some(Congestion::Unlimited), ..options }]
        .map(|options| open_alone(&options))
}

fn connected(contexts: &[Context; 2], bytes: usize) -> [Side; 2] {
    let sides =
        contexts.each_ref().map(|context| side(context, ServiceType::ReliableConnection, bytes));
    connect(&sides[0], &sides[1], gid_index(&contexts[0], false).unwrap(), 4096);
    // The device threads accept the rings.
    for context in contexts {
        while context.adapter().rings.incoming().is_empty() {
            std::thread::yield_now();
        }
    }
    sides
}

/// Lets the first side receive an ACK and this message in one burst. Returns how many ACKs it has sent, and whether it owes
/// one.
fn answered_together(message: impl Fn(&Side) -> Operation) -> (u64, bool) {
    let contexts = contexts();
    let [one, other] = connected(&contexts, 4096);
    let write = |to: &Side| Operation::Write { remote: to.region.remote(0), immediate: None };
    for (from, to) in [(&one, &other), (&other, &one)] {
        from.post(0, write(to), 0, 64);
        from.expect(0);
    }
    one.post_receive(0, 0, 64);

    let mut theirs = own(&contexts[1]);
    post(&one, write(&other));
    let mut ours = own(&contexts[0]);
    assert!(theirs.receive_from_rings(contexts[1].adapter()));
    let _ = theirs.give_up();
    post(&other, message(&one));
    let before = contexts[0].statistics().local_packets_out;
    assert!(ours.receive_from_rings(contexts[0].adapter()));
    let sent = contexts[0].statistics().local_packets_out - before;
    let owed = ours.device.schedule.owes_acks();
    let _ = ours.give_up();
    (sent, owed)
}

/// The program has sent a WRITE and watches its memory for the reply.
#[test]
fn an_ack_waits_for_a_program_that_is_told_only_of_its_own_request() {
    let write = |to: &Side| Operation::Write { remote: to.region.remote(0), immediate: None };
    assert_eq!(answered_together(write), (0, true));
}

#[test]
fn a_message_is_acknowledged_before_the_program_is_told() {
    assert_eq!(answered_together(|_| Operation::SEND), (1, false));
}

/// A QP that was destroyed, or a QPN of another process, to which nobody sends through this ring.
#[test]
fn a_run_for_an_unknown_queue_pair_counts_as_one_packet() {
    const SIZE: usize = 64 << 10;
    let contexts = contexts();
    let [one, other] = connected(&contexts, SIZE);
    let write = || Operation::Write { remote: other.region.remote(0), immediate: None };
    one.post(0, write(), 0, 64);
    one.expect(0);
    let adapter = contexts[0].adapter();
    let core = adapter.tables.queue_pair(one.queue_pair.number()).unwrap();
    let to = Arc::clone(&core.inner.lock().queue.as_ref().unwrap().to);
    let (unknown, foreign) = (other.queue_pair.number().0 ^ 0x8000, one.queue_pair.number().0);
    for number in [unknown, foreign] {
        let mut theirs = own(&contexts[1]);
        {
            let inner = core.inner.lock();
            let info = inner.queue.as_ref().unwrap().info;
            let bth = Bth {
                opcode: Opcode::RC_RDMA_WRITE_ONLY,
                partition: PKey(0xffff),
                destination: Qpn(number),
                ..Bth::default()
            };
            let reth = Reth { length: SIZE as u32, ..Reth::default() };
            let headers = [&info[..], &bth.to_bytes(), &reth.to_bytes()].concat();
            let mut producer = to.ring.producer.lock();
            let length = headers.len() + SIZE + 4;
            let room = producer.room(length).unwrap().unwrap();
            room[..headers.len()].copy_from_slice(&headers);
            producer.commit(length);
            to.publish(&mut producer);
        }
        let before = contexts[1].statistics();
        assert!(theirs.receive_from_rings(contexts[1].adapter()));
        let after = contexts[1].statistics();
        assert_eq!(after.no_queue_pair - before.no_queue_pair, 1, "QPN {number:#x}");
        assert_eq!(after.local_packets_in - before.local_packets_in, 1);
        let refused = (after.malformed, after.forwarded_out, after.forward_failed);
        assert_eq!(refused, (before.malformed, before.forwarded_out, before.forward_failed));
        let _ = theirs.give_up();
    }
    one.post(0, write(), 0, SIZE);
    one.expect(0);
}

/// With many QPs, most would find the ring full again whenever the receiver has read a little.
#[test]
fn no_more_queue_pairs_are_resumed_than_a_ring_has_space_for() {
    const SIZE: usize = 64 << 10;
    const QUEUE_PAIRS: usize = 3 * RING_SIZE / SIZE;
    let contexts = contexts();
    let pairs: Vec<_> = (0..QUEUE_PAIRS).map(|_| connected(&contexts, SIZE)).collect();
    let mut theirs = own(&contexts[1]);
    for id in 0..2 {
        for [one, other] in &pairs {
            let remote = other.region.remote(0);
            one.post(id, Operation::Write { remote, immediate: None }, 0, SIZE);
        }
    }
    let mut ours = own(&contexts[0]);
    let adapter = contexts[0].adapter();
    ours.transmit_all(adapter, now(), usize::MAX);
    let to = Arc::clone(&adapter.rings.full()[0]);
    let before = ours.device.credit.waiting();
    assert!(before > QUEUE_PAIRS / 2, "only {before} wait");
    assert!(before <= QUEUE_PAIRS, "a QP is queued once, whatever it has posted");

    assert!(theirs.receive_from_rings(contexts[1].adapter()));
    ours.device.resume(adapter);
    let resumed = before - ours.device.credit.waiting();
    let space = to.ring.producer.lock().rooms(MAX_RECORD);
    assert!((1..=space).contains(&resumed), "{resumed} resumed, space for {space}");

    let _ = (theirs.give_up(), ours.give_up());
    for id in 0..2 {
        for [one, _] in &pairs {
            one.expect(id);
        }
    }
}

fn reset(side: &Side) {
    let reset = QueuePairAttributes { state: Some(State::Reset), ..QueuePairAttributes::default() };
    side.queue_pair.modify(&reset).unwrap();
}

/// No QP waits for space in a ring of this device, once the receiver has emptied it, although some waited when they were reset,
/// connected again or destroyed. Datagrams complete without it: the ring may be full until the receiver gets a processor.
fn assert_nothing_waits(context: &Context) {
    let adapter = context.adapter();
    loop {
        let mut driver = own(context);
        driver.transmit_all(adapter, now(), usize::MAX);
        if adapter.rings.full().is_empty() {
            assert_eq!(driver.device.credit.waiting(), 0);
            let _ = driver.give_up();
            return;
        }
        let _ = driver.give_up();
        std::thread::yield_now();
    }
}

#[test]
fn queue_pairs_that_are_reset_while_a_ring_is_full_do_not_stop_others() {
    const SIZE: usize = 64 << 10;
    const QUEUE_PAIRS: usize = 2 * RING_SIZE / SIZE;
    let contexts = contexts();
    let index = gid_index(&contexts[0], false).unwrap();
    let mut pairs: Vec<_> = (0..QUEUE_PAIRS).map(|_| connected(&contexts, SIZE)).collect();
    let write = |[one, other]: &[Side; 2], id| {
        let remote = other.region.remote(0);
        one.post(id, Operation::Write { remote, immediate: None }, 0, SIZE);
    };
    let theirs = own(&contexts[1]);
    pairs.iter().for_each(|pair| write(pair, 0));
    let adapter = contexts[0].adapter();
    let mut ours = own(&contexts[0]);
    ours.transmit_all(adapter, now(), usize::MAX);
    let waiting = ours.device.credit.waiting();
    assert!(waiting > QUEUE_PAIRS / 4, "only {waiting} wait");
    let _ = ours.give_up();
    for (number, pair) in pairs.iter().enumerate() {
        if number % 3 == 0 {
            pair.iter().for_each(reset);
        }
        if number % 6 == 0 {
            connect(&pair[0], &pair[1], index, 4096);
            write(pair, 1);
        }
    }
    let _ = theirs.give_up();
    let mut number = 0;
    pairs.retain(|_| {
        number += 1;
        number % 3 != 2
    });
    for [one, _] in &pairs {
        let state = one.queue_pair.state();
        if state == State::ReadyToSend {
            one.completions.wait().unwrap();
        } else {
            assert_eq!(state, State::Reset);
        }
    }
    let last = connected(&contexts, SIZE);
    write(&last, 7);
    last[0].expect(7);
    assert_nothing_waits(&contexts[0]);
}

#[test]
fn datagram_queue_pairs_that_are_reset_while_a_ring_is_full_do_not_stop_others() {
    const EACH: u64 = 128;
    const SIZE: usize = 4096;
    let contexts = contexts();
    let index = gid_index(&contexts[0], false).unwrap();
    let start = |side: &Side| {
        bring_up(&side.queue_pair, &attributes(&side.context, index, Qpn(0), SIZE));
    };
    let datagram_side = |context: &Context| {
        let side = side(context, ServiceType::UnreliableDatagram, SIZE + 40);
        start(&side);
        side
    };
    let senders: Vec<_> = (0..4).map(|_| datagram_side(&contexts[0])).collect();
    let receiver = datagram_side(&contexts[1]);
    let send = |side: &Side, id| {
        let destination = side.context.device().gids()[usize::from(index)].gid;
        let vector =
            AddressVector { port: 1, source_index: index, destination, ..AddressVector::default() };
        let address = side.pd.address_handle(&vector).unwrap();
        let (to, data) = (receiver.queue_pair.number(), side.data(0, SIZE));
        let request = address.request(WorkId(id), to, QKey(0x1234), data);
        side.queue_pair.post_datagram(request).unwrap();
    };
    let theirs = own(&contexts[1]);
    let adapter = contexts[0].adapter();
    let mut ours = own(&contexts[0]);
    for id in 0..EACH {
        senders.iter().for_each(|sender| send(sender, id));
    }
    ours.transmit_all(adapter, now(), usize::MAX);
    assert_eq!(adapter.rings.full().len(), 1, "all fits");
    // A QP that waits is reset and starts again.
    reset(&senders[0]);
    start(&senders[0]);
    reset(&senders[1]);
    let (_ours, _theirs) = (ours.give_up(), theirs.give_up());
    send(&senders[0], EACH);
    senders[0].expect(EACH);
    for sender in &senders[2..] {
        (0..EACH).for_each(|id| _ = sender.expect(id));
    }
    assert_nothing_waits(&contexts[0]);
}

#[test]
fn a_ring_whose_sender_has_ended_is_unmapped_by_the_pass_that_finds_it() {
    let [receiver, sender] = contexts();
    let adapter = receiver.adapter();
    let sides =
        [&sender, &receiver].map(|context| side(context, ServiceType::ReliableConnection, 4096));
    connect(&sides[0], &sides[1], gid_index(&receiver, false).unwrap(), 4096);
    while adapter.rings.incoming().is_empty() {
        std::thread::yield_now();
    }
    let mut ours = own(&receiver);
    ours.receive_from_rings(adapter);
    let ring = Arc::downgrade(&adapter.rings.incoming()[0]);
    let [theirs, _side] = sides;
    drop((theirs, sender));
    while !adapter.rings.incoming().iter().all(|ring| ring.has_ended()) {
        adapter.rings.run_hub();
        std::thread::yield_now();
    }
    // Handling the end of the ring to that process would look at the list once more.
    adapter.rings.end();
    ours.receive_from_rings(adapter);
    assert!(ring.upgrade().is_none(), "it is mapped until the next pass");
    let _ = ours.give_up();
}
