//! Every service and operation over real sockets, with and without faults; all data is checked.

use crate::support::{
    ACCESS, Side, attributes, bring_up, connect, gid_index, open, open_alone, options, pattern,
    side,
};
use std::sync::Arc;

use ferroce::*;

const MIB: usize = 1 << 20;

/// Message lengths around the boundaries of packets and sockets.
fn lengths(mtu: usize) -> Vec<usize> {
    vec![0, 1, 3, 17, mtu - 1, mtu, mtu + 1, 65_536, 65_537]
}

fn write_read_send(context: &Context, index: u8, mtu: usize, lengths: &[usize]) {
    let size = 2 * lengths.iter().max().copied().unwrap_or(0) + 4096;
    let one = side(context, ServiceType::ReliableConnection, size);
    let other = side(context, ServiceType::ReliableConnection, size);
    connect(&one, &other, index, mtu);
    for (number, &length) in lengths.iter().enumerate() {
        let id = 10 * number as u64;
        let bytes = pattern(id + 1, length);
        let half = (size / 2) as u64;
        one.region.write(0, &bytes).unwrap();
        let remote = other.region.remote(3);
        one.post(id, Operation::Write { remote, immediate: None }, 0, length);
        one.expect(id);
        assert_eq!(other.bytes(3, length), bytes, "WRITE of {length}");
        one.post(id + 1, Operation::Read { remote }, half, length);
        one.expect(id + 1);
        assert_eq!(one.bytes(half as usize, length), bytes, "READ of {length}");

        other.post_receive(id + 2, half, length);
        let immediate = Some(Immediate(0xabcd + number as u32));
        one.post(id + 3, Operation::Send { immediate, invalidate: None }, 0, length);
        one.expect(id + 3);
        let received = other.expect(id + 2);
        assert_eq!((received.length as usize, received.immediate), (length, immediate));
        assert_eq!(other.bytes(half as usize, length), bytes, "SEND of {length}");

        other.post_receive(id + 4, 0, 0);
        one.post(id + 5, Operation::Write { remote, immediate }, 0, length);
        one.expect(id + 5);
        let received = other.expect(id + 4);
        assert_eq!(received.kind, CompletionKind::ReceiveWriteImmediate);
        assert_eq!((received.length as usize, received.immediate), (length, immediate));
    }
    other.region.write(0, &41u64.to_ne_bytes()).unwrap();
    let remote = other.region.remote(0);
    one.post(900, Operation::FetchAdd { remote, add: 1 }, 0, 8);
    one.expect(900);
    assert_eq!(one.bytes(0, 8), 41u64.to_ne_bytes());
    one.post(901, Operation::CompareSwap { remote, compare: 42, swap: 7 }, 8, 8);
    one.expect(901);
    assert_eq!(one.bytes(8, 8), 42u64.to_ne_bytes());
    assert_eq!(other.bytes(0, 8), 7u64.to_ne_bytes());
}

#[test]
fn rc_transfers_over_both_families_at_every_mtu() {
    let context = open(&options());
    for ipv6 in [false, true] {
        let Some(index) = gid_index(&context, ipv6) else {
            ferroce_test_support::skip("the loopback has no IPv6 address");
            continue;
        };
        for mtu in [256, 1024, 4096] {
            write_read_send(&context, index, mtu, &lengths(mtu));
        }
    }
}

#[test]
fn rc_transfers_large_messages() {
    let context = open(&options());
    write_read_send(&context, 0, 4096, &[16 * MIB, 16 * MIB - 1]);
}

