//! What the device core remembers about a queue pair (QP), and how it reaches it.

use core::ops::Deref;
use core::sync::atomic::{AtomicBool, Ordering};

use ferroce_proto::time::Instant;
use ferroce_sync::QueuedMark;
use ferroce_wire::number::Qpn;

use crate::credit::member::{AwaitedQueue, Member, Waiting, WindowWait};

/// A QP that can be scheduled: the object of the embedder that a [`Handle`] points to.
pub trait Schedulable {
    /// The QPN. No two QPs of a device have the same at a time.
    fn number(&self) -> Qpn;

    /// The marks of this QP.
    fn marks(&self) -> &Marks;
}

/// A shared pointer to a QP, such as `Arc<T>` or `Rc<T>`.
pub trait Handle: Clone + Deref<Target: Schedulable> {}

impl<T: Clone + Deref<Target: Schedulable>> Handle for T {}

/// What the device core remembers about a QP and changes without the QP's lock: another QP's event may queue it, while
/// that other QP is locked. Only the thread that owns the device changes it, apart from the mark that the QP is queued,
/// which threads that post set as well.
#[derive(Debug, Default)]
pub struct Marks {
    /// It is in the list of QPs that may have packets to send.
    queued: QueuedMark,
    /// It is in the list of QPs that owe ACKs.
    owes: AtomicBool,
    /// Whether it waits for credit, and what is set aside for it.
    pub(crate) credit: Waiting,
    /// The transmit queue that it waits for.
    pub(crate) room: AwaitedQueue,
}

impl Marks {
    /// The mark that the QP is queued, for the queue of the threads that do not own the device.
    #[inline]
    pub fn queued(&self) -> &QueuedMark {
        &self.queued
    }

    /// Marks the QP as queued and returns whether the caller has to queue it; see [`QueuedMark::set`].
    #[inline]
    pub fn enqueue(&self) -> bool {
        self.queued.set()
    }

    #[inline]
    pub(crate) fn dequeue(&self) {
        self.queued.clear();
    }

    /// Whether the QP is queued, so that it will be served.
    #[inline]
    pub fn is_queued(&self) -> bool {
        self.queued.is_set()
    }

    /// Whether the QP waits for credit, or for room in a transmit queue.
    pub fn waits(&self) -> bool {
        self.credit.is_waiting() || self.waits_for_room()
    }

    /// Whether the QP waits for room in a transmit queue.
    #[inline]
    pub(crate) fn waits_for_room(&self) -> bool {
        self.room.get() != 0
    }

    #[inline]
    pub(crate) fn set_owes(&self, owes: bool) -> bool {
        let before = self.owes();
        self.owes.store(owes, Ordering::Relaxed);
        before
    }

    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.owes.load(Ordering::Relaxed)
    }
}

/// What the device core remembers about a QP and changes only under the QP's lock.
#[derive(Debug, Default)]
pub struct Membership {
    /// The earliest of its entries in the timer heap; all others are stale.
    pub(crate) timer: Option<Instant>,
    /// The pools of credit that count it.
    pub(crate) credit: Member,
    /// The window that it waits for, or has waited for.
    pub(crate) window: Option<WindowWait>,
}

impl Membership {
    /// Whether [`Credit::leave`](crate::credit::Credit::leave) has anything to return or to remove.
    #[inline]
    pub fn holds_credit(&self) -> bool {
        self.credit.has_joined() || self.window.is_some()
    }

    /// Whether an entry of the timer heap wakes the QP at this time or before.
    pub fn is_armed(&self, deadline: Instant) -> bool {
        self.timer.is_some_and(|timer| timer <= deadline)
    }

    /// Takes the timer whose entry has this time out of the heap. Returns false if it was replaced by an earlier one, which
    /// was handled.
    #[inline]
    pub fn take_timer(&mut self, time: Instant) -> bool {
        self.timer.take_if(|timer| *timer == time).is_some()
    }
}
