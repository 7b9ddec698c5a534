//! Completion queues for tokio (feature `tokio`).

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::completion::CompletionQueue;
use crate::context::Context;
use crate::cq::{CompletionChannel, WorkCompletion};
use crate::error::{CreateError, WaitError};

/// A completion queue (CQ) whose completions can be awaited, with its own completion channel.
///
/// ```
/// use ferroce::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (device, gid_index) = Device::with_address("127.0.0.1:0".parse()?)?;
/// let context = Context::open(&device, &Options::default())?;
/// let pd = context.protection_domain();
/// let mr = pd.allocate(5, AccessFlags::LOCAL_WRITE)?;
/// let cq = context.async_completion_queue(16)?;
///
/// // A queue pair that is connected to itself.
/// let qp = pd.queue_pair(&QueuePairOptions::new(ServiceType::ReliableConnection, cq.queue()))?;
/// let gid = device.gids()[usize::from(gid_index)].gid;
/// qp.connect_to(gid_index, gid, qp.number())?;
///
/// qp.post_receive(ReceiveRequest { id: WorkId(1), sg_list: mr.sge(0, 5).into() })?;
/// let data = Data::Inline((*b"hello").into());
/// qp.post_send(SendRequest::new(WorkId(2), Operation::SEND, data))?;
/// for _ in 0..2 {
///     assert_eq!(cq.next().await?.status, Status::Success);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncCompletionQueue {
    queue: CompletionQueue,
    channel: AsyncFd<CompletionChannel>,
}

impl Context {
    /// Creates a completion queue (CQ) to be awaited. Call it within a tokio runtime with I/O enabled.
    ///
    /// # Errors
    ///
    /// As [`Context::completion_queue`], and [`CreateError::NoIoDriver`] outside of a runtime.
    ///
    /// # Panics
    ///
    /// In a runtime that was built without `enable_io`: tokio has no function that tells.
    pub fn async_completion_queue(
        &self,
        capacity: usize,
    ) -> Result<AsyncCompletionQueue, CreateError> {
        tokio::runtime::Handle::try_current().map_err(|_| CreateError::NoIoDriver)?;
        let channel = CompletionChannel::new()?;
        let queue = self.completion_queue(capacity, Some(&channel))?;
        // Its replacement is unsafe for types that do not keep their descriptor open. A channel does, and this crate
        // forbids unsafe code.
        #[allow(deprecated)]
        let channel = AsyncFd::with_interest(channel, Interest::READABLE)
            .map_err(|_| CreateError::NoIoDriver)?;
        Ok(AsyncCompletionQueue { queue, channel })
    }
}

impl AsyncCompletionQueue {
    /// Returns the CQ, to create queue pairs with.
    pub fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// Returns the next completion. Cancel safe: dropping the future loses no completion.
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
            // Completions from before the CQ was armed raise no event.
            if let Some(found) = self.queue.poll_one() {
                return Ok(found);
            }
            self.queue.context().stop_polling();
            let ready = self.channel.readable().await;
            let mut ready = ready.map_err(|_| WaitError::Closed)?;
            if self.channel.get_ref().try_event()?.is_none() {
                ready.clear_ready();
            }
        }
    }
}
