//! Completion queues (CQ), and how bindings wait for their events.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::context::Context;
use crate::cq::{CompletionChannel, Queue, WorkCompletion};
use crate::engine::{Adapter, Leading};
use crate::error::{CreateError, ResizeError, WaitError};

/// A completion queue (CQ): holds the completions of the work requests of one or more queue pairs. Clones share it.
///
/// A program either polls it, or waits: with [`CompletionQueue::wait`], by the file descriptor of its
/// [`CompletionChannel`], or with `AsyncCompletionQueue` under tokio. Polling drives the device in the calling thread.
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
#[derive(Clone, Debug)]
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue {
    context: Context,
    pub(crate) queue: Arc<Queue>,
}

impl Context {
    /// Creates a completion queue (CQ) with room for `capacity` entries, and with a channel if it is to be waited on.
    ///
    /// # Errors
    ///
    /// When the capacity is 0 or above [`Limits::max_cqe`](crate::Limits::max_cqe).
    #[doc(alias = "ibv_create_cq")]
    pub fn completion_queue(
        &self,
        capacity: usize,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue, CreateError> {
        let max = self.limits().max_cqe as usize;
        if capacity == 0 || capacity > max {
            return Err(CreateError::CqeOutOfRange { given: capacity, max });
        }
        let (events, counters) = (Arc::clone(&self.events), &self.adapter().counters);
        let queue = Arc::new(Queue::new(capacity, channel.cloned(), events, counters));
        Ok(CompletionQueue { context: self.clone(), queue })
    }
}

impl CompletionQueue {
    /// Appends up to `max` completions to `out`, and returns their number. If there are none, it drives the device first:
    /// a program that polls needs no other thread.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&self, out: &mut Vec<WorkCompletion>, max: usize) -> usize {
        self.poll_with(max, |entry| out.push(entry))
    }

    /// Passes up to `max` completions to `each`, as [`CompletionQueue::poll`] does. `each` is called under the lock of the
    /// CQ and must not use the CQ.
    pub fn poll_with(&self, max: usize, mut each: impl FnMut(WorkCompletion)) -> usize {
        let found = self.queue.ring.take(max, &mut each);
        if found > 0 || max == 0 {
            return found;
        }
        let armed = self.queue.ring.is_armed();
        self.shards().for_each(|shard| shard.poll(self.queue.id, armed));
        self.queue.ring.take(max, each)
    }

    /// Returns the next completion, if there is one.
    pub fn poll_one(&self) -> Option<WorkCompletion> {
        let mut found = None;
        self.poll_with(1, |entry| found = Some(entry));
        found
    }

    /// Requests an event for the next completion, or the next solicited one. Poll once more afterwards: on other devices,
    /// completions that came before may raise no event (IBA 11.4.2.2). Here they do, unless an earlier event announced them.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&self, solicited_only: bool) {
        self.queue.arm(solicited_only);
        if !self.queue.channel.as_ref().is_some_and(|channel| channel.is_served()) {
            self.shards().for_each(|shard| shard.signals.stop_polling());
        }
    }

    /// The shards whose queue pairs complete here.
    fn shards(&self) -> impl Iterator<Item = &Adapter> {
        self.queue.shards.iter().map(|shard| &**self.context.handle.shard(shard))
    }

    /// Waits for the next completion; the thread sleeps meanwhile.
    ///
    /// # Errors
    ///
    /// When the CQ has no channel, or the wait fails.
    pub fn wait(&self) -> Result<WorkCompletion, WaitError> {
        loop {
            if let Some(found) = self.wait_until(None)? {
                return Ok(found);
            }
        }
    }

    /// Waits for the next completion, as [`CompletionQueue::wait`] does, or returns `None` at the deadline.
    pub fn wait_until(
        &self,
        deadline: impl Into<Option<Instant>>,
    ) -> Result<Option<WorkCompletion>, WaitError> {
        let deadline = deadline.into();
        let channel = self.queue.channel.as_ref().ok_or(WaitError::NoChannel)?;
        loop {
            if let Some(found) = self.poll_one() {
                return Ok(Some(found));
            }
            self.arm(false);
            if let Some(found) = self.poll_one() {
                return Ok(Some(found));
            }
            let shard = self.context.handle.shard(self.queue.shard().unwrap_or(0));
            if channel.wait_with(Some(shard), deadline)?.is_none() {
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

    /// Returns an ID that is unique in the process: see [`CompletionChannel::try_event`].
    pub fn id(&self) -> u64 {
        self.queue.id
    }

    /// Removes pending events of this CQ from its channel.
    pub fn forget_events(&self) {
        if let Some(channel) = &self.queue.channel {
            channel.forget(self.queue.id);
        }
    }

    /// Returns the number of send and receive queues that complete here: a queue pair counts twice if both of its queues
    /// do.
    pub fn users(&self) -> usize {
        self.queue.users.load(Ordering::Relaxed)
    }
}

impl CompletionChannel {
    /// For bindings whose threads wait themselves: drives the device once, and takes an event. `None` if there is none;
    /// [`CompletionChannel::lead`] then says what to wait for.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn serve(&self, context: &Context) -> Result<Option<u64>, WaitError> {
        self.set_served(true);
        self.serve_shard(self.shard(context))
    }

    /// For bindings whose threads wait themselves: the sockets to wait for besides the descriptors of the channels. `None` if
    /// another thread watches them, or the channels do not have them in common. Call [`CompletionChannel::stop_leading`]
    /// after the wait.
    pub fn lead<'a>(
        channels: impl IntoIterator<Item = (&'a Self, &'a Context)>,
    ) -> Option<Leading> {
        let mut shards = channels.into_iter().map(|(channel, context)| channel.shard(context));
        let first = shards.next()?;
        if shards.all(|shard| std::ptr::eq(shard, first)) { first.lead() } else { None }
    }

    /// For bindings: drives the device once. The events that follow make the descriptors of their channels readable.
    pub fn drive(&self, context: &Context) {
        self.shard(context).make_pass();
    }

    /// Ends the wait that [`CompletionChannel::lead`] began.
    pub fn stop_leading(&self, context: &Context, leading: &Leading) {
        context.handle.shard(leading.shard).signals.stop_leading();
    }

    /// The shard to drive in a wait for its events.
    fn shard<'a>(&self, context: &'a Context) -> &'a Adapter {
        context.handle.shard(self.0.shards.first().unwrap_or(0))
    }

    /// Waits for an event of these CQs, and returns the [`CompletionQueue::id`] of its CQ; `None` at the deadline.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(
        &self,
        queues: &[CompletionQueue],
        deadline: Option<Instant>,
    ) -> Result<Option<u64>, WaitError> {
        // This thread drives the device while it waits. It cannot drive several.
        let mut contexts = queues.iter().map(|queue| &queue.context);
        let first = contexts.next();
        let only =
            first.filter(|first| contexts.all(|one| Arc::ptr_eq(&first.handle, &one.handle)));
        let adapter = only.map(|context| self.shard(context));
        if adapter.is_none() {
            queues.iter().for_each(|queue| queue.context.stop_polling());
        }
        self.wait_with(adapter, deadline)
    }
}
