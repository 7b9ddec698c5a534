use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const MOST: usize = 4 << 20;

#[derive(Debug)]
struct Packet {
    number: u64,
    length: usize,
}

impl Cost for Packet {
    fn cost(&self) -> usize {
        self.length + 100
    }
}

fn packet(number: u64, length: usize) -> Packet {
    Packet { number, length }
}

#[test]
fn all_owners_share_the_bytes_of_the_backlog() {
    let mut backlog = Backlog::new(MOST);
    let queued = (0..).take_while(|&number| backlog.push(1, packet(number, 16))).count();
    assert_eq!(queued, MOST / 116);
    // Not because of another owner's packets alone.
    assert_eq!(backlog.forward(2, || Err::<(), _>(Busy), || packet(0, 16)), Forwarded::Dropped);
    assert_eq!(backlog.forward(2, || Ok(7), || packet(0, 16)), Forwarded::Sent(7));
    let mut sent = 0;
    backlog.retry(|_, packet| {
        assert_eq!(packet.number, sent);
        sent += 1;
        Ok(())
    });
    assert_eq!((sent, backlog.bytes(), backlog.is_empty()), (queued as u64, 0, true));
}

#[test]
fn a_packet_does_not_overtake_those_that_wait() {
    let mut backlog = Backlog::new(MOST);
    assert_eq!(backlog.forward(1, || Err::<(), _>(Busy), || packet(0, 8)), Forwarded::Queued);
    let sent = backlog.forward(1, || -> Result<(), _> { panic!("it overtakes") }, || packet(1, 8));
    assert_eq!(sent, Forwarded::Queued);
    let mut numbers = Vec::new();
    backlog.retry(|_, packet| {
        numbers.push(packet.number);
        Ok(())
    });
    assert_eq!(numbers, [0, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(100)
    })]

    /// Each owner takes what it has space for, and gets its packets in order. One that is busy does not stop others.
    #[test]
    fn every_owner_gets_its_packets_in_order(
        steps in prop::collection::vec((0..4_usize, 0..3_usize, 8..200_usize, any::<bool>()), 1..200),
    ) {
        let mut backlog = Backlog::new(MOST);
        let mut next = [0; 4];
        let mut received: [Vec<u64>; 4] = Default::default();
        for (to, space, length, is_busy) in steps {
            let number = next[to];
            next[to] += 1;
            let send = || if is_busy { Err(Busy) } else { Ok(()) };
            match backlog.forward(to, send, || packet(number, length)) {
                Forwarded::Sent(()) => received[to].push(number),
                Forwarded::Queued => {}
                Forwarded::Dropped => prop_assert!(false, "there is room for all"),
            }
            backlog.check_invariants();
            let mut space = [space; 4];
            backlog.retry(|to, packet| {
                space[to] = space[to].checked_sub(1).ok_or(Busy)?;
                received[to].push(packet.number);
                Ok(())
            });
            backlog.check_invariants();
            // Those with space have nothing left, unless there was more.
            for (owner, &space) in space.iter().enumerate() {
                prop_assert!(!backlog.has_packets_for(owner) || space == 0);
            }
        }
        backlog.retry(|to, packet| {
            received[to].push(packet.number);
            Ok(())
        });
        prop_assert_eq!((backlog.bytes(), backlog.is_empty()), (0, true));
        for (received, count) in received.iter().zip(next) {
            prop_assert!(received.iter().copied().eq(0..count), "{:?}", received);
        }
    }
}
