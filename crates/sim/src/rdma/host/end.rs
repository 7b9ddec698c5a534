//! One end of a connection: a queue pair of any service, where its receive requests are, and what became of its work.

use std::net::Ipv4Addr;

use ferroce_proto::memory::Memory;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::transmit::Transmit;
use ferroce_proto::work::{Completion, SendRequest};
use ferroce_proto::{rc, uc, ud};
use ferroce_wire::address::Gid;
use ferroce_wire::number::Psn;

use super::schedule::Entry;

/// The queue pair itself.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Most are the large one, and a host has many.
pub(in crate::rdma) enum Pair {
    /// Not connected yet, or not any more.
    None,
    /// RC, and both ends of XRC.
    Reliable(rc::QueuePair),
    Unreliable(uc::QueuePair),
    Datagram(ud::QueuePair<Ipv4Addr>),
}

/// What a queue pair is made from when its connection comes up.
#[derive(Clone, Debug)]
pub(in crate::rdma) enum Blueprint {
    Reliable(rc::Config),
    Unreliable(uc::Config),
    Datagram(ud::Config, Option<Ipv4Addr>),
}

impl Blueprint {
    pub(super) fn build(&self) -> Pair {
        match self {
            Self::Reliable(config) => Pair::Reliable(rc::QueuePair::new(config.clone())),
            Self::Unreliable(config) => Pair::Unreliable(uc::QueuePair::new(config.clone())),
            Self::Datagram(config, group) => {
                let mut pair = ud::QueuePair::new(config.clone());
                // There is room for the one group.
                let _ = group.map(|group| pair.attach(Gid::from_ip(group.into())));
                Pair::Datagram(pair)
            }
        }
    }
}

/// Where an end's receive requests are.
#[derive(Debug)]
pub(in crate::rdma) enum Receives {
    /// In a queue of its own.
    Own(ReceiveQueue),
    /// In one that the host's ends share, by its index.
    Shared(usize),
    /// In the shared one that each packet names.
    Named,
}

/// What an end is to send.
#[derive(Debug)]
pub(in crate::rdma) enum Work {
    Connected(Vec<SendRequest>),
    Datagrams(Vec<ud::SendRequest<Ipv4Addr>>),
}

/// What waits for the connection to come up.
#[derive(Debug)]
pub(in crate::rdma) struct Waiting {
    pub(in crate::rdma) blueprint: Blueprint,
    /// Windows to be bound before the peer can send anything.
    pub(in crate::rdma) prelude: Vec<SendRequest>,
    pub(in crate::rdma) work: Work,
}

#[derive(Debug)]
pub(in crate::rdma) struct End {
    pub(in crate::rdma) pair: Pair,
    pub(in crate::rdma) receives: Receives,
    pub(in crate::rdma) peer: Ipv4Addr,
    pub(in crate::rdma) waiting: Option<Box<Waiting>>,
    pub(in crate::rdma) sent: Vec<Completion>,
    pub(in crate::rdma) received: Vec<Completion>,
    /// What became of the prelude.
    pub(in crate::rdma) bound: Vec<Completion>,
    /// Something has arrived.
    pub(in crate::rdma) heard: bool,
    pub(super) entry: Entry,
}

impl End {
    pub(in crate::rdma) fn new(peer: Ipv4Addr, receives: Receives) -> Self {
        Self {
            pair: Pair::None,
            receives,
            peer,
            waiting: None,
            sent: Vec::new(),
            received: Vec::new(),
            bound: Vec::new(),
            heard: false,
            entry: Entry::default(),
        }
    }

    /// The next packet, and where it goes.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
    ) -> Option<(Ipv4Addr, Transmit<'_>)> {
        match &mut self.pair {
            Pair::None => None,
            Pair::Reliable(pair) => Some((self.peer, pair.poll_transmit(now, memory)?)),
            Pair::Unreliable(pair) => Some((self.peer, pair.poll_transmit(memory)?)),
            Pair::Datagram(pair) => {
                let datagram = pair.poll_transmit()?;
                Some((datagram.route, datagram.transmit))
            }
        }
    }

    pub(super) fn handle_denied(&mut self, psn: Psn, local: bool) {
        match &mut self.pair {
            Pair::None => {}
            Pair::Reliable(pair) => pair.handle_denied(psn, local),
            Pair::Unreliable(pair) => pair.handle_denied(psn),
            Pair::Datagram(pair) => pair.handle_denied(psn),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.pair {
            Pair::Reliable(pair) => pair.poll_timeout(),
            _ => None,
        }
    }

    /// Whether the queue pair is in the error state, not only its send queue.
    pub(in crate::rdma) fn in_error(&self) -> bool {
        match &self.pair {
            Pair::None => false,
            Pair::Reliable(pair) => pair.fault().is_some(),
            Pair::Unreliable(pair) => {
                matches!(pair.fault(), Some(uc::Fault::Responder | uc::Fault::Owner))
            }
            Pair::Datagram(pair) => {
                matches!(pair.fault(), Some(ud::Fault::Responder | ud::Fault::Owner))
            }
        }
    }

    /// Whether requests of ours are no longer executed.
    pub(in crate::rdma) fn send_stopped(&self) -> bool {
        match &self.pair {
            Pair::None => false,
            Pair::Reliable(pair) => pair.fault().is_some(),
            Pair::Unreliable(pair) => pair.fault().is_some(),
            Pair::Datagram(pair) => pair.fault().is_some(),
        }
    }

    /// The owner has no use for the connection any more.
    pub(super) fn close(&mut self) {
        match &mut self.pair {
            Pair::None => {}
            Pair::Reliable(pair) => pair.handle_error(),
            Pair::Unreliable(pair) => pair.handle_error(),
            Pair::Datagram(pair) => pair.handle_error(),
        }
    }

    /// Takes the completions. In the error state, receive requests of its own are flushed (IBA 10.3.1.7).
    pub(super) fn collect(&mut self) {
        if self.in_error() {
            if let Receives::Own(queue) = &mut self.receives {
                match &mut self.pair {
                    Pair::None => {}
                    Pair::Reliable(pair) => pair.flush_receives(queue),
                    Pair::Unreliable(pair) => pair.flush_receives(queue),
                    Pair::Datagram(pair) => pair.flush_receives(queue),
                }
            }
        }
        let (sent, received) = (&mut self.sent, &mut self.received);
        match &mut self.pair {
            Pair::None => {}
            Pair::Reliable(pair) => {
                sent.extend(std::iter::from_fn(|| pair.poll_send_completion()));
                received.extend(std::iter::from_fn(|| pair.poll_receive_completion()));
            }
            Pair::Unreliable(pair) => {
                sent.extend(std::iter::from_fn(|| pair.poll_send_completion()));
                received.extend(std::iter::from_fn(|| pair.poll_receive_completion()));
            }
            Pair::Datagram(pair) => {
                sent.extend(std::iter::from_fn(|| pair.poll_send_completion()));
                received.extend(std::iter::from_fn(|| pair.poll_receive_completion()));
            }
        }
    }
}
