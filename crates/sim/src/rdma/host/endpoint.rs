//! One endpoint of a connection: a QP of any service, its RQ, and its completions.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ferroce_device::credit::Receiver;
use ferroce_device::schedule::Schedule;
use ferroce_device::{Marks, Membership, Schedulable};
use ferroce_proto::budget::Budget;
use ferroce_proto::congestion::Congestion;
use ferroce_proto::endpoint::{OutboundPacket, Settings};
use ferroce_proto::memory::Memory;
use ferroce_proto::qp::{
    AckTimeout, AddressVector, AttributeMask, Capabilities, ModifyError, PathMtu,
    QueuePairAttributes, RnrRetry, RnrTimer, ServiceType, State, rule,
};
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::ud;
use ferroce_proto::work::{Completion, SendRequest};
use ferroce_wire::address::Gid;
use ferroce_wire::number::{PKey, Psn, Qpn};

use super::poster::Poster;
use crate::rdma::layout::XRC_DOMAIN;
use crate::rdma::memory::{PD, REMOTE};

/// A QP whose datagrams are routed by the address of a host.
pub(in crate::rdma) type QueuePair = ferroce_proto::endpoint::Endpoint<Ipv4Addr>;

/// How a QP is created and connected.
#[derive(Clone, Debug)]
pub(in crate::rdma) struct QpConfig {
    pub(in crate::rdma) settings: Settings,
    /// The attributes of all transitions from RESET to RTS. The peer's may not be known yet.
    pub(in crate::rdma) attributes: QueuePairAttributes,
    /// A multicast group of a UD QP.
    pub(in crate::rdma) group: Option<Ipv4Addr>,
}

impl QpConfig {
    /// A configuration with default attributes, whose peer is not known yet.
    pub(in crate::rdma) fn new(service: ServiceType, number: Qpn, mtu: u16, psn: Psn) -> Self {
        let settings = Settings {
            service,
            number,
            pd: PD,
            capabilities: Capabilities { max_send_wr: 16, ..Capabilities::default() },
            signal_all: false,
            shared_receives: false,
            xrc: XRC_DOMAIN,
            partition: PKey(0xffff),
            port_mtu: mtu,
            groups: 1,
            congestion: Congestion::default(),
            keepalive: None,
        };
        let attributes = QueuePairAttributes {
            access: Some(REMOTE),
            partition: Some(0),
            port: Some(1),
            path: Some(AddressVector { port: 1, ..AddressVector::default() }),
            path_mtu: PathMtu::from_bytes(usize::from(mtu)),
            // 1 ms.
            timeout: Some(AckTimeout(8)),
            retry_count: Some(7),
            rnr_retry: Some(RnrRetry(7)),
            min_rnr_timer: Some(RnrTimer::at_least(std::time::Duration::from_micros(20))),
            max_rd_atomic: Some(8),
            max_dest_rd_atomic: Some(8),
            send_psn: Some(psn),
            ..QueuePairAttributes::default()
        };
        Self { settings, attributes, group: None }
    }

    /// Sets the peer's QPN and first PSN, and the path MTU.
    pub(in crate::rdma) fn set_peer(&mut self, qpn: Qpn, psn: Psn, mtu: u16) {
        let set = &mut self.attributes;
        (set.destination, set.receive_psn) = (Some(qpn), Some(psn));
        set.path_mtu = PathMtu::from_bytes(usize::from(mtu)).or(set.path_mtu);
    }

    /// Creates the QP, and connects it.
    pub(in crate::rdma) fn build(&self) -> QueuePair {
        let mut qp = QueuePair::new(self.settings.clone());
        if let (Some(group), Some(datagram)) = (self.group, qp.datagram()) {
            // The capacity is one group.
            let _ = datagram.attach(Gid::from_ip(group.into()));
        }
        let connected = self.connect(&mut qp);
        debug_assert!(connected.is_ok(), "{connected:?}");
        qp
    }

