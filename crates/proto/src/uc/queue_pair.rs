//! A UC queue pair: requester and responder.

#[cfg(debug_assertions)]
mod invariants;

use alloc::vec::Vec;

use ferroce_wire::number::{PKey, Psn, Qpn};
use ferroce_wire::opcode::Transport;
use ferroce_wire::packet::Packet;

use super::drops::Drops;
use super::requester;
use super::responder::Responder;
use crate::budget::Progress;
use crate::held::HeldPacket;
use crate::memory::{AccessFlags, Accessor, Memory, Outcome, PdId, Staged, Token};
use crate::qp::Fault;
use crate::reason::Reason;
use crate::receive::ReceiveQueue;
use crate::transmit::Transmit;
use crate::unacknowledged::{Queues, SendQueue};
use crate::work::{Completion, PostError, SendRequest, WorkId};

/// Attributes of the transitions to RTR and RTS (IBA 11.2.5.2).
#[derive(Clone, Debug)]
pub struct Config {
    /// The local QPN.
    pub number: Qpn,
    /// The peer's QPN.
    pub destination: Qpn,
    /// The P_Key of the connection.
    pub partition: PKey,
    /// The protection domain.
    pub pd: PdId,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub mtu: u16,
    /// First PSN to send.
    pub send_psn: Psn,
    /// First PSN to receive.
    pub receive_psn: Psn,
    /// Remote access rights.
    pub access: AccessFlags,
    /// Capacity of the send queue.
    pub send_capacity: usize,
}

impl Config {
    /// The QP and PD for memory accesses.
    pub(super) const fn accessor(&self) -> Accessor {
        Accessor { pd: self.pd, queue_pair: self.number }
    }

    /// The MTU, at least 1.
    pub(super) fn packet_size(&self) -> u64 {
        u64::from(self.mtu).max(1)
    }
}

/// A connected QP in RTS. It needs no timers, since nothing is retransmitted.
#[derive(Debug)]
pub struct QueuePair {
    config: Config,
    queues: Queues<SendRequest>,
    responder: Responder,
}

impl QueuePair {
    /// Creates a QP in RTS.
    pub fn new(config: Config) -> Self {
        Self { queues: Queues::new(config.send_psn), responder: Responder::new(&config), config }
    }

