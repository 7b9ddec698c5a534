//! Where requests of a queue pair complete, and the event of that.

use std::os::fd::{AsRawFd, RawFd};

use ferroce::{CompletionChannel, CompletionQueue, Context, WorkCompletion};

use crate::entry::Result;

pub(super) struct Completions {
    pub(super) queue: CompletionQueue,
    channel: CompletionChannel,
    /// The queue raises an event for the next completion.
    armed: bool,
}

impl Completions {
    pub(super) fn new(context: &Context, capacity: usize) -> Result<Self> {
        let channel = CompletionChannel::new()?;
        let queue = context.completion_queue(capacity, Some(&channel))?;
        Ok(Self { queue, channel, armed: false })
    }

    /// Some of what has completed; none of it is all that there is.
    pub(super) fn poll(&self) -> [Option<WorkCompletion>; 16] {
        let mut found = [const { None }; 16];
        let mut count = 0;
        self.queue.poll_with(found.len(), |one| {
            found[count] = Some(one);
            count += 1;
        });
        found
    }

    /// Asks for an event on the next completion. False if that was asked for already; else look once more before going to
    /// sleep.
    pub(super) fn arm(&mut self) -> bool {
        if self.armed {
            return false;
        }
        self.armed = true;
        self.queue.arm(false);
        true
    }

    /// Takes the event that was asked for, if it is there.
    pub(super) fn take_event(&mut self) -> bool {
        let mut any = false;
        while let Ok(Some(_)) = self.channel.take() {
            any = true;
            self.armed = false;
        }
        any
    }

    /// What becomes readable with the event.
    pub(super) fn event_fd(&self) -> RawFd {
        self.channel.as_raw_fd()
    }

    /// A thread that goes to sleep leaves packets to the device's own.
    pub(super) fn context(&self) -> &Context {
        self.queue.context()
    }
}
