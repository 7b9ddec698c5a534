//! A QP as the engine sees it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::credit::Receiver;
use ferroce_device::{Loss, Marks, Object, Published, QueuePair, Schedulable, State};
use ferroce_proto::doorbell::Ring;
use ferroce_proto::endpoint::{Endpoint, Event};
use ferroce_proto::qp;
use ferroce_proto::reason::Reason;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::work::Completion;
use ferroce_stat::Slot;
use ferroce_stat::layout::SharedReceiveQueue;
use ferroce_sync::Mutex;
use ferroce_sys::record_header;
use ferroce_wire::number::Qpn;
use ferroce_wire::transport::Bth;

use super::adapter::Adapter;
use super::counters::count;
use super::link::Route;
use super::qp_stats::QpStats;
use super::rings::RingRoute;
use crate::cq::{self, WorkCompletion};
use crate::event::{AsyncEvent, Events, Source};
use crate::report;
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
    /// The number of the [`Reason`] of the error that ended it; 0 if none did.
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

impl State for Inner {
    type Route = Route;
    type Queue = Box<RingRoute>;

    #[inline]
    fn queue_pair(&mut self) -> &mut QueuePair<Route, Box<RingRoute>> {
        &mut self.queue_pair
    }
}

impl Object for Core {
    type State = Inner;

