#[cfg(not(ferroce_loom))]
mod units {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::super::{Owned, Requests};

    const ONE: Requests = Requests::bit(0);
    const OTHER: Requests = Requests::bit(1);

    #[test]
    fn a_value_given_up_for_good_has_no_owner() {
        let owned = Owned::new(5);
        owned.try_own().unwrap().fail();
        assert!(owned.has_failed());
        assert!(owned.try_own().is_none() && owned.own_or_request(ONE).is_none());
    }

    #[test]
    fn the_owner_gets_the_requests() {
        let owned = Owned::new(5);
        let guard = owned.try_own().unwrap();
        assert!(owned.try_own().is_none());
        assert!(owned.own_or_request(ONE).is_none());
        assert!(owned.own_or_request(OTHER).is_none());
        let (guard, requests) = guard.release().unwrap_err();
        assert_eq!((*guard, requests), (5, ONE.and(OTHER)));
        assert!(owned.own_or_request(ONE).is_none());
        assert_eq!(guard.give_up(), ONE);
        owned.own_or_request(ONE).unwrap().release().unwrap();
    }

    #[test]
    fn after_a_panic_no_thread_owns_the_value_or_waits() {
        let owned = Owned::new(0);
        let pass = || {
            let _guard = owned.try_own();
            panic!("in a pass");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(pass)).is_err());
        assert!(owned.has_failed());
        assert!(owned.try_own().is_none() && owned.own_or_request(ONE).is_none());
    }

    #[test]
    fn a_pass_sees_everything_done_before_it() {
        let (owned, posted) = (Owned::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        posted.fetch_add(1, Ordering::Relaxed);
                        let mut next = owned.own_or_request(ONE);
                        while let Some(mut guard) = next.take() {
                            *guard = posted.load(Ordering::Relaxed);
                            next = guard.release().err().map(|(guard, _)| guard);
                        }
                    }
                });
            }
        });
        assert_eq!(*owned.try_own().unwrap(), 40_000);
    }
}

#[cfg(ferroce_loom)]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::thread;

    use super::super::{Owned, Requests};

    /// Serves requests as the device does: what both threads posted is seen by a pass, in every interleaving.
    fn serve(owned: &Owned<[u32; 2]>, posted: &[AtomicU32; 2], request: Requests) {
        let mut next = owned.own_or_request(request);
        while let Some(mut guard) = next.take() {
            for (seen, posted) in guard.iter_mut().zip(posted) {
                *seen = posted.load(Ordering::Relaxed);
            }
            next = guard.release().err().map(|(guard, _)| guard);
        }
    }

    #[test]
    fn there_is_one_owner_and_no_lost_request() {
        loom::model(|| {
            let owned = Arc::new(Owned::new([0; 2]));
            let posted = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            let other = {
                let (owned, posted) = (Arc::clone(&owned), Arc::clone(&posted));
                thread::spawn(move || {
                    posted[1].store(1, Ordering::Relaxed);
                    serve(&owned, &posted, Requests::bit(1));
                })
            };
            posted[0].store(1, Ordering::Relaxed);
            serve(&owned, &posted, Requests::bit(0));
            other.join().unwrap();
            assert_eq!(*owned.try_own().unwrap(), [1, 1]);
        });
    }

    /// A request that the owner did not serve is returned to it.
    #[test]
    fn an_unserved_request_is_returned() {
        loom::model(|| {
            let owned = Arc::new(Owned::new(0));
            let asked = {
                let owned = Arc::clone(&owned);
                thread::spawn(move || owned.own_or_request(Requests::bit(3)).is_none())
            };
            let given_up = owned.try_own().map(|guard| guard.give_up());
            let left = asked.join().unwrap();
            assert_eq!(left, given_up.is_some_and(|requests| !requests.is_empty()));
        });
    }
}
