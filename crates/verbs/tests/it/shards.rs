//! Devices with several shards, over real sockets.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{
    ACCESS, Side, attributes, bring_up, connect, gid_index, open_alone, options, pattern, side,
};
use ferroce::*;

const SHARDS: u8 = 4;

fn sharded() -> Context {
    open_alone(&Options { shards: Some(SHARDS), ..options() })
}

/// The slot of a QPN, which tells the shard.
fn slot(queue_pair: &QueuePair) -> u32 {
    queue_pair.number().0 >> 16
}

fn slots<'a>(queue_pairs: impl IntoIterator<Item = &'a QueuePair>) -> HashSet<u32> {
    queue_pairs.into_iter().map(slot).collect()
}

fn pairs(context: &Context, service: ServiceType, count: usize, size: usize) -> Vec<(Side, Side)> {
    let index = gid_index(context, false).unwrap();
    let pair = |_| {
        let (one, other) = (side(context, service, size), side(context, service, size));
        connect(&one, &other, index, 4096);
        (one, other)
    };
    (0..count).map(pair).collect()
}

#[test]
fn threads_with_cqs_of_their_own_use_all_shards() {
    const LENGTH: usize = 256 << 10;
    let context = sharded();
    let pairs = pairs(&context, ServiceType::ReliableConnection, 6, LENGTH);
    let used = slots(pairs.iter().flat_map(|(one, other)| [&one.queue_pair, &other.queue_pair]));
    assert_eq!(used.len(), usize::from(SHARDS));
    std::thread::scope(|scope| {
        for (number, (one, other)) in pairs.iter().enumerate() {
            scope.spawn(move || {
                let bytes = pattern(number as u64, LENGTH);
                one.region.write(0, &bytes).unwrap();
                for id in 0..8 {
                    other.post_receive(id, 0, LENGTH);
                    one.post(id, Operation::SEND, 0, LENGTH);
                    other.expect(id);
                    one.expect(id);
                    assert!(other.bytes(0, LENGTH) == bytes, "pair {number}, message {id}");
                }
                one.region.write(0, &vec![0; LENGTH]).unwrap();
                one.post(9, Operation::Read { remote: other.region.remote(0) }, 0, LENGTH);
                one.expect(9);
                assert!(one.bytes(0, LENGTH) == bytes, "pair {number}, READ");
            });
        }
    });
    for (one, other) in &pairs {
        assert!(context.is_on_this_host(one.queue_pair.number()));
        assert!(context.is_on_this_host(other.queue_pair.number()));
    }
    // Packets of all shards are counted, and steered to the right socket by the kernel.
    let counted = context.statistics();
    assert!(counted.packets_in > 6 * 8 * (LENGTH as u64) / 4096, "{counted:?}");
    assert_eq!((counted.bad_icrc, counted.no_queue_pair), (0, 0), "{counted:?}");
}

#[test]
fn queue_pairs_with_a_common_cq_or_channel_share_a_shard() {
    let context = sharded();
    let pd = context.protection_domain();
    let channel = CompletionChannel::new().unwrap();
    let cq = || context.completion_queue(16, Some(&channel)).unwrap();
    let rc = ServiceType::ReliableConnection;
    let (send, recv, third) = (cq(), cq(), cq());
    let options = QueuePairOptions { recv_cq: &recv, ..QueuePairOptions::new(rc, &send) };
    let first = pd.queue_pair(&options).unwrap();
    let others = [&send, &recv, &third].map(|cq| pd.queue_pair(&QueuePairOptions::new(rc, cq)));
    let others: Vec<_> = others.into_iter().map(Result::unwrap).collect();
    assert_eq!(slots(&others), HashSet::from([slot(&first)]));
    // A CQ without a channel is free.
    let free = context.completion_queue(16, None).unwrap();
    let other = pd.queue_pair(&QueuePairOptions::new(rc, &free)).unwrap();
    assert_ne!(slot(&other), slot(&first));
}

/// A QP whose CQs are of two shards: polling either drives it.
#[test]
fn polling_a_cq_drives_the_shards_of_all_its_queue_pairs() {
    const ROUNDS: u64 = 200;
    let context = sharded();
    let pd = context.protection_domain();
    let region = pd.allocate(4096, ACCESS).unwrap();
    let rc = ServiceType::ReliableConnection;
    let index = gid_index(&context, false).unwrap();
    let cq = || context.completion_queue(512, None).unwrap();
    let (cqs, bound): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| {
            let cq = cq();
            let bound = pd.queue_pair(&QueuePairOptions::new(rc, &cq)).unwrap();
            (cq, bound)
        })
        .unzip();
    assert_ne!(slot(&bound[0]), slot(&bound[1]));
    let options = QueuePairOptions { recv_cq: &cqs[1], ..QueuePairOptions::new(rc, &cqs[0]) };
    let (one, other) = (pd.queue_pair(&options).unwrap(), pd.queue_pair(&options).unwrap());
    bring_up(&one, &attributes(&context, index, other.number(), 4096));
    bring_up(&other, &attributes(&context, index, one.number(), 4096));
    for id in 0..ROUNDS {
        let sg_list = region.sge(64, 64).into();
        other.post_receive(ReceiveRequest { id: WorkId(id), sg_list }).unwrap();
        let data = Data::SgList(region.sge(0, 64).into());
        one.post_send(SendRequest::new(WorkId(id), Operation::SEND, data)).unwrap();
        for cq in [&cqs[1], &cqs[0]] {
            let done = std::iter::repeat_with(|| cq.poll_one()).flatten().next().unwrap();
            assert_eq!((done.id, done.status), (WorkId(id), Status::Success));
        }
    }
}