    /// The attributes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Applies attribute changes. The PSNs of a connection that already sends or receives do not change.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
    }

    /// Sets the first PSN, before any packet is sent.
    pub fn start_sending(&mut self, psn: Psn) {
        self.config.send_psn = psn;
        self.queues.send = SendQueue::new(psn);
    }

    /// Whether no message is partly sent; SQD waits for this (IBA 10.3.1.5).
    pub fn is_between_messages(&self) -> bool {
        self.queues.send.is_between_messages()
    }

    /// The fault that put the QP into SQE or ERR, if any.
    pub fn fault(&self) -> Option<Fault> {
        self.queues.fault()
    }

    /// Counters of silent drops.
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

    /// Number of unfinished send requests.
    pub fn send_queue_len(&self) -> usize {
        self.queues.send.len()
    }

    /// Panics if the QP violates a rule of the specification or of its own design. Release builds check nothing.
    #[inline]
    pub fn check_invariants(&self) {
        #[cfg(debug_assertions)]
        self.check_each();
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            send_queue: self.queues.send.len(),
            send_psn: self.queues.send.next_psn(),
            receive_psn: self.responder.expected_psn(),
            ..Progress::default()
        }
    }

    /// Handles a packet from the peer with a valid ICRC. Receive requests come from `receives`, the QP's own RQ or an
    /// SRQ.
    pub fn handle_packet(
        &mut self,
        packet: &Packet<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
    ) {
        if self.queues.in_error() {
            return;
        }
        // P_Key and destination were checked when the QP was looked up (IBA 9.6.1.1).
        let info = packet.bth.opcode.info();
        let ours = info.filter(|info| info.transport == Transport::UnreliableConnection);
        let (Some(info), true) = (ours, packet.payload.len() == packet.payload_len) else {
            self.responder.drops.foreign += 1;
            self.queues.reports.report(Reason::WrongService(packet.bth.opcode));
            return;
        };
        let Queues { receive_done, reports, .. } = &mut self.queues;
        let handled = self.responder.handle_packet(
            packet,
            info,
            &self.config,
            receives,
            memory,
            receive_done,
            reports,
        );
        if let Err(fault) = handled {
            self.enter_error(fault);
        }
    }

    /// The payload of the packet with this PSN, the last one handed out, could not be read: its request fails, and
    /// all later requests are flushed (IBA 10.3.1.6).
    pub fn handle_denied(&mut self, psn: Psn, reason: Reason) {
        self.queues.handle_denied(psn, reason);
    }

    /// Whether there are reasons to take.
    #[inline]
    pub fn has_reasons(&self) -> bool {
        self.queues.reports.is_some()
    }

    /// Moves the reasons since the last call to `all`.
    pub fn move_reasons_to(&mut self, all: &mut Vec<Reason>) {
        self.queues.reports.move_reasons_to(all);
    }

    /// Transition from SQE to RTS (IBA 10.3.1.6). The peer drops its part of the failed message when the next one
    /// starts. Returns false in any other state.
    pub fn resume_send(&mut self) -> bool {
        self.queues.resume_send()
    }

    /// Enters ERR: all requests are flushed (IBA 10.3.1.7).
    pub fn handle_error(&mut self) {
        if !self.queues.in_error() {
            self.enter_error(Fault::Owner);
        }
    }

    fn enter_error(&mut self, fault: Fault) {
        self.queues.enter_error(fault);
        self.responder.stop(&mut self.queues.receive_done);
    }

    /// Handles the end of an access to memory that this QP has begun. Returns false if it has not. The request of a message
    /// that was dropped returns to `receives`.
    pub fn handle_finished(
        &mut self,
        token: Token,
        outcome: Outcome,
        receives: Option<&mut ReceiveQueue>,
    ) -> bool {
        let Queues { receive_done, reports, .. } = &mut self.queues;
        let ended = self.responder.handle_finished(token, outcome, receive_done, reports);
        if let Some(Err(fault)) = ended {
            if !self.queues.in_error() {
                self.enter_error(fault);
            }
        }
        if let Some((request, receives)) = self.responder.take_dropped().zip(receives) {
            receives.put_back(request);
        }
        ended.is_some()
    }

    /// Handles the end of a read that this QP has begun. Returns false if it has not.
    pub fn handle_read(&mut self, token: Token, payload: Option<Staged>) -> bool {
        self.queues.send.handle_read(token, payload)
    }

    /// Whether [`QueuePair::poll_transmit`] could return a packet now.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.queues.send.wants_to_send()
    }

    /// The next packet that was held while memory was written, if it can be handled now. It is to be passed to
    /// [`QueuePair::handle_packet`] before any other packet.
    pub fn take_held(&mut self) -> Option<HeldPacket> {
        if self.responder.is_placing() || self.queues.in_error() {
            return None;
        }
        let packet = self.responder.held.pop();
        // What was dropped is a gap in the PSNs.
        self.responder.held.dropped &= packet.is_some();
        packet
    }

    /// Number of accesses to memory that have begun and not finished.
    pub fn unfinished(&self) -> usize {
        self.responder.withheld.unfinished() + self.queues.send.unfinished()
    }

    /// Whether receive completions wait for the end of an access to memory.
    pub(crate) fn withholds_receives(&self) -> bool {
        !self.responder.withheld.is_empty()
    }

    /// Flushes the QP's own RQ in ERR. Never call this with an SRQ.
    pub fn flush_receives(&mut self, receives: &mut ReceiveQueue) {
        self.queues.flush_receives(receives);
    }

    /// The next packet to send. Executes local requests when they reach the head of the queue.
    pub fn poll_transmit<M: Memory>(&mut self, memory: &mut M) -> Option<Transmit<'_>> {
        if self.queues.fault().is_some() {
            return None;
        }
        self.queues.send.complete_sent(&mut self.queues.send_done);
        if let Err(fault) = requester::execute_local(&mut self.queues, &self.config, memory) {
            self.queues.enter_error(fault);
            return None;
        }
        let Self { queues, config, .. } = self;
        if M::CAN_PEND && !queues.prepare(config.accessor(), config.packet_size(), memory) {
            return None;
        }
        requester::poll_transmit::<M>(&mut queues.send, config)
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