    /// Changes a QP from RESET to RTS, with the attributes that each transition accepts.
    pub(in crate::rdma) fn connect(&self, qp: &mut QueuePair) -> Result<(), ModifyError> {
        for to in [State::Init, State::ReadyToReceive, State::ReadyToSend] {
            let mut change = self.attributes;
            if let Some(rule) = rule(self.settings.service, qp.state(), to) {
                change.clear(AttributeMask::ALL - rule.required - rule.optional);
            }
            change.state = Some(to);
            qp.modify(&change)?;
        }
        Ok(())
    }
}

/// The queue that an endpoint receives from.
#[derive(Debug)]
pub(in crate::rdma) enum EndpointRq {
    /// Its own RQ.
    Own(ReceiveQueue),
    /// An SRQ of the host, by its index.
    Shared(usize),
    /// The SRQ that each packet names in its XRCETH.
    Xrc,
}

/// The work requests that an endpoint posts.
#[derive(Debug)]
pub(in crate::rdma) enum Work {
    Connected(Vec<SendRequest>),
    Datagrams(Vec<ud::SendRequest<Ipv4Addr>>),
}

/// What is created and posted when the connection is established.
#[derive(Debug)]
pub(in crate::rdma) struct PendingSetup {
    pub(in crate::rdma) config: QpConfig,
    /// Memory windows to bind before the peer can send.
    pub(in crate::rdma) window_binds: Vec<SendRequest>,
    pub(in crate::rdma) work: Work,
}

/// The handle of a QP in the device core.
#[derive(Debug)]
pub(in crate::rdma) struct Core {
    number: Qpn,
    marks: Marks,
}

impl Core {
    pub(in crate::rdma) fn new(number: Qpn) -> Arc<Self> {
        Arc::new(Self { number, marks: Marks::default() })
    }
}

impl Schedulable for Core {
    fn number(&self) -> Qpn {
        self.number
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }
}

#[derive(Debug)]
pub(in crate::rdma) struct Endpoint {
    pub(in crate::rdma) core: Arc<Core>,
    pub(super) membership: Membership,
    /// Nothing may complete any more.
    pub(in crate::rdma) destroyed: bool,
    /// It waits for credit, which other QPs may return.
    pub(super) awaits_credit: bool,
    /// `None` until it is connected.
    pub(in crate::rdma) qp: Option<QueuePair>,
    pub(in crate::rdma) rq: EndpointRq,
    pub(in crate::rdma) peer: Ipv4Addr,
    pub(in crate::rdma) pending: Option<Box<PendingSetup>>,
    pub(in crate::rdma) send_completions: Vec<Completion>,
    pub(in crate::rdma) receive_completions: Vec<Completion>,
    /// Completions of `window_binds`.
    pub(in crate::rdma) bind_completions: Vec<Completion>,
    /// A packet has arrived.
    pub(in crate::rdma) packet_received: bool,
    /// The requests that are posted over time, if they are.
    pub(in crate::rdma) poster: Option<Box<Poster>>,
}

impl Endpoint {
    pub(in crate::rdma) fn new(number: Qpn, peer: Ipv4Addr, rq: EndpointRq) -> Self {
        Self {
            core: Core::new(number),
            membership: Membership::default(),
            destroyed: false,
            awaits_credit: false,
            qp: None,
            rq,
            peer,
            pending: None,
            send_completions: Vec::new(),
            receive_completions: Vec::new(),
            bind_completions: Vec::new(),
            packet_received: false,
            poster: None,
        }
    }

