//! Shared receive queues (SRQ), and the XRC domains (IBA A14) whose target QPs deliver to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_proto::receive::{self, ReceiveQueue, XrcProperties};
use ferroce_proto::work::ReceiveRequest;
use ferroce_stat::layout::{Kind, SharedReceiveQueue as Field};
use ferroce_sync::Mutex;
use ferroce_wire::number::Qpn;

use crate::completion::CompletionQueue;
use crate::context::Context;
use crate::engine::RecvQueue;
use crate::error::{CreateError, PostError, ResizeError};
use crate::event::{AsyncEvent, Source};
use crate::pd::{Domain, ProtectionDomain};

#[derive(Debug)]
pub(crate) struct Shared {
    number: Qpn,
    pub(crate) receives: Arc<RecvQueue>,
    pd: Arc<Domain>,
    _xrc: Option<XrcDomain>,
}

/// A shared receive queue (SRQ): holds receive requests for several queue pairs. Clones share it.
///
/// ```
/// use ferroce::*;
///
/// # fn main() -> Result<(), Error> {
/// # let context = Context::open(&Device::named("lo")?, &Options::default())?;
/// # let pd = context.protection_domain();
/// # let cq = context.completion_queue(16, None)?;
/// let mr = pd.allocate(8 * 64, AccessFlags::LOCAL_WRITE)?;
/// let srq = pd.shared_receive_queue(8)?;
/// for slot in 0..8 {
///     let sg_list = mr.sge(slot * 64, 64).into();
///     srq.post(ReceiveRequest { id: WorkId(slot), sg_list })?;
/// }
/// // Any number of queue pairs take their receive requests from it.
/// let options = QueuePairOptions::new(ServiceType::ReliableConnection, &cq);
/// let options = QueuePairOptions { srq: Some(&srq), ..options };
/// let (_one, _other) = (pd.queue_pair(&options)?, pd.queue_pair(&options)?);
/// assert_eq!((srq.len(), srq.users()), (8, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_srq")]
pub struct SharedReceiveQueue {
    pub(crate) shared: Arc<Shared>,
}

impl ProtectionDomain {
    /// Creates a shared receive queue with room for `capacity` requests.
    ///
    /// # Errors
    ///
    /// When no number is left, or the capacity is above [`Limits::max_qp_wr`](crate::Limits::max_qp_wr).
    #[doc(alias = "ibv_create_srq")]
    pub fn shared_receive_queue(&self, capacity: usize) -> Result<SharedReceiveQueue, CreateError> {
        self.create_srq(ReceiveQueue::new(capacity), None)
    }

    /// Creates a shared receive queue, as [`ProtectionDomain::shared_receive_queue`] does, that XRC requests address by its
    /// number. Their receives complete in `completions`.
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn xrc_receive_queue(
        &self,
        capacity: usize,
        xrc: &XrcDomain,
        completions: &CompletionQueue,
    ) -> Result<SharedReceiveQueue, CreateError> {
        let extended = XrcProperties { xrc: xrc.xrcd(), pd: self.domain.pd };
        self.create_srq(ReceiveQueue::with_xrc(capacity, extended), Some((xrc, completions)))
    }

    fn create_srq(
        &self,
        queue: ReceiveQueue,
        xrc: Option<(&XrcDomain, &CompletionQueue)>,
    ) -> Result<SharedReceiveQueue, CreateError> {
        let (given, max) = (queue.capacity(), self.context().limits().max_qp_wr as usize);
        if given > max {
            return Err(CreateError::SharedReceiveQueueTooLong { given, max });
        }
        let adapter = self.context().adapter();
        let number = adapter.new_number()?;
        let receives = Arc::new(RecvQueue {
            number: Some(number),
            published: Some(adapter.counters.publish(Kind::SharedReceiveQueue, |slot| {
                slot.set(Field::Number as usize, number.0.into());
                slot.set(Field::Capacity as usize, queue.capacity() as u64);
            })),
            queue: Mutex::new(queue),
            completions: xrc.map(|(_, completions)| Arc::clone(&completions.queue)),
            events: Arc::clone(&self.context().events),
        });
        adapter.tables.add_receive_queue(number, Arc::clone(&receives));
        if let Some(completions) = &receives.completions {
            completions.users.fetch_add(1, Ordering::Relaxed);
            // The shard of XRC targets.
            completions.add_shard(0);
        }
        let (pd, _xrc) = (self.join(), xrc.map(|(domain, _)| domain.clone()));
        Ok(SharedReceiveQueue { shared: Arc::new(Shared { number, receives, pd, _xrc }) })
    }
}

