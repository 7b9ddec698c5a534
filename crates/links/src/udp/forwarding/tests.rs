use std::net::Ipv4Addr;

use ferroce_sys::ReceiveBatch;
use proptest::prelude::*;

use super::*;
use crate::udp::testing::{LOOPBACK, open};

fn packet(number: u64, length: usize) -> ForwardedPacket {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 4791));
    let info = RxInfo {
        source: local,
        destination: local.ip(),
        interface: None,
        tos: 0,
        hop_limit: None,
        length,
        segment: length,
        truncated: false,
    };
    let mut data = vec![0; length.max(8)];
    data[..8].copy_from_slice(&number.to_ne_bytes());
    ForwardedPacket { local, info, data: data.into() }
}

fn number(packet: &ForwardedPacket) -> u64 {
    u64::from_ne_bytes(*packet.data.first_chunk().unwrap())
}

#[test]
fn small_packets_are_counted_with_the_memory_they_take() {
    let mut backlog = Backlog::default();
    let queued = (0..).take_while(|&id| backlog.push(Recipient::Slot(1), packet(id, 16)));
    let queued = queued.count();
    assert!(queued * (size_of::<ForwardedPacket>() + 16) <= MAX_BACKLOG_BYTES, "{queued}");
    assert!(queued > 10_000, "{queued}");
    // Not because of another owner's packets alone.
    assert!(!backlog.push(Recipient::Slot(2), packet(0, 16)));
    let mut sent = 0;
    backlog.retry(|_, packet| {
        assert_eq!(number(packet), sent);
        sent += 1;
        Ok(())
    });
    assert_eq!((sent, backlog.bytes, backlog.queues.len()), (queued as u64, 0, 0));
}

/// The mailbox is this process's own, and is read only after it was found full.
#[test]
fn packets_for_a_full_mailbox_wait_and_arrive_in_order() {
    let addresses = open(&[LOOPBACK]);
    let own = &addresses[0].slot;
    let forwarding = Forwarding::default();
    let forward = |id| {
        let ForwardedPacket { local, info, data } = packet(id, 64);
        forwarding.forward(&addresses, local, Recipient::Slot(own.number()), &info, &data)
    };
    let sent = (0..10_000).take_while(|&id| forward(id) == Forwarded::Sent).count() as u64;
    assert!((1..10_000).contains(&sent), "{sent} fit into the mailbox");
    // The last one tried is queued, and so is every later one.
    assert_eq!(forward(sent + 1), Forwarded::Queued);
    assert!(!forwarding.is_empty());
    assert_eq!(forwarding.retry(&addresses), Retried::default());
    let mut batch = ReceiveBatch::for_socket(&addresses[0].receiver);
    let (mut received, mut retried) = (Vec::new(), 0);
    while own.receive(&mut batch).is_ok_and(|count| count > 0) {
        let first = |data: &[u8]| u64::from_ne_bytes(*data.first_chunk().unwrap());
        received.extend(batch.messages().map(|message| first(message.data)));
        retried += forwarding.retry(&addresses).sent;
    }
    assert!(received.iter().copied().eq(0..sent + 2), "{received:?}");
    assert_eq!((retried, forwarding.is_empty()), (2, true));
}

#[test]
fn a_packet_without_an_owner_is_lost() {
    let addresses = open(&[LOOPBACK]);
    let nobody = Recipient::Slot(addresses.slot().wrapping_add(1));
    let forwarding = Forwarding::default();
    let forward = |local| {
        let ForwardedPacket { info, data, .. } = packet(0, 64);
        forwarding.forward(&addresses, local, nobody, &info, &data)
    };
    assert_eq!(forward(LOOPBACK), Forwarded::NoOwner);
    // Not an address of the device.
    assert_eq!(forward(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))), Forwarded::NoOwner);
    assert!(forwarding.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(100)
    })]

    /// Each owner takes what it has space for, and gets its packets in order. One that is busy does not stop others.
    #[test]
    fn every_owner_gets_its_packets_in_order(
        steps in prop::collection::vec((0..4_u8, 0..3_usize, 8..200_usize), 1..200),
    ) {
        let mut backlog = Backlog::default();
        let mut next = [0; 4];
        let mut received: [Vec<u64>; 4] = Default::default();
        for (to, space, length) in steps {
            let queued = backlog.push(Recipient::Slot(to), packet(next[usize::from(to)], length));
            prop_assert!(queued);
            next[usize::from(to)] += 1;
            let mut space = [space; 4];
            backlog.retry(|to, packet| {
                let Recipient::Slot(to) = to else { unreachable!() };
                let left = space[usize::from(to)].checked_sub(1).ok_or(Error::OwnerBusy)?;
                space[usize::from(to)] = left;
                received[usize::from(to)].push(number(packet));
                Ok(())
            });
            // Those with space have nothing left, unless there was more.
            for (slot, &space) in space.iter().enumerate() {
                let waits = backlog.queues.contains_key(&Recipient::Slot(slot as u8));
                prop_assert!(!waits || space == 0);
            }
        }
        backlog.retry(|to, packet| {
            let Recipient::Slot(to) = to else { unreachable!() };
            received[usize::from(to)].push(number(packet));
            Ok(())
        });
        prop_assert_eq!((backlog.bytes, backlog.queues.len()), (0, 0));
        for (received, count) in received.iter().zip(next) {
            prop_assert!(received.iter().copied().eq(0..count), "{:?}", received);
        }
    }
}
