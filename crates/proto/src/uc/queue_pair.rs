//! An unreliable connection's queue pair: requester and responder under one roof.

use ferroce_wire::number::{PKey, Psn, Qpn};
use ferroce_wire::opcode::Transport;
use ferroce_wire::packet::Packet;

use super::drops::Drops;
use super::requester;
use super::responder::Responder;
use crate::memory::{AccessFlags, Accessor, Memory, PdId};
use crate::qp::Fault;
use crate::receive::ReceiveQueue;
use crate::transmit::Transmit;
use crate::unacknowledged::{Queues, SendQueue};
use crate::work::{Completion, PostError, SendRequest, WorkId};

/// What the attributes of the transitions to RTR and RTS set (IBA 11.2.5.2).
#[derive(Clone, Debug)]
pub struct Config {
    /// Our own queue pair.
    pub number: Qpn,
    /// The peer's queue pair.
    pub destination: Qpn,
    /// The partition of both.
    pub partition: PKey,
    /// The protection domain.
    pub pd: PdId,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub mtu: u16,
    /// Our first PSN.
    pub send_psn: Psn,
    /// The peer's first PSN.
    pub receive_psn: Psn,
    /// What the peer may do.
    pub access: AccessFlags,
    /// Requests that the send queue holds.
    pub send_capacity: usize,
}

impl Config {
    /// As whom the queue pair reaches for memory.
    pub(super) const fn accessor(&self) -> Accessor {
        Accessor { pd: self.pd, queue_pair: self.number }
    }

    /// The MTU, never 0.
    pub(super) fn packet_size(&self) -> u64 {
        u64::from(self.mtu).max(1)
    }
}

/// A connected queue pair, ready to send and receive. It has no timers: nothing is ever sent again.
#[derive(Debug)]
pub struct QueuePair {
    config: Config,
    queues: Queues<SendRequest>,
    responder: Responder,
}

impl QueuePair {
    /// A queue pair that is connected so.
    pub fn new(config: Config) -> Self {
        Self { queues: Queues::new(config.send_psn), responder: Responder::new(&config), config }
    }

    /// How it is connected.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes how it is connected, as the owner's changes of attributes ask for. The PSNs of a connection that sends
    /// or receives do not change.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
    }

    /// Sets the PSN of the first packet, before any is sent.
    pub fn start_sending(&mut self, psn: Psn) {
        self.config.send_psn = psn;
        self.queues.send = SendQueue::new(psn);
    }

    /// Whether no message is half sent: what SQD waits for (IBA 10.3.1.5).
    pub fn is_between_messages(&self) -> bool {
        self.queues.send.is_between_messages()
    }

    /// Why the queue pair does not work, if it does not.
    pub fn fault(&self) -> Option<Fault> {
        self.queues.fault()
    }

    /// What was dropped in silence so far.
    pub fn drops(&self) -> &Drops {
        &self.responder.drops
    }

    /// Adds a request to the send queue.
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.queues.post_send(request, self.config.send_capacity, requester::check)
    }

    /// The request whose packet was handed out last.
    pub fn last_sent(&self) -> Option<WorkId> {
        self.queues.send.last_sent()
    }

    /// Requests that are not finished.
    pub fn send_queue_len(&self) -> usize {
        self.queues.send.len()
    }

    /// A packet from the peer, whose ICRC is right. Receive requests are taken from `receives`, the queue pair's own
    /// or a shared one.
    pub fn handle_packet(
        &mut self,
        packet: &Packet<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
    ) {
        if self.queues.in_error() {
            return;
        }
        // IBA 9.6.1.1: partition and destination were matched when the queue pair was found.
        let info = packet.bth.opcode.info();
        let ours = info.filter(|info| info.transport == Transport::UnreliableConnection);
        let (Some(info), true) = (ours, packet.payload.len() == packet.payload_len) else {
            self.responder.drops.foreign += 1;
            return;
        };
        let done = &mut self.queues.receive_done;
        let handled =
            self.responder.handle_packet(packet, info, &self.config, receives, memory, done);
        if let Err(fault) = handled {
            self.enter_error(fault);
        }
    }

    /// The payload of the packet with this PSN, the last that was handed out, could not be read: its request fails and
    /// all behind it are flushed (IBA 10.3.1.6).
    pub fn handle_denied(&mut self, psn: Psn) {
        self.queues.handle_denied(psn);
    }

    /// The owner's transition from SQE back to RTS (IBA 10.3.1.6). The peer drops what it has of the message that
    /// failed, because the next one starts. False when the state is another.
    pub fn resume_send(&mut self) -> bool {
        self.queues.resume_send()
    }

    /// Brings the queue pair into the error state: all its requests are flushed (IBA 10.3.1.7).
    pub fn handle_error(&mut self) {
        if !self.queues.in_error() {
            self.enter_error(Fault::Owner);
        }
    }

    fn enter_error(&mut self, fault: Fault) {
        self.queues.enter_error(fault);
        self.responder.stop(&mut self.queues.receive_done);
    }

    /// Flushes receive requests of a queue pair in error: those of its own receive queue, never of a shared one.
    pub fn flush_receives(&mut self, receives: &mut ReceiveQueue) {
        self.queues.flush_receives(receives);
    }

    /// The next packet to send. Requests that are done on this side alone are executed when their turn comes.
    pub fn poll_transmit(&mut self, memory: &mut impl Memory) -> Option<Transmit<'_>> {
        if self.queues.fault().is_some() {
            return None;
        }
        self.queues.send.complete_sent(&mut self.queues.send_done);
        if let Err(fault) = requester::execute_local(&mut self.queues, &self.config, memory) {
            self.queues.enter_error(fault);
            return None;
        }
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
