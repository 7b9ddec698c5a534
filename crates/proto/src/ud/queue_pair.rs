//! A datagram queue pair: requester and responder under one roof.

use ferroce_wire::address::Gid;
use ferroce_wire::number::{PKey, Psn, QKey, Qpn};
use ferroce_wire::packet::Packet;

use super::groups::AttachError;
use super::request::{AddressHandle, SendRequest, UdTransmit};
use super::requester;
use super::responder::{Drops, Envelope, Responder};
use crate::memory::{Memory, PdId};
use crate::qp::Fault;
use crate::receive::ReceiveQueue;
use crate::unacknowledged::{Queues, SendQueue};
use crate::work::{Completion, PostError, WorkId};

/// What the attributes of the transitions to INIT, RTR and RTS set (IBA 11.2.5.2).
#[derive(Clone, Debug)]
pub struct Config {
    /// Our own number: the source of what we send.
    pub number: Qpn,
    /// What others must know to send to us.
    pub queue_key: QKey,
    /// The partition.
    pub partition: PKey,
    /// The protection domain.
    pub pd: PdId,
    /// MTU of the port in bytes, 256, 512, 1024, 2048 or 4096: the longest message.
    pub mtu: u16,
    /// Our first PSN.
    pub send_psn: Psn,
    /// Requests that the send queue holds.
    pub send_capacity: usize,
    /// Multicast groups that the queue pair can be attached to.
    pub group_capacity: usize,
}

/// A queue pair that sends to and receives from anyone. `R` is the way to a host, see
/// [`AddressHandle`](super::AddressHandle). It has no timers: nothing is ever sent again.
#[derive(Debug)]
pub struct QueuePair<R> {
    config: Config,
    queues: Queues<SendRequest<R>>,
    responder: Responder,
}

impl<R: Copy> QueuePair<R> {
    /// A queue pair that is set up so.
    pub fn new(config: Config) -> Self {
        Self { queues: Queues::new(config.send_psn), responder: Responder::new(&config), config }
    }

    /// How it is set up.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes how it is set up, as the owner's changes of attributes ask for.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
    }

    /// Sets the PSN of the first packet, before any is sent.
    pub fn start_sending(&mut self, psn: Psn) {
        self.config.send_psn = psn;
        self.queues.send = SendQueue::new(psn);
    }

    /// Forgets all requests and errors. Groups stay: they are attached to the queue pair, whatever its state (IBA
    /// 11.3.1).
    pub fn reset(&mut self) {
        self.queues = Queues::new(self.config.send_psn);
        self.responder.drops = Drops::default();
    }

    /// Why the queue pair does not work, if it does not.
    pub fn fault(&self) -> Option<Fault> {
        self.queues.fault()
    }

    /// What was dropped in silence so far.
    pub fn drops(&self) -> &Drops {
        &self.responder.drops
    }

    /// Attaches to a multicast group (IBA 11.3.1).
    pub fn attach(&mut self, group: Gid) -> Result<(), AttachError> {
        self.responder.groups.attach(group)
    }

    /// Detaches from a multicast group (IBA 11.3.2), and says whether it was attached to it.
    pub fn detach(&mut self, group: Gid) -> bool {
        self.responder.groups.detach(group)
    }

    /// Whether it is attached to any multicast group.
    pub fn is_attached(&self) -> bool {
        !self.responder.groups.is_empty()
    }

    /// Whether multicast datagrams with this destination are for us: each such queue pair gets a copy (IBA 10.5).
    pub fn accepts(&self, destination: Gid) -> bool {
        self.responder.groups.contains(destination)
    }

    /// Adds a request to the send queue.
    pub fn post_send(&mut self, request: SendRequest<R>) -> Result<(), PostError> {
        let config = &self.config;
        self.queues
            .post_send(request, config.send_capacity, |request| requester::check(request, config))
    }

    /// The request whose packet was handed out last.
    pub fn last_sent(&self) -> Option<WorkId> {
        self.queues.send.last_sent()
    }

    /// Whom the next packet goes to, if there is one.
    pub fn next_address(&self) -> Option<&AddressHandle<R>> {
        self.queues.send.next().map(|request| &request.address)
    }

    /// Requests that are not finished.
    pub fn send_queue_len(&self) -> usize {
        self.queues.send.len()
    }

    /// A packet whose ICRC and partition are right, and what carried it. Receive requests are taken from `receives`,
    /// the queue pair's own or a shared one.
    pub fn handle_packet(
        &mut self,
        packet: &Packet<'_>,
        envelope: &Envelope,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
    ) {
        if self.queues.in_error() {
            return;
        }
        let done = &mut self.queues.receive_done;
        let handled =
            self.responder.handle_packet(packet, envelope, &self.config, receives, memory, done);
        if let Err(fault) = handled {
            self.queues.enter_error(fault);
        }
    }

    /// The payload of the packet with this PSN, the last that was handed out, could not be read: its request fails and
    /// all behind it are flushed (IBA 10.3.1.6).
    pub fn handle_denied(&mut self, psn: Psn) {
        self.queues.handle_denied(psn);
    }

    /// The owner's transition from SQE back to RTS (IBA 10.3.1.6). False when the state is another.
    pub fn resume_send(&mut self) -> bool {
        self.queues.resume_send()
    }

    /// Brings the queue pair into the error state: all its requests are flushed (IBA 10.3.1.7).
    pub fn handle_error(&mut self) {
        if !self.queues.in_error() {
            self.queues.enter_error(Fault::Owner);
        }
    }

    /// Flushes receive requests of a queue pair in error: those of its own receive queue, never of a shared one.
    pub fn flush_receives(&mut self, receives: &mut ReceiveQueue) {
        self.queues.flush_receives(receives);
    }

    /// The next packet to send, and where to.
    pub fn poll_transmit(&mut self) -> Option<UdTransmit<'_, R>> {
        if self.queues.fault().is_some() {
            return None;
        }
        self.queues.send.complete_sent(&mut self.queues.send_done);
        requester::poll_transmit(&mut self.queues.send, &self.config)
    }

    /// The next completion of the send queue.
    pub fn poll_send_completion(&mut self) -> Option<Completion> {
        self.queues.poll_send_completion()
    }

    /// The next completion of the receive queue.
    pub fn poll_receive_completion(&mut self) -> Option<Completion> {
        self.queues.receive_done.pop_front()
    }
}
