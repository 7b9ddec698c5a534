//! A reliable connection's queue pair: requester and responder under one roof.

use alloc::collections::VecDeque;
use core::time::Duration;

use ferroce_wire::number::{PKey, Psn, Qpn};
use ferroce_wire::opcode::{Opcode, Operation, Transport};
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::syndrome::{NakCode, RnrTimer};
use ferroce_wire::transport::Bth;

use super::requester::{Requester, Sending};
use super::responder::{Refused, Responder};
use crate::congestion::{Congestion, NotificationPacer, RateControl, cost};
use crate::counters::Counters;
use crate::memory::{AccessFlags, Accessor, Memory, PdId};
use crate::qp::Fault;
use crate::receive::{ReceiveQueue, XrcDomain};
use crate::time::Instant;
use crate::transmit::{Payload, Transmit};
use crate::work::{Completion, CompletionKind, PostError, SendRequest, Status, WorkId};

/// Which halves of a reliable connection a queue pair has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// RC: both.
    #[default]
    Both,
    /// XRC's sending end (IBA A14).
    Initiator,
    /// XRC's receiving end, with the domain whose shared receive queues its messages may name (IBA A14).
    Target(XrcDomain),
}

impl Role {
    /// The service that its packets are of.
    pub const fn transport(self) -> Transport {
        match self {
            Self::Both => Transport::ReliableConnection,
            Self::Initiator | Self::Target(_) => Transport::ExtendedReliableConnection,
        }
    }

    /// An opcode of RC's as one of this service (IBA A14: the operations are the same).
    pub(super) const fn opcode(self, opcode: Opcode) -> Opcode {
        match self {
            Self::Both => opcode,
            Self::Initiator | Self::Target(_) => Opcode(opcode.0 | 0xa0),
        }
    }
}

/// What the attributes of the transitions to RTR and RTS set (IBA 11.2.5.2).
#[derive(Clone, Debug)]
pub struct Config {
    /// RC, or one of XRC's ends.
    pub role: Role,
    /// Our own queue pair.
    pub number: Qpn,
    /// The peer's queue pair.
    pub destination: Qpn,
    /// The partition of both.
    pub partition: PKey,
    /// The protection domain. An XRC target uses those of the receive queues that its messages name.
    pub pd: PdId,
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
    /// What bounds how much is under way, and how fast.
    pub congestion: Congestion,
    /// Requests that the send queue holds.
    pub send_capacity: usize,
}

impl Config {
    /// As whom the queue pair's own requests reach for memory.
    pub(super) const fn accessor(&self) -> Accessor {
        Accessor { pd: self.pd, queue_pair: self.number }
    }
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
    pacer: NotificationPacer,
    /// A congestion notification is to be sent.
    notify: bool,
    refusal: Option<NakCode>,
    /// READ responses wait until then: the rate does not allow them before.
    responses_paced_until: Option<Instant>,
    counters: Counters,
}

impl QueuePair {
    /// A queue pair that is connected so, ready to send and receive (RTS).
    pub fn new(config: Config) -> Self {
        let mut queue_pair = Self::receiving(config);
        queue_pair.start_sending();
        queue_pair
    }

    /// A queue pair that answers, and does not send yet (RTR).
    pub fn receiving(config: Config) -> Self {
        Self {
            requester: Requester::new(&config),
            responder: Responder::new(&config),
            config,
            send_done: VecDeque::new(),
            receive_done: VecDeque::new(),
            fault: None,
            pacer: NotificationPacer::new(NotificationPacer::INTERVAL),
            notify: false,
            refusal: None,
            responses_paced_until: None,
            counters: Counters::default(),
        }
    }

