//! What a pass sends, over real sockets on the loopback.

use super::*;
use crate::engine::support::{Side, connect, gid_index, open_alone, side};
use crate::{Local, Operation, Options, ServiceType};

/// Posts to several queue pairs of one device before anything is sent, so that one pass sends all of it.
fn in_one_pass(adapter: &Adapter, post: impl Fn()) {
    let guard = loop {
        match adapter.driver.try_own() {
            Some(guard) => break guard,
            None => std::thread::yield_now(),
        }
    };
    // The posts find the device owned, and only queue.
    post();
    let _ = guard.give_up();
    adapter.drive();
}

fn send() -> Operation {
    Operation::Send { immediate: None, invalidate: None }
}

fn pair(one: &crate::Context, other: &crate::Context, service: ServiceType) -> (Side, Side) {
    let (from, to) = (side(one, service, 4096), side(other, service, 4096));
    let index = gid_index(one, false).unwrap();
    connect(&from, &to, index, 1024);
    (from, to)
}

#[test]
fn a_batch_holds_packets_for_one_process() {
    // Two devices with different options have slots of their own, like two processes.
    let one = open_alone(&Options::default());
    let options = Options { congestion: Some(crate::Congestion::Unlimited), ..Options::default() };
    let two = open_alone(&options);
    let service = ServiceType::UnreliableConnection;
    let (to_self, own) = pair(&one, &one, service);
    let (to_other, other) = pair(&one, &two, service);
    assert_ne!(own.queue_pair.number().0 >> 16, other.queue_pair.number().0 >> 16);

    const EACH: u64 = 8;
    for id in 0..EACH {
        own.post_receive(id, 0, 256);
        other.post_receive(id, 0, 256);
    }
    in_one_pass(one.adapter(), || {
        for id in 0..EACH {
            to_self.post(id, send(), 0, 256);
            to_other.post(id, send(), 0, 256);
        }
    });
    for id in 0..EACH {
        own.expect(id);
        other.expect(id);
    }
    for context in [&one, &two] {
        let counted = context.statistics();
        assert_eq!((counted.forwarded_in, counted.forwarded_out), (0, 0), "{counted:?}");
    }
}

/// Until the call that destroys it returns, its number is in the tables, and passes of other threads find it.
#[test]
fn a_late_packet_for_a_destroyed_queue_pair_takes_no_credit() {
    let context = open_alone(&Options { local: Local::Sockets, ..Options::default() });
    let [one, other] = [(); 2].map(|()| side(&context, ServiceType::ReliableConnection, 64));
    connect(&one, &other, gid_index(&context, false).unwrap(), 1024);
    let adapter = context.adapter();
    let mut driver = loop {
        match adapter.driver.try_own() {
            Some(guard) => break guard,
            None => std::thread::yield_now(),
        }
    };
    one.post(0, Operation::Read { remote: other.region.remote(0) }, 0, 64);
    driver.transmit_all(adapter, now(), usize::MAX);
    assert!(driver.device.credit.in_use() > 0, "{:?}", driver.device.credit);
    let core = adapter.tables.queue_pair(one.queue_pair.number()).unwrap();
    driver.forget(adapter, &core);
    driver.device.received(adapter, &core, &mut core.inner.lock(), now());
    assert!(driver.device.credit.in_use() == 0, "{:?}", driver.device.credit);
    let _ = driver.give_up();
}
