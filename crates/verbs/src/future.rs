//! Completions as futures, for tokio (feature `tokio`).

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::completion::{CompletionChannel, CompletionQueue, WorkCompletion};
use crate::context::Context;
use crate::error::{CreateError, WaitError};

/// A completion queue whose completions can be awaited. It has a channel of its own.
#[derive(Debug)]
pub struct AsyncCompletionQueue {
    queue: CompletionQueue,
    channel: AsyncFd<CompletionChannel>,
}

impl Context {
    /// A completion queue for so many completions, to be awaited. Call it within a tokio runtime with I/O enabled.
    ///
    /// # Errors
    ///
    /// As [`Context::completion_queue`], and when the runtime does not watch descriptors.
    pub fn async_completion_queue(
        &self,
        capacity: usize,
    ) -> Result<AsyncCompletionQueue, CreateError> {
        let channel = CompletionChannel::new()?;
        let queue = self.completion_queue(capacity, Some(&channel))?;
        // Its replacement is unsafe, because of types that do not keep their descriptor open. A channel does, and this
        // crate forbids unsafe code.
        #[allow(deprecated)]
        let channel = AsyncFd::with_interest(channel, Interest::READABLE)
            .map_err(|_| CreateError::NoIoDriver)?;
        Ok(AsyncCompletionQueue { queue, channel })
    }
}

impl AsyncCompletionQueue {
    /// The queue, to make queue pairs with.
    pub fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// The next completion. Dropping the future loses none.
    ///
    /// # Errors
    ///
    /// When the channel cannot be read.
    pub async fn next(&self) -> Result<WorkCompletion, WaitError> {
        loop {
            if let Some(found) = self.queue.poll_one() {
                return Ok(found);
            }
            self.queue.arm(false);
            // What came before it was armed raises no event.
            if let Some(found) = self.queue.poll_one() {
                return Ok(found);
            }
            self.queue.context().rest();
            let ready = self.channel.readable().await;
            let mut ready = ready.map_err(|_| WaitError::Closed)?;
            if self.channel.get_ref().try_event(std::slice::from_ref(&self.queue))?.is_none() {
                ready.clear_ready();
            }
        }
    }
}