    /// Returns the next packet.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        memory: &mut impl Memory,
    ) -> Option<OutboundPacket<'_, Ipv4Addr>> {
        self.qp.as_mut()?.poll_transmit(now, budget, memory)
    }

    /// The process that its packets go to, if they are acknowledged.
    pub(super) fn receiver(&self) -> Option<Receiver> {
        let service = self.qp.as_ref()?.settings().service;
        let acknowledged =
            !matches!(service, ServiceType::UnreliableConnection | ServiceType::UnreliableDatagram);
        let connected = !matches!(self.state(), State::Reset | State::Init);
        (acknowledged && connected).then(|| Receiver { host: self.peer.into(), slot: 0 })
    }

    /// Returns when the QP's timer expires or the next list is posted.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let post = self.poster.as_ref().and_then(|poster| poster.due());
        [self.qp_timeout(), post].into_iter().flatten().min()
    }

    fn qp_timeout(&self) -> Option<Instant> {
        self.qp.as_ref()?.poll_timeout()
    }

    /// Handles what is due. Returns whether the QP may have a packet to send, and does not hold it back.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        let expired = self.qp_timeout().is_some_and(|deadline| deadline <= now);
        let Some(qp) = &mut self.qp else { return false };
        if expired {
            qp.handle_timeout(now);
        }
        let rings = self.poster.as_mut().is_some_and(|poster| poster.post_due(now, qp));
        self.collect();
        expired || rings
    }

    /// The QP is polled for packets, so nothing is held back.
    pub(super) fn release(&mut self) {
        if let Some(poster) = &mut self.poster {
            poster.release();
        }
    }

    /// Returns how many requests are held back although nothing will send them: neither is the QP to be polled, nor is
    /// an ACK due, an access to memory unfinished or a timer armed, so they would wait for another call of the program.
    pub(in crate::rdma) fn stranded(&self) -> Option<usize> {
        let held = self.poster.as_ref()?.waiting();
        // In the error state, they were flushed.
        if held == 0 || self.core.marks.is_queued() || self.awaits_credit || self.send_stopped() {
            return None;
        }
        let timed = self.qp_timeout().is_some_and(|deadline| self.membership.is_armed(deadline));
        let acknowledged = self.qp.as_ref().is_some_and(QueuePair::awaits_ack);
        let bounded = timed || acknowledged || self.unfinished() > 0;
        Some(held).filter(|_| !bounded)
    }

    /// Panics if the QP has something to send and nothing will serve it.
    pub(super) fn check_served(&self) {
        let Some(qp) = self.qp.as_ref().filter(|_| !self.destroyed) else { return };
        let awaits = qp.awaits_ack() || qp.unfinished() > 0;
        let (pending, timeout) = (qp.pending(), qp.poll_timeout());
        Schedule::check_served(&self.core, &self.membership, pending, timeout, awaits);
    }

    /// Number of accesses to memory that have not finished.
    pub(in crate::rdma) fn unfinished(&self) -> usize {
        self.qp.as_ref().map_or(0, QueuePair::unfinished)
    }

    fn state(&self) -> State {
        self.qp.as_ref().map_or(State::Reset, QueuePair::state)
    }

    /// Whether the QP is in the error state, and not only its SQ.
    pub(in crate::rdma) fn in_error(&self) -> bool {
        self.state() == State::Error
    }

    /// Whether the SQ has stopped executing requests.
    pub(in crate::rdma) fn send_stopped(&self) -> bool {
        matches!(self.state(), State::Error | State::SendQueueError)
    }

    /// Moves the QP to the error state.
    pub(super) fn close(&mut self) {
        if let Some(qp) = &mut self.qp {
            let change =
                QueuePairAttributes { state: Some(State::Error), ..QueuePairAttributes::default() };
            // Possible in every state.
            let _ = qp.modify(&change);
        }
    }

    /// Collects the completions. In the error state, requests in its own RQ are flushed (IBA 10.3.1.7).
    pub(super) fn collect(&mut self) {
        let Some(qp) = self.qp.as_mut().filter(|_| !self.destroyed) else { return };
        self.send_completions.extend(std::iter::from_fn(|| qp.poll_send_completion()));
        self.receive_completions.extend(std::iter::from_fn(|| qp.poll_receive_completion()));
        // The state is current only after this.
        while qp.poll_event().is_some() {}
        if let EndpointRq::Own(queue) = &mut self.rq {
            self.receive_completions.extend(std::iter::from_fn(|| qp.flush_receive(queue)));
        }
    }
}
