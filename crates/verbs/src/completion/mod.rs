//! Completion queues (CQ) and completion channels.

mod channel;
mod ring;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use ferroce_proto::work::{Completion, Status};
use ferroce_wire::number::Qpn;

use self::channel::Channel;
pub use self::channel::CompletionChannel;
use self::ring::Ring;
use crate::context::Context;
use crate::error::{ResizeError, WaitError};
use crate::event::{AsyncEvent, Events, Source};
use crate::time::Timestamp;

/// A completion queue entry (CQE): the completion of a work request. Dereferences to its [`Completion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_wc")]
#[non_exhaustive]
pub struct WorkCompletion {
    /// The queue pair of the work request.
    pub queue_pair: Qpn,
    /// When the work request completed.
    pub time: Timestamp,
    /// Its ID, status and result.
    pub completion: Completion,
}

impl Deref for WorkCompletion {
    type Target = Completion;

    fn deref(&self) -> &Completion {
        &self.completion
    }
}

/// The part of a completion queue that queue pairs refer to.
#[derive(Debug)]
pub(crate) struct Queue {
    ring: Ring<WorkCompletion>,
    overrun: AtomicBool,
    channel: Option<Arc<Channel>>,
    /// Receives the overrun event.
    events: Arc<Events>,
    id: u64,
    /// Queue pairs and shared receive queues that complete here.
    pub(crate) users: AtomicUsize,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A completion found the CQ full: it is lost, and the CQ is in error (IBA 11.6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

impl Queue {
    fn new(capacity: usize, channel: Option<Arc<Channel>>, events: Arc<Events>) -> Self {
        Self {
            ring: Ring::new(capacity),
            overrun: AtomicBool::new(false),
            channel,
            events,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            users: AtomicUsize::new(0),
        }
    }

    /// Adds a completion, and raises an event if the CQ is armed for it.
    pub(crate) fn push(&self, entry: WorkCompletion) -> Result<(), Overrun> {
        // IBA 11.4.2.2: a failed completion counts as solicited.
        let solicited = entry.solicited || entry.status != Status::Success;
        let Ok(notify) = self.ring.push(entry, solicited) else {
            if !self.overrun.swap(true, Ordering::Relaxed) {
                self.events.raise(AsyncEvent::completion_lost(self.id));
            }
            return Err(Overrun);
        };
        if let (true, Some(channel)) = (notify, &self.channel) {
            channel.raise(self.id);
        }
        Ok(())
    }

    /// Removes the completions of a destroyed or reset QP (IBA 10.3.1.1).
    pub(crate) fn forget(&self, queue_pair: Qpn) {
        self.ring.retain(|entry| entry.queue_pair != queue_pair);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.events.forget(Source::CompletionQueue(self.id));
        if let Some(channel) = &self.channel {
            channel.forget(self.id);
        }
    }
}

/// A completion queue (CQ): holds the completions of the work requests of one or more queue pairs. Clones share it.
///
/// A program either polls it, or waits: with [`CompletionQueue::wait`], by the file descriptor of its
/// [`CompletionChannel`], or with [`AsyncCompletionQueue`](crate::AsyncCompletionQueue) under tokio. Polling drives the
/// device in the calling thread.
///
/// ```
/// use ferroce::{CompletionChannel, Context, Device, Options};
/// use std::time::{Duration, Instant};
///
/// # fn main() -> Result<(), ferroce::Error> {
/// let context = Context::open(&Device::named("lo")?, &Options::default())?;
/// let channel = CompletionChannel::new()?;
/// let cq = context.completion_queue(16, Some(&channel))?;
///
/// // Nothing was posted: polling finds nothing, and waiting ends at its deadline.
/// assert!(cq.poll_one().is_none());
/// let deadline = Instant::now() + Duration::from_millis(10);
/// assert!(cq.wait_until(deadline)?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue {
    context: Context,
    queue: Arc<Queue>,
}

impl CompletionQueue {
    pub(crate) fn new(
        context: Context,
        capacity: usize,
        channel: Option<&CompletionChannel>,
    ) -> Self {
        let channel = channel.map(|channel| Arc::clone(&channel.channel));
        let queue = Queue::new(capacity, channel, Arc::clone(&context.events));
        Self { context, queue: Arc::new(queue) }
    }

