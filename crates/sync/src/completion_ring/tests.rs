#[cfg(not(ferroce_loom))]
mod units {
    use super::super::{CompletionRing, Full};

    fn all(ring: &CompletionRing<u32>) -> Vec<u32> {
        let mut found = Vec::new();
        ring.take(usize::MAX, |entry| found.push(entry));
        found
    }

    #[test]
    fn keeps_order_and_capacity() {
        let ring = CompletionRing::new(2, ());
        assert_eq!((ring.push(1, false), ring.push(2, false)), (Ok(false), Ok(false)));
        assert_eq!(ring.push(3, false), Err(Full));
        assert_eq!(ring.resize(1), Err(Full));
        assert_eq!(ring.resize(3), Ok(()));
        assert_eq!(ring.push(4, false), Ok(false));
        ring.retain(|entry| *entry != 2);
        assert_eq!(all(&ring), [1, 4]);
        assert_eq!(all(&ring), [0_u32; 0]);
    }

    #[test]
    fn raises_one_event_and_only_when_armed_for_it() {
        let ring = CompletionRing::new(8, ());
        assert!(!ring.arm(true, |_| false));
        assert_eq!((ring.push(1, false), ring.push(2, true)), (Ok(false), Ok(true)));
        assert_eq!(ring.push(3, true), Ok(false));
        assert!(!ring.arm(false, |_| false));
        assert!(!ring.arm(true, |_| false));
        assert_eq!((ring.push(4, false), ring.push(5, false)), (Ok(true), Ok(false)));
    }

    #[test]
    fn entries_between_polling_and_arming_raise_one_event() {
        let ring = CompletionRing::new(8, ());
        ring.push(1, false).unwrap();
        assert!(!ring.arm(true, |entry| *entry > 1), "not solicited");
        ring.push(2, false).unwrap();
        assert!(ring.arm(true, |entry| *entry > 1));
        assert!(!ring.arm(false, |_| false), "announced before");
        // The first one has been armed for an entry after these.
        assert_eq!(ring.push(3, false), Ok(true));
        assert_eq!(all(&ring), [1, 2, 3]);
        ring.push(4, false).unwrap();
        assert!(ring.arm(false, |_| false));
        ring.retain(|_| false);
        assert!(!ring.arm(false, |_| false));
    }
}

#[cfg(ferroce_loom)]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::super::CompletionRing;
    use crate::tests::models::explore;

    /// An application that polls, arms and then sleeps is woken, or has found every entry.
    #[test]
    fn no_completion_is_slept_through() {
        loom::model(|| {
            let ring = Arc::new(CompletionRing::new(4, ()));
            let engine = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || {
                    (1..=2).filter(|entry| ring.push(*entry, false).unwrap()).count()
                })
            };
            let mut found = Vec::new();
            ring.take(4, |entry| found.push(entry));
            let at_once = ring.arm(false, |_| false);
            assert!(!at_once || ring.take(4, |entry| found.push(entry)) > 0);
            let raised = engine.join().unwrap() + usize::from(at_once);
            assert!(raised <= 1, "armed once, {raised} events");
            assert!(raised == 1 || found == [1, 2], "no event, and found {found:?}");
            ring.take(4, |entry| found.push(entry));
            assert_eq!(found, [1, 2]);
        });
    }

    /// Two shards complete requests in one CQ: the application is woken, or has found the entries of both.
    #[test]
    fn entries_of_two_shards_raise_one_event() {
        loom::model(|| {
            let ring = Arc::new(CompletionRing::new(4, ()));
            let shard = |entry: u32| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.push(entry, false).unwrap())
            };
            let (one, other) = (shard(1), shard(2));
            let at_once = ring.arm(false, |_| false);
            let raised = [one.join().unwrap(), other.join().unwrap(), at_once];
            assert_eq!(raised.iter().filter(|raised| **raised).count(), 1);
            let mut found = Vec::new();
            ring.take(4, |entry| found.push(entry));
            found.sort_unstable();
            assert_eq!(found, [1, 2]);
        });
    }

    /// Two polling threads share the entries: each entry goes to one of them, in order.
    #[test]
    fn each_entry_is_taken_once() {
        explore(|| {
            let ring = Arc::new(CompletionRing::new(4, ()));
            ring.push(1, false).unwrap();
            let engine = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.push(2, false).unwrap())
            };
            let poll = |ring: &CompletionRing<u32>| {
                let mut found = Vec::new();
                ring.take(1, |entry| found.push(entry));
                ring.take(1, |entry| found.push(entry));
                found
            };
            let other = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || poll(&ring))
            };
            let mut found = poll(&ring);
            assert!(found.is_sorted());
            let others = other.join().unwrap();
            assert!(others.is_sorted());
            engine.join().unwrap();
            found.extend(others);
            ring.take(4, |entry| found.push(entry));
            found.sort_unstable();
            assert_eq!(found, [1, 2]);
        });
    }

    /// Two threads wait for the entries of one CQ: each polls, arms and polls again. No entry is left without an event.
    #[test]
    fn no_entry_is_slept_through_by_two_threads() {
        explore(|| {
            let ring = Arc::new(CompletionRing::new(4, ()));
            let wait = |ring: &CompletionRing<u32>| {
                let mut found = 0;
                found += ring.take(1, |_| {});
                let at_once = ring.arm(false, |_| false);
                found += ring.take(1, |_| {});
                (found, usize::from(at_once))
            };
            let other = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || wait(&ring))
            };
            let engine = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || usize::from(ring.push(1, false).unwrap()))
            };
            let (found, at_once) = wait(&ring);
            let (others, others_at_once) = other.join().unwrap();
            let raised = engine.join().unwrap() + at_once + others_at_once;
            assert!(found + others + raised > 0, "both sleep, and there is an entry");
            assert!(raised <= 1, "{raised} events for one entry");
        });
    }
}