/// The maximum message length (IBA C9-94).
#[test]
fn rc_transfers_two_gibibytes() {
    const MAX_LEN: usize = 1 << 31;
    let context = open_alone(&options());
    let one = side(&context, ServiceType::ReliableConnection, MAX_LEN);
    let other = side(&context, ServiceType::ReliableConnection, MAX_LEN);
    connect(&one, &other, 0, 4096);
    let offsets = [0, 1, 4095, 4096, MAX_LEN / 2 - 1, MAX_LEN / 2, MAX_LEN - 4097, MAX_LEN - 64];
    for (number, &offset) in offsets.iter().enumerate() {
        one.region.write(offset, &pattern(number as u64, 60)).unwrap();
    }
    let remote = other.region.remote(0);
    one.post(1, Operation::Write { remote, immediate: None }, 0, MAX_LEN);
    assert_eq!(one.expect(1).length, 1 << 31);
    for offset in offsets {
        assert_eq!(other.bytes(offset, 60), one.bytes(offset, 60), "at {offset}");
    }
}

#[test]
fn rc_recovers_from_loss_duplication_and_reordering() {
    for (number, faults) in
        ["loss=1%", "duplication=5%", "reordering=3%", "loss=2%,duplication=2%,reordering=2%"]
            .iter()
            .enumerate()
    {
        let mut faults: Faults = faults.parse().unwrap();
        faults.seed = number as u64;
        let context = open(&Options { faults: Some(faults), ..options() });
        write_read_send(&context, 0, 1024, &[0, 1, 1025, 65_537, 300_000]);
    }
}

#[test]
fn rc_works_without_gso_and_gro() {
    let plain = ferroce::SocketOptions { gso: false, gro: false, ..Default::default() };
    let context = open(&Options { sockets: plain, ..options() });
    write_read_send(&context, 0, 4096, &lengths(4096));
}

#[test]
fn uc_delivers_in_order() {
    let context = open_alone(&options());
    let one = side(&context, ServiceType::UnreliableConnection, MIB);
    let other = side(&context, ServiceType::UnreliableConnection, MIB);
    connect(&one, &other, 0, 1024);
    for (number, length) in lengths(1024).into_iter().enumerate() {
        let id = 10 * number as u64;
        let bytes = pattern(id + 5, length);
        one.region.write(0, &bytes).unwrap();
        other.post_receive(id, 4096, length);
        one.post(id + 1, Operation::SEND, 0, length);
        one.expect(id + 1);
        assert_eq!(other.expect(id).length as usize, length);
        assert_eq!(other.bytes(4096, length), bytes, "SEND of {length}");
    }
}

#[test]
fn ud_delivers_behind_the_grh() {
    let context = open_alone(&options());
    for ipv6 in [false, true] {
        let Some(index) = gid_index(&context, ipv6) else { continue };
        let one = side(&context, ServiceType::UnreliableDatagram, MIB);
        let other = side(&context, ServiceType::UnreliableDatagram, MIB);
        for side in [&one, &other] {
            bring_up(&side.queue_pair, &attributes(&context, index, Qpn(0), 1024));
        }
        let destination = context.device().gids()[usize::from(index)];
        let vector = AddressVector {
            port: 1,
            source_index: index,
            destination: destination.gid,
            traffic_class: 0x20,
            hop_limit: 9,
            ..AddressVector::default()
        };
        let address = one.pd.address_handle(&vector).unwrap();
        let datagram = |id, length, queue_key| UdSendRequest {
            immediate: Some(Immediate(77)),
            ..address.request(
                WorkId(id),
                other.queue_pair.number(),
                QKey(queue_key),
                one.data(0, length),
            )
        };
        for (id, length) in [(1, 0), (2, 1), (3, 1023), (4, 4096)] {
            let bytes = pattern(id, length);
            one.region.write(0, &bytes).unwrap();
            other.post_receive(id, 0, 40 + length);
            // A wrong queue key: the packet is dropped, and the receive request is not consumed.
            one.queue_pair.post_datagram(datagram(100 + id, length, 0x666)).unwrap();
            one.expect(100 + id);
            one.queue_pair.post_datagram(datagram(id, length, 0x1234)).unwrap();
            one.expect(id);
            let received = other.expect(id);
            assert_eq!(received.length as usize, 40 + length);
            assert_eq!(received.source, Some(one.queue_pair.number()));
            assert_eq!(received.immediate, Some(Immediate(77)));
            assert_eq!(other.bytes(40, length), bytes);
            let header = other.bytes(0, 40);
            if ipv6 {
                assert_eq!((header[0] >> 4, header[7]), (6, 9));
                assert_eq!(header[8..24], destination.gid.0);
            } else {
                assert_eq!((header[20], header[28], header[29]), (0x45, 9, 17));
                assert_eq!(header[32..36], [127, 0, 0, 1]);
            }
        }
        let long = one.queue_pair.post_datagram(datagram(9, 4097, 0x1234));
        assert!(matches!(long, Err(PostError::Length)), "{long:?}");
    }
}