    /// Appends up to `max` completions to `out`, and returns their number. If there are none, it drives the device first:
    /// a program that polls needs no other thread.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&self, out: &mut Vec<WorkCompletion>, max: usize) -> usize {
        self.poll_with(max, |entry| out.push(entry))
    }

    /// Passes up to `max` completions to `each`, as [`CompletionQueue::poll`] does. `each` is called under the lock of the
    /// CQ and must not use the CQ.
    pub fn poll_with(&self, max: usize, mut each: impl FnMut(WorkCompletion)) -> usize {
        let found = self.take_ready(max, &mut each);
        if found > 0 || max == 0 {
            return found;
        }
        self.context.adapter().poll(self.queue.ring.is_armed());
        self.queue.ring.take(max, each)
    }

    /// Passes up to `max` completions that are in the CQ already to `each`. It does not drive the device, and makes no
    /// system call that could block or be a cancellation point.
    pub fn take_ready(&self, max: usize, each: impl FnMut(WorkCompletion)) -> usize {
        self.queue.ring.take(max, each)
    }

    /// Returns the next completion, if there is one.
    pub fn poll_one(&self) -> Option<WorkCompletion> {
        let mut found = None;
        self.poll_with(1, |entry| found = Some(entry));
        found
    }

    /// Requests an event for the next completion, or the next solicited one. Poll once more afterwards: completions that
    /// came before raise no event (IBA 11.4.2.2).
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&self, solicited_only: bool) {
        self.queue.ring.arm(solicited_only);
        self.context.adapter().stop_polling();
    }

    /// Waits for the next completion; the thread sleeps meanwhile.
    ///
    /// # Errors
    ///
    /// When the CQ has no channel, or the wait fails.
    pub fn wait(&self) -> Result<WorkCompletion, WaitError> {
        loop {
            if let Some(found) = self.wait_for(None)? {
                return Ok(found);
            }
        }
    }

    /// Waits for the next completion, or returns `None` at the deadline.
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::wait`].
    pub fn wait_until(&self, deadline: Instant) -> Result<Option<WorkCompletion>, WaitError> {
        self.wait_for(Some(deadline))
    }

    fn wait_for(&self, deadline: Option<Instant>) -> Result<Option<WorkCompletion>, WaitError> {
        let channel = self.queue.channel.as_ref().ok_or(WaitError::NoChannel)?;
        loop {
            if let Some(found) = self.poll_one() {
                return Ok(Some(found));
            }
            self.arm(false);
            if let Some(found) = self.poll_one() {
                return Ok(Some(found));
            }
            if channel.wait(deadline)?.is_none() {
                return Ok(self.poll_one());
            }
        }
    }

    /// Returns the maximum number of entries (CQEs).
    pub fn capacity(&self) -> usize {
        self.queue.ring.capacity()
    }

    /// Changes the capacity.
    ///
    /// # Errors
    ///
    /// When the CQ holds more entries.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&self, capacity: usize) -> Result<(), ResizeError> {
        self.queue.ring.resize(capacity).map_err(|_| ResizeError { capacity })
    }

    /// Whether a completion was lost because the CQ was full. Its queue pair is in the error state then.
    pub fn has_overrun(&self) -> bool {
        self.queue.overrun.load(Ordering::Relaxed)
    }

    /// Returns the context it was created from.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns an ID that is unique in the process: see [`CompletionChannel::take`].
    pub fn id(&self) -> u64 {
        self.queue.id
    }

    /// Removes pending events of this CQ from its channel.
    pub fn forget_events(&self) {
        if let Some(channel) = &self.queue.channel {
            channel.forget(self.queue.id);
        }
    }

    pub(crate) fn share(&self) -> Arc<Queue> {
        Arc::clone(&self.queue)
    }

    /// Returns the number of send and receive queues that complete here: a queue pair counts twice if both of its queues
    /// do.
    pub fn users(&self) -> usize {
        self.queue.users.load(Ordering::Relaxed)
    }

    /// Whether both are the same CQ.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queue, &other.queue)
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("queue", &self.queue).finish_non_exhaustive()
    }
}
