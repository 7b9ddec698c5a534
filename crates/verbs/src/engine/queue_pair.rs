//! A queue pair, and what the engine needs to know about it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_proto::counters::Counters;
use ferroce_proto::endpoint::{Endpoint, Event};
use ferroce_proto::qp::State;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::work::Completion;
use ferroce_wire::number::Qpn;

use super::adapter::Adapter;
use super::counters::count;
use super::link::Route;
use super::local_flow::Throttled;
use crate::completion::{self, WorkCompletion};
use crate::event::{AsyncEvent, Events, Source};
use crate::sync::lock;

/// Receive requests: a queue pair's own, or shared.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    /// The number of a shared one, by which XRC names it.
    pub(crate) number: Option<Qpn>,
    pub(crate) queue: Mutex<ReceiveQueue>,
    /// Where messages to an XRC queue complete.
    pub(crate) completions: Option<Arc<completion::Queue>>,
    /// Where its owner hears of its limit.
    pub(crate) events: Arc<Events>,
}

/// What changes as packets come and go.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) endpoint: Endpoint<Route>,
    /// The way to the peer of a connection.
    pub(crate) route: Option<Route>,
    /// The timer that stands in the engine's list.
    pub(crate) timer: Option<Instant>,
    /// When a packet of the peer's arrived last.
    pub(crate) heard: Option<Instant>,
    /// It may send no more for now.
    pub(crate) throttled: Option<Throttled>,
    /// It was destroyed. Lists of the engine may still hold it, and must leave it alone.
    pub(crate) destroyed: bool,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) number: Qpn,
    pub(crate) inner: Mutex<Inner>,
    pub(crate) sends: Arc<completion::Queue>,
    pub(crate) receive_completions: Arc<completion::Queue>,
    pub(crate) receives: Arc<RecvQueue>,
    /// Where its owner hears of it.
    pub(crate) events: Arc<Events>,
    /// It stands in the engine's list of those that may have something to send.
    pub(crate) queued: AtomicBool,
}

impl Core {
    /// Takes out what the endpoint has for its owner.
    pub(crate) fn publish_completions(&self, inner: &mut Inner, adapter: &Adapter, now: Instant) {
        if inner.destroyed {
            return;
        }
        let endpoint = &mut inner.endpoint;
        let counted = endpoint.take_counters();
        if counted != Counters::default() {
            adapter.counters.add(&counted);
        }
        let mut lost = false;
        while let Some(one) = endpoint.poll_send_completion() {
            lost |= self.complete(&self.sends, one, now).is_err();
        }
        while let Some(one) = endpoint.poll_receive_completion() {
            let shared = one.receive_queue.and_then(|number| adapter.receive_queue(number));
            let queue = shared.as_ref().and_then(|shared| shared.completions.as_ref());
            lost |= self.complete(queue.unwrap_or(&self.receive_completions), one, now).is_err();
        }
        while let Some(event) = endpoint.poll_event() {
            self.raise(event);
        }
        // IBA 10.3.1.7: what waits in its own receive queue is flushed.
        while endpoint.state() == State::Error {
            let flushed = endpoint.flush_receive(&mut lock(&self.receives.queue));
            let Some(one) = flushed else { break };
            lost |= self.complete(&self.receive_completions, one, now).is_err();
        }
        if lost {
            count(&adapter.counters.overruns);
            // IBA 11.6.3.3: what is lost cannot be told, so the queue pair ends.
            endpoint.handle_fatal();
            while let Some(event) = endpoint.poll_event() {
                self.raise(event);
            }
        }
        if let Some(number) = self.receives.number {
            if lock(&self.receives.queue).poll_limit() {
                self.receives.events.raise(AsyncEvent::limit_reached(number));
            }
        }
    }

    fn raise(&self, event: Event) {
        let source = Source::QueuePair(self.number);
        self.events.raise(AsyncEvent { source, kind: event.into() });
    }

    fn complete(
        &self,
        queue: &Arc<completion::Queue>,
        completion: Completion,
        now: Instant,
    ) -> Result<(), completion::Overrun> {
        queue.push(WorkCompletion { queue_pair: self.number, time: now.as_nanos(), completion })
    }

    /// Whether it has to be put into the list of those that may have something to send.
    pub(crate) fn enqueue(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
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
