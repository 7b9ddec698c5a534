use proptest::prelude::*;

use super::*;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + nanos)
}

/// Makes passes that find nothing until both links are quiet.
fn quiet() -> LinkReads {
    let mut reads = LinkReads::new(2);
    for _ in 0..=QUIET_AFTER {
        reads.begin(Links::All, at(0));
        (0..2).for_each(|link| _ = reads.received(link, 0, 1));
    }
    reads
}

#[test]
fn a_quiet_link_is_read_now_and_then() {
    let mut reads = quiet();
    reads.begin(Links::Lively, at(1));
    assert_eq!(
        (reads.most(Links::Lively, 0), reads.most(Links::Lively, 1)),
        (Some(1), None),
        "0 is active"
    );
    reads.received_from_rings();
    assert_eq!(reads.most(Links::Lively, 0), None);
    reads.begin(Links::Lively, at(QUIET_LINK_INTERVAL));
    assert_eq!((reads.most(Links::Lively, 0), reads.most(Links::Lively, 1)), (Some(1), Some(1)));
    reads.begin(Links::Lively, at(QUIET_LINK_INTERVAL + 1));
    assert_eq!(reads.most(Links::Lively, 1), None);
    assert!(!reads.received(1, 1, 4));
    assert_eq!(reads.most(Links::Lively, 1), Some(4), "it had a packet");
}

#[test]
fn the_device_thread_reads_what_is_readable() {
    let mut reads = quiet();
    reads.begin(Links::One(1), at(1));
    assert_eq!((reads.most(Links::One(1), 0), reads.most(Links::One(1), 1)), (None, Some(1)));
}

#[test]
fn the_burst_follows_the_rate() {
    let mut reads = LinkReads::new(1);
    let mut asked = Vec::new();
    for count in [1, 2, 4, 8, 16, 16, 3, 0, 1] {
        reads.begin(Links::All, at(0));
        let most = reads.most(Links::All, 0).unwrap();
        asked.push(most);
        assert_eq!(reads.received(0, count, most), count == most);
    }
    assert_eq!(asked, [1, 2, 4, 8, 16, 16, 16, 16, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    /// However passes follow each other, no link is left unread for longer than the interval and the pass before it.
    #[test]
    fn no_link_is_forgotten(passes in prop::collection::vec((1..60_000_u64, any::<[bool; 3]>()), 300..900)) {
        let mut reads = LinkReads::new(3);
        let (mut now, mut before, mut read_at) = (0, 0, [0; 3]);
        for (after, packets) in passes {
            reads.begin(Links::Lively, at(before));
            now += after;
            for (link, has_packet) in packets.into_iter().enumerate() {
                if let Some(most) = reads.most(Links::Lively, link) {
                    // Rarely anything, so that links become quiet.
                    reads.received(link, usize::from(has_packet && now % 64 == 0), most);
                    read_at[link] = now;
                }
                prop_assert!(now - read_at[link] <= QUIET_LINK_INTERVAL + 2 * 60_000);
            }
            before = now;
        }
    }
}
