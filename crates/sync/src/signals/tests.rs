mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::super::*;

    /// The number of wakeups.
    struct Wakeups(AtomicU32);

    impl Wake for Wakeups {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    type Signals = super::super::Signals<Wakeups>;

    fn signals() -> Arc<Signals> {
        Arc::new(Signals::new(Wakeups(AtomicU32::new(0))))
    }

    /// Runs both at the same time, and returns the result of the device thread and whether it was woken.
    fn model(
        set_up: fn(&Signals),
        program: fn(&Signals),
        device_thread: fn(&Signals) -> bool,
        check: fn(slept: bool, woken: bool),
    ) {
        loom::model(move || {
            let signals = signals();
            set_up(&signals);
            let other = {
                let signals = Arc::clone(&signals);
                thread::spawn(move || program(&signals))
            };
            let slept = device_thread(&signals);
            other.join().unwrap();
            check(slept, signals.waker().0.load(Ordering::Relaxed) > 0);
        });
    }

    const LED: u64 = 1000;

    /// The device thread leaves the sockets to a thread that waits, and that thread stops.
    #[test]
    fn somebody_watches_when_a_waiting_thread_stops() {
        model(
            |signals| assert!(signals.lead(0, LED)),
            |signals| signals.stop_leading(),
            |signals| {
                signals.set_mode(Mode::Detached);
                signals.led_until() > 0
            },
            |slept, woken| assert!(!slept || woken),
        );
    }

    /// One waiting thread stops, and another begins: the device thread may sleep only while one of them leads.
    #[test]
    fn a_follower_takes_over() {
        model(
            |signals| assert!(signals.lead(0, LED)),
            |signals| {
                signals.stop_leading();
                if signals.lead(0, LED) {
                    signals.stop_leading();
                }
            },
            |signals| {
                signals.set_mode(Mode::Detached);
                signals.led_until() > 0
            },
            |slept, woken| assert!(!slept || woken),
        );
    }

    /// Two threads want to wait for packets: one of them does.
    #[test]
    fn one_thread_leads() {
        loom::model(|| {
            let signals = signals();
            let other = {
                let signals = Arc::clone(&signals);
                thread::spawn(move || signals.lead(0, LED))
            };
            let this = signals.lead(0, LED);
            assert!(this != other.join().unwrap());
        });
    }

    /// The device thread leaves the sockets to a program that polls, and the program stops.
    #[test]
    fn a_program_that_stops_polling_is_noticed() {
        model(
            Signals::polled,
            Signals::stop_polling,
            |signals| {
                signals.set_mode(Mode::Dozing);
                let dozes = signals.take_polled();
                if !dozes {
                    signals.set_mode(Mode::Watching);
                }
                dozes
            },
            |dozes, woken| assert!(!dozes || woken),
        );
    }

    #[test]
    fn no_timer_is_slept_through() {
        model(
            |_| {},
            |signals| signals.set_timer(5),
            |signals| {
                signals.sleep_until(signals.timer().min(9));
                signals.timer() > 5
            },
            |oversleeps, woken| assert!(!oversleeps || woken),
        );
    }

    #[test]
    fn a_full_socket_is_watched() {
        model(
            |_| {},
            |signals| signals.set_blocked(Some((0, 0))),
            |signals| {
                signals.sleep_until(NEVER);
                signals.blocked().is_none()
            },
            |unseen, woken| assert!(!unseen || woken),
        );
    }

    /// ACKs may stay owed only while the device thread looks again soon.
    #[test]
    fn no_ack_stays_owed() {
        model(
            |signals| signals.set_mode(Mode::Dozing),
            |signals| signals.set_owes_acks(true),
            |signals| {
                signals.set_mode(Mode::Watching);
                !signals.owes_acks()
            },
            |unseen, woken| assert!(!unseen || woken),
        );
    }
}
