//! The events of completion queues, behind a file descriptor.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use ferroce_sys::{Event, Interest, Poller};

use crate::error::{SystemError, WaitError};
use crate::sync::lock;
use crate::time::nanos;

/// Events of completion queues, behind one file descriptor.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) event: Event,
    /// The IDs of the CQs that raised events. Holding the CQs instead would be a reference cycle, since a CQ holds its
    /// channel.
    raised: Mutex<VecDeque<u64>>,
}

impl Channel {
    pub(crate) fn new() -> Result<Self, SystemError> {
        Ok(Self { event: Event::counting()?, raised: Mutex::default() })
    }

    pub(crate) fn raise(&self, queue: u64) {
        let mut raised = lock(&self.raised);
        raised.push_back(queue);
        // The eventfd counts the entries of the queue, and is only touched under its lock: a read never blocks, even if
        // the program has cleared O_NONBLOCK. The counter cannot overflow before memory does.
        let _ = self.event.signal();
    }

    pub(crate) fn take(&self) -> Result<Option<u64>, WaitError> {
        let mut raised = lock(&self.raised);
        if raised.is_empty() {
            return Ok(None);
        }
        self.event.take()?;
        Ok(raised.pop_front())
    }

    /// Removes the events of a CQ.
    pub(crate) fn forget(&self, id: u64) {
        let mut raised = lock(&self.raised);
        let before = raised.len();
        raised.retain(|queue| *queue != id);
        for _ in raised.len()..before {
            let _ = self.event.take();
        }
    }

    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Result<Option<u64>, WaitError> {
        let deadline = nanos(deadline);
        let mut poller = Poller::new();
        poller.watch(&self.event, Interest::Read);
        loop {
            if let Some(queue) = self.take()? {
                return Ok(Some(queue));
            }
            if poller.wait(deadline)? == 0 {
                return Ok(None);
            }
        }
    }
}
