//! Completion channels: the events of completion queues, behind a file descriptor.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_sys::Event;

use crate::drive::Spin;
use crate::error::{SystemError, WaitError};
use crate::options::MAX_SHARDS;
use crate::sync::lock;

thread_local! {
    /// The channel whose events this thread takes itself, after the pass that it makes.
    pub(super) static SERVED: Cell<*const Channel> = const { Cell::new(ptr::null()) };
}

/// A completion channel: delivers the events of completion queues (CQ) that were [armed](crate::CompletionQueue::arm).
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
/// assert_eq!(channel.try_event()?, None);
///
/// let operation = Operation::Write { remote: mr.remote(0), immediate: None };
/// let data = Data::Inline(b"hello".as_slice().into());
/// qp.post_send(SendRequest::new(WorkId(1), operation, data))?;
/// // An event loop would wait for the descriptor of the channel.
/// while channel.try_event()? != Some(cq.id()) {
///     std::thread::yield_now();
/// }
/// assert_eq!(cq.poll_one().map(|done| done.status), Some(Status::Success));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_comp_channel")]
pub struct CompletionChannel(pub(crate) Arc<Channel>);

/// What the clones of a channel share.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(super) event: Event,
    pub(super) raised: Mutex<Raised>,
    /// The last wait for its events made passes itself.
    served: AtomicBool,
    /// Whether such a wait spins.
    pub(super) spin: Spin,
    /// The shards of the queue pairs whose CQs raise events here.
    pub(crate) shards: ShardSet,
}

#[derive(Debug, Default)]
pub(super) struct Raised {
    /// The IDs of the CQs that raised events. Holding the CQs instead would be a reference cycle, since a CQ holds its
    /// channel.
    pub(super) queues: VecDeque<u64>,
    /// How many of them are not counted by the eventfd: the thread that raised them takes them.
    pub(super) unsignaled: usize,
}

/// The shards of the QPs that use a CQ or a channel.
#[derive(Debug, Default)]
pub(crate) struct ShardSet(AtomicU32);

const _: () = assert!(MAX_SHARDS as u32 <= u32::BITS);

impl ShardSet {
    pub(crate) fn add(&self, shard: u8) {
        self.0.fetch_or(1 << shard, Ordering::Relaxed);
    }

    /// The first of them; `None` if there is none yet.
    pub(crate) fn first(&self) -> Option<u8> {
        let set = self.0.load(Ordering::Relaxed);
        (set != 0).then(|| set.trailing_zeros() as u8)
    }

    /// All of them; the first shard if there is none yet.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u8> + use<> {
        let mut left = self.0.load(Ordering::Relaxed).max(1);
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| left.trailing_zeros() as u8)?;
            left &= left - 1;
            Some(next)
        })
    }
}

impl CompletionChannel {
    /// Creates a channel.
    ///
    /// # Errors
    ///
    /// When the process has no file descriptor left.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn new() -> Result<Self, SystemError> {
        Ok(Self(Arc::new(Channel {
            event: Event::counting()?,
            raised: Mutex::default(),
            served: AtomicBool::new(false),
            spin: Spin::default(),
            shards: ShardSet::default(),
        })))
    }

    /// Takes an event without waiting, and returns the [`CompletionQueue::id`](crate::CompletionQueue::id) of its CQ.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn try_event(&self) -> Result<Option<u64>, WaitError> {
        let mut raised = lock(&self.0.raised);
        if raised.queues.is_empty() {
            return Ok(None);
        }
        self.uncount(&mut raised, 1)?;
        Ok(raised.queues.pop_front())
    }

    pub(crate) fn raise(&self, queue: u64) {
        let mut raised = lock(&self.0.raised);
        raised.queues.push_back(queue);
        if ptr::eq(SERVED.get(), &*self.0) {
            raised.unsignaled += 1;
            return;
        }
        // The eventfd counts the entries of the queue, and is only touched under its lock: a read never blocks, even if
        // the program has cleared O_NONBLOCK. The counter cannot overflow before memory does.
        let _ = self.0.event.signal();
    }

    pub(crate) fn forget(&self, id: u64) {
        let mut raised = lock(&self.0.raised);
        let before = raised.queues.len();
        raised.queues.retain(|queue| *queue != id);
        let removed = before - raised.queues.len();
        let _ = self.uncount(&mut raised, removed);
    }

    /// Adjusts the counts for events that leave the queue.
    fn uncount(&self, raised: &mut Raised, count: usize) -> Result<(), WaitError> {
        let unsignaled = count.min(raised.unsignaled);
        raised.unsignaled -= unsignaled;
        for _ in unsignaled..count {
            self.0.event.take()?;
        }
        Ok(())
    }

    /// Whether the program waits in this library, so that the device thread does not have to be told when a CQ is armed.
    pub(crate) fn is_served(&self) -> bool {
        self.0.served.load(Ordering::Relaxed)
    }

    /// For bindings: whether the program waits in calls of the binding, which drive the device. A program that waits for
    /// the descriptor itself needs the device thread to watch the sockets.
    pub fn set_served(&self, served: bool) {
        self.0.served.store(served, Ordering::Relaxed);
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.event.as_raw_fd()
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}
