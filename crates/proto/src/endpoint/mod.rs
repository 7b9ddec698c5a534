//! A QP of any service as the verbs expose it: created in RESET and changed through the tables of [`qp`](crate::qp).
//! The transports implement connections; an [`Endpoint`] adds the QP state machine.
//!
//! | file | role |
//! |---|---|
//! | `modify` | Modify QP: state and attributes, applied to the transport |
//! | `finish` | the end of accesses to memory that take time |
//! | `traffic` | packets, posts and completions |
//! | `invariants` | what is true in each state, after every event |

mod finish;
#[cfg(debug_assertions)]
mod invariants;
mod modify;
mod traffic;

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use ferroce_wire::ip::Ecn;
use ferroce_wire::number::{PKey, Qpn};

use crate::congestion::Congestion;
use crate::counters::{Counters, Uncollected};
use crate::memory::PdId;
use crate::qp::{Capabilities, Machine, QueuePairAttributes, ServiceType, State};
use crate::reason::Reason;
use crate::receive::XrcDomain;
use crate::{rc, uc, ud};

pub use traffic::{InboundPacket, OutboundPacket};

pub use crate::budget::{Budget, InFlight, Pending, Progress};
pub use crate::work::PostError;

/// Properties fixed at creation (IBA 11.2.4.1).
#[derive(Clone, Debug)]
pub struct Settings {
    /// The service type.
    pub service: ServiceType,
    /// The QPN.
    pub number: Qpn,
    /// The PD.
    pub pd: PdId,
    /// Sizes of its queues.
    pub capabilities: Capabilities,
    /// Every send request is signaled (`sq_sig_all`).
    pub signal_all: bool,
    /// Receive requests come from an SRQ.
    pub shared_receives: bool,
    /// The XRC domain of an XRC target.
    pub xrc: XrcDomain,
    /// The P_Key at index 0, the only one.
    pub partition: PKey,
    /// MTU of the port in bytes: the longest datagram.
    pub port_mtu: u16,
    /// Maximum number of multicast groups of a UD QP.
    pub groups: usize,
    /// The congestion control.
    pub congestion: Congestion,
    /// How long the peer of an idle RC QP may be silent before it is asked whether it is there; `None` never asks.
    pub keepalive: Option<Duration>,
}

/// Asynchronous events, for what no completion reports (IBA 11.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Communication established: a packet arrived in RTR.
    #[doc(alias = "IBV_EVENT_COMM_EST")]
    Established,
    /// The send queue is drained.
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SendQueueDrained,
    /// In ERR with an SRQ: no more of its receive requests are consumed.
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    LastReceiveReached,
    /// The peer's request violated the protocol.
    #[doc(alias = "IBV_EVENT_QP_REQ_ERR")]
    RequestRefused,
    /// Remote access error: the peer's request violated the MR's access flags.
    #[doc(alias = "IBV_EVENT_QP_ACCESS_ERR")]
    AccessRefused,
    /// Local failure.
    #[doc(alias = "IBV_EVENT_QP_FATAL")]
    Fatal,
}

/// A QP. `R` is a route to a host, see [`ud::AddressHandle`].
#[derive(Debug)]
pub struct Endpoint<R> {
    settings: Settings,
    machine: Machine,
    /// The attributes set so far.
    attributes: QueuePairAttributes,
    transport: Transport<R>,
    events: VecDeque<Event>,
    established: bool,
    /// Unfinished accesses to memory of connections before the last reset.
    abandoned: usize,
    /// Counts that the transport does not keep itself.
    counters: Uncollected,
    #[cfg(debug_assertions)]
    ledger: invariants::Ledger,
}

/// The transport, once connected. A UD QP has it from the start, for its multicast groups.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // RC, the common one, needs no extra allocation.
enum Transport<R> {
    None,
    Reliable(rc::QueuePair),
    Unreliable(uc::QueuePair),
    Datagram(ud::QueuePair<R>),
}

impl<R: Copy> Endpoint<R> {
    /// Creates a QP in RESET.
    pub fn new(settings: Settings) -> Self {
        let mut endpoint = Self {
            machine: Machine::new(settings.service),
            attributes: QueuePairAttributes::default(),
            transport: Transport::None,
            events: VecDeque::new(),
            established: false,
            abandoned: 0,
            counters: Uncollected::default(),
            #[cfg(debug_assertions)]
            ledger: invariants::Ledger::default(),
            settings,
        };
        if endpoint.settings.service == ServiceType::UnreliableDatagram {
            endpoint.transport = Transport::Datagram(ud::QueuePair::new(endpoint.datagrams()));
        }
        endpoint
    }

    /// Panics if the QP violates a rule of the specification or of its own design. Debug builds call this after every
    /// event, release builds check nothing.
    #[inline]
    pub fn check_invariants(&self) {
        #[cfg(debug_assertions)]
        self.check_each();
    }

    /// The properties fixed at creation.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The QP state.
    pub fn state(&self) -> State {
        self.machine.state()
    }

    /// Whether it is in SQD with requests in flight.
    pub fn is_draining(&self) -> bool {
        self.machine.is_draining()
    }

    /// The attributes set so far, and the state.
    pub fn attributes(&self) -> QueuePairAttributes {
        QueuePairAttributes { state: Some(self.state()), ..self.attributes }
    }

    /// The ECN bits of its packets (RFC 3168): ECN-capable only where CNPs reduce the rate. UC and UD have no rate
    /// control.
    pub fn ecn(&self) -> Ecn {
        let reacts = self.settings.congestion.reacts();
        match self.settings.service {
            ServiceType::UnreliableConnection | ServiceType::UnreliableDatagram => Ecn::NOT_CAPABLE,
            _ if reacts => Ecn::CAPABLE_0,
            _ => Ecn::NOT_CAPABLE,
        }
    }

    /// Returns the counts since the last call, and resets them.
    pub fn take_counters(&mut self) -> Counters {
        let mut total = Counters::default();
        self.counters.move_to(&mut total);
        if let Transport::Reliable(queue_pair) = &mut self.transport {
            total.add(&queue_pair.take_counters());
        }
        total
    }

    /// Moves the reasons since the last call to `all`: why something was refused, dropped or ended.
    pub fn move_reasons_to(&mut self, all: &mut Vec<Reason>) {
        self.counters.move_reasons_to(all);
        match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.move_reasons_to(all),
            Transport::Unreliable(queue_pair) => queue_pair.move_reasons_to(all),
            Transport::Datagram(queue_pair) => queue_pair.move_reasons_to(all),
            Transport::None => {}
        }
    }

    /// Whether [`Endpoint::take_counters`] or [`Endpoint::move_reasons_to`] would return anything.
    #[inline]
    pub fn has_counters(&self) -> bool {
        let counted = match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.has_counters(),
            Transport::Unreliable(queue_pair) => queue_pair.has_reasons(),
            Transport::Datagram(queue_pair) => queue_pair.has_reasons(),
            Transport::None => false,
        };
        counted || self.counters.is_some()
    }

    /// The next event. [`Endpoint::state`] is current only after this call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.sync_state();
        if self.events.front() == Some(&Event::LastReceiveReached) && self.withholds_receives() {
            return None;
        }
        self.events.pop_front()
    }

    /// The UD transport, for its multicast groups.
    pub fn datagram(&mut self) -> Option<&mut ud::QueuePair<R>> {
        match &mut self.transport {
            Transport::Datagram(queue_pair) => Some(queue_pair),
            _ => None,
        }
    }
}
