//! A queue pair (QP) as the device core sees it, and the object of the embedder that holds it.

use ferroce_proto::doorbell::Doorbell;
use ferroce_proto::endpoint::{Endpoint, Settings};
use ferroce_proto::receive::ReceiveQueue;
use ferroce_sync::Mutex;
use ferroce_wire::number::Qpn;

use crate::credit::Receiver;
use crate::handle::{Membership, Schedulable};

/// What changes with each packet of a QP, under its lock. `R`: the route of a packet; `X`: a transmit queue.
#[derive(Debug)]
pub struct QueuePair<R, X> {
    /// The transport.
    pub endpoint: Endpoint<R>,
    /// The route to the connected peer.
    pub route: Option<R>,
    /// The process that its packets go to, whose credit they need.
    pub receiver: Option<Receiver>,
    /// Its packets go through this transmit queue, whose room replaces credit.
    pub queue: Option<X>,
    /// The transmit queue of its last datagram that went through one, and the receiver of that datagram.
    pub datagrams: Option<(Receiver, X)>,
    /// Its timer and its credit.
    pub membership: Membership,
    /// Requests that were posted and left for the next turn.
    pub doorbell: Doorbell,
    /// It was destroyed. Lists of the device may still contain it and must skip it.
    pub destroyed: bool,
}

impl<R: Copy, X> QueuePair<R, X> {
    /// Creates a QP in the RESET state.
    pub fn new(settings: Settings) -> Self {
        Self {
            endpoint: Endpoint::new(settings),
            route: None,
            receiver: None,
            queue: None,
            datagrams: None,
            membership: Membership::default(),
            doorbell: Doorbell::default(),
            destroyed: false,
        }
    }

    /// Forgets the path to its peer: it was reset. Its credit is returned in its next turn.
    pub fn disconnect(&mut self) {
        (self.route, self.receiver, self.queue) = (None, None, None);
    }
}

/// The shared object of a QP, which a [`Handle`](crate::Handle) points to.
pub trait Object: Schedulable {
    /// What its lock protects.
    type State;
    /// The handle of its receive queue.
    type ReceiveQueue;

    /// The state, under its lock.
    fn state(&self) -> &Mutex<Self::State>;

    /// Its own RQ, or its SRQ. That of an XRC target has no requests: its packets name SRQs.
    fn receives(&self) -> &Self::ReceiveQueue;
}

/// A receive queue: a QP's own RQ, or an SRQ.
pub trait ReceiveSource {
    /// The number of an SRQ.
    fn number(&self) -> Option<Qpn>;

    /// Its requests. Locked after the QP.
    fn queue(&self) -> &Mutex<ReceiveQueue>;
}
