//! Objects with something to do, queued by threads that do not own what serves them.

use std::collections::VecDeque;
use std::sync::PoisonError;

use crate::primitives::{AtomicBool, Mutex, MutexGuard, Ordering};

/// Says that an object is in a queue, so that it is in it once, however often it is pushed.
#[derive(Debug, Default)]
pub struct QueuedMark(AtomicBool);

impl QueuedMark {
    /// Sets the mark. Returns whether it was not set: the caller then queues the object.
    ///
    /// The mark is cleared before the object is locked to be served. So a thread that has changed the object since it was
    /// last served, under its lock, sees that the mark is gone, and a mark that is still there needs no locked instruction.
    #[inline]
    pub fn set(&self) -> bool {
        !self.is_set() && !self.0.swap(true, Ordering::AcqRel)
    }

    /// Clears the mark of an object that was taken out of its queue, before it is served.
    #[inline]
    pub fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether the object is in a queue, so that it will be served.
    #[inline]
    pub fn is_set(&self) -> bool {
        // Acquire: if it is in a `PostedQueue`, this thread sees that there are some.
        self.0.load(Ordering::Acquire)
    }
}

/// The objects that threads queued for transmission without owning the device.
#[derive(Debug)]
pub struct PostedQueue<H> {
    queue: Mutex<VecDeque<H>>,
    /// Whether the queue is nonempty, so that a pass need not lock it to check.
    some: AtomicBool,
}

impl<H> Default for PostedQueue<H> {
    fn default() -> Self {
        Self { queue: Mutex::new(VecDeque::new()), some: AtomicBool::new(false) }
    }
}

impl<H: Clone> PostedQueue<H> {
    /// Queues an object with this mark, unless it is in a queue already.
    pub fn push(&self, handle: &H, mark: &QueuedMark) {
        if mark.is_set() {
            return;
        }
        let mut queue = self.lock();
        // Set before the mark: the owner may find the mark set and leave the object to this queue, and then has to look
        // here, where it waits for the lock.
        self.some.store(true, Ordering::Release);
        if mark.set() {
            queue.push_back(handle.clone());
        }
    }

    /// Whether there may be any.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.some.load(Ordering::Acquire)
    }

    /// Moves all of them to the end of another queue. Their marks stay set.
    #[inline]
    pub fn move_to(&self, into: &mut VecDeque<H>) {
        if self.has_some() {
            let mut queue = self.lock();
            self.some.store(false, Ordering::Relaxed);
            into.append(&mut queue);
        }
    }

    /// A panic of another holder leaves nothing half-changed.
    fn lock(&self) -> MutexGuard<'_, VecDeque<H>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
