//! The events of completion queues, behind a file descriptor.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_sys::Event;

use crate::drive::Spin;
use crate::engine::ShardSet;
use crate::error::{SystemError, WaitError};
use crate::sync::lock;

thread_local! {
    /// The channel whose events this thread takes itself, after the pass that it makes.
    pub(super) static SERVED: Cell<*const Channel> = const { Cell::new(ptr::null()) };
}

/// Events of completion queues, behind one file descriptor.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) event: Event,
    pub(super) raised: Mutex<Raised>,
    /// The last wait for its events made passes itself.
    served: AtomicBool,
    /// Whether such a wait spins.
    pub(super) spin: Spin,
    /// The shards of the queue pairs whose CQs raise events here.
    pub(crate) shards: ShardSet,
}

#[derive(Debug, Default)]
pub(super) struct Raised {
    /// The IDs of the CQs that raised events. Holding the CQs instead would be a reference cycle, since a CQ holds its
    /// channel.
    pub(super) queues: VecDeque<u64>,
    /// How many of them are not counted by the eventfd: the thread that raised them takes them.
    pub(super) unsignaled: usize,
}

impl Channel {
    pub(crate) fn new() -> Result<Self, SystemError> {
        Ok(Self {
            event: Event::counting()?,
            raised: Mutex::default(),
            served: AtomicBool::new(false),
            spin: Spin::default(),
            shards: ShardSet::default(),
        })
    }

    pub(crate) fn raise(&self, queue: u64) {
        let mut raised = lock(&self.raised);
        raised.queues.push_back(queue);
        if ptr::eq(SERVED.get(), self) {
            raised.unsignaled += 1;
            return;
        }
        // The eventfd counts the entries of the queue, and is only touched under its lock: a read never blocks, even if
        // the program has cleared O_NONBLOCK. The counter cannot overflow before memory does.
        let _ = self.event.signal();
    }

    pub(crate) fn take(&self) -> Result<Option<u64>, WaitError> {
        let mut raised = lock(&self.raised);
        if raised.queues.is_empty() {
            return Ok(None);
        }
        self.uncount(&mut raised, 1)?;
        Ok(raised.queues.pop_front())
    }

    /// Removes the events of a CQ.
    pub(crate) fn forget(&self, id: u64) {
        let mut raised = lock(&self.raised);
        let before = raised.queues.len();
        raised.queues.retain(|queue| *queue != id);
        let removed = before - raised.queues.len();
        let _ = self.uncount(&mut raised, removed);
    }

    /// Adjusts the counts for events that leave the queue.
    fn uncount(&self, raised: &mut Raised, count: usize) -> Result<(), WaitError> {
        let unsignaled = count.min(raised.unsignaled);
        raised.unsignaled -= unsignaled;
        for _ in unsignaled..count {
            self.event.take()?;
        }
        Ok(())
    }

    /// Whether the program waits in this library rather than for the descriptor, so that the device thread does not
    /// have to be told when a CQ is armed.
    pub(crate) fn is_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    pub(crate) fn set_served(&self, served: bool) {
        self.served.store(served, Ordering::Relaxed);
    }
}