    /// How it is connected.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes how it is connected, as the owner's changes of attributes ask for. What a connection cannot change
    /// while it lasts (its role, MTU and PSNs, and the kind of its congestion control) has no effect once it sends.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
        if self.requester.sending == Sending::NotYet {
            self.requester = Requester::new(&self.config);
        }
    }

    /// The transition from RTR to RTS, or from SQD back to it (IBA 10.3.1.4).
    pub fn start_sending(&mut self) {
        if !matches!(self.config.role, Role::Target(_)) {
            self.requester.sending = Sending::Yes;
        }
    }

    /// The transition to SQD: requests that were started are finished, others wait (IBA 10.3.1.5).
    pub fn drain(&mut self) {
        if self.requester.sending == Sending::Yes {
            self.requester.sending = Sending::Draining;
        }
    }

    /// Whether the send queue is drained, after [`QueuePair::drain`].
    pub fn is_drained(&self) -> bool {
        self.requester.is_drained()
    }

    /// Why the queue pair is in error, if it is.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// What the peer was told when a request of its was refused for good, where no receive completion reports it.
    pub fn refusal(&self) -> Option<NakCode> {
        self.refusal
    }

    /// Adds a request to the send queue.
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        if let Role::Target(_) = self.config.role {
            return Err(PostError::State);
        }
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

    /// The request of ours that a packet with this PSN belongs to: one of its own, or an answer to it.
    pub fn work_of(&self, psn: Psn) -> Option<WorkId> {
        self.requester.work_of(psn)
    }

    /// Requests that are not finished.
    pub fn send_queue_len(&self) -> usize {
        self.requester.queue.len()
    }

    /// A packet from the peer, whose ICRC is right, and whether the network has marked it (RFC 3168). Receive requests
    /// are taken from `receives`: the queue pair's own, a shared one, or the one that an XRC packet names, if there is
    /// one.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        marked: bool,
        receives: Option<&mut ReceiveQueue>,
        memory: &mut impl Memory,
    ) {
        let Some(info) = packet.bth.opcode.info() else { return };
        // IBA 9.6.1.1: partition and destination were matched when the queue pair was found.
        if self.fault.is_some() {
            return;
        }
        if info.operation == Operation::CongestionNotification {
            self.counters.rp_cnp_handled += u64::from(self.config.congestion.reacts());
            self.requester.rate.on_cnp(now);
            return;
        }
        // IBA 9.6.1.1: packets of another service are dropped, and so are those for the half that is not there.
        let half_missing = match self.config.role {
            Role::Both => false,
            Role::Initiator => info.request,
            Role::Target(_) => !info.request,
        };
        if info.transport != self.config.role.transport() || half_missing {
            return;
        }
        self.counters.np_ecn_marked_roce_packets += u64::from(marked);
        self.notify |= marked && self.pacer.handle_mark(now);
        let failed = if info.request {
            let done = &mut self.receive_done;
            self.responder
                .handle_request(packet, info, &self.config, receives, memory, done)
                .err()
                .map(|Refused { code, reported }| {
                    self.refusal = Some(code).filter(|_| !reported);
                    Fault::Responder
                })
        } else {
            let done = &mut self.send_done;
            self.requester
                .handle_response(now, packet, info, &self.config, memory, done)
                .and_then(|()| self.requester.settle(done))
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

    /// The peer's host reports that the port is closed that the packet with this PSN went to.
    pub fn handle_unreachable(&mut self, now: Instant, psn: Psn) {
        let done = &mut self.send_done;
        if self.fault.is_none() && self.requester.handle_unreachable(now, psn, done).is_err() {
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
            if self.requester.fail_local(psn, &mut self.send_done).is_err() {
                self.enter_error(Fault::Requester);
            }
        } else {
            self.responder.fail_read(psn);
            self.refusal = Some(NakCode::RemoteAccessError);
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
        receives.flush(&mut self.receive_done);
    }

    /// The next packet to send: answers first, for a peer waits for them. Requests that are done on this side alone
    /// are executed when their turn comes.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
    ) -> Option<Transmit<'_>> {
        if core::mem::take(&mut self.notify) {
            self.counters.np_cnp_sent += 1;
            return Some(self.notification());
        }
        if self.responder.wants_to_send() && !self.holds_response(now) {
            return self.responder.poll_transmit(&self.config);
        }
        if self.fault.is_some() {
            return None;
        }
        if self.requester.execute_local(&self.config, memory, &mut self.send_done).is_err() {
            self.enter_error(Fault::Requester);
            return None;
        }
        self.requester.poll_transmit(now, &self.config)
    }

    /// Whether the next response has to wait. READ responses keep to the rate as requests do; what follows one waits
    /// behind it, for responses are in the order of their requests (IBA 9.7.5.1).
    fn holds_response(&mut self, now: Instant) -> bool {
        self.responses_paced_until = None;
        let Some(payload) = self.responder.next_read_payload(&self.config) else { return false };
        let rate = &mut self.requester.rate;
        // A queue pair in error has no timers.
        self.responses_paced_until = rate.next_response(now).filter(|_| self.fault.is_none());
        if self.responses_paced_until.is_none() {
            rate.on_response_sent(now, cost(payload, 1));
        }
        self.responses_paced_until.is_some()
    }

    /// Takes what was counted since the last call.
    pub fn take_counters(&mut self) -> Counters {
        let mut counters = self.counters.take();
        counters.add(&self.requester.counters.take());
        counters.add(&self.responder.counters.take());
        counters
    }

    /// A congestion notification packet (IBA A17.9.3): 16 reserved bytes behind a BTH that counts nothing.
    fn notification(&self) -> Transmit<'static> {
        let bth = Bth {
            opcode: Opcode::CNP,
            becn: true,
            partition: self.config.partition,
            destination: self.config.destination,
            ..Bth::default()
        };
        Transmit {
            bth,
            extensions: ExtensionHeaders::default(),
            payload: Payload::Inline(&[0; 16]),
            by: self.config.accessor(),
        }
    }

    /// The rate that congestion control allows at this time in bits a second; `None` when there is no limit.
    pub fn rate(&mut self, now: Instant) -> Option<u64> {
        self.requester.rate.rate(now)
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
        let timers = [self.requester.poll_timeout(), self.responses_paced_until];
        timers.into_iter().flatten().min().filter(|_| self.fault.is_none())
    }
}
