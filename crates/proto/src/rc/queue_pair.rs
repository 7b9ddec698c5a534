//! A reliable connection's queue pair: requester and responder under one roof.

use alloc::collections::VecDeque;
use core::time::Duration;

use ferroce_wire::number::{PKey, Psn, Qpn};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::RnrTimer;

use super::requester::{PostError, Requester};
use super::responder::Responder;
use crate::memory::{AccessFlags, Domain, Memory};
use crate::receive::ReceiveQueue;
use crate::time::Instant;
use crate::transmit::Transmit;
use crate::work::{Completion, CompletionKind, SendRequest, Status};

/// What the attributes of the transitions to RTR and RTS set (IBA 11.2.5.2).
#[derive(Clone, Debug)]
pub struct Config {
    /// The peer's queue pair.
    pub destination: Qpn,
    /// The partition of both.
    pub partition: PKey,
    /// The protection domain.
    pub domain: Domain,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub mtu: u16,
    /// Our first PSN.
    pub send_psn: Psn,
    /// The peer's first PSN.
    pub receive_psn: Psn,
    /// Local ACK timeout; none waits for ever.
    pub timeout: Option<Duration>,
    /// How often to send again without progress.
    pub retry_count: u8,
    /// How often to send again to a responder that is not ready; 7 for ever.
    pub rnr_retry: u8,
    /// How long we ask a requester to wait when no receive is posted.
    pub rnr_timer: RnrTimer,
    /// READs and atomics that we may have under way.
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have under way.
    pub max_dest_rd_atomic: u8,
    /// What the peer may do.
    pub access: AccessFlags,
    /// Packets that may be under way: what a receiver's socket buffer holds.
    pub window: u32,
    /// Requests that the send queue holds.
    pub send_capacity: usize,
}

/// What brought a queue pair into the error state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A request of ours failed: its completion says how.
    Requester,
    /// A request of the peer's was refused for good: the peer's completion says how.
    Responder,
    /// The owner said so.
    Owner,
}

/// A connected queue pair, ready to send and receive.
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

    /// Why the queue pair is in error, if it is.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Adds a request to the send queue.
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        if self.fault.is_some() {
            // IBA 10.3.1.7: taken, and completed in error.
            self.send_done.push_back(Completion::new(
                request.id,
                CompletionKind::from(&request.operation),
                Status::Flushed,
            ));
            return Ok(());
        }
        self.requester.post(request, &self.config)
    }

    /// Requests that are not finished.
    pub fn send_queue_len(&self) -> usize {
        self.requester.queue.len()
    }

    /// A packet from the peer, whose ICRC is right. Receive requests are taken from `receives`, the queue pair's own
    /// or a shared one.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
    ) {
        let Some(info) = packet.bth.opcode.info() else { return };
        // IBA 9.6.1.1: partition and destination were matched when the queue pair was found.
        if self.fault.is_some() {
            return;
        }
        let failed = if info.request {
            let done = &mut self.receive_done;
            self.responder
                .handle_request(packet, info, &self.config, receives, memory, done)
                .is_err()
                .then_some(Fault::Responder)
        } else {
            let done = &mut self.send_done;
            self.requester
                .handle_response(now, packet, info, &self.config, memory, done)
                .is_err()
                .then_some(Fault::Requester)
        };
        if let Some(fault) = failed {
            self.enter_error(fault);
        }
    }

    /// The time that [`QueuePair::poll_timeout`] named has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.fault.is_none() && self.requester.handle_timeout(now, &mut self.send_done).is_err()
        {
            self.enter_error(Fault::Requester);
        }
    }

    /// The payload of the packet with this PSN could not be read: of a request of ours when `local`, else of an answer
    /// to the peer's READ.
    pub fn handle_denied(&mut self, psn: Psn, local: bool) {
        if self.fault.is_some() {
            return;
        }
        if local {
            let _ = self.requester.fail_local(psn, &mut self.send_done);
            self.enter_error(Fault::Requester);
        } else {
            self.responder.fail_read(psn);
            self.enter_error(Fault::Responder);
        }
    }

    /// Brings the queue pair into the error state: all its requests are flushed (IBA 10.3.1.7).
    pub fn handle_error(&mut self) {
        if self.fault.is_none() {
            self.enter_error(Fault::Owner);
        }
    }

    fn enter_error(&mut self, fault: Fault) {
        self.fault = Some(fault);
        self.requester.flush(&mut self.send_done);
        self.responder.stop(&mut self.receive_done);
    }

    /// Flushes receive requests of a queue pair in error: those of its own receive queue, never of a shared one.
    pub fn flush_receives(&mut self, receives: &mut ReceiveQueue) {
        while let Some(request) = receives.take() {
            self.receive_done.push_back(Completion::new(
                request.id,
                CompletionKind::Receive,
                Status::Flushed,
            ));
        }
    }

    /// The next packet to send: answers first, for a peer waits for them.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        if self.responder.wants_to_send() {
            return self.responder.poll_transmit(&self.config);
        }
        if self.fault.is_some() {
            return None;
        }
        self.requester.poll_transmit(now, &self.config)
    }

    /// The next completion of the send queue.
    pub fn poll_send_completion(&mut self) -> Option<Completion> {
        self.send_done.pop_front()
    }

    /// The next completion of the receive queue.
    pub fn poll_receive_completion(&mut self) -> Option<Completion> {
        self.receive_done.pop_front()
    }

    /// When to call [`QueuePair::handle_timeout`], or to poll for packets, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.requester.poll_timeout().filter(|_| self.fault.is_none())
    }
}
