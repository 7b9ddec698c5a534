//! The head and tail of a ring between two processes, and how its two sides wake each other.
//!
//! It lies in memory that both processes map. Neither trusts the other: any value may be in it at any time, and the ring
//! (`ferroce_sys::ring`) validates what it reads.
//!
//! A side that is about to sleep sets a flag and then checks the other side's position again; the other side stores its
//! position and then checks the flag. Each has a full fence between the two steps, so at least one sees the other's
//! store, and no wakeup is lost. Loom checks this.

use crate::primitives::{AtomicU32, AtomicU64, Ordering, fence};

/// A value in two cache lines of its own, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
struct Line<T>(T);

/// The first bytes of the shared memory. New memory is zeroed, which is an empty ring.
#[derive(Debug)]
#[repr(C)]
pub struct RingControl {
    /// How many bytes were written and published.
    tail: Line<AtomicU64>,
    /// How many of them were read and released.
    head: Line<AtomicU64>,
    /// The consumer sleeps and wants a wakeup when there is a record.
    consumer_sleeps: Line<AtomicU32>,
    /// The producer wants a wakeup when there is space.
    producer_waits: Line<AtomicU32>,
    /// The producer is preparing a record that it has not published yet.
    producer_writes: Line<AtomicU32>,
    /// Records that the producer has dropped for lack of space.
    dropped: Line<AtomicU64>,
}

/// For the producer.
impl RingControl {
    /// Publishes everything before `tail`. Returns whether the consumer has to be woken.
    #[inline]
    pub fn publish(&self, tail: u64) -> bool {
        self.tail.0.store(tail, Ordering::Release);
        fence(Ordering::SeqCst);
        is_set(&self.consumer_sleeps.0) && self.consumer_sleeps.0.swap(0, Ordering::AcqRel) != 0
    }

    /// How many bytes were read and released.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    /// Requests a wakeup when there is space. The caller reads [`RingControl::head`] afterwards.
    #[inline]
    pub fn wait_for_space(&self) {
        self.producer_waits.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the producer has not been woken yet.
    #[inline]
    pub fn awaits_space(&self) -> bool {
        is_set(&self.producer_waits.0)
    }

    /// Marks the start of a record. The caller reads the clock afterwards.
    #[inline]
    pub fn begin(&self) {
        self.producer_writes.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Marks the end of a record, which was published or dropped.
    #[inline]
    pub fn end(&self) {
        self.producer_writes.0.store(0, Ordering::Release);
    }

    /// Counts a record that was dropped for lack of space.
    #[inline]
    pub fn count_dropped(&self) {
        self.dropped.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// For the consumer.
impl RingControl {
    /// How many bytes were published.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail.0.load(Ordering::Acquire)
    }

    /// Releases everything before `head`. Returns whether the producer has to be woken.
    #[inline]
    pub fn release(&self, head: u64) -> bool {
        self.head.0.store(head, Ordering::Release);
        fence(Ordering::SeqCst);
        is_set(&self.producer_waits.0) && self.producer_waits.0.swap(0, Ordering::AcqRel) != 0
    }

    /// Releases everything before `head`, when the producer need not be woken yet.
    #[inline]
    pub fn give_back(&self, head: u64) {
        self.head.0.store(head, Ordering::Release);
    }

    /// Whether no record is being prepared. The caller has read the clock before and reads [`RingControl::tail`] afterwards.
    #[inline]
    pub fn is_idle(&self) -> bool {
        fence(Ordering::SeqCst);
        self.producer_writes.0.load(Ordering::Acquire) == 0
    }

    /// The number of records that were dropped.
    #[inline]
    pub fn dropped(&self) -> u64 {
        self.dropped.0.load(Ordering::Relaxed)
    }

    /// Requests a wakeup when there is a record. The caller reads [`RingControl::tail`] afterwards.
    #[inline]
    pub fn sleep(&self) {
        self.consumer_sleeps.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

fn is_set(flag: &AtomicU32) -> bool {
    flag.load(Ordering::Relaxed) != 0
}

#[cfg(all(test, ferroce_loom))]
mod tests;
