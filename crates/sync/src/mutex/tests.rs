#[cfg(not(ferroce_loom))]
mod units {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::*;

    /// Runs long enough that threads wait in the kernel.
    #[test]
    fn one_thread_at_a_time_has_the_lock() {
        const THREADS: usize = 4;
        const ROUNDS: usize = if cfg!(miri) { 20 } else { 2000 };
        let (mutex, holders) = (Mutex::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        let mut count = mutex.lock();
                        assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0);
                        if round % 4 == 0 {
                            std::thread::yield_now();
                        }
                        *count += 1;
                        holders.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(*mutex.lock(), THREADS * ROUNDS);
        assert_eq!(mutex.waiters.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_thread_that_waits_is_woken() {
        let mutex = Mutex::new(0);
        let guard = mutex.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| *mutex.lock() = 1);
            while mutex.waiters.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            drop(guard);
        });
        assert_eq!(*mutex.lock(), 1);
    }

    #[test]
    fn a_panic_unlocks() {
        let mutex = Mutex::new(0);
        let panics = || {
            *mutex.lock() += 1;
            let _guard = mutex.lock();
            panic!("while holding the lock");
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(*mutex.lock(), 1);
        assert_eq!(format!("{mutex:?}"), "Mutex { locked: false, .. }");
    }
}

#[cfg(ferroce_loom)]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::super::*;
    use crate::tests::models::explore;

    /// Two threads exclude each other, and each acquires the lock eventually: no wakeup is lost.
    #[test]
    fn no_thread_waits_for_ever() {
        loom::model(|| {
            let mutex = Arc::new(Mutex::new(0));
            let other = {
                let mutex = Arc::clone(&mutex);
                thread::spawn(move || *mutex.lock() += 1)
            };
            *mutex.lock() += 1;
            other.join().unwrap();
            assert_eq!(*mutex.lock(), 2);
        });
    }

    /// One unlock wakes one of two waiting threads, which then wakes the other.
    #[test]
    fn all_that_wait_are_woken() {
        explore(|| {
            let mutex = Arc::new(Mutex::new(0));
            let others = [(); 2].map(|()| {
                let mutex = Arc::clone(&mutex);
                thread::spawn(move || *mutex.lock() += 1)
            });
            *mutex.lock() += 1;
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(*mutex.lock(), 3);
        });
    }
}
