//! A UD queue pair: requester and responder.

#[cfg(debug_assertions)]
mod invariants;

use alloc::vec::Vec;

use ferroce_wire::address::Gid;
use ferroce_wire::number::{PKey, Psn, QKey, Qpn};
use ferroce_wire::packet::Packet;

use super::groups::AttachError;
use super::request::{AddressHandle, SendRequest, UdTransmit};
use super::requester;
use super::responder::{Drops, Envelope, Responder};
use crate::budget::Progress;
use crate::memory::{Accessor, Memory, Outcome, PdId, Staged, Token};
use crate::qp::Fault;
use crate::reason::Reason;
use crate::receive::ReceiveQueue;
use crate::unacknowledged::{Queues, SendQueue};
use crate::work::{Completion, PostError, WorkId};

/// Attributes of the transitions to INIT, RTR and RTS (IBA 11.2.5.2).
#[derive(Clone, Debug)]
pub struct Config {
    /// The local QPN.
    pub number: Qpn,
    /// The Q_Key that inbound datagrams must carry.
    pub queue_key: QKey,
    /// The P_Key.
    pub partition: PKey,
    /// The protection domain.
    pub pd: PdId,
    /// MTU of the port in bytes, 256, 512, 1024, 2048 or 4096: also the longest message.
    pub mtu: u16,
    /// First PSN to send.
    pub send_psn: Psn,
    /// Capacity of the send queue.
    pub send_capacity: usize,
    /// Maximum number of multicast groups.
    pub group_capacity: usize,
}

impl Config {
    /// The QP and PD for memory accesses.
    pub(super) const fn accessor(&self) -> Accessor {
        Accessor { pd: self.pd, queue_pair: self.number }
    }

    /// The MTU, at least 1.
    fn packet_size(&self) -> u64 {
        u64::from(self.mtu).max(1)
    }
}

/// A QP that exchanges datagrams with any peer. `R` is a route to a host, see
/// [`AddressHandle`]. It needs no timers, since nothing is retransmitted.
#[derive(Debug)]
pub struct QueuePair<R> {
    config: Config,
    queues: Queues<SendRequest<R>>,
    responder: Responder,
}

impl<R: Copy> QueuePair<R> {
    /// Creates a QP in RTS.
    pub fn new(config: Config) -> Self {
        Self { queues: Queues::new(config.send_psn), responder: Responder::new(&config), config }
    }

    /// The attributes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Applies attribute changes.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
    }

    /// Sets the first PSN, before any packet is sent.
    pub fn start_sending(&mut self, psn: Psn) {
        self.config.send_psn = psn;
        self.queues.send = SendQueue::new(psn);
    }

    /// Discards all requests and errors. Groups stay attached in every state (IBA 11.3.1).
    pub fn reset(&mut self) {
        self.queues = Queues::new(self.config.send_psn);
        self.responder.reset();
    }

    /// The fault that put the QP into SQE or ERR, if any.
    pub fn fault(&self) -> Option<Fault> {
        self.queues.fault()
    }

    /// Counters of silent drops.
    pub fn drops(&self) -> &Drops {
        &self.responder.drops
    }

    /// Attaches to a multicast group (IBA 11.3.1).
    pub fn attach(&mut self, group: Gid) -> Result<(), AttachError> {
        self.responder.groups.attach(group)
    }

    /// Detaches from a multicast group (IBA 11.3.2). Returns whether it was attached.
    pub fn detach(&mut self, group: Gid) -> bool {
        self.responder.groups.detach(group)
    }

    /// Whether it is attached to any multicast group.
    pub fn is_attached(&self) -> bool {
        !self.responder.groups.is_empty()
    }

    /// Whether the QP is attached to this group: each attached QP gets a copy (IBA 10.5).
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

    /// The address handle of the next packet, if any.
    pub fn next_address(&self) -> Option<&AddressHandle<R>> {
        self.queues.send.next().map(|request| &request.address)
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
            ..Progress::default()
        }
    }

    /// Handles a packet with valid ICRC and P_Key, and the IP header it came with. Receive requests come from
    /// `receives`, the QP's own RQ or an SRQ.
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
        let Queues { receive_done, reports, .. } = &mut self.queues;
        let handled = self.responder.handle_packet(
            packet,
            envelope,
            &self.config,
            receives,
            memory,
            receive_done,
            reports,
        );
        if let Err(fault) = handled {
            self.queues.enter_error(fault);
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

    /// Transition from SQE to RTS (IBA 10.3.1.6). Returns false in any other state.
    pub fn resume_send(&mut self) -> bool {
        self.queues.resume_send()
    }

    /// Enters ERR: all requests are flushed (IBA 10.3.1.7).
    pub fn handle_error(&mut self) {
        if !self.queues.in_error() {
            self.queues.enter_error(Fault::Owner);
        }
    }

    /// Handles the end of an access to memory that this QP has begun. Returns false if it has not.
    pub fn handle_finished(&mut self, token: Token, outcome: Outcome) -> bool {
        let Queues { receive_done, reports, .. } = &mut self.queues;
        let ended = self.responder.handle_finished(token, outcome, receive_done, reports);
        if let Some(Err(fault)) = ended {
            if !self.queues.in_error() {
                self.queues.enter_error(fault);
            }
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

    /// The next packet to send, with its route.
    pub fn poll_transmit<M: Memory>(&mut self, memory: &mut M) -> Option<UdTransmit<'_, R>> {
        if self.queues.fault().is_some() {
            return None;
        }
        self.queues.send.complete_sent(&mut self.queues.send_done);
        let Self { queues, config, .. } = self;
        if M::CAN_PEND && !queues.prepare(config.accessor(), config.packet_size(), memory) {
            return None;
        }
        requester::poll_transmit::<M, R>(&mut queues.send, config)
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