    #[inline]
    fn state(&self) -> &Mutex<Inner> {
        &self.inner
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
    /// Moves the endpoint's completions to the CQs, raises its events and adds up its counters.
    pub(crate) fn publish_completions(
        &self,
        inner: &mut Inner,
        adapter: &Adapter,
        now: Instant,
    ) -> Published {
        let mut published = Published::default();
        if inner.destroyed {
            return published;
        }
        if inner.endpoint.has_counters() {
            self.publish_troubles(inner, adapter, now, &mut published);
        } else if let Some(overrun) = self.move_completions(inner, adapter, now, &mut published) {
            let reason = self.overrun(inner, adapter, overrun, now, &mut published);
            self.report(inner, adapter, &[reason]);
        }
        inner.stats.publish(&inner.queue_pair.endpoint, now);
        if let Some(number) = self.receives.number {
            if self.receives.queue.lock().poll_limit() {
                self.receives.events.raise(AsyncEvent::limit_reached(number));
            }
        }
        published
    }

    /// Publishes counts and reasons with the completions, whose flushes name the last reason. Apart from what every message
    /// passes through.
    #[cold]
    fn publish_troubles(
        &self,
        inner: &mut Inner,
        adapter: &Adapter,
        now: Instant,
        published: &mut Published,
    ) {
        let endpoint = &mut inner.queue_pair.endpoint;
        let counted = endpoint.take_counters();
        adapter.counters.add(&counted);
        inner.stats.count(&counted);
        published.lost = Loss {
            requests: counted.packet_seq_err + counted.local_ack_timeout_err > 0,
            responses: counted.implied_nak_seq_err > 0,
        };
        let mut reasons = self.take_reasons(endpoint);
        if let Some(reason) =
            reasons.last().filter(|_| inner.ended_by == 0 && endpoint.has_failed())
        {
            inner.ended_by = reason.number();
        }
        if let Some(overrun) = self.move_last_completions(inner, adapter, now, published) {
            reasons.push(self.overrun(inner, adapter, overrun, now, published));
        }
        if !reasons.is_empty() {
            self.report(inner, adapter, &reasons);
        }
    }

    /// IBA 11.6.3.3: a lost completion cannot be reported, so the QP goes to the error state.
    #[cold]
    fn overrun(
        &self,
        inner: &mut Inner,
        adapter: &Adapter,
        overrun: cq::Overrun,
        now: Instant,
        published: &mut Published,
    ) -> Reason {
        let cq::Overrun { queue, capacity } = overrun;
        count(adapter.counters.overruns());
        inner.endpoint.handle_fatal();
        let reason = Reason::CqOverrun { queue, capacity };
        inner.ended_by = reason.number();
        // What is flushed now may belong to the other CQ.
        self.move_last_completions(inner, adapter, now, published);
        reason
    }

    /// [`Core::move_completions`] of a QP that is in trouble: one copy for all such callers.
    #[cold]
    fn move_last_completions(
        &self,
        inner: &mut Inner,
        adapter: &Adapter,
        now: Instant,
        published: &mut Published,
    ) -> Option<cq::Overrun> {
        self.move_completions(inner, adapter, now, published)
    }

    /// Moves the endpoint's completions to the CQs and raises its events. Returns an overrun of a CQ. Inlined
    /// into the one caller of every message.
    #[inline(always)]
    fn move_completions(
        &self,
        inner: &mut Inner,
        adapter: &Adapter,
        now: Instant,
        published: &mut Published,
    ) -> Option<cq::Overrun> {
        let Inner { queue_pair: QueuePair { endpoint, .. }, stats, ended_by, .. } = inner;
        let mut lost = None;
        while let Some(mut one) = endpoint.poll_send_completion() {
            published.some = true;
            stats.completed(&mut one, ended_by);
            self.complete(&self.sends, one, now, &mut lost);
        }
        while let Some(mut one) = endpoint.poll_receive_completion() {
            published.some = true;
            stats.completed(&mut one, ended_by);
            let shared = one.receive_queue.and_then(|number| adapter.tables.receive_queue(number));
            let consumed = shared.as_ref().unwrap_or(&self.receives);
            if let Some(slot) = &consumed.published {
                slot.word(SharedReceiveQueue::Completed as usize).fetch_add(1, Ordering::Relaxed);
            }
            let queue = shared.as_ref().and_then(|shared| shared.completions.as_ref());
            let queue = queue.unwrap_or(&self.receive_completions);
            self.complete(queue, one, now, &mut lost);
        }
        while let Some(event) = endpoint.poll_event() {
            self.raise(event);
        }
        if endpoint.state() == qp::State::Error {
            lost = lost.or(self.flush_receives(inner, now));
        }
        lost
    }

    /// IBA 10.3.1.7: requests in its own RQ are flushed.
    #[cold]
    fn flush_receives(&self, inner: &mut Inner, now: Instant) -> Option<cq::Overrun> {
        let Inner { queue_pair: QueuePair { endpoint, .. }, stats, ended_by, .. } = inner;
        let mut lost = None;
        while let Some(mut one) = endpoint.flush_receive(&mut self.receives.queue.lock()) {
            debug_assert!(
                *ended_by != 0 || !endpoint.has_failed(),
                "QP {:#x} flushes its receives for no known reason: {endpoint:?}",
                self.number.0
            );
            stats.completed(&mut one, ended_by);
            self.complete(&self.receive_completions, one, now, &mut lost);
        }
        lost
    }

    #[cold]
    fn take_reasons(&self, endpoint: &mut Endpoint<Route>) -> Vec<Reason> {
        let mut reasons = Vec::new();
        endpoint.move_reasons_to(&mut reasons);
        for reason in &mut reasons {
            if let Reason::NoReceive { queue, .. } = reason {
                *queue = self.receives.number;
            }
        }
        reasons
    }

    /// Reports why something was refused, dropped or ended. A reason that ended the QP is always remembered.
    #[cold]
    fn report(&self, inner: &Inner, adapter: &Adapter, reasons: &[Reason]) {
        let ended = matches!(inner.endpoint.state(), qp::State::Error | qp::State::SendQueueError);
        for (index, reason) in reasons.iter().enumerate() {
            let ends = ended && index + 1 == reasons.len();
            let text = report::report(adapter.device.name(), Some(self.number), reason, ends);
            let Some(text) = text else { continue };
            inner.stats.set_reason(reason.number(), &reason.to_string());
            if let Some(packet) = &inner.captured {
                adapter.annotate(packet, &text);
            }
            if ends {
                report::end(self.number, reason, &text);
            }
        }
    }

    fn raise(&self, event: Event) {
        tracing::debug!(qpn = self.number.0, ?event, "QP event");
        let source = Source::QueuePair(self.number);
        self.events.raise(AsyncEvent { source, kind: event.into() });
    }

    /// Adds a completion to a CQ, whose overrun is kept in `lost` if it is the first.
    #[inline]
    fn complete(
        &self,
        queue: &cq::Queue,
        completion: Completion,
        now: Instant,
        lost: &mut Option<cq::Overrun>,
    ) {
        let time = Timestamp::from_nanos(now.as_nanos());
        let pushed = queue.push(WorkCompletion { queue_pair: self.number, time, completion });
        if let Err(overrun) = pushed {
            lost.get_or_insert(overrun);
        }
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
