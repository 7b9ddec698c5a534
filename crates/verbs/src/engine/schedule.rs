//! The QPs that other threads queue for the thread that owns the device.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::queue_pair::Core;
use crate::sync::lock;

/// QPs that threads queued for transmission without owning the device.
#[derive(Debug, Default)]
pub(crate) struct Posted {
    queue: Mutex<VecDeque<Arc<Core>>>,
    /// Whether the queue is nonempty, so that a pass need not lock it to check.
    some: AtomicBool,
}

impl Posted {
    pub(super) fn push(&self, core: &Arc<Core>) {
        if core.marks.enqueue() {
            let mut queue = lock(&self.queue);
            queue.push_back(Arc::clone(core));
            self.some.store(true, Ordering::Release);
        }
    }

    #[inline]
    pub(super) fn has_some(&self) -> bool {
        self.some.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn move_to(&self, into: &mut VecDeque<Arc<Core>>) {
        if self.has_some() {
            let mut queue = lock(&self.queue);
            self.some.store(false, Ordering::Relaxed);
            into.append(&mut queue);
        }
    }
}
