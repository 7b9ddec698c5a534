//! The receive queues of a host: the RQs of its QPs, and its SRQs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_device::ReceiveSource;
use ferroce_proto::receive::{ReceiveQueue, XrcProperties};
use ferroce_sync::{Mutex, MutexGuard};
use ferroce_wire::number::Qpn;

use crate::rdma::layout::srq_number;

/// A receive queue.
#[derive(Debug)]
pub(in crate::rdma) struct Receives {
    number: Option<Qpn>,
    queue: Mutex<ReceiveQueue>,
    /// How often the limit event of an SRQ was raised.
    limit_events: AtomicU32,
}

impl Receives {
    pub(in crate::rdma) fn new(number: Option<Qpn>, queue: ReceiveQueue) -> Arc<Self> {
        Arc::new(Self { number, queue: Mutex::new(queue), limit_events: AtomicU32::new(0) })
    }

    pub(super) fn raise_limit(&self) {
        self.limit_events.fetch_add(1, Ordering::Relaxed);
    }
}

impl ReceiveSource for Receives {
    fn number(&self) -> Option<Qpn> {
        self.number
    }

    fn queue(&self) -> &Mutex<ReceiveQueue> {
        &self.queue
    }
}

/// What an endpoint receives from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum EndpointRq {
    /// Its own RQ of this capacity.
    Own(usize),
    /// An SRQ of the host, by its index.
    Shared(usize),
    /// The SRQ that each packet names in its XRCETH.
    Xrc,
}

impl EndpointRq {
    /// The queue of a new QP on a host with these SRQs.
    pub(super) fn queue(self, srqs: &[Srq]) -> Arc<Receives> {
        match self {
            Self::Own(capacity) => Receives::new(None, ReceiveQueue::new(capacity)),
            Self::Shared(index) => Arc::clone(&srqs[index].receives),
            Self::Xrc => Receives::new(None, ReceiveQueue::new(0)),
        }
    }
}

/// An SRQ, with the buffers of its receive requests by their id: offset in `region`, and length.
#[derive(Debug)]
pub(in crate::rdma) struct Srq {
    pub(super) receives: Arc<Receives>,
    pub(in crate::rdma) region: usize,
    pub(in crate::rdma) buffers: Vec<(usize, usize)>,
    /// The limit that was armed last.
    pub(in crate::rdma) limit: usize,
}

impl Srq {
    /// The SRQ with this index.
    pub(in crate::rdma) fn new(
        index: usize,
        region: usize,
        extended: Option<XrcProperties>,
    ) -> Self {
        const CAPACITY: usize = 1 << 16;
        let queue = match extended {
            Some(extended) => ReceiveQueue::with_xrc(CAPACITY, extended),
            None => ReceiveQueue::new(CAPACITY),
        };
        let receives = Receives::new(Some(srq_number(index)), queue);
        Self { receives, region, buffers: Vec::new(), limit: 0 }
    }

    pub(in crate::rdma) fn queue(&self) -> MutexGuard<'_, ReceiveQueue> {
        self.receives.queue.lock()
    }

    /// How many limit events were raised since the limit was last armed.
    pub(in crate::rdma) fn limit_events(&self) -> u32 {
        self.receives.limit_events.load(Ordering::Relaxed)
    }

    /// Arms the limit at half of what is posted.
    pub(in crate::rdma) fn arm_limit(&mut self) {
        let limit = self.queue().len() / 2;
        self.queue().arm_limit(limit);
        self.receives.limit_events.store(0, Ordering::Relaxed);
        self.limit = limit;
    }
}