#[test]
fn xrc_delivers_to_the_named_srq() {
    let context = open(&options());
    let one = side(&context, ServiceType::XrcInitiator, MIB);
    let pd = context.protection_domain();
    let region = pd.allocate(MIB, ACCESS).unwrap();
    let xrc = context.xrc_domain();
    let channel = CompletionChannel::new().unwrap();
    let queues: Vec<_> = (0..2)
        .map(|_| {
            let completions = context.completion_queue(16, Some(&channel)).unwrap();
            (pd.xrc_receive_queue(16, &xrc, &completions).unwrap(), completions)
        })
        .collect();
    let options = QueuePairOptions::new(ServiceType::XrcTarget, &queues[0].1);
    let target = xrc.target(&options).unwrap();
    bring_up(&target, &attributes(&context, 0, one.queue_pair.number(), 1024));
    bring_up(&one.queue_pair, &attributes(&context, 0, target.number(), 1024));
    for (number, (queue, completions)) in queues.iter().enumerate() {
        let sg_list = region.sge(1000 * number as u64, 1000).into();
        queue.post(ReceiveRequest { id: WorkId(number as u64), sg_list }).unwrap();
        let bytes = pattern(number as u64, 900);
        one.region.write(0, &bytes).unwrap();
        let send = SendRequest::new(WorkId(50), Operation::SEND, one.data(0, 900));
        let send = SendRequest { receive_queue: Some(queue.number()), ..send };
        one.queue_pair.post_send(send).unwrap();
        one.expect(50);
        let received = completions.wait().unwrap();
        assert_eq!((received.id.0, received.length), (number as u64, 900));
        let mut found = vec![0; 900];
        region.read(1000 * number, &mut found).unwrap();
        assert_eq!(found, bytes);
    }
}

#[test]
fn an_srq_raises_an_event_at_its_limit() {
    let context = open(&options());
    let one = side(&context, ServiceType::ReliableConnection, MIB);
    let pd = context.protection_domain();
    let region = pd.allocate(MIB, ACCESS).unwrap();
    let channel = CompletionChannel::new().unwrap();
    let completions = context.completion_queue(16, Some(&channel)).unwrap();
    let shared = pd.shared_receive_queue(8).unwrap();
    let mut options = QueuePairOptions::new(ServiceType::ReliableConnection, &completions);
    options.srq = Some(&shared);
    let queue_pair = pd.queue_pair(&options).unwrap();
    bring_up(&queue_pair, &attributes(&context, 0, one.queue_pair.number(), 1024));
    bring_up(&one.queue_pair, &attributes(&context, 0, queue_pair.number(), 1024));
    for id in 0..3 {
        shared.post(ReceiveRequest { id: WorkId(id), sg_list: region.sge(0, 64).into() }).unwrap();
    }
    shared.arm_limit(3);
    one.post(1, Operation::SEND, 0, 64);
    one.expect(1);
    assert_eq!(completions.wait().unwrap().id, WorkId(0));
    let mine = |event: &AsyncEvent| event.source == Source::SharedReceiveQueue(shared.number());
    let event = std::iter::repeat_with(|| context.wait_event(None).unwrap().unwrap()).find(mine);
    assert_eq!(event.map(|event| event.kind), Some(EventKind::LimitReached));
}

