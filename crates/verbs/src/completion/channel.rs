//! Completion channels: the events of completion queues.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ferroce_sys::{Event, Interest, Poller};

use super::CompletionQueue;
use crate::error::{SystemError, WaitError};
use crate::sync::lock;
use crate::time::nanos;

/// Events of completion queues, behind one file descriptor.
#[derive(Debug)]
pub(crate) struct Channel {
    event: Event,
    /// The IDs of the CQs that raised events. Holding the CQs instead would be a reference cycle, since a CQ holds its
    /// channel.
    raised: Mutex<VecDeque<u64>>,
}

impl Channel {
    pub(super) fn raise(&self, queue: u64) {
        let mut raised = lock(&self.raised);
        raised.push_back(queue);
        // The eventfd counts the entries of the queue, and is only touched under its lock: a read never blocks, even if
        // the program has cleared O_NONBLOCK. The counter cannot overflow before memory does.
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

    /// Removes the events of a CQ.
    pub(super) fn forget(&self, id: u64) {
        let mut raised = lock(&self.raised);
        let before = raised.len();
        raised.retain(|queue| *queue != id);
        for _ in raised.len()..before {
            let _ = self.event.take();
        }
    }

    pub(super) fn wait(&self, deadline: Option<Instant>) -> Result<Option<u64>, WaitError> {
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

/// A completion channel: delivers the events of completion queues (CQ) that were [armed](CompletionQueue::arm).
///
/// Its file descriptor is readable while an event is pending.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_comp_channel")]
pub struct CompletionChannel {
    pub(crate) channel: Arc<Channel>,
}

impl CompletionChannel {
    /// Creates a channel.
    ///
    /// # Errors
    ///
    /// When the process has no file descriptor left.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn new() -> Result<Self, SystemError> {
        let event = Event::counting()?;
        Ok(Self { channel: Arc::new(Channel { event, raised: Mutex::default() }) })
    }

    /// Takes an event without waiting, and returns the index of its CQ in `queues`.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn try_event(&self, queues: &[CompletionQueue]) -> Result<Option<usize>, WaitError> {
        let raised = self.channel.take()?;
        Ok(raised.and_then(|id| queues.iter().position(|queue| queue.id() == id)))
    }

    /// Takes an event without waiting, and returns the [`CompletionQueue::id`] of its CQ.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn take(&self) -> Result<Option<u64>, WaitError> {
        self.channel.take()
    }

    /// Waits for an event, and returns the index of its CQ in `queues`; `None` at the deadline.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(
        &self,
        queues: &[CompletionQueue],
        deadline: Option<Instant>,
    ) -> Result<Option<usize>, WaitError> {
        queues.iter().for_each(|queue| queue.context.adapter().stop_polling());
        let raised = self.channel.wait(deadline)?;
        Ok(raised.and_then(|id| queues.iter().position(|queue| queue.id() == id)))
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
