//! Channels: the events of completion queues.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex};

use ferroce_sys::{Event, Interest, Poller};

use super::CompletionQueue;
use crate::error::{SystemError, WaitError};
use crate::sync::lock;

/// Events of completion queues, behind one file descriptor.
#[derive(Debug)]
pub(crate) struct Channel {
    event: Event,
    /// Queues by their ids: an event that is never taken must not keep its queue, which keeps this channel.
    raised: Mutex<VecDeque<u64>>,
}

impl Channel {
    pub(super) fn raise(&self, queue: u64) {
        let mut raised = lock(&self.raised);
        raised.push_back(queue);
        // Its counter holds more than memory does: it cannot fail for being full. Under the lock, as all that touches
        // the descriptor: it counts what was raised, so no read of it ever blocks, even where a program has made it a
        // blocking one.
        let _ = self.event.signal();
    }

    fn take(&self) -> Result<Option<u64>, WaitError> {
        let mut raised = lock(&self.raised);
        if raised.is_empty() {
            return Ok(None);
        }
        self.event.take()?;
        Ok(raised.pop_front())
    }

    pub(super) fn forget(&self, id: u64) {
        let mut raised = lock(&self.raised);
        let before = raised.len();
        raised.retain(|queue| *queue != id);
        for _ in raised.len()..before {
            let _ = self.event.take();
        }
    }

    pub(super) fn wait(&self, deadline: Option<u64>) -> Result<Option<u64>, WaitError> {
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

/// A channel for events of completion queues. Its file descriptor is readable while there is one.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    pub(crate) channel: Arc<Channel>,
}

impl CompletionChannel {
    /// A channel that no queue uses yet.
    ///
    /// # Errors
    ///
    /// When the process has no file descriptor left.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn new() -> Result<Self, SystemError> {
        let event = Event::counting()?;
        Ok(Self { channel: Arc::new(Channel { event, raised: Mutex::default() }) })
    }

    /// Takes an event without waiting, and says which of these queues it is of.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn try_event(&self, of: &[CompletionQueue]) -> Result<Option<usize>, WaitError> {
        let raised = self.channel.take()?;
        Ok(raised.and_then(|queue| of.iter().position(|one| one.id() == queue)))
    }

    /// Takes an event without waiting, and gives the [`CompletionQueue::id`] of its queue.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn take(&self) -> Result<Option<u64>, WaitError> {
        self.channel.take()
    }

    /// Waits for an event, at most until the deadline in nanoseconds of the monotonic clock.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(
        &self,
        of: &[CompletionQueue],
        deadline: Option<u64>,
    ) -> Result<Option<usize>, WaitError> {
        of.iter().for_each(|queue| queue.context.adapter().stop_polling());
        let raised = self.channel.wait(deadline)?;
        Ok(raised.and_then(|queue| of.iter().position(|one| one.id() == queue)))
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.channel.event.as_raw_fd()
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.event.as_fd()
    }
}