#[test]
fn an_srq_that_xrc_names_raises_an_event_at_its_limit() {
    let context = open(&options());
    let one = side(&context, ServiceType::XrcInitiator, MIB);
    let pd = context.protection_domain();
    let region = pd.allocate(MIB, ACCESS).unwrap();
    let xrc = context.xrc_domain();
    let channel = CompletionChannel::new().unwrap();
    let completions = context.completion_queue(16, Some(&channel)).unwrap();
    let shared = pd.xrc_receive_queue(16, &xrc, &completions).unwrap();
    let target = QueuePairOptions::new(ServiceType::XrcTarget, &completions);
    let target = xrc.target(&target).unwrap();
    bring_up(&target, &attributes(&context, 0, one.queue_pair.number(), 1024));
    bring_up(&one.queue_pair, &attributes(&context, 0, target.number(), 1024));
    for id in 0..3 {
        shared.post(ReceiveRequest { id: WorkId(id), sg_list: region.sge(0, 64).into() }).unwrap();
    }
    shared.arm_limit(3);
    let send = SendRequest::new(WorkId(50), Operation::SEND, one.data(0, 64));
    let send = SendRequest { receive_queue: Some(shared.number()), ..send };
    one.queue_pair.post_send(send).unwrap();
    one.expect(50);
    assert_eq!(completions.wait().unwrap().id, WorkId(0));
    // The event is raised with the completion, so it is there by now.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mine = |event: &Option<AsyncEvent>| match event {
        Some(event) => event.source == Source::SharedReceiveQueue(shared.number()),
        None => true,
    };
    let event =
        std::iter::repeat_with(|| context.wait_event(Some(deadline)).unwrap()).find(mine).flatten();
    assert_eq!(event.map(|event| event.kind), Some(EventKind::LimitReached));
}

#[test]
fn a_memory_window_grants_and_revokes_access() {
    let context = open(&options());
    let one = side(&context, ServiceType::ReliableConnection, MIB);
    let other = side(&context, ServiceType::ReliableConnection, MIB);
    connect(&one, &other, 0, 1024);
    let bindable = other.pd.allocate(MIB, ACCESS | AccessFlags::MW_BIND).unwrap();
    let window = other.pd.window(WindowKind::Type2).unwrap();
    let access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    let bind = window.bind(&bindable, 4096, 100, access);
    other.queue_pair.post_send(SendRequest::new(WorkId(1), bind, Data::NONE)).unwrap();
    assert_eq!(other.expect(1).kind, CompletionKind::Bind);
    one.region.write(0, &pattern(3, 100)).unwrap();
    let remote = RemoteAddress { key: window.key(), ..bindable.remote(4096) };
    one.post(2, Operation::Write { remote, immediate: None }, 0, 100);
    one.expect(2);
    let mut found = vec![0; 100];
    bindable.read(4096, &mut found).unwrap();
    assert_eq!(found, pattern(3, 100));
    let invalidate = Operation::LocalInvalidate { key: window.key() };
    other.queue_pair.post_send(SendRequest::new(WorkId(3), invalidate, Data::NONE)).unwrap();
    other.expect(3);
    one.post(4, Operation::Write { remote, immediate: None }, 0, 100);
    assert_eq!(one.completions.wait().unwrap().status, Status::RemoteAccess);
}

