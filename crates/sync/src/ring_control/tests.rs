mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    use super::super::*;

    fn control() -> RingControl {
        RingControl {
            tail: Line(AtomicU64::new(0)),
            head: Line(AtomicU64::new(0)),
            consumer_sleeps: Line(AtomicU32::new(0)),
            producer_waits: Line(AtomicU32::new(0)),
            producer_writes: Line(AtomicU32::new(0)),
            dropped: Line(AtomicU64::new(0)),
        }
    }

    /// A consumer that goes to sleep sees the record, or is woken.
    #[test]
    fn a_sleeping_consumer_is_woken() {
        loom::model(|| {
            let shared = Arc::new((control(), AtomicBool::new(false)));
            let producer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    if shared.0.publish(64) {
                        shared.1.store(true, Ordering::Release);
                    }
                })
            };
            shared.0.sleep();
            let seen = shared.0.tail() == 64;
            producer.join().unwrap();
            assert!(seen || shared.1.load(Ordering::Acquire), "the wakeup is lost");
        });
    }

    /// A producer that waits for space sees it, or is woken.
    #[test]
    fn a_waiting_producer_is_woken() {
        loom::model(|| {
            let shared = Arc::new((control(), AtomicBool::new(false)));
            let consumer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    if shared.0.release(64) {
                        shared.1.store(true, Ordering::Release);
                    }
                })
            };
            shared.0.wait_for_space();
            let seen = shared.0.head() == 64;
            consumer.join().unwrap();
            assert!(seen || shared.1.load(Ordering::Acquire), "the wakeup is lost");
        });
    }

    /// If the consumer finds the ring empty and no record in preparation, a record that appears later has a later timestamp.
    #[test]
    fn an_idle_ring_gets_only_later_records() {
        loom::model(|| {
            // The clock advances once, before the consumer checks.
            let shared = Arc::new((control(), AtomicU64::new(1)));
            let producer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.0.begin();
                    let time = shared.1.load(Ordering::SeqCst);
                    let _ = shared.0.publish(64);
                    shared.0.end();
                    time
                })
            };
            shared.1.store(2, Ordering::SeqCst);
            let quiet = shared.0.is_idle() && shared.0.tail() == 0;
            let time = producer.join().unwrap();
            assert!(!quiet || time == 2, "a record from before the check was missed");
        });
    }

    /// Two records cause one wakeup of a consumer that announced its sleep once.
    #[test]
    fn a_consumer_is_woken_once() {
        loom::model(|| {
            let shared = Arc::new(control());
            shared.sleep();
            let producer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    u32::from(shared.publish(64)) + u32::from(shared.publish(128))
                })
            };
            let seen = shared.tail();
            let woken = producer.join().unwrap();
            assert_eq!(woken, 1, "seen {seen}");
        });
    }
}
