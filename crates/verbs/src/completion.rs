//! Completion queues, and the channels that tell of them.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce_net::{Event, Interest, Poller};
use ferroce_proto::work::{Completion, Status};
use ferroce_wire::number::Qpn;

use crate::context::Context;
use crate::error::Error;

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

/// Locks, whatever became of who held it before: all that is protected here is valid at every moment.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which completion the next event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    /// One whose sender asked for an event, or that failed (IBA 11.4.2.2).
    Solicited,
    Any,
}

#[derive(Debug)]
struct Ring {
    entries: VecDeque<WorkCompletion>,
    capacity: usize,
    armed: Armed,
}

/// The queue itself, as queue pairs know it.
#[derive(Debug)]
pub(crate) struct Queue {
    ring: Mutex<Ring>,
    /// How many are there: who polls an empty queue takes no lock.
    length: AtomicUsize,
    overrun: AtomicBool,
    channel: Option<Arc<Channel>>,
    id: u64,
    /// Queue pairs and shared receive queues that complete here.
    pub(crate) users: AtomicUsize,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A completion found no room: it is lost, and the queue is broken (IBA 11.6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

impl Queue {
    fn new(capacity: usize, channel: Option<Arc<Channel>>) -> Self {
        Self {
            ring: Mutex::new(Ring { entries: VecDeque::new(), capacity, armed: Armed::No }),
            length: AtomicUsize::new(0),
            overrun: AtomicBool::new(false),
            channel,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            users: AtomicUsize::new(0),
        }
    }

    /// Adds a completion, and tells who waits for it.
    pub(crate) fn push(self: &Arc<Self>, entry: WorkCompletion) -> Result<(), Overrun> {
        let mut ring = lock(&self.ring);
        if ring.entries.len() >= ring.capacity {
            self.overrun.store(true, Ordering::Relaxed);
            return Err(Overrun);
        }
        ring.entries.push_back(entry);
        self.length.store(ring.entries.len(), Ordering::Release);
        let wanted = match ring.armed {
            Armed::No => false,
            Armed::Solicited => entry.solicited || entry.status != Status::Success,
            Armed::Any => true,
        };
        if wanted {
            ring.armed = Armed::No;
            drop(ring);
            if let Some(channel) = &self.channel {
                channel.raise(self);
            }
        }
        Ok(())
    }

    fn take(&self, most: usize, each: impl FnMut(WorkCompletion)) -> usize {
        if self.length.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut ring = lock(&self.ring);
        let count = ring.entries.len().min(most);
        ring.entries.drain(..count).for_each(each);
        self.length.store(ring.entries.len(), Ordering::Release);
        count
    }

    /// Forgets the completions of a queue pair that is gone (IBA 10.3.1.1).
    pub(crate) fn forget(&self, queue_pair: Qpn) {
        let mut ring = lock(&self.ring);
        ring.entries.retain(|entry| entry.queue_pair != queue_pair);
        self.length.store(ring.entries.len(), Ordering::Release);
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
        Self { context, queue: Arc::new(Queue::new(capacity, channel)) }
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
        let found = self.queue.take(most, &mut each);
        if found > 0 || most == 0 {
            return found;
        }
        self.context.adapter().poll();
        self.queue.take(most, each)
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
        let mut ring = lock(&self.queue.ring);
        // IBA 11.4.2.2: asking for any is not undone by asking for less.
        if ring.armed != Armed::Any {
            ring.armed = if solicited_only { Armed::Solicited } else { Armed::Any };
        }
        drop(ring);
        self.context.adapter().stop_polling();
    }

    /// Waits for the next completion, without the processor.
    ///
    /// # Errors
    ///
    /// When the queue has no channel, or the wait fails.
    pub fn wait(&self) -> Result<WorkCompletion, Error> {
        let channel = self.queue.channel.as_ref();
        let channel = channel.ok_or(Error::Invalid("the completion queue has no channel"))?;
        loop {
            if let Some(found) = self.poll_one() {
                return Ok(found);
            }
            self.arm(false);
            if let Some(found) = self.poll_one() {
                return Ok(found);
            }
            self.context.adapter().stop_polling();
            channel.wait(None)?;
        }
    }

    /// Completions that it holds at most.
    pub fn capacity(&self) -> usize {
        lock(&self.queue.ring).capacity
    }

    /// Makes room for more or fewer.
    ///
    /// # Errors
    ///
    /// When it holds more than that.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&self, capacity: usize) -> Result<(), Error> {
        let mut ring = lock(&self.queue.ring);
        if ring.entries.len() > capacity {
            return Err(Error::Invalid("the completion queue holds more than that"));
        }
        ring.capacity = capacity;
        Ok(())
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

/// Events of completion queues, behind one file descriptor.
#[derive(Debug)]
pub(crate) struct Channel {
    event: Event,
    raised: Mutex<VecDeque<Arc<Queue>>>,
}

impl Channel {
    fn raise(&self, queue: &Arc<Queue>) {
        let mut raised = lock(&self.raised);
        raised.push_back(Arc::clone(queue));
        // Its counter holds more than memory does: it cannot fail for being full. Under the lock, as all that touches
        // the descriptor: it counts what was raised, so no read of it ever blocks, even where a program has made it a
        // blocking one.
        let _ = self.event.signal();
    }

    fn take(&self) -> Result<Option<Arc<Queue>>, Error> {
        let mut raised = lock(&self.raised);
        if raised.is_empty() {
            return Ok(None);
        }
        self.event.take()?;
        Ok(raised.pop_front())
    }

    fn forget(&self, id: u64) {
        let mut raised = lock(&self.raised);
        let before = raised.len();
        raised.retain(|queue| queue.id != id);
        for _ in raised.len()..before {
            let _ = self.event.take();
        }
    }

    fn wait(&self, deadline: Option<u64>) -> Result<Option<Arc<Queue>>, Error> {
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
    pub fn new() -> Result<Self, Error> {
        let event = Event::counting()?;
        Ok(Self { channel: Arc::new(Channel { event, raised: Mutex::default() }) })
    }

    /// Takes an event without waiting, and says which of these queues it is of.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn try_event(&self, of: &[CompletionQueue]) -> Result<Option<usize>, Error> {
        let raised = self.channel.take()?;
        Ok(raised.and_then(|queue| of.iter().position(|one| Arc::ptr_eq(&one.queue, &queue))))
    }

    /// Takes an event without waiting, and gives the [`CompletionQueue::id`] of its queue.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn take(&self) -> Result<Option<u64>, Error> {
        Ok(self.channel.take()?.map(|queue| queue.id))
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
    ) -> Result<Option<usize>, Error> {
        of.iter().for_each(|queue| queue.context.adapter().stop_polling());
        let raised = self.channel.wait(deadline)?;
        Ok(raised.and_then(|queue| of.iter().position(|one| Arc::ptr_eq(&one.queue, &queue))))
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
