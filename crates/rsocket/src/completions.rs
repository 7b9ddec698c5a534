//! A CQ with its completion channel.

use std::os::fd::{AsRawFd, RawFd};

use ferroce::{CompletionChannel, CompletionQueue, Context, WorkCompletion};

use crate::error::Result;

/// CQEs that one [`Completions::poll`] returns at most.
const POLL_BATCH: usize = 16;

pub(crate) struct Completions {
    pub(crate) queue: CompletionQueue,
    channel: CompletionChannel,
    /// The CQ raises an event for the next CQE.
    armed: bool,
}

impl Completions {
    pub(crate) fn new(context: &Context, capacity: usize) -> Result<Self> {
        let channel = CompletionChannel::new()?;
        channel.set_served(true);
        let queue = context.completion_queue(capacity, Some(&channel))?;
        Ok(Self { queue, channel, armed: false })
    }

    /// Polls a batch of CQEs. The CQ is empty if the first is `None`.
    pub(crate) fn poll(&self) -> [Option<WorkCompletion>; POLL_BATCH] {
        let mut batch = [const { None }; POLL_BATCH];
        let mut count = 0;
        self.queue.poll_with(batch.len(), |completion| {
            batch[count] = Some(completion);
            count += 1;
        });
        batch
    }

    /// Requests an event for the next CQE. Returns true if none was requested before: the caller has to poll once more
    /// before it blocks.
    pub(crate) fn arm(&mut self) -> bool {
        if self.armed {
            return false;
        }
        self.armed = true;
        self.queue.arm(false);
        true
    }

    /// Takes the requested event, and returns whether it had arrived.
    pub(crate) fn take_event(&mut self) -> bool {
        let mut any = false;
        while let Ok(Some(_)) = self.channel.try_event() {
            any = true;
            self.armed = false;
        }
        any
    }

    /// The descriptor that becomes readable with the event.
    pub(crate) fn event_fd(&self) -> RawFd {
        self.channel.as_raw_fd()
    }

    pub(crate) fn context(&self) -> &Context {
        self.queue.context()
    }

    pub(crate) fn channel(&self) -> &CompletionChannel {
        &self.channel
    }
}
