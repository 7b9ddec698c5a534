//! One endpoint of a connection: a QP of any service, its RQ, and its completions.

use std::net::Ipv4Addr;

use ferroce_proto::budget::Budget;
use ferroce_proto::memory::Memory;
use ferroce_proto::reason::Reason;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::transmit::Transmit;
use ferroce_proto::work::{Completion, SendRequest};
use ferroce_proto::{rc, uc, ud};
use ferroce_wire::address::Gid;
use ferroce_wire::number::{Psn, Qpn};

use super::poster::Poster;
use super::schedule::Entry;

/// The queue pair.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Most are the large one, and a host has many.
pub(in crate::rdma) enum Qp {
    /// Not connected yet.
    None,
    /// RC, and both sides of XRC.
    Reliable(rc::QueuePair),
    Unreliable(uc::QueuePair),
    Datagram(ud::QueuePair<Ipv4Addr>),
}

/// The configuration from which a QP is created when its connection is established.
#[derive(Clone, Debug)]
pub(in crate::rdma) enum QpConfig {
    Reliable(rc::Config),
    Unreliable(uc::Config),
    Datagram(ud::Config, Option<Ipv4Addr>),
}

impl QpConfig {
    /// Sets the peer's QPN and first PSN, and the path MTU.
    pub(in crate::rdma) fn set_peer(&mut self, qpn: Qpn, psn: Psn, path_mtu: u16) {
        match self {
            Self::Reliable(rc::Config { destination, receive_psn, mtu, .. })
            | Self::Unreliable(uc::Config { destination, receive_psn, mtu, .. }) => {
                (*destination, *receive_psn, *mtu) = (qpn, psn, path_mtu);
            }
            Self::Datagram(..) => {}
        }
    }

    pub(super) fn build(&self) -> Qp {
        match self {
            Self::Reliable(config) => Qp::Reliable(rc::QueuePair::new(config.clone())),
            Self::Unreliable(config) => Qp::Unreliable(uc::QueuePair::new(config.clone())),
            Self::Datagram(config, group) => {
                let mut qp = ud::QueuePair::new(config.clone());
                // The capacity is one group.
                let _ = group.map(|group| qp.attach(Gid::from_ip(group.into())));
                Qp::Datagram(qp)
            }
        }
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

#[derive(Debug)]
pub(in crate::rdma) struct Endpoint {
    pub(in crate::rdma) qp: Qp,
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
    pub(super) entry: Entry,
}

impl Endpoint {
    pub(in crate::rdma) fn new(peer: Ipv4Addr, rq: EndpointRq) -> Self {
        Self {
            qp: Qp::None,
            rq,
            peer,
            pending: None,
            send_completions: Vec::new(),
            receive_completions: Vec::new(),
            bind_completions: Vec::new(),
            packet_received: false,
            poster: None,
            entry: Entry::default(),
        }
    }

    /// Returns the next packet and its destination address.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
    ) -> Option<(Ipv4Addr, Transmit<'_>)> {
        match &mut self.qp {
            Qp::None => None,
            Qp::Reliable(qp) => {
                Some((self.peer, qp.poll_transmit(now, &mut { Budget::UNLIMITED }, memory)?))
            }
            Qp::Unreliable(qp) => Some((self.peer, qp.poll_transmit(memory)?)),
            Qp::Datagram(qp) => {
                let datagram = qp.poll_transmit()?;
                Some((datagram.route, datagram.transmit))
            }
        }
    }

    pub(super) fn handle_denied(&mut self, psn: Psn, local: bool, reason: Reason) {
        match &mut self.qp {
            Qp::None => {}
            Qp::Reliable(qp) => qp.handle_denied(psn, local, reason),
            Qp::Unreliable(qp) => qp.handle_denied(psn, reason),
            Qp::Datagram(qp) => qp.handle_denied(psn, reason),
        }
    }

    /// Returns when the QP's timer expires or the next list is posted.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let post = self.poster.as_ref().and_then(|poster| poster.due());
        [self.qp_timeout(), post].into_iter().flatten().min()
    }

