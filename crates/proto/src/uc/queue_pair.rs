//! An unreliable connection's queue pair: requester and responder under one roof.

use alloc::collections::VecDeque;

use ferroce_wire::number::{PKey, Psn, Qpn};
use ferroce_wire::opcode::Transport;
use ferroce_wire::packet::Packet;

use super::drops::Drops;
use super::requester::{PostError, Requester, completion};
use super::responder::{Responder, ended};
use crate::memory::{AccessFlags, Accessor, Memory, PdId};
use crate::qp::Fault;
use crate::receive::ReceiveQueue;
use crate::transmit::Transmit;
use crate::work::{Completion, SendRequest, Status, WorkId};

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
    requester: Requester,
    responder: Responder,
    send_done: VecDeque<Completion>,
    receive_done: VecDeque<Completion>,
    fault: Option<Fault>,
}

impl QueuePair {
    /// A queue pair that is connected so.
    pub fn new(config: Config) -> Self {
        Self {
            requester: Requester::new(&config),
            responder: Responder::new(&config),
            config,
            send_done: VecDeque::new(),
            receive_done: VecDeque::new(),
            fault: None,
        }
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
        self.requester = Requester::new(&self.config);
    }

    /// Whether no message is half sent: what SQD waits for (IBA 10.3.1.5).
    pub fn is_between_messages(&self) -> bool {
        self.requester.is_between_messages()
    }

    /// Why the queue pair does not work, if it does not.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// What was dropped in silence so far.
    pub fn drops(&self) -> &Drops {
        &self.responder.drops
    }

    /// Adds a request to the send queue.
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        if self.fault.is_some() {
            // IBA 10.3.1.6, 10.3.1.7: taken, and completed in error.
            self.send_done.push_back(completion(&request, Status::Flushed));
            return Ok(());
        }
        self.requester.post(request, &self.config)
    }

    /// The request whose packet was handed out last.
    pub fn last_sent(&self) -> Option<WorkId> {
        self.requester.last_sent()
    }

    /// Requests that are not finished.
    pub fn send_queue_len(&self) -> usize {
        self.requester.len()
    }

    /// A packet from the peer, whose ICRC is right. Receive requests are taken from `receives`, the queue pair's own
    /// or a shared one.
    pub fn handle_packet(
        &mut self,
        packet: &Packet<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
    ) {
        if self.in_error() {
            return;
        }
        // IBA 9.6.1.1: partition and destination were matched when the queue pair was found.
        let info = packet.bth.opcode.info();
        let ours = info.filter(|info| info.transport == Transport::UnreliableConnection);
        let (Some(info), true) = (ours, packet.payload.len() == packet.payload_len) else {
            self.responder.drops.foreign += 1;
            return;
        };
        let done = &mut self.receive_done;
        let verdict =
            self.responder.handle_packet(packet, info, &self.config, receives, memory, done);
        if verdict.is_err() {
            self.enter_error(Fault::Responder);
        }
    }

    /// The payload of the packet with this PSN, the last that was handed out, could not be read: its request fails and
    /// all behind it are flushed (IBA 10.3.1.6).
    pub fn handle_denied(&mut self, psn: Psn) {
        if self.fault.is_none() && self.requester.fail(psn, &mut self.send_done) {
            self.fault = Some(Fault::Requester);
            self.requester.flush(&mut self.send_done);
        }
    }

    /// The owner's transition from SQE back to RTS (IBA 10.3.1.6). The peer drops what it has of the message that
    /// failed, because the next one starts. False when the state is another.
    pub fn resume_send(&mut self) -> bool {
        let resumes = self.fault == Some(Fault::Requester);
        if resumes {
            self.fault = None;
        }
        resumes
    }

    /// Brings the queue pair into the error state: all its requests are flushed (IBA 10.3.1.7).
    pub fn handle_error(&mut self) {
        if !self.in_error() {
            self.enter_error(Fault::Owner);
        }
    }

    /// Whether the state is ERR, and not SQE only.
    fn in_error(&self) -> bool {
        matches!(self.fault, Some(Fault::Responder | Fault::Owner))
    }

    fn enter_error(&mut self, fault: Fault) {
        self.fault = Some(fault);
        self.requester.flush(&mut self.send_done);
        self.responder.stop(&mut self.receive_done);
    }

    /// Flushes receive requests of a queue pair in error: those of its own receive queue, never of a shared one.
    pub fn flush_receives(&mut self, receives: &mut ReceiveQueue) {
        while let Some(request) = receives.take() {
            self.receive_done.push_back(ended(&request, Status::Flushed));
        }
    }

    /// The next packet to send. Requests that are done on this side alone are executed when their turn comes.
    pub fn poll_transmit(&mut self, memory: &mut impl Memory) -> Option<Transmit<'_>> {
        if self.fault.is_some() {
            return None;
        }
        self.requester.settle(&mut self.send_done);
        let executed = self.requester.execute_local(&self.config, memory, &mut self.send_done);
        if executed.is_err() {
            self.fault = Some(Fault::Requester);
            self.requester.flush(&mut self.send_done);
            return None;
        }
        self.requester.poll_transmit(&self.config)
    }

    /// The next completion of the send queue.
    pub fn poll_send_completion(&mut self) -> Option<Completion> {
        self.requester.settle(&mut self.send_done);
        self.send_done.pop_front()
    }

    /// The next completion of the receive queue.
    pub fn poll_receive_completion(&mut self) -> Option<Completion> {
        self.receive_done.pop_front()
    }
}
