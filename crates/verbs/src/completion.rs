//! Completion queues (CQ) and completion channels.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::context::Context;
use crate::cq::{Channel, Queue, WorkCompletion};
use crate::engine::{Adapter, Leading};
use crate::error::{CreateError, ResizeError, SystemError, WaitError};

/// A completion channel: delivers the events of completion queues (CQ) that were [armed](CompletionQueue::arm).
///
/// Its file descriptor is readable while an event is pending.
///
/// ```
/// use ferroce::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (device, index) = Device::with_address("127.0.0.1:0".parse()?)?;
/// # let context = Context::open(&device, &Options::default())?;
/// # let pd = context.protection_domain();
/// # let mr = pd.allocate(64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
/// let channel = CompletionChannel::new()?;
/// let cq = context.completion_queue(16, Some(&channel))?;
/// let qp = pd.queue_pair(&QueuePairOptions::new(ServiceType::ReliableConnection, &cq))?;
/// # qp.connect_to(index, device.gids()[usize::from(index)].gid, qp.number())?;
/// // One event, for the next completion.
/// cq.arm(false);
/// assert_eq!(channel.try_event(&[cq.clone()])?, None);
///
/// let operation = Operation::Write { remote: mr.remote(0), immediate: None };
/// let data = Data::Inline(b"hello".as_slice().into());
/// qp.post_send(SendRequest::new(WorkId(1), operation, data))?;
/// // An event loop would wait for the descriptor of the channel.
/// while channel.try_event(&[cq.clone()])?.is_none() {
///     std::thread::yield_now();
/// }
/// assert_eq!(cq.poll_one().map(|done| done.status), Some(Status::Success));
/// # Ok(())
/// # }
/// ```
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
        Ok(Self { channel: Arc::new(Channel::new()?) })
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

    /// For bindings whose threads wait themselves: drives the device once, and takes an event. `None` if there is none;
    /// [`CompletionChannel::lead`] then says what to wait for.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn serve(&self, context: &Context) -> Result<Option<u64>, WaitError> {
        self.channel.set_served(true);
        self.channel.serve(self.shard(context))
    }

    /// For bindings whose threads wait themselves: the sockets to wait for besides the channel's descriptor. `None` if
    /// another thread watches them. Call [`CompletionChannel::stop_leading`] after the wait.
    pub fn lead(&self, context: &Context) -> Option<Leading> {
        self.shard(context).lead()
    }

    /// For bindings: drives the device once. The events that follow make the descriptors of their channels readable.
    pub fn drive(&self, context: &Context) {
        self.shard(context).make_pass();
    }

    /// For bindings whose threads wait for several channels: whether a thread that [leads](CompletionChannel::lead) for
    /// this channel also receives the packets of the other.
    pub fn is_led_with(&self, context: &Context, other: &Self, of: &Context) -> bool {
        let same_device = Arc::ptr_eq(&context.handle, &of.handle);
        same_device && std::ptr::eq(self.shard(context), other.shard(of))
    }

    /// For bindings: the program waits in calls of the binding, which drive the device, and not for the descriptor.
    pub fn start_serving(&self) {
        self.channel.set_served(true);
    }

    /// Ends the wait that [`CompletionChannel::lead`] began.
    pub fn stop_leading(&self, context: &Context, leading: &Leading) {
        context.handle.shard(leading.shard).signals.stop_leading();
    }

    /// The shard to drive in a wait for its events.
    fn shard<'a>(&self, context: &'a Context) -> &'a Adapter {
        context.handle.shard(self.channel.shards.first().unwrap_or(0))
    }

    /// For bindings: the program waits for the descriptor itself, so the device thread has to watch the sockets.
    pub fn stop_serving(&self) {
        self.channel.set_served(false);
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
        // This thread drives the device while it waits. It cannot drive several.
        let first = queues.first().map(|queue| &queue.context);
        let is_first = |queue: &CompletionQueue| {
            first.is_some_and(|first| Arc::ptr_eq(&first.handle, &queue.context.handle))
        };
        let context = first.filter(|_| queues.iter().all(is_first));
        let adapter = context.map(|context| self.shard(context));
        if adapter.is_none() {
            queues.iter().for_each(|queue| queue.context.stop_polling());
        }
        let raised = self.channel.wait(adapter, deadline)?;
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

/// A completion queue (CQ): holds the completions of the work requests of one or more queue pairs. Clones share it.
///
/// A program either polls it, or waits: with [`CompletionQueue::wait`], by the file descriptor of its
/// [`CompletionChannel`], or with `AsyncCompletionQueue` under tokio. Polling drives the
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
        Ok(CompletionQueue::new(self.clone(), capacity, channel))
    }
}

impl CompletionQueue {
    fn new(context: Context, capacity: usize, channel: Option<&CompletionChannel>) -> Self {
        let channel = channel.map(|channel| Arc::clone(&channel.channel));
        let queue =
            Queue::new(capacity, channel, Arc::clone(&context.events), &context.adapter().counters);
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
            let shard = self.context.handle.shard(self.queue.shard().unwrap_or(0));
            if channel.wait(Some(shard), deadline)?.is_none() {
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

    /// The shard that a queue pair with this CQ should belong to, if others with it do.
    pub(crate) fn shard(&self) -> Option<u8> {
        self.queue.shard()
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
