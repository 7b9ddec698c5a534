use std::net::Ipv4Addr;

use ferroce_sys::ReceiveBatch;

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

#[test]
fn small_packets_are_counted_with_the_memory_they_take() {
    let forwarding = Forwarding::default();
    let mut backlog = forwarding.backlog.lock();
    let mut queue =
        |id| backlog.forward(Recipient::Slot(1), || Err::<(), _>(Busy), || packet(id, 16));
    let queued = (0..).take_while(|&id| queue(id) == Forwarded::Queued).count();
    assert!(queued * (size_of::<ForwardedPacket>() + 16) <= MAX_BACKLOG_BYTES, "{queued}");
    assert!(queued > 10_000, "{queued}");
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
    let sent =
        (0..10_000).take_while(|&id| matches!(forward(id), Forwarded::Sent(Ok(())))).count() as u64;
    assert!((1..10_000).contains(&sent), "{sent} fit into the mailbox");
    // The last one tried is queued, and so is every later one.
    assert!(matches!(forward(sent + 1), Forwarded::Queued));
    assert!(!forwarding.is_empty());
    forwarding.retry(&addresses, |answer| panic!("{answer:?}"));
    let mut batch = ReceiveBatch::for_socket(&addresses[0].receiver);
    let (mut received, mut retried) = (Vec::new(), 0);
    while own.receive(&mut batch).is_ok_and(|count| count > 0) {
        let first = |data: &[u8]| u64::from_ne_bytes(*data.first_chunk().unwrap());
        received.extend(batch.messages().map(|message| first(message.data)));
        forwarding.retry(&addresses, |answer| retried += u64::from(answer.is_ok()));
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
    let no_owner = |answer| matches!(answer, Forwarded::Sent(Err(Error::NoOwner)));
    assert!(no_owner(forward(LOOPBACK)));
    // Not an address of the device.
    assert!(no_owner(forward(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))));
    assert!(forwarding.is_empty());
}
