//! A QP as the engine sees it, and its receive queue.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ferroce_device::credit::Receiver;
use ferroce_device::{Marks, Object, QueuePair, ReceiveSource, Schedulable};
use ferroce_links::ring::RingRoute;
use ferroce_links::route::Route;
use ferroce_proto::doorbell::Ring;
use ferroce_proto::endpoint::Event;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::work::Completion;
use ferroce_stat::Slot;
use ferroce_sync::Mutex;
use ferroce_sys::record_header;
use ferroce_wire::number::Qpn;
use ferroce_wire::transport::Bth;

use super::qp_stats::QpStats;
use crate::cq::{self, WorkCompletion};
use crate::event::Events;
use crate::time::Timestamp;

/// A receive queue: a QP's own RQ, or an SRQ.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    /// The SRQ number, by which XRC addresses it.
    pub(crate) number: Option<Qpn>,
    pub(crate) queue: Mutex<ReceiveQueue>,
    /// The CQ of an XRC SRQ.
    pub(crate) completions: Option<Arc<cq::Queue>>,
    /// What an SRQ publishes.
    pub(crate) published: Option<Slot>,
    /// Where the SRQ limit event is raised.
    pub(crate) events: Arc<Events>,
}

/// The state that changes with each packet.
#[derive(Debug)]
pub(crate) struct Inner {
    /// What the device core knows of it. Its transmit queues are rings.
    pub(crate) queue_pair: QueuePair<Route, Box<RingRoute>>,
    /// The metadata of packets that come from its peer through a ring, once one was accepted.
    pub(crate) peer_info: Option<[u8; record_header::LENGTH]>,
    /// When the peer's last packet arrived.
    pub(crate) heard: Option<Instant>,
    /// What it publishes.
    pub(crate) stats: QpStats,
    /// The number of the [reason](ferroce_proto::reason::Reason) of the error that ended it; 0 if none did.
    pub(crate) ended_by: u16,
    /// The captured packet that is being handled, if it may be refused.
    pub(crate) captured: Option<Bth>,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) number: Qpn,
    pub(crate) inner: Mutex<Inner>,
    pub(crate) sends: Arc<cq::Queue>,
    pub(crate) receive_completions: Arc<cq::Queue>,
    pub(crate) receives: Arc<RecvQueue>,
    /// Where its async events are raised.
    pub(crate) events: Arc<Events>,
    /// What the device core remembers about it outside its lock: whether it is queued, or waits for credit or room.
    pub(crate) marks: Marks,
}

impl Deref for Inner {
    type Target = QueuePair<Route, Box<RingRoute>>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.queue_pair
    }
}

impl DerefMut for Inner {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.queue_pair
    }
}

impl Object for Core {
    type State = Inner;
    type ReceiveQueue = Arc<RecvQueue>;

    #[inline]
    fn state(&self) -> &Mutex<Inner> {
        &self.inner
    }

    #[inline]
    fn receives(&self) -> &Arc<RecvQueue> {
        &self.receives
    }
}

impl ReceiveSource for RecvQueue {
    #[inline]
    fn number(&self) -> Option<Qpn> {
        self.number
    }

    #[inline]
    fn queue(&self) -> &Mutex<ReceiveQueue> {
        &self.queue
    }
}

impl Inner {
    /// Whether `count` requests of `bytes` bytes that were just posted may leave with later ones, in one system call.
    pub(crate) fn holds(&mut self, count: usize, bytes: u64) -> bool {
        let unacknowledged = self.endpoint.has_unacknowledged();
        self.doorbell.post(count, bytes, unacknowledged) == Ring::Later
    }

    /// Sets the route to the connected peer.
    pub(crate) fn set_route(&mut self, route: Route, peer: Qpn, ring: Option<RingRoute>) {
        self.route = Some(route);
        self.queue = ring.map(Box::new);
        self.peer_info = None;
        self.receiver = Some(Receiver::new(route.destination.ip(), peer));
    }
}

impl Core {
    /// Adds a completion to a CQ.
    #[inline]
    pub(super) fn complete(
        &self,
        queue: &cq::Queue,
        completion: Completion,
        now: Instant,
    ) -> Result<(), cq::Overrun> {
        let time = Timestamp::from_nanos(now.as_nanos());
        queue.push(WorkCompletion { queue_pair: self.number, time, completion })
    }
}

impl Schedulable for Core {
    #[inline]
    fn number(&self) -> Qpn {
        self.number
    }

    #[inline]
    fn marks(&self) -> &Marks {
        &self.marks
    }
}

impl From<Event> for crate::event::EventKind {
    fn from(event: Event) -> Self {
        match event {
            Event::Established => Self::Established,
            Event::SendQueueDrained => Self::SendQueueDrained,
            Event::LastReceiveReached => Self::LastReceiveReached,
            Event::RequestRefused => Self::RequestRefused,
            Event::AccessRefused => Self::AccessRefused,
            Event::Fatal => Self::QueuePairFatal,
        }
    }
}
