//! Flow control of UC and UD between local processes: a fast sender does not overflow the receiver's socket buffer.

use crate::support::{
    Side, attributes, bring_up, connect, gid_index, open_alone, over_sockets, pattern, side,
};
use ferroce::*;

/// The capacity of a send queue: all requests are posted before the first completion is polled.
const MESSAGES: u64 = 128;
const LENGTH: usize = 65_536;

/// A device with a small socket buffer.
fn small_buffer() -> Context {
    let sockets = ferroce_sys::Options {
        receive_buffer: 32 << 10,
        force_buffers: false,
        ..ferroce_sys::Options::default()
    };
    open_alone(&Options { sockets, ..over_sockets() })
}

/// Waits for the sends of one side and the receives of the other.
fn complete_all(one: &Side, other: &Side) {
    for id in 0..MESSAGES {
        one.expect(id);
        other.expect(id);
    }
}

#[test]
fn uc_messages_do_not_overflow_the_receiver() {
    let context = small_buffer();
    for index in [false, true].into_iter().filter_map(|ipv6| gid_index(&context, ipv6)) {
        let size = LENGTH * MESSAGES as usize;
        let one = side(&context, ServiceType::UnreliableConnection, size);
        let other = side(&context, ServiceType::UnreliableConnection, size);
        connect(&one, &other, index, 4096);
        let bytes = pattern(u64::from(index), size);
        one.region.write(0, &bytes).unwrap();
        let offset = |id| id * LENGTH as u64;
        (0..MESSAGES).for_each(|id| other.post_receive(id, offset(id), LENGTH));
        for id in 0..MESSAGES {
            let send = Operation::Send { immediate: None, invalidate: None };
            one.post(id, send, offset(id), LENGTH);
        }
        complete_all(&one, &other);
        assert!(other.bytes(0, size) == bytes, "the bytes differ");
    }
}

/// Each connection has more to send than the buffer holds, and all make progress.
#[test]
fn many_uc_connections_make_progress() {
    const MESSAGES_EACH: u64 = 16;
    let context = small_buffer();
    let size = LENGTH * MESSAGES_EACH as usize;
    let pairs: Vec<_> = (0..8)
        .map(|_| {
            let [one, other] =
                [(); 2].map(|()| side(&context, ServiceType::UnreliableConnection, size));
            connect(&one, &other, 0, 4096);
            (0..MESSAGES_EACH).for_each(|id| other.post_receive(id, id * LENGTH as u64, LENGTH));
            (one, other)
        })
        .collect();
    for id in 0..MESSAGES_EACH {
        for (one, _) in &pairs {
            let send = Operation::Send { immediate: None, invalidate: None };
            one.post(id, send, id * LENGTH as u64, LENGTH);
        }
    }
    for (one, other) in &pairs {
        for id in 0..MESSAGES_EACH {
            one.expect(id);
            other.expect(id);
        }
    }
}

#[test]
fn ud_messages_do_not_overflow_the_receiver() {
    const DATAGRAM: usize = 4096;
    let context = small_buffer();
    for index in [false, true].into_iter().filter_map(|ipv6| gid_index(&context, ipv6)) {
        let size = (DATAGRAM + 40) * MESSAGES as usize;
        let one = side(&context, ServiceType::UnreliableDatagram, size);
        let other = side(&context, ServiceType::UnreliableDatagram, size);
        for side in [&one, &other] {
            bring_up(&side.queue_pair, &attributes(&context, index, Qpn(0), 4096));
        }
        let destination = context.device().gids()[usize::from(index)].gid;
        let vector =
            AddressVector { port: 1, source_index: index, destination, ..AddressVector::default() };
        let address = one.pd.address_handle(&vector).unwrap();
        let offset = |id| id * (DATAGRAM + 40) as u64;
        (0..MESSAGES).for_each(|id| other.post_receive(id, offset(id), DATAGRAM + 40));
        for id in 0..MESSAGES {
            let to = other.queue_pair.number();
            let datagram = address.request(WorkId(id), to, QKey(0x1234), one.data(0, DATAGRAM));
            one.queue_pair.post_datagram(datagram).unwrap();
        }
        complete_all(&one, &other);
    }
}

/// A sender does not wait for a peer that does not exist.
#[test]
fn messages_to_a_missing_peer_complete() {
    let context = small_buffer();
    let one = side(&context, ServiceType::UnreliableConnection, LENGTH);
    // A QPN of a process that does not exist.
    bring_up(&one.queue_pair, &attributes(&context, 0, Qpn(0x77_0123), 4096));
    for id in 0..MESSAGES {
        one.post(id, Operation::Send { immediate: None, invalidate: None }, 0, LENGTH);
    }
    for id in 0..MESSAGES {
        one.expect(id);
    }
}
