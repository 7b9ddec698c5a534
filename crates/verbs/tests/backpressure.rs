//! Services without acknowledgements, faster than the receiver's socket takes: on one machine nothing is lost for that.

mod support;

use ferroce::*;
use support::{Side, attributes, bring_up, connect, gid_index, open_alone, pattern, side};

/// As many as a queue pair holds: all are posted before any is looked for.
const MESSAGES: u64 = 128;
const LENGTH: usize = 65_536;

/// A device whose socket holds a few packets only.
fn narrow() -> Context {
    let sockets = ferroce_sys::Options {
        receive_buffer: 32 << 10,
        force_buffers: false,
        ..ferroce_sys::Options::default()
    };
    open_alone(&Options::default().with_sockets(sockets))
}

/// Waits for all that was posted: sends of one side, receives of the other.
fn all_of_it(one: &Side, other: &Side) {
    for id in 0..MESSAGES {
        one.expect(id);
        other.expect(id);
    }
}

#[test]
fn messages_of_an_unreliable_connection() {
    let context = narrow();
    for index in [false, true].into_iter().filter_map(|ipv6| gid_index(&context, ipv6)) {
        let room = LENGTH * MESSAGES as usize;
        let one = side(&context, ServiceType::UnreliableConnection, room);
        let other = side(&context, ServiceType::UnreliableConnection, room);
        connect(&one, &other, index, 4096);
        let bytes = pattern(u64::from(index), room);
        one.region.write(0, &bytes).unwrap();
        let place = |id| id * LENGTH as u64;
        (0..MESSAGES).for_each(|id| other.post_receive(id, place(id), LENGTH));
        for id in 0..MESSAGES {
            let send = Operation::Send { immediate: None, invalidate: None };
            one.post(id, send, place(id), LENGTH);
        }
        all_of_it(&one, &other);
        assert!(other.bytes(0, room) == bytes, "other bytes");
    }
}

/// All of them have more to send than fits, and each has its turn.
#[test]
fn many_connections() {
    const EACH: u64 = 16;
    let context = narrow();
    let room = LENGTH * EACH as usize;
    let pairs: Vec<_> = (0..8)
        .map(|_| {
            let [one, other] =
                [(); 2].map(|()| side(&context, ServiceType::UnreliableConnection, room));
            connect(&one, &other, 0, 4096);
            (0..EACH).for_each(|id| other.post_receive(id, id * LENGTH as u64, LENGTH));
            (one, other)
        })
        .collect();
    for id in 0..EACH {
        for (one, _) in &pairs {
            let send = Operation::Send { immediate: None, invalidate: None };
            one.post(id, send, id * LENGTH as u64, LENGTH);
        }
    }
    for (one, other) in &pairs {
        for id in 0..EACH {
            one.expect(id);
            other.expect(id);
        }
    }
}

#[test]
fn datagrams() {
    const DATAGRAM: usize = 4096;
    let context = narrow();
    for index in [false, true].into_iter().filter_map(|ipv6| gid_index(&context, ipv6)) {
        let room = (DATAGRAM + 40) * MESSAGES as usize;
        let one = side(&context, ServiceType::UnreliableDatagram, room);
        let other = side(&context, ServiceType::UnreliableDatagram, room);
        for side in [&one, &other] {
            bring_up(&side.queue_pair, &attributes(&context, index, Qpn(0), 4096));
        }
        let destination = context.device().gids()[usize::from(index)].gid;
        let vector =
            AddressVector { port: 1, source_index: index, destination, ..AddressVector::default() };
        let address = one.pd.address_handle(&vector).unwrap();
        let place = |id| id * (DATAGRAM + 40) as u64;
        (0..MESSAGES).for_each(|id| other.post_receive(id, place(id), DATAGRAM + 40));
        for id in 0..MESSAGES {
            let datagram = UdSendRequest {
                id: WorkId(id),
                address: &address,
                destination: other.queue_pair.number(),
                queue_key: QKey(0x1234),
                immediate: None,
                data: one.data(0, DATAGRAM),
                signaled: true,
                solicited: false,
            };
            one.queue_pair.post_datagram(datagram).unwrap();
        }
        all_of_it(&one, &other);
    }
}

/// Who is not there does not answer, and is not waited for.
#[test]
fn to_nobody() {
    let context = narrow();
    let one = side(&context, ServiceType::UnreliableConnection, LENGTH);
    // A queue pair of a process that does not exist.
    bring_up(&one.queue_pair, &attributes(&context, 0, Qpn(0x77_0123), 4096));
    for id in 0..MESSAGES {
        one.post(id, Operation::Send { immediate: None, invalidate: None }, 0, LENGTH);
    }
    for id in 0..MESSAGES {
        one.expect(id);
    }
}