/// A peer has neither the key of the region nor that of the window any more, though the window still exists.
#[test]
fn dropping_a_region_revokes_its_windows() {
    let context = open(&options());
    for by_window in [false, true] {
        let one = side(&context, ServiceType::ReliableConnection, 64);
        let other = side(&context, ServiceType::ReliableConnection, 64);
        connect(&one, &other, 0, 1024);
        let access = ACCESS | AccessFlags::MW_BIND;
        let buffer = Arc::new(Buffer::new(4096).unwrap());
        let region = other.pd.register_buffer(&buffer, access).unwrap();
        let window = other.pd.window(WindowKind::Type2).unwrap();
        let bind = window.bind(&region, 0, 64, AccessFlags::REMOTE_WRITE);
        other.queue_pair.post_send(SendRequest::new(WorkId(1), bind, Data::NONE)).unwrap();
        other.expect(1);
        let by_key = region.remote(0);
        let remote = if by_window { RemoteAddress { key: window.key(), ..by_key } } else { by_key };
        one.region.write(0, &[1; 64]).unwrap();
        one.post(2, Operation::Write { remote, immediate: None }, 0, 64);
        one.expect(2);
        let error = region.deregister().unwrap_err();
        assert_eq!(error.error, MemoryError::Deregister(DeregisterError::Busy));
        drop(error);
        // The program has its memory for itself again.
        assert_eq!(Arc::strong_count(&buffer), 1);
        buffer.write(0, &[2; 64]).unwrap();
        one.post(3, Operation::Write { remote, immediate: None }, 0, 64);
        assert_eq!(one.completions.wait().unwrap().status, Status::RemoteAccess);
        assert_eq!(buffer.to_vec()[..64], [2; 64]);
    }
}

