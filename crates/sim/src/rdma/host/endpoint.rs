//! One endpoint of a connection: a QP of any service, its RQ, and its completions.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ferroce_device::schedule::Schedule;
use ferroce_device::{Object, QueuePair, ReceiveSource, Schedulable};
use ferroce_proto::congestion::Congestion;
use ferroce_proto::endpoint::Settings;
use ferroce_proto::qp::{
    AckTimeout, AddressVector, AttributeMask, Capabilities, Fault, ModifyError, PathMtu,
    QueuePairAttributes, RnrRetry, RnrTimer, ServiceType, State, rule,
};
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::ud;
use ferroce_proto::work::{Completion, SendRequest};
use ferroce_sync::MutexGuard;
use ferroce_wire::address::Gid;
use ferroce_wire::number::{PKey, Psn, Qpn};

use super::poster::Poster;
use super::receives::{EndpointRq, Srq};
use super::shared::{Core, Served};
use crate::rdma::layout::XRC_DOMAIN;
use crate::rdma::memory::{PD, REMOTE};

/// The transport of a QP whose datagrams are routed by the address of a host.
pub(in crate::rdma) type Transport = ferroce_proto::endpoint::Endpoint<Ipv4Addr>;

/// How a QP is created and connected.
#[derive(Clone, Debug)]
pub(in crate::rdma) struct QpConfig {
    pub(in crate::rdma) settings: Settings,
    /// The attributes of all transitions from RESET to RTS. The peer's may not be known yet.
    pub(in crate::rdma) attributes: QueuePairAttributes,
    /// A multicast group of a UD QP.
    pub(in crate::rdma) group: Option<Ipv4Addr>,
    /// If the peer is another process of the same machine, packets go through a transmit queue.
    pub(in crate::rdma) uses_queue: bool,
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
        Self { settings, attributes, group: None, uses_queue: false }
    }

    /// Sets the peer's QPN and first PSN, and the path MTU.
    pub(in crate::rdma) fn set_peer(&mut self, qpn: Qpn, psn: Psn, mtu: u16) {
        let set = &mut self.attributes;
        (set.destination, set.receive_psn) = (Some(qpn), Some(psn));
        set.path_mtu = PathMtu::from_bytes(usize::from(mtu)).or(set.path_mtu);
    }

    /// Creates the QP, and connects it.
    pub(in crate::rdma) fn build(&self) -> Transport {
        let mut qp = Transport::new(self.settings.clone());
        if let (Some(group), Some(datagram)) = (self.group, qp.datagram()) {
            // The capacity is one group.
            let _ = datagram.attach(Gid::from_ip(group.into()));
        }
        let connected = self.connect(&mut qp);
        debug_assert!(connected.is_ok(), "{connected:?}");
        qp
    }

    /// Changes a QP from RESET to RTS, with the attributes that each transition accepts.
    pub(in crate::rdma) fn connect(&self, qp: &mut Transport) -> Result<(), ModifyError> {
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

#[derive(Debug)]
pub(in crate::rdma) struct Endpoint {
    pub(in crate::rdma) core: Arc<Core>,
    pub(in crate::rdma) rq: EndpointRq,
    pub(in crate::rdma) peer: Ipv4Addr,
    pub(in crate::rdma) pending: Option<Box<PendingSetup>>,
    pub(in crate::rdma) send_completions: Vec<Completion>,
    pub(in crate::rdma) receive_completions: Vec<Completion>,
    /// Completions of `window_binds`.
    pub(in crate::rdma) bind_completions: Vec<Completion>,
    /// The requests that are posted over time, if they are.
    pub(in crate::rdma) poster: Option<Box<Poster>>,
}

impl Endpoint {
    pub(in crate::rdma) fn new(
        number: Qpn,
        index: usize,
        peer: Ipv4Addr,
        rq: EndpointRq,
        srqs: &[Srq],
    ) -> Self {
        Self {
            core: Core::new(number, index, rq.queue(srqs)),
            rq,
            peer,
            pending: None,
            send_completions: Vec::new(),
            receive_completions: Vec::new(),
            bind_completions: Vec::new(),
            poster: None,
        }
    }

    /// The QP, under its lock.
    pub(super) fn lock(&self) -> MutexGuard<'_, Served> {
        self.core.state().lock()
    }

    /// Its own RQ, or its SRQ.
    pub(in crate::rdma) fn receives(&self) -> MutexGuard<'_, ReceiveQueue> {
        self.core.receives().queue().lock()
    }

    /// Whether it was destroyed: nothing may complete any more.
    pub(in crate::rdma) fn destroyed(&self) -> bool {
        self.lock().queue_pair.destroyed
    }

    /// Returns how many requests are held back although nothing will send them: neither is the QP to be polled, nor is
    /// an ACK due, an access to memory unfinished or a timer armed, so they would wait for another call of the program.
    pub(in crate::rdma) fn stranded(&self) -> Option<usize> {
        let QueuePair { endpoint, doorbell, membership, .. } = &self.lock().queue_pair;
        let held = doorbell.requests();
        // In the error state, they were flushed.
        let stopped = matches!(endpoint.state(), State::Error | State::SendQueueError);
        let marks = self.core.marks();
        if held == 0 || stopped || marks.is_queued() || marks.waits() {
            return None;
        }
        let timed = endpoint.poll_timeout().is_some_and(|deadline| membership.is_armed(deadline));
        let bounded = timed || endpoint.awaits_ack() || endpoint.unfinished() > 0;
        Some(held).filter(|_| !bounded)
    }

    /// Panics if the QP has something to send and nothing will serve it.
    pub(super) fn check_served(&self) {
        let served = self.lock();
        let QueuePair { endpoint, membership, destroyed, .. } = &served.queue_pair;
        if served.is_open && !destroyed {
            let awaits = endpoint.awaits_ack() || endpoint.unfinished() > 0;
            let (pending, timeout) = (endpoint.pending(), endpoint.poll_timeout());
            Schedule::check_served(&self.core, membership, pending, timeout, awaits);
        }
    }

    /// Number of accesses to memory that have not finished.
    pub(in crate::rdma) fn unfinished(&self) -> usize {
        self.lock().queue_pair.endpoint.unfinished()
    }

    /// Attaches a UD QP to a multicast group, or detaches it. Returns whether that was possible.
    pub(in crate::rdma) fn set_member(&self, group: Gid, attach: bool) -> bool {
        let mut served = self.lock();
        served.queue_pair.endpoint.datagram().is_some_and(|one| match attach {
            true => one.attach(group).is_ok(),
            false => one.detach(group),
        })
    }

    /// Where the QP failed.
    pub(in crate::rdma) fn fault(&self) -> Option<Fault> {
        self.lock().queue_pair.endpoint.fault()
    }

    fn state(&self) -> State {
        self.lock().queue_pair.endpoint.state()
    }

    /// Whether the QP is in the error state, and not only its SQ.
    pub(in crate::rdma) fn in_error(&self) -> bool {
        self.state() == State::Error
    }

    /// Whether the SQ has stopped executing requests.
    pub(in crate::rdma) fn send_stopped(&self) -> bool {
        matches!(self.state(), State::Error | State::SendQueueError)
    }

    /// Collects what the device has published.
    pub(super) fn collect(&mut self) {
        let Self { core, send_completions, receive_completions, .. } = self;
        let mut served = core.state().lock();
        send_completions.append(&mut served.sent);
        receive_completions.append(&mut served.received);
    }
}
