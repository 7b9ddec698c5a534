//! Completion queues, and the channels that tell of them.

mod channel;
mod ring;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ferroce_proto::work::{Completion, Status};
use ferroce_wire::number::Qpn;

use self::channel::Channel;
pub use self::channel::CompletionChannel;
use self::ring::Ring;
use crate::context::Context;
use crate::error::{ResizeError, WaitError};
use crate::event::{AsyncEvent, Events, Source};

/// The end of a work request, and whose it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The queue pair.
    pub queue_pair: Qpn,
    /// When, in nanoseconds of the monotonic clock.
    pub time: u64,
    /// What happened.
    pub completion: Completion,
}

impl Deref for WorkCompletion {
    type Target = Completion;

    fn deref(&self) -> &Completion {
        &self.completion
    }
}

/// The queue itself, as queue pairs know it.
#[derive(Debug)]
pub(crate) struct Queue {
    ring: Ring<WorkCompletion>,
    overrun: AtomicBool,
    channel: Option<Arc<Channel>>,
    /// Where its owner hears that it has overrun.
    events: Arc<Events>,
    id: u64,
    /// Queue pairs and shared receive queues that complete here.
    pub(crate) users: AtomicUsize,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A completion found no room: it is lost, and the queue is broken (IBA 11.6.3.3).
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

    /// Adds a completion, and tells who waits for it.
    pub(crate) fn push(&self, entry: WorkCompletion) -> Result<(), Overrun> {
        // IBA 11.4.2.2: a failure is as good as solicited.
        let solicited = entry.solicited || entry.status != Status::Success;
        let Ok(wanted) = self.ring.push(entry, solicited) else {
            if !self.overrun.swap(true, Ordering::Relaxed) {
                self.events.raise(AsyncEvent::completion_lost(self.id));
            }
            return Err(Overrun);
        };
        if let (true, Some(channel)) = (wanted, &self.channel) {
            channel.raise(self.id);
        }
        Ok(())
    }

    /// Forgets the completions of a queue pair that is gone (IBA 10.3.1.1).
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

/// A completion queue. Clones are the same queue.
#[derive(Clone)]
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

    /// Moves up to `most` completions to the end of `out`, and returns how many. When there are none it drives the
    /// device first: who polls needs no other thread.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&self, out: &mut Vec<WorkCompletion>, most: usize) -> usize {
        self.poll_with(most, |one| out.push(one))
    }

    /// As [`CompletionQueue::poll`], for who puts completions elsewhere. `each` is called under the queue's lock: it must
    /// not use the queue.
    pub fn poll_with(&self, most: usize, mut each: impl FnMut(WorkCompletion)) -> usize {
        let found = self.take_ready(most, &mut each);
        if found > 0 || most == 0 {
            return found;
        }
        self.context.adapter().poll(self.queue.ring.is_awaited());
        self.queue.ring.take(most, each)
    }

    /// As [`CompletionQueue::poll_with`], but only what is there already: the device is not driven, and no system call is
    /// made that could block or be a cancellation point.
    pub fn take_ready(&self, most: usize, each: impl FnMut(WorkCompletion)) -> usize {
        self.queue.ring.take(most, each)
    }

    /// One completion, if there is one.
    pub fn poll_one(&self) -> Option<WorkCompletion> {
        let mut found = None;
        self.poll_with(1, |one| found = Some(one));
        found
    }

    /// Asks for an event on the next completion, or the next solicited one. Poll once more after it: what came before
    /// raises none (IBA 11.4.2.2).
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&self, solicited_only: bool) {
        self.queue.ring.arm(solicited_only);
        self.context.adapter().stop_polling();
    }

    /// Waits for the next completion, without the processor.
    ///
    /// # Errors
    ///
    /// When the queue has no channel, or the wait fails.
    pub fn wait(&self) -> Result<WorkCompletion, WaitError> {
        let channel = self.queue.channel.as_ref();
        let channel = channel.ok_or(WaitError::NoChannel)?;
        loop {
            if let Some(found) = self.poll_one() {
                return Ok(found);
            }
            self.arm(false);
            if let Some(found) = self.poll_one() {
                return Ok(found);
            }
            channel.wait(None)?;
        }
    }

    /// Completions that it holds at most.
    pub fn capacity(&self) -> usize {
        self.queue.ring.capacity()
    }

    /// Makes room for more or fewer.
    ///
    /// # Errors
    ///
    /// When it holds more than that.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&self, capacity: usize) -> Result<(), ResizeError> {
        let resized = self.queue.ring.resize(capacity);
        resized.map_err(|_| ResizeError { capacity })
    }

    /// Whether a completion was lost because there was no room. The queue pair that it was of is in error then.
    pub fn has_overrun(&self) -> bool {
        self.queue.overrun.load(Ordering::Relaxed)
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// A number that no other queue of this process has: see [`CompletionChannel::take`].
    pub fn id(&self) -> u64 {
        self.queue.id
    }

    /// Takes back the events of this queue that nobody took from its channel.
    pub fn forget_events(&self) {
        if let Some(channel) = &self.queue.channel {
            channel.forget(self.queue.id);
        }
    }

    pub(crate) fn share(&self) -> Arc<Queue> {
        Arc::clone(&self.queue)
    }

    /// How many queue pairs complete here; one counts twice if both its queues do.
    pub fn users(&self) -> usize {
        self.queue.users.load(Ordering::Relaxed)
    }

    /// Whether both are the same queue.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queue, &other.queue)
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("queue", &self.queue).finish_non_exhaustive()
    }
}
