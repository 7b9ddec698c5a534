//! News that no completion tells (IBA 11.6.3).

use std::collections::VecDeque;
use std::sync::Mutex;

use ferroce_sys::{Event, Interest, Poller};
use ferroce_wire::number::Qpn;

use crate::error::{SystemError, WaitError};
use crate::sync::lock;

/// Whom an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A queue pair.
    QueuePair(Qpn),
    /// A shared receive queue.
    SharedReceiveQueue(Qpn),
    /// A completion queue, by its [`crate::CompletionQueue::id`].
    CompletionQueue(u64),
    /// The device.
    Device,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A packet came before the owner knew that the peer is there.
    #[doc(alias = "IBV_EVENT_COMM_EST")]
    Established,
    /// The send queue is drained.
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SendQueueDrained,
    /// A queue pair in error takes nothing more from its shared receive queue.
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    LastReceiveReached,
    /// A request of the peer's was against the protocol.
    #[doc(alias = "IBV_EVENT_QP_REQ_ERR")]
    RequestRefused,
    /// A request of the peer's was against the rights of memory.
    #[doc(alias = "IBV_EVENT_QP_ACCESS_ERR")]
    AccessRefused,
    /// The queue pair failed by no fault of the peer's.
    #[doc(alias = "IBV_EVENT_QP_FATAL")]
    QueuePairFatal,
    /// A shared receive queue has fewer requests left than its limit.
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    LimitReached,
    /// A completion found no room in its queue, and is lost. Told once of a queue.
    #[doc(alias = "IBV_EVENT_CQ_ERR")]
    CompletionLost,
    /// The device's interface has been switched on, or has a carrier again.
    #[doc(alias = "IBV_EVENT_PORT_ACTIVE")]
    PortActive,
    /// The device's interface has been switched off, has lost its carrier, or is gone.
    #[doc(alias = "IBV_EVENT_PORT_ERR")]
    PortError,
    /// Something failed inside the device, and it does nothing any more: no request completes, and nothing is sent or
    /// received. All that helps is to close it. Told once.
    #[doc(alias = "IBV_EVENT_DEVICE_FATAL")]
    DeviceFatal,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AsyncEvent {
    /// Whom it is about.
    pub source: Source,
    /// What happened.
    pub kind: EventKind,
}

impl AsyncEvent {
    pub(crate) fn completion_lost(queue: u64) -> Self {
        Self { source: Source::CompletionQueue(queue), kind: EventKind::CompletionLost }
    }

    pub(crate) fn limit_reached(number: Qpn) -> Self {
        Self { source: Source::SharedReceiveQueue(number), kind: EventKind::LimitReached }
    }
}

/// The events of a device for who opened it, behind one file descriptor.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) event: Event,
    waiting: Mutex<VecDeque<AsyncEvent>>,
}

impl Events {
    pub(crate) fn new() -> Result<Self, SystemError> {
        Ok(Self { event: Event::counting()?, waiting: Mutex::default() })
    }

    pub(crate) fn raise(&self, event: AsyncEvent) {
        let mut waiting = lock(&self.waiting);
        waiting.push_back(event);
        // Under the lock, as all that touches the descriptor: it counts what waits, so no read of it ever blocks, even
        // where a program has made it a blocking one.
        let _ = self.event.signal();
    }

    pub(crate) fn take(&self) -> Result<Option<AsyncEvent>, WaitError> {
        let mut waiting = lock(&self.waiting);
        if waiting.is_empty() {
            return Ok(None);
        }
        self.event.take()?;
        Ok(waiting.pop_front())
    }

    pub(crate) fn wait(&self, deadline: Option<u64>) -> Result<Option<AsyncEvent>, WaitError> {
        let mut poller = Poller::new();
        poller.watch(&self.event, Interest::Read);
        loop {
            if let Some(event) = self.take()? {
                return Ok(Some(event));
            }
            if poller.wait(deadline)? == 0 {
                return Ok(None);
            }
        }
    }

    /// Forgets the events of what is gone: its owner would not know whom they are about.
    pub(crate) fn forget(&self, source: Source) {
        let mut waiting = lock(&self.waiting);
        let before = waiting.len();
        waiting.retain(|event| event.source != source);
        for _ in waiting.len()..before {
            let _ = self.event.take();
        }
    }
}
