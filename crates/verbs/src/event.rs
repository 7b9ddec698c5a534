//! Asynchronous events: what happens to a resource outside of its work requests (IBA 11.6.3).

use ferroce_wire::number::Qpn;

use crate::event_queue::EventQueue;

/// The resource that an asynchronous event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A queue pair (QP).
    QueuePair(Qpn),
    /// A shared receive queue (SRQ).
    SharedReceiveQueue(Qpn),
    /// A completion queue (CQ), by its [`CompletionQueue::id`](crate::CompletionQueue::id).
    CompletionQueue(u64),
    /// The device.
    Device,
}

/// The kind of an asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_event_type")]
#[non_exhaustive]
pub enum EventKind {
    /// Communication established: a packet arrived before the QP was in RTS.
    #[doc(alias = "IBV_EVENT_COMM_EST")]
    Established,
    /// The send queue is drained.
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SendQueueDrained,
    /// Last WQE reached: a QP in the error state takes no more requests from its SRQ.
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    LastReceiveReached,
    /// Invalid request: the peer's request violated the protocol.
    #[doc(alias = "IBV_EVENT_QP_REQ_ERR")]
    RequestRefused,
    /// Remote access error: the peer's request violated the MR's access flags.
    #[doc(alias = "IBV_EVENT_QP_ACCESS_ERR")]
    AccessRefused,
    /// The QP failed for a local reason.
    #[doc(alias = "IBV_EVENT_QP_FATAL")]
    QueuePairFatal,
    /// The SRQ holds fewer requests than its limit.
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    LimitReached,
    /// CQ overrun: a completion was lost because the CQ was full. Raised once per CQ.
    #[doc(alias = "IBV_EVENT_CQ_ERR")]
    CompletionLost,
    /// The interface was brought up, or its carrier returned.
    #[doc(alias = "IBV_EVENT_PORT_ACTIVE")]
    PortActive,
    /// The interface was brought down or removed, or lost its carrier.
    #[doc(alias = "IBV_EVENT_PORT_ERR")]
    PortError,
    /// The device failed and stopped: no request completes, and no packet is sent or received. Close the device. Raised
    /// once.
    #[doc(alias = "IBV_EVENT_DEVICE_FATAL")]
    DeviceFatal,
}

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_async_event")]
#[non_exhaustive]
pub struct AsyncEvent {
    /// The resource.
    pub source: Source,
    /// What happened to it.
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

/// The pending asynchronous events of a [`Context`](crate::Context), behind one file descriptor.
pub(crate) type Events = EventQueue<AsyncEvent>;

impl Events {
    /// Removes the events of a destroyed resource: its number may be reused.
    pub(crate) fn forget(&self, source: Source) {
        self.take_all(|event| event.source == source);
    }
}