#[test]
fn atomics_of_all_shards_are_atomic() {
    const EACH: u64 = 400;
    let context = sharded();
    let pairs = pairs(&context, ServiceType::ReliableConnection, 4, 64);
    assert!(slots(pairs.iter().map(|(_, other)| &other.queue_pair)).len() > 1);
    // The PD of the responder must be that of the word.
    let word = pairs[0].1.region.remote(0);
    let (one, other) = &pairs[0];
    let index = gid_index(&context, false).unwrap();
    let further: Vec<_> = (0..3)
        .map(|_| {
            let cq = context.completion_queue(512, None).unwrap();
            let rc = ServiceType::ReliableConnection;
            let responder = other.pd.queue_pair(&QueuePairOptions::new(rc, &cq)).unwrap();
            let requester = side(&context, rc, 64);
            let link = |from: &QueuePair, to: &QueuePair| {
                bring_up(from, &attributes(&context, index, to.number(), 1024));
            };
            link(&responder, &requester.queue_pair);
            link(&requester.queue_pair, &responder);
            (requester, responder)
        })
        .collect();
    let responders = further.iter().map(|(_, responder)| responder);
    assert!(slots(responders.chain([&other.queue_pair])).len() > 1);
    std::thread::scope(|scope| {
        for requester in further.iter().map(|(requester, _)| requester).chain([one]) {
            scope.spawn(move || {
                for id in 0..EACH {
                    requester.post(id, Operation::FetchAdd { remote: word, add: 1 }, 0, 8);
                    requester.expect(id);
                }
            });
        }
    });
    let sum = u64::from_le_bytes(other.bytes(0, 8).try_into().unwrap());
    assert_eq!(sum, EACH * (further.len() as u64 + 1));
}

