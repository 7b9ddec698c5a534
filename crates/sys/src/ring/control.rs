//! The positions in a ring, and how its two ends wake each other.
//!
//! A side that is about to sleep announces it and then looks once more; the other side moves its position and then looks
//! whether the first one sleeps. Each has a fence between its two steps, so at least one sees the other, and no wakeup is
//! lost. Loom checks this.

#[cfg(ferroce_loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(ferroce_loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A value in a cache line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
struct Line<T>(T);

/// The first bytes of the shared memory. New memory, which is zero, is an empty ring.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Control {
    /// How many bytes were written.
    tail: Line<AtomicU64>,
    /// How many of them were read.
    head: Line<AtomicU64>,
    /// The consumer sleeps, and wants to be woken when there is a record.
    consumer_sleeps: Line<AtomicU32>,
    /// The producer wants to be woken when there is space.
    producer_waits: Line<AtomicU32>,
}

/// For the producer.
impl Control {
    /// Makes everything before `tail` visible. Returns whether the consumer has to be woken.
    pub(super) fn publish(&self, tail: u64) -> bool {
        self.tail.0.store(tail, Ordering::Release);
        fence(Ordering::SeqCst);
        is_set(&self.consumer_sleeps.0) && self.consumer_sleeps.0.swap(0, Ordering::AcqRel) != 0
    }

    pub(super) fn head(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    /// Asks to be woken when there is space. The caller reads [`Control::head`] afterwards.
    pub(super) fn wait_for_space(&self) {
        self.producer_waits.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the producer is still to be woken.
    pub(super) fn awaits_space(&self) -> bool {
        is_set(&self.producer_waits.0)
    }
}

/// For the consumer.
impl Control {
    pub(super) fn tail(&self) -> u64 {
        self.tail.0.load(Ordering::Acquire)
    }

    /// Gives everything before `head` back. Returns whether the producer has to be woken.
    pub(super) fn release(&self, head: u64) -> bool {
        self.head.0.store(head, Ordering::Release);
        fence(Ordering::SeqCst);
        is_set(&self.producer_waits.0) && self.producer_waits.0.swap(0, Ordering::AcqRel) != 0
    }

    /// Asks to be woken when there is a record. The caller reads [`Control::tail`] afterwards.
    pub(super) fn sleep(&self) {
        self.consumer_sleeps.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

fn is_set(flag: &AtomicU32) -> bool {
    flag.load(Ordering::Relaxed) != 0
}

#[cfg(all(test, ferroce_loom))]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    use super::*;

    fn control() -> Control {
        Control {
            tail: Line(AtomicU64::new(0)),
            head: Line(AtomicU64::new(0)),
            consumer_sleeps: Line(AtomicU32::new(0)),
            producer_waits: Line(AtomicU32::new(0)),
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

    /// Two records wake a consumer that went to sleep once at most once.
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