    fn qp_timeout(&self) -> Option<Instant> {
        match &self.qp {
            Qp::Reliable(qp) => qp.poll_timeout(),
            _ => None,
        }
    }

    /// Handles what is due. Returns whether the QP may have a packet to send, and does not hold it back.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        let expired = self.qp_timeout().is_some_and(|deadline| deadline <= now);
        if let (true, Qp::Reliable(qp)) = (expired, &mut self.qp) {
            qp.handle_timeout(now);
        }
        let rings = match &mut self.poster {
            Some(poster) => poster.post_due(now, &mut self.qp),
            None => false,
        };
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
    /// an ACK due or a timer armed, so they would wait for another call of the program.
    pub(in crate::rdma) fn stranded(&self) -> Option<usize> {
        let held = self.poster.as_ref()?.waiting();
        // In the error state, they were flushed.
        if held == 0 || self.entry.is_ready() || self.send_stopped() {
            return None;
        }
        let timed = self.qp_timeout().is_some_and(|deadline| self.entry.is_armed(deadline));
        let bounded = timed || matches!(&self.qp, Qp::Reliable(qp) if qp.awaits_ack());
        Some(held).filter(|_| !bounded)
    }

    /// Whether the QP is in the error state, and not only its SQ.
    pub(in crate::rdma) fn in_error(&self) -> bool {
        match &self.qp {
            Qp::None => false,
            Qp::Reliable(qp) => qp.fault().is_some(),
            Qp::Unreliable(qp) => {
                matches!(qp.fault(), Some(uc::Fault::Responder | uc::Fault::Owner))
            }
            Qp::Datagram(qp) => {
                matches!(qp.fault(), Some(ud::Fault::Responder | ud::Fault::Owner))
            }
        }
    }

    /// Whether the SQ has stopped executing requests.
    pub(in crate::rdma) fn send_stopped(&self) -> bool {
        match &self.qp {
            Qp::None => false,
            Qp::Reliable(qp) => qp.fault().is_some(),
            Qp::Unreliable(qp) => qp.fault().is_some(),
            Qp::Datagram(qp) => qp.fault().is_some(),
        }
    }

    /// Moves the QP to the error state.
    pub(super) fn close(&mut self) {
        match &mut self.qp {
            Qp::None => {}
            Qp::Reliable(qp) => qp.handle_error(),
            Qp::Unreliable(qp) => qp.handle_error(),
            Qp::Datagram(qp) => qp.handle_error(),
        }
    }

    /// Collects the completions. In the error state, requests in its own RQ are flushed (IBA 10.3.1.7).
    pub(super) fn collect(&mut self) {
        if self.in_error() {
            if let EndpointRq::Own(queue) = &mut self.rq {
                match &mut self.qp {
                    Qp::None => {}
                    Qp::Reliable(qp) => qp.flush_receives(queue),
                    Qp::Unreliable(qp) => qp.flush_receives(queue),
                    Qp::Datagram(qp) => qp.flush_receives(queue),
                }
            }
        }
        let (sent, received) = (&mut self.send_completions, &mut self.receive_completions);
        match &mut self.qp {
            Qp::None => {}
            Qp::Reliable(qp) => {
                sent.extend(std::iter::from_fn(|| qp.poll_send_completion()));
                received.extend(std::iter::from_fn(|| qp.poll_receive_completion()));
            }
            Qp::Unreliable(qp) => {
                sent.extend(std::iter::from_fn(|| qp.poll_send_completion()));
                received.extend(std::iter::from_fn(|| qp.poll_receive_completion()));
            }
            Qp::Datagram(qp) => {
                sent.extend(std::iter::from_fn(|| qp.poll_send_completion()));
                received.extend(std::iter::from_fn(|| qp.poll_receive_completion()));
            }
        }
    }
}