#[test]
fn an_srq_serves_queue_pairs_of_all_shards() {
    const EACH: u64 = 300;
    const SENDERS: usize = 4;
    let context = sharded();
    let index = gid_index(&context, false).unwrap();
    let rc = ServiceType::ReliableConnection;
    let pd = context.protection_domain();
    let region = pd.allocate(EACH as usize * SENDERS * 64, ACCESS).unwrap();
    let srq = pd.shared_receive_queue(EACH as usize * SENDERS).unwrap();
    for id in 0..EACH * SENDERS as u64 {
        let sg_list = region.sge(id * 64, 64).into();
        srq.post(ReceiveRequest { id: WorkId(id), sg_list }).unwrap();
    }
    let ends: Vec<_> = (0..SENDERS)
        .map(|_| {
            let cq = context.completion_queue(EACH as usize, None).unwrap();
            let options = QueuePairOptions { srq: Some(&srq), ..QueuePairOptions::new(rc, &cq) };
            let receiver = pd.queue_pair(&options).unwrap();
            let sender = side(&context, rc, 4096);
            bring_up(&receiver, &attributes(&context, index, sender.queue_pair.number(), 1024));
            bring_up(&sender.queue_pair, &attributes(&context, index, receiver.number(), 1024));
            (sender, receiver, cq)
        })
        .collect();
    assert!(slots(ends.iter().map(|(_, receiver, _)| receiver)).len() > 1);
    let mut seen = HashMap::new();
    let received: Vec<Vec<_>> = std::thread::scope(|scope| {
        let work = |(number, (sender, _, cq)): (usize, &(Side, QueuePair, CompletionQueue))| {
            let (sender, cq) = (sender.queue_pair.clone(), cq.clone());
            scope.spawn(move || {
                let mut received = Vec::new();
                for id in 0..EACH {
                    let text = (number as u64 * EACH + id).to_le_bytes();
                    let data = Data::Inline(text.as_slice().into());
                    let send = SendRequest::new(WorkId(id), Operation::SEND, data);
                    while sender.post_send(send.clone()).is_err() {
                        cq.poll_with(1, |entry| received.push(entry));
                    }
                }
                while received.len() < EACH as usize {
                    cq.poll_with(64, |entry| received.push(entry));
                }
                received
            })
        };
        let threads: Vec<_> = ends.iter().enumerate().map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (number, received) in received.into_iter().enumerate() {
        // In order for each sender, and each request of the SRQ once.
        for (id, entry) in received.iter().enumerate() {
            assert_eq!(entry.status, Status::Success);
            assert_eq!(seen.insert(entry.id, number), None, "{:?}", entry.id);
            let mut text = [0; 8];
            region.read(entry.id.0 as usize * 64, &mut text).unwrap();
            assert_eq!(u64::from_le_bytes(text), number as u64 * EACH + id as u64);
        }
    }
    assert!(srq.is_empty());
}

#[test]
fn multicast_reaches_members_in_all_shards() {
    let context = sharded();
    let group = Gid::from_ip("239.77.3.9".parse().unwrap());
    let index = gid_index(&context, false).unwrap();
    let ud = ServiceType::UnreliableDatagram;
    let members: Vec<_> = (0..usize::from(SHARDS)).map(|_| side(&context, ud, 4096)).collect();
    assert_eq!(slots(members.iter().map(|side| &side.queue_pair)).len(), usize::from(SHARDS));
    for member in &members {
        bring_up(&member.queue_pair, &attributes(&context, index, Qpn(0), 1024));
        member.queue_pair.attach(group).unwrap();
        member.post_receive(1, 0, 1024);
    }
    let sender = &members[0];
    let vector = AddressVector {
        port: 1,
        source_index: index,
        destination: group,
        ..AddressVector::default()
    };
    let handle = sender.pd.address_handle(&vector).unwrap();
    sender.region.write(2048, b"to all").unwrap();
    let data = sender.data(2048, 6);
    let send = handle.request(WorkId(2), Qpn::MULTICAST, QKey(0x1234), data);
    sender.queue_pair.post_datagram(send).unwrap();
    for member in &members[1..] {
        member.expect(1);
        assert_eq!(member.bytes(40, 6), b"to all");
    }
}

/// Regions and QPs come and go in one shard while the others are busy with the same memory.
#[test]
fn objects_are_destroyed_while_other_shards_work() {
    let context = sharded();
    let pairs = pairs(&context, ServiceType::ReliableConnection, 3, 64 << 10);
    let index = gid_index(&context, false).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let busy: Vec<_> = pairs
            .iter()
            .map(|(one, other)| {
                scope.spawn(|| {
                    for id in 0..150 {
                        let remote = other.region.remote(0);
                        one.post(id, Operation::Write { remote, immediate: None }, 0, 64 << 10);
                        one.expect(id);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let service = ServiceType::ReliableConnection;
            while !ended.load(Ordering::Relaxed) {
                let (one, other) = (side(&context, service, 4096), side(&context, service, 4096));
                connect(&one, &other, index, 1024);
                let write = Operation::Write { remote: other.region.remote(0), immediate: None };
                one.post(1, write, 0, 4096);
                let srq = one.pd.shared_receive_queue(4).unwrap();
                drop((srq, other, one));
            }
        });
        busy.into_iter().for_each(|thread| thread.join().unwrap());
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_capture_has_the_packets_of_all_shards_once() {
    let path = std::env::temp_dir().join(format!("ferroce-shards-{}.pcapng", std::process::id()));
    let context =
        open_alone(&Options { shards: Some(2), capture: Some(path.clone()), ..options() });
    let pairs = pairs(&context, ServiceType::ReliableConnection, 2, 4096);
    for (one, other) in &pairs {
        assert_eq!(slots([&one.queue_pair, &other.queue_pair]).len(), 2);
        let write = Operation::Write { remote: other.region.remote(0), immediate: None };
        one.post(1, write, 0, 4096);
        one.expect(1);
    }
    let status = context.flush_capture().unwrap();
    let counted = context.statistics();
    std::fs::remove_file(path).unwrap();
    // Two requests and two ACKs, each sent by one shard and received by the other.
    assert_eq!((status.written, status.dropped), (4, 0), "{counted:?}");
}

/// A shard needs descriptors. Without them, its queue pairs stay in the first.
#[test]
fn without_descriptors_the_first_shard_serves_all() {
    let context = sharded();
    let service = ServiceType::ReliableConnection;
    // Takes the first shard, and leaves the others.
    let one = side(&context, service, 4096);
    let limit = libc::rlimit { rlim_cur: 256, rlim_max: 256 };
    // SAFETY: reads the structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let open: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let cq = context.completion_queue(16, None).unwrap();
    let options = QueuePairOptions::new(service, &cq);
    let further: Vec<_> = (0..3).map(|_| one.pd.queue_pair(&options).unwrap()).collect();
    drop(open);
    assert_eq!(slots(&further), slots([&one.queue_pair]));
    let index = gid_index(&context, false).unwrap();
    bring_up(&one.queue_pair, &attributes(&context, index, further[0].number(), 1024));
    bring_up(&further[0], &attributes(&context, index, one.queue_pair.number(), 1024));
    one.post(1, Operation::Write { remote: one.region.remote(2048), immediate: None }, 0, 1024);
    one.expect(1);
}