impl SharedReceiveQueue {
    /// Returns the SRQ number, by which XRC requests address it.
    pub fn number(&self) -> Qpn {
        self.shared.number
    }

    /// Posts a receive request.
    ///
    /// # Errors
    ///
    /// When the SRQ is full.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post(&self, request: ReceiveRequest) -> Result<(), PostError> {
        self.shared.receives.queue.lock().post(request).map_err(|_| PostError::ReceiveQueueFull)?;
        if let Some(slot) = &self.shared.receives.published {
            slot.word(Field::Posted as usize).fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Requests an event when fewer than `limit` requests are left.
    pub fn arm_limit(&self, limit: usize) {
        let mut queue = self.shared.receives.queue.lock();
        queue.arm_limit(limit);
        // IBA 10.2.9.3: the limit may be reached already.
        if limit > queue.len() && queue.limit().is_some() {
            queue.arm_limit(0);
            drop(queue);
            self.shared.pd.context.events.raise(AsyncEvent::limit_reached(self.shared.number));
        }
    }

    /// Returns the armed limit.
    pub fn limit(&self) -> Option<usize> {
        self.shared.receives.queue.lock().limit()
    }

    /// Changes the capacity.
    ///
    /// # Errors
    ///
    /// When the SRQ holds more requests.
    pub fn resize(&self, capacity: usize) -> Result<(), ResizeError> {
        if !self.shared.receives.queue.lock().resize(capacity) {
            return Err(ResizeError { capacity });
        }
        if let Some(slot) = &self.shared.receives.published {
            slot.set(Field::Capacity as usize, capacity as u64);
        }
        Ok(())
    }

    /// Returns the maximum number of requests.
    pub fn capacity(&self) -> usize {
        self.shared.receives.queue.lock().capacity()
    }

    /// Returns the number of queue pairs and other handles that refer to it.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.shared) - 1
    }

    /// Returns the number of posted requests.
    pub fn len(&self) -> usize {
        self.shared.receives.queue.lock().len()
    }

    /// Whether no request is posted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let context = &self.pd.context;
        context.adapter().tables.remove_receive_queue(self.number);
        // Afterwards no shard uses it.
        context.handle.shards().for_each(|shard| shard.wait_for_pass());
        if let Some(completions) = &self.receives.completions {
            completions.users.fetch_sub(1, Ordering::Relaxed);
        }
        context.events.forget(Source::SharedReceiveQueue(self.number));
    }
}

static NEXT_XRC_DOMAIN: AtomicU32 = AtomicU32::new(1);

/// An XRC domain (XRCD): its target QPs deliver to its shared receive queues. Clones share it.
///
/// ```
/// use ferroce::*;
///
/// # fn main() -> Result<(), Error> {
/// # let context = Context::open(&Device::named("lo")?, &Options::default())?;
/// # let pd = context.protection_domain();
/// # let cq = context.completion_queue(16, None)?;
/// let xrc = context.xrc_domain();
/// // A message of the peer's XRC initiator names the SRQ that it is for: one connection reaches all of them.
/// let queues = [pd.xrc_receive_queue(16, &xrc, &cq)?, pd.xrc_receive_queue(16, &xrc, &cq)?];
/// let target = xrc.target(&QueuePairOptions::new(ServiceType::XrcTarget, &cq))?;
/// assert_ne!(queues[0].number(), queues[1].number());
/// assert_eq!(target.state(), State::Reset);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_xrcd")]
#[derive(Clone, Debug)]
pub struct XrcDomain {
    shared: Arc<(Context, receive::XrcDomain)>,
}

impl Context {
    /// Creates an XRC domain of this process.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn xrc_domain(&self) -> XrcDomain {
        let domain = receive::XrcDomain(NEXT_XRC_DOMAIN.fetch_add(1, Ordering::Relaxed));
        XrcDomain { shared: Arc::new((self.clone(), domain)) }
    }
}

impl XrcDomain {
    /// Returns the context it was created from.
    pub fn context(&self) -> &Context {
        &self.shared.0
    }

    /// Returns the number of target QPs, shared receive queues and other handles that refer to it.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.shared) - 1
    }

    pub(crate) fn xrcd(&self) -> receive::XrcDomain {
        self.shared.1
    }
}
