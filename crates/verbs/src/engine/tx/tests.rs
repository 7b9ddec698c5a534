//! Batches over real sockets on the loopback.

use proptest::prelude::*;

use super::*;
use crate::engine::adapter::now;
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

thread_local! {
    /// Opened once for all cases.
    static CONTEXT: crate::Context =
        open_alone(&Options::default().with_local(crate::Local::Sockets));
}

/// The lengths of packets in a batch, of its shorter last one, and of a kept one, without the ICRC.
const LENGTH: usize = 40;
const SHORTER: usize = 32;
const KEPT: usize = 60;

/// A packet with this number in its payload.
fn write_packet(room: &mut [u8], number: usize, length: usize) {
    room[..length].fill(0x5a);
    room[length - 1] = number as u8;
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Of a batch that the send buffer had no space for, the packets of a destroyed QP are dropped; all others, also the kept
    /// one, remain in order and have the right ICRC.
    #[test]
    fn packets_of_others_remain_when_a_queue_pair_is_destroyed(
        owners in prop::collection::vec(0..3_u32, 1..MAX_SEGMENTS),
        is_last_shorter in any::<bool>(),
        kept in prop::option::of(0..3_u32),
        destroyed in 0..3_u32,
    ) {
        CONTEXT.with(|context| {
            let adapter = context.adapter();
            let route = Route::new(0, adapter.port.links[0].address);
            let owner = |number| Owner { queue_pair: Qpn(number), work: None };
            let mut batch = TxBatch::new();
            let mut expected = Vec::new();
            for (number, &of) in owners.iter().enumerate() {
                let is_short = is_last_shorter && number > 0 && number == owners.len() - 1;
                let length = if is_short { SHORTER } else { LENGTH };
                write_packet(batch.behind(), number, length);
                prop_assert!(batch.takes(length + ICRC, &route));
                batch.push(adapter, Kept { length: length + ICRC, route, owner: owner(of) });
                if of != destroyed {
                    expected.push((number as u8, length));
                }
            }
            let in_batch = expected.len();
            if let Some(of) = kept {
                write_packet(batch.behind(), owners.len(), KEPT);
                batch.kept = Some(Kept { length: KEPT + ICRC, route, owner: owner(of) });
                if of != destroyed {
                    expected.push((owners.len() as u8, KEPT));
                }
            }
            batch.blocked = true;
            batch.discard(adapter, Qpn(destroyed));
            prop_assert_eq!(batch.is_in_use(), !expected.is_empty());
            prop_assert_eq!(batch.packets, batch.owners.len());
            // A kept packet with no batch in front of it begins the next one.
            prop_assert_eq!(batch.kept.is_some(), in_batch > 0 && expected.len() > in_batch);
            let mut found = Vec::new();
            let gso = adapter.port.links.sender(&route).gso();
            for (index, packet) in batch.bytes[..batch.used].chunks(batch.segment.max(1)).enumerate() {
                let (covered, icrc) = packet.split_last_chunk::<ICRC>().unwrap();
                let index = if gso { index as u16 } else { 0 };
                prop_assert_eq!(adapter.port.links.headers(&route).icrc(covered, index), *icrc);
                found.push((covered[covered.len() - 1], covered.len()));
            }
            if batch.kept.is_some() {
                let packet = &batch.bytes[batch.used..batch.used + KEPT];
                found.push((packet[KEPT - 1], KEPT));
            }
            prop_assert_eq!(found, expected);
            Ok(())
        })?;
    }
}

/// Until the call that destroys it returns, its number is in the tables, and passes of other threads find it.
#[test]
fn a_late_packet_for_a_destroyed_queue_pair_takes_no_credit() {
    let context = open_alone(&Options::default().with_local(Local::Sockets));
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
