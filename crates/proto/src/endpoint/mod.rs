//! A queue pair as its owner has it: created in RESET, changed through the table of [`qp`](crate::qp), and of whichever
//! service. The transports below know connections; an [`Endpoint`] knows what state its owner brought one into.
//!
//! | file | role |
//! |---|---|
//! | `modify` | changes of state and attributes, and what they mean for the transport |
//! | `traffic` | packets, posts and completions, as far as the state lets them through |

mod modify;
mod traffic;

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;

use ferroce_wire::ip::Ecn;
use ferroce_wire::number::{PKey, Qpn};

use crate::congestion::Congestion;
use crate::counters::Counters;
use crate::memory::PdId;
use crate::qp::{Capabilities, Machine, QueuePairAttributes, ServiceType, State};
use crate::receive::XrcDomain;
use crate::{rc, uc, ud};

pub use traffic::{InboundPacket, Outgoing};

pub use crate::work::PostError;

/// What is settled when a queue pair is created (IBA 11.2.4.1).
#[derive(Clone, Debug)]
pub struct Settings {
    /// The service.
    pub service: ServiceType,
    /// Its own number.
    pub number: Qpn,
    /// The protection domain.
    pub pd: PdId,
    /// The sizes of its queues.
    pub capabilities: Capabilities,
    /// Every send completes with a completion, signaled or not.
    pub signal_all: bool,
    /// Its receive requests come from a queue that others use as well.
    pub shared_receives: bool,
    /// The domain of an XRC target.
    pub xrc: XrcDomain,
    /// The partition behind the only index there is.
    pub partition: PKey,
    /// MTU of the port in bytes: the longest datagram.
    pub port_mtu: u16,
    /// Multicast groups that a datagram queue pair can be attached to.
    pub groups: usize,
    /// What bounds how much is under way, and how fast.
    pub congestion: Congestion,
}

/// News for the owner that no completion tells (IBA 11.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A packet came before the owner knew that the peer is there.
    #[doc(alias = "IBV_EVENT_COMM_EST")]
    Established,
    /// The send queue is drained.
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SendQueueDrained,
    /// In error, with a shared receive queue: nothing more is taken from it.
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    LastReceiveReached,
    /// A request of the peer's was against the protocol.
    #[doc(alias = "IBV_EVENT_QP_REQ_ERR")]
    RequestRefused,
    /// A request of the peer's was against the rights of memory.
    #[doc(alias = "IBV_EVENT_QP_ACCESS_ERR")]
    AccessRefused,
    /// It failed by no fault of the peer's.
    #[doc(alias = "IBV_EVENT_QP_FATAL")]
    Fatal,
}

/// A queue pair. `R` is the way to a host, see [`ud::AddressHandle`].
#[derive(Debug)]
pub struct Endpoint<R> {
    settings: Settings,
    machine: Machine,
    /// All that the owner has set.
    attributes: QueuePairAttributes,
    transport: Transport<R>,
    events: VecDeque<Event>,
    established: bool,
    /// What the transport does not count itself.
    counters: Counters,
}

/// The connection, once there is one. A datagram queue pair has none: it is there from the start, for its groups.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // One allocation less for the one that is common.
enum Transport<R> {
    None,
    Reliable(rc::QueuePair),
    Unreliable(uc::QueuePair),
    Datagram(ud::QueuePair<R>),
}

impl<R: Copy> Endpoint<R> {
    /// A queue pair in RESET.
    pub fn new(settings: Settings) -> Self {
        let mut endpoint = Self {
            machine: Machine::new(settings.service),
            attributes: QueuePairAttributes::default(),
            transport: Transport::None,
            events: VecDeque::new(),
            established: false,
            counters: Counters::default(),
            settings,
        };
        if endpoint.settings.service == ServiceType::UnreliableDatagram {
            endpoint.transport = Transport::Datagram(ud::QueuePair::new(endpoint.datagrams()));
        }
        endpoint
    }

    /// What was settled when it was created.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.machine.state()
    }

    /// Whether it is in SQD with requests under way.
    pub fn is_draining(&self) -> bool {
        self.machine.is_draining()
    }

    /// All that the owner has set, and the state.
    pub fn attributes(&self) -> QueuePairAttributes {
        QueuePairAttributes { state: Some(self.state()), ..self.attributes }
    }

    /// The ECN bits of its packets (RFC 3168): ECN-capable only where notifications slow it down. UC and UD have no
    /// rate control.
    pub fn ecn(&self) -> Ecn {
        let reacts = self.settings.congestion.reacts();
        match self.settings.service {
            ServiceType::UnreliableConnection | ServiceType::UnreliableDatagram => Ecn::NOT_CAPABLE,
            _ if reacts => Ecn::CAPABLE_0,
            _ => Ecn::NOT_CAPABLE,
        }
    }

    /// Takes what was counted since the last call.
    pub fn take_counters(&mut self) -> Counters {
        let mut counters = self.counters.take();
        if let Transport::Reliable(queue_pair) = &mut self.transport {
            counters.add(&queue_pair.take_counters());
        }
        counters
    }

    /// The next piece of news. The state is current only when this was asked.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.notice();
        self.events.pop_front()
    }

    /// The datagram transport, for its groups.
    pub fn datagram(&mut self) -> Option<&mut ud::QueuePair<R>> {
        match &mut self.transport {
            Transport::Datagram(queue_pair) => Some(queue_pair),
            _ => None,
        }
    }
}
