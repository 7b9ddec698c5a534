//! Batches of a device on the loopback.

use proptest::prelude::*;

use super::*;
use crate::udp::testing::{LOOPBACK, open};

thread_local! {
    /// Opened once for all cases.
    static ADDRESSES: Addresses = open(&[LOOPBACK]);
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
        ADDRESSES.with(|addresses| {
            let route = Route::new(0, addresses[0].address);
            let owner = |number| Owner { queue_pair: Qpn(number), work: None };
            let mut batch = TxBatch::default();
            let mut expected = Vec::new();
            for (number, &of) in owners.iter().enumerate() {
                let is_short = is_last_shorter && number > 0 && number == owners.len() - 1;
                let length = if is_short { SHORTER } else { LENGTH };
                write_packet(batch.behind(), number, length);
                prop_assert!(batch.takes(length + ICRC, &route));
                batch.add(addresses, Kept { length: length + ICRC, route, owner: owner(of) });
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
            batch.discard(addresses, Qpn(destroyed));
            prop_assert_eq!(batch.is_in_use(), !expected.is_empty());
            // A kept packet with no batch in front of it begins the next one.
            prop_assert_eq!(batch.kept.is_some(), in_batch > 0 && expected.len() > in_batch);
            let mut found = Vec::new();
            let gso = addresses.sender(&route).gso();
            for (index, packet) in batch.bytes[..batch.used].chunks(batch.segment.max(1)).enumerate() {
                let (covered, icrc) = packet.split_last_chunk::<ICRC>().unwrap();
                let index = if gso { index as u16 } else { 0 };
                prop_assert_eq!(addresses.headers(&route).icrc(covered, index), *icrc);
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