/// Refused requests, with the exact status at both ends.
#[test]
fn violations_complete_with_the_specified_status() {
    type Case = (&'static str, fn(&Side, &Side), Status, State);
    let cases: [Case; 6] = [
        (
            "a wrong key",
            |one, other| {
                let remote = RemoteAddress { key: RKey(0xdead), ..other.region.remote(0) };
                one.post(1, Operation::Write { remote, immediate: None }, 0, 8);
            },
            Status::RemoteAccess,
            State::Error,
        ),
        (
            "out of bounds",
            |one, other| {
                let remote = other.region.remote(MIB as u64 - 4);
                one.post(1, Operation::Read { remote }, 0, 8);
            },
            Status::RemoteAccess,
            State::Error,
        ),
        (
            "an unaligned atomic",
            |one, other| {
                let remote = other.region.remote(4);
                one.post(1, Operation::FetchAdd { remote, add: 1 }, 0, 8);
            },
            Status::RemoteInvalidRequest,
            State::Error,
        ),
        (
            "no permission of the queue pair",
            |one, other| {
                let none = QueuePairAttributes {
                    access: Some(AccessFlags::empty()),
                    ..QueuePairAttributes::default()
                };
                other.queue_pair.modify(&none).unwrap();
                let remote = other.region.remote(0);
                one.post(1, Operation::Write { remote, immediate: None }, 0, 8);
            },
            Status::RemoteInvalidRequest,
            State::Error,
        ),
        (
            "a message longer than the receive",
            |one, other| {
                other.post_receive(9, 0, 7);
                one.post(1, Operation::SEND, 0, 8);
            },
            Status::RemoteInvalidRequest,
            State::Error,
        ),
        (
            "local memory out of bounds",
            |one, _| {
                one.post(1, Operation::SEND, MIB as u64, 8);
            },
            Status::LocalProtection,
            State::ReadyToSend,
        ),
    ];
    let context = open(&options());
    for (kind, act, status, remote_state) in cases {
        let one = side(&context, ServiceType::ReliableConnection, MIB);
        let other = side(&context, ServiceType::ReliableConnection, MIB);
        connect(&one, &other, 0, 1024);
        act(&one, &other);
        one.queue_pair
            .post_send(SendRequest::new(WorkId(2), Operation::SEND, one.data(0, 1)))
            .unwrap();
        assert_eq!(one.completions.wait().unwrap().status, status, "{kind}");
        assert_eq!(one.completions.wait().unwrap().status, Status::Flushed, "{kind}");
        assert_eq!(one.queue_pair.state(), State::Error, "{kind}");
        assert_eq!(other.queue_pair.state(), remote_state, "{kind}");
    }
}

#[test]
fn requests_to_a_destroyed_queue_pair_exceed_their_retries() {
    let context = open(&options());
    let one = side(&context, ServiceType::ReliableConnection, MIB);
    let other = side(&context, ServiceType::ReliableConnection, MIB);
    connect(&one, &other, 0, 1024);
    drop(other.queue_pair);
    let remote = other.region.remote(0);
    for id in 0..3 {
        one.post(id, Operation::Write { remote, immediate: None }, 0, 8);
    }
    let ended: Vec<_> = (0..3).map(|_| one.completions.wait().unwrap().status).collect();
    assert_eq!(ended, [Status::RetryExceeded, Status::Flushed, Status::Flushed]);
    assert_eq!(one.queue_pair.state(), State::Error);
}

/// A flushed request carries the reason of what ended the QP, and none if the program did.
#[test]
fn flushed_requests_have_the_reason_of_the_error() {
    let flushed = |end: fn(&Side, &Side)| {
        let context = open(&options());
        let sides = [(); 2].map(|()| side(&context, ServiceType::ReliableConnection, MIB));
        connect(&sides[0], &sides[1], 0, 1024);
        sides[1].post_receive(7, 0, 8);
        end(&sides[0], &sides[1]);
        let done = sides[1].completions.wait().unwrap();
        assert_eq!((done.id, done.status), (WorkId(7), Status::Flushed));
        done.vendor_error
    };
    let unknown_key = flushed(|one, other| {
        let remote = RemoteAddress { key: RKey(0x1234_5678), ..other.region.remote(0) };
        one.post(0, Operation::Write { remote, immediate: None }, 0, 8);
    });
    assert_eq!(unknown_key, 1);
    let by_the_program = flushed(|_, other| {
        let error =
            QueuePairAttributes { state: Some(State::Error), ..QueuePairAttributes::default() };
        other.queue_pair.modify(&error).unwrap();
    });
    assert_eq!(by_the_program, 0);
}

/// The completions that a full CQ loses end the QP, and what completes in its other CQ is flushed.
#[test]
fn an_overrun_flushes_the_requests_of_the_other_queue() {
    let context = open(&options());
    let [one, other] = [(); 2].map(|()| side(&context, ServiceType::ReliableConnection, MIB));
    let small = context.completion_queue(1, None).unwrap();
    let mut options = QueuePairOptions::new(ServiceType::ReliableConnection, &one.completions);
    options.send_cq = &small;
    let one = Side { queue_pair: one.pd.queue_pair(&options).unwrap(), ..one };
    connect(&one, &other, 0, 1024);
    one.post_receive(7, 0, 8);
    let remote = other.region.remote(0);
    for id in 0..=small.capacity() as u64 {
        one.post(id, Operation::Write { remote, immediate: None }, 0, 8);
    }
    let done = one.completions.wait().unwrap();
    assert_eq!((done.id, done.status), (WorkId(7), Status::Flushed));
    let overrun = Reason::CqOverrun { queue: 0, capacity: 0 };
    assert_eq!(done.vendor_error, overrun.number());
    assert_eq!(one.queue_pair.state(), State::Error);
}

#[test]
fn resources_can_be_dropped_with_requests_in_flight() {
    let context = open(&options());
    for round in 0..50 {
        let one = side(&context, ServiceType::ReliableConnection, MIB);
        let other = side(&context, ServiceType::ReliableConnection, MIB);
        connect(&one, &other, 0, 4096);
        let remote = other.region.remote(0);
        for id in 0..8 {
            one.post(id, Operation::Write { remote, immediate: None }, 0, MIB);
        }
        match round % 4 {
            0 => drop(one.region),
            1 => drop(other.region),
            2 => drop(other.queue_pair),
            _ => drop(one.queue_pair),
        }
    }
}
