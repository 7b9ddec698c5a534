//! An RC or XRC queue pair: requester and responder.

#[cfg(debug_assertions)]
mod invariants;
mod memory;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use ferroce_wire::number::{PKey, Psn, Qpn};
use ferroce_wire::opcode::{Opcode, Operation, Transport};
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::syndrome::{NakCode, RnrTimer};
use ferroce_wire::transport::{Aeth, Bth};

use super::keepalive::{Keepalive, Silent};
use super::requester::{Requester, Sending};
use super::responder::{Message, Refused, Responder};
use super::whole::Whole;
use crate::budget::{Budget, InFlight, Pending, Progress};
use crate::congestion::{Congestion, NotificationPacer, RateControl, cost};
use crate::counters::{Counters, Uncollected};
use crate::memory::{AccessFlags, Accessor, Memory, PdId};
use crate::qp::Fault;
use crate::reason::Reason;
use crate::receive::{ReceiveQueue, XrcDomain};
#[cfg(test)]
use crate::sequence::Sequence;
use crate::time::{Instant, earliest};
use crate::transmit::{Payload, Transmit};
use crate::work::{Completion, CompletionKind, PostError, SendRequest, Status, WorkId};

/// The halves of a reliable connection that a QP has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// RC: requester and responder.
    #[default]
    Both,
    /// XRC initiator: requester only (IBA A14).
    Initiator,
    /// XRC target: responder only, with the XRC domain whose SRQs its messages may name (IBA A14).
    Target(XrcDomain),
}

impl Role {
    /// The transport of its packets.
    pub const fn transport(self) -> Transport {
        match self {
            Self::Both => Transport::ReliableConnection,
            Self::Initiator | Self::Target(_) => Transport::ExtendedReliableConnection,
        }
    }

    /// Converts an RC opcode to this transport.
    pub(super) const fn opcode(self, opcode: Opcode) -> Opcode {
        match self {
            Self::Both => opcode,
            Self::Initiator | Self::Target(_) => opcode.over_xrc(),
        }
    }
}

/// Attributes of the transitions to RTR and RTS (IBA 11.2.5.2).
#[derive(Clone, Debug)]
pub struct Config {
    /// RC, XRC initiator or XRC target.
    pub role: Role,
    /// The local QPN.
    pub number: Qpn,
    /// The peer's QPN.
    pub destination: Qpn,
    /// The P_Key of the connection.
    pub partition: PKey,
    /// The PD. An XRC target uses the PD of the SRQ that a message names.
    pub pd: PdId,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub mtu: u16,
    /// First PSN to send.
    pub send_psn: Psn,
    /// First PSN to receive.
    pub receive_psn: Psn,
    /// Local ACK timeout; `None` disables it.
    pub timeout: Option<Duration>,
    /// Retry count: timeouts without progress.
    pub retry_count: u8,
    /// RNR retry count; 7 is unlimited.
    pub rnr_retry: u8,
    /// RNR timer that the responder's RNR NAKs carry.
    pub rnr_timer: RnrTimer,
    /// Maximum outstanding READs and atomics as requester.
    pub max_rd_atomic: u8,
    /// Maximum outstanding READs and atomics as responder.
    pub max_dest_rd_atomic: u8,
    /// Remote access rights.
    pub access: AccessFlags,
    /// The congestion control.
    pub congestion: Congestion,
    /// How long the peer may be silent before an idle QP asks whether it is there; `None` never asks.
    pub keepalive: Option<Duration>,
    /// Capacity of the send queue.
    pub send_capacity: usize,
}

impl Config {
    /// The QP and PD for memory accesses of local requests.
    pub(super) const fn accessor(&self) -> Accessor {
        Accessor { pd: self.pd, queue_pair: self.number }
    }
}

/// A connected QP.
#[derive(Debug)]
pub struct QueuePair {
    config: Config,
    requester: Requester,
    responder: Responder,
    send_done: VecDeque<Completion>,
    receive_done: VecDeque<Completion>,
    fault: Option<Fault>,
    keepalive: Keepalive,
    /// Keepalives were not answered.
    is_peer_lost: bool,
    pacer: NotificationPacer,
    /// A CNP is to be sent.
    notify: bool,
    refusal: Option<NakCode>,
    /// READ responses are paced until then.
    responses_paced_until: Option<Instant>,
    counters: Uncollected,
    /// Messages are checked step by step, whatever they are: for a test that compares.
    #[cfg(test)]
    pub(super) checks_each_step: bool,
}

impl QueuePair {
    /// Creates a QP in RTS.
    pub fn new(config: Config) -> Self {
        let mut queue_pair = Self::receiving(config);
        queue_pair.start_sending();
        queue_pair
    }

    /// Creates a QP in RTR: it responds, and does not send requests yet.
    pub fn receiving(config: Config) -> Self {
        Self {
            requester: Requester::new(&config),
            responder: Responder::new(&config),
            config,
            send_done: VecDeque::new(),
            receive_done: VecDeque::new(),
            fault: None,
            keepalive: Keepalive::default(),
            is_peer_lost: false,
            pacer: NotificationPacer::new(NotificationPacer::INTERVAL),
            notify: false,
            refusal: None,
            responses_paced_until: None,
            counters: Uncollected::default(),
            #[cfg(test)]
            checks_each_step: false,
        }
    }

    /// The attributes.
    #[inline]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Applies attribute changes. Attributes that cannot change during a connection (role, MTU, PSNs, kind of
    /// congestion control) have no effect once it sends.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
        if self.requester.sending == Sending::NotYet {
            self.requester = Requester::new(&self.config);
        }
        // max_rd_atomic may have grown.
        self.requester.stalled = false;
    }

    /// Transition from RTR or SQD to RTS (IBA 10.3.1.4).
    pub fn start_sending(&mut self) {
        if !matches!(self.config.role, Role::Target(_)) {
            self.requester.sending = Sending::Active;
            self.requester.stalled = false;
        }
    }

    /// Transition to SQD: started requests are completed, others wait (IBA 10.3.1.5).
    pub fn drain(&mut self) {
        if self.requester.sending == Sending::Active {
            self.requester.sending = Sending::Draining;
        }
    }

    /// Whether all started requests have completed, after [`QueuePair::drain`].
    pub fn is_drained(&self) -> bool {
        self.requester.is_drained()
    }

    /// The fault that put the QP into ERR, if any.
    #[inline]
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// The NAK code that put the QP into ERR, unless a receive completion reports the error.
    pub fn refusal(&self) -> Option<NakCode> {
        self.refusal
    }

    /// Whether unanswered keepalives put the QP into ERR: no completion reports the error.
    pub fn is_peer_lost(&self) -> bool {
        self.is_peer_lost
    }

    /// Adds a request to the send queue.
    #[inline(always)]
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        if let Role::Target(_) = self.config.role {
            return Err(PostError::State);
        }
        if self.fault.is_some() {
            // In ERR, posted requests are flushed (IBA 10.3.1.7).
            self.requester.released = self.send_done.len();
            self.send_done.push_back(Completion::new(
                request.id,
                CompletionKind::from(&request.operation),
                Status::Flushed,
            ));
            self.requester.withhold(&mut self.send_done);
            return Ok(());
        }
        self.requester.post(request, &self.config)
    }

    /// The send request that a packet with this PSN belongs to: a packet of the request, or a response to it.
    pub fn work_of(&self, psn: Psn) -> Option<WorkId> {
        self.requester.work_of(psn)
    }

    /// Number of unfinished send requests.
    pub fn send_queue_len(&self) -> usize {
        self.requester.queue.len()
    }

    /// Handles a packet from the peer with a valid ICRC. `marked`: the network set "congestion experienced" (RFC
    /// 3168). Receive requests come from `receives`: the QP's own RQ, an SRQ, or the SRQ that an XRC packet names, if
    /// it exists.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        marked: bool,
        receives: Option<&mut ReceiveQueue>,
        memory: &mut impl Memory,
    ) {
        self.handle_run(now, packet, 1, marked, receives, memory);
    }

    /// Handles `packets` MIDDLE packets of one message as one: `packet` is the first of them, with the payload of all. Or all
    /// packets of a message as an ONLY packet ([`QueuePair::take_whole`]).
    /// Equivalent to [`QueuePair::handle_packet`] for each, of which only the last may request an ACK.
    #[inline]
    pub fn handle_run<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        packets: u32,
        marked: bool,
        receives: Option<&mut ReceiveQueue>,
        memory: &mut M,
    ) {
        let Some(info) = packet.bth.opcode.info() else { return };
        // P_Key and destination were checked when the QP was looked up (IBA 9.6.1.1).
        if self.fault.is_some() {
            return;
        }
        if self.config.keepalive.is_some() {
            self.keepalive.on_packet(now);
        }
        if info.operation == Operation::CongestionNotification {
            self.counters.get_mut().rp_cnp_handled += u64::from(self.config.congestion.reacts());
            self.requester.rate.on_cnp(now);
            return;
        }
        // Packets of another transport are dropped (IBA 9.6.1.1), and those for the half that the QP does not have.
        let half_missing = match self.config.role {
            Role::Both => false,
            Role::Initiator => info.request,
            Role::Target(_) => !info.request,
        };
        if info.transport != self.config.role.transport() || half_missing {
            return;
        }
        if marked {
            self.counters.get_mut().np_ecn_marked_roce_packets += 1;
            self.notify |= self.pacer.handle_mark(now);
        }
        let failed = if info.request {
            let done = &mut self.receive_done;
            let Self { responder, config, .. } = self;
            let mut receives = receives;
            #[cfg(test)]
            let packets_of_whole = if self.checks_each_step { 0 } else { packets };
            #[cfg(not(test))]
            let packets_of_whole = packets;
            let queue = receives.as_deref_mut();
            let Packet { bth, payload, payload_len, .. } = packet;
            let message = Message { bth, reth: packet.extensions.reth.as_ref(), payload };
            if payload.len() == *payload_len
                && responder.handle_whole(&message, packets_of_whole, config, queue, memory, done)
            {
                return;
            }
            self.responder
                .handle_request(packet, packets, info, &self.config, receives, memory, done)
                .err()
                .map(|Refused { code, reported }| {
                    self.refusal = Some(code).filter(|_| !reported);
                    Fault::Responder
                })
        } else {
            let done = &mut self.send_done;
            let requester = &mut self.requester;
            requester.released = done.len();
            let handled = requester
                .handle_response(now, packet, packets, info, &self.config, memory, done)
                .and_then(|()| requester.complete_failed(done));
            if M::CAN_PEND {
                requester.withhold(done);
            }
            handled.is_err().then_some(Fault::Requester)
        };
        if let Some(fault) = failed {
            self.enter_error(fault);
        }
    }

    /// Handles a message as [`QueuePair::handle_run`] does, if it is the one that is expected and passes all checks. False, and
    /// nothing has changed, if [`QueuePair::handle_run`] has to decide.
    #[inline]
    pub fn handle_message(
        &mut self,
        message: &Message<'_>,
        packets: u32,
        receives: Option<&mut ReceiveQueue>,
        memory: &mut impl Memory,
    ) -> bool {
        if self.fault.is_some() || self.config.keepalive.is_some() {
            return false;
        }
        let Self { responder, config, receive_done, .. } = self;
        responder.handle_whole(message, packets, config, receives, memory, receive_done)
    }

    /// Handles an ACK as [`QueuePair::handle_run`] does, if it is positive and acknowledges new packets. False, and nothing has
    /// changed, if [`QueuePair::handle_run`] has to decide.
    #[inline]
    pub fn handle_ack<M: Memory>(
        &mut self,
        now: Instant,
        psn: Psn,
        aeth: Aeth,
        _memory: &M,
    ) -> bool {
        let Self { requester, config, send_done, .. } = self;
        if self.fault.is_some() || config.keepalive.is_some() || config.role != Role::Both {
            return false;
        }
        if M::CAN_PEND && !requester.withheld.is_empty() {
            return false;
        }
        if !requester.handle_ack(now, psn, aeth, config, send_done) {
            return false;
        }
        if requester.complete_failed(send_done).is_err() {
            self.enter_error(Fault::Requester);
        }
        true
    }

    /// Handles the expiry of [`QueuePair::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.fault.is_some() {
            return;
        }
        self.requester.released = self.send_done.len();
        let handled = self.requester.handle_timeout(now, &self.config, &mut self.send_done);
        self.requester.withhold(&mut self.send_done);
        if handled.is_err() {
            return self.enter_error(Fault::Requester);
        }
        let busy = self.requester.has_unacknowledged();
        if self.keepalive.handle_timeout(now, busy, &self.config) == Err(Silent) {
            self.is_peer_lost = true;
            self.counters.report(Reason::PeerSilent);
            self.enter_error(Fault::Requester);
        }
    }

    /// Handles an ICMP "port unreachable" for the packet with this PSN.
    pub fn handle_unreachable(&mut self, now: Instant, psn: Psn) {
        // ICMP is not authenticated: only an error that quotes the keepalive is an answer to it.
        if psn == self.requester.unacknowledged.before().psn() {
            self.keepalive.on_unreachable(now);
        }
        if self.fault.is_some() {
            return;
        }
        self.requester.released = self.send_done.len();
        let (config, done) = (&self.config, &mut self.send_done);
        let handled = self.requester.handle_unreachable(now, psn, config, done);
        self.requester.withhold(done);
        if handled.is_err() {
            self.enter_error(Fault::Requester);
        }
    }

    /// Sets whether the link to the peer loses no packets. A late response is no reason to send anything again then, but
    /// for the ACK timer.
    pub fn set_lossless(&mut self, lossless: bool) {
        self.requester.lossless = lossless;
    }

    /// Sets how many MIDDLE packets [`QueuePair::poll_transmit`] may return as one, for [`QueuePair::handle_run`] of the
    /// peer. XRC ignores it.
    pub fn set_max_run(&mut self, packets: u32) {
        self.requester.max_run = packets.max(1);
    }

    /// The peer has not received yet what was sent last, and nothing is lost on the way: the ACK timer starts again.
    pub fn handle_delay(&mut self, now: Instant) {
        if self.requester.timer.is_some() {
            self.requester.timer = self.config.timeout.map(|timeout| now + timeout);
        }
    }

    /// Nothing reaches the peer any more: what is in flight has timed out.
    pub fn handle_link_down(&mut self, now: Instant) {
        if self.fault.is_some() {
            return;
        }
        self.requester.released = self.send_done.len();
        let (config, done) = (&self.config, &mut self.send_done);
        let handled = self.requester.handle_link_down(now, config, done);
        self.requester.withhold(done);
        if handled.is_err() {
            self.enter_error(Fault::Requester);
        }
    }

    /// The payload of the packet with this PSN could not be read: of a send request when `local`, otherwise of a READ
    /// response.
    pub fn handle_denied(&mut self, psn: Psn, local: bool, reason: Reason) {
        if self.fault.is_some() {
            return;
        }
        if local {
            self.requester.released = self.send_done.len();
            let (config, done) = (&self.config, &mut self.send_done);
            let handled = self.requester.fail_local(psn, reason, config, done);
            self.requester.withhold(done);
            if handled.is_err() {
                self.enter_error(Fault::Requester);
            }
        } else {
            self.counters.report(reason);
            let sequence = self.responder.near(psn);
            self.responder.fail_read(sequence, NakCode::RemoteAccessError);
            self.refusal = Some(NakCode::RemoteAccessError);
            self.enter_error(Fault::Responder);
        }
    }

    /// Enters ERR: all requests are flushed (IBA 10.3.1.7).
    pub fn handle_error(&mut self) {
        if self.fault.is_none() {
            self.enter_error(Fault::Owner);
        }
    }

    fn enter_error(&mut self, fault: Fault) {
        self.fault = Some(fault);
        // In ERR there are no timers: what is queued is sent at once.
        self.responses_paced_until = None;
        self.requester.released = self.send_done.len();
        self.requester.flush(&mut self.send_done);
        self.requester.withhold(&mut self.send_done);
        self.responder.stop(&mut self.receive_done);
    }

    /// Flushes the QP's own RQ in ERR. Never call this with an SRQ.
    pub fn flush_receives(&mut self, receives: &mut ReceiveQueue) {
        receives.flush(&mut self.receive_done);
    }

    /// The next packet to send: responses first, since the peer waits for them, but positive ACKs behind a single request.
    /// Executes local requests when they reach the head of the queue.
    ///
    /// A request is sent only if its cost fits into `budget`, and is subtracted from it. Responses are free.
    #[inline]
    pub fn poll_transmit<M: Memory>(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        memory: &mut M,
    ) -> Option<Transmit<'_>> {
        if core::mem::take(&mut self.notify) {
            self.counters.get_mut().np_cnp_sent += 1;
            return Some(self.notification());
        }
        let acks_follow = self.acks_follow();
        let max_run = self.max_response_run();
        if self.responder.wants_to_send()
            && !acks_follow
            && self.is_response_ready(memory)
            && !self.pace_response(now)
        {
            return self.responder.poll_transmit::<M>(&self.config, max_run);
        }
        // Not before: a request that was held back still is when a response goes first.
        self.requester.over_budget = InFlight::NONE;
        if self.fault.is_some() {
            return None;
        }
        if M::CAN_PEND {
            self.requester.released = self.send_done.len();
        }
        let executed = self.requester.execute_local(&self.config, memory, &mut self.send_done);
        if M::CAN_PEND {
            self.requester.withhold(&mut self.send_done);
        }
        if executed.is_err() {
            self.enter_error(Fault::Requester);
            return None;
        }
        self.watch_peer(now);
        if M::CAN_PEND {
            self.prepare_request(memory);
        }
        let next = self.requester.unacknowledged;
        if let Some(request) = self.requester.poll_transmit::<M>(now, budget, &self.config) {
            return Some(request);
        }
        if acks_follow {
            return self.responder.poll_transmit::<M>(&self.config, max_run);
        }
        self.keepalive.poll_transmit(next, &self.config)
    }

    /// What [`QueuePair::poll_transmit`] would return, if [`QueuePair::pending`] is an ACK: its two headers.
    pub fn take_ack(&mut self) -> Option<(Bth, Aeth)> {
        self.responder.take_ack(&self.config)
    }

    /// The next message as a whole, in place of [`QueuePair::poll_transmit`] with an unlimited budget, if a message is next,
    /// the link loses no packets, and the message has no more of them than [`QueuePair::set_max_run`] says. `None` means
    /// nothing: [`QueuePair::poll_transmit`] decides. For [`QueuePair::handle_run`] of the peer.
    #[inline]
    pub fn take_whole<M: Memory>(&mut self, now: Instant, memory: &mut M) -> Option<Whole<'_>> {
        let responds_first = self.responder.wants_to_send() && !self.acks_follow();
        if self.notify || self.fault.is_some() || responds_first || !self.requester.lossless {
            return None;
        }
        if M::CAN_PEND {
            self.prepare_request(memory);
            if !self.requester.is_next_in_memory() {
                return None;
            }
        }
        self.requester.take_whole(now, &self.config)
    }

    /// Begins to ask a silent peer whether it is there, if the owner wants that. On a link that loses nothing, its end
    /// is noticed at once.
    #[inline]
    fn watch_peer(&mut self, now: Instant) {
        let watches = self.requester.sending == Sending::Active && !self.requester.lossless;
        if let Some(interval) = Keepalive::interval(&self.config).filter(|_| watches) {
            self.keepalive.start(now, interval);
        }
    }

    /// XRC packets have a header of their own in each packet.
    fn max_response_run(&self) -> u32 {
        if self.config.role == Role::Both { self.requester.max_run } else { 1 }
    }

    /// Whether positive ACKs are sent behind the request that is ready. An ACK is shorter than the request, so the two
    /// leave in one batch only in this order. More than one packet would delay the ACK, and the peer might complete its
    /// request after the receive of our reply: the order is not specified, but many programs depend on it. Other
    /// responses are sent first, because the peer waits for them.
    #[inline]
    fn acks_follow(&self) -> bool {
        self.fault.is_none()
            && self.responder.wants_to_send()
            && self.responder.owes_only_acks()
            && self.requester.wants_to_send_one()
    }

    /// Cost of the request packet that did not fit into the budget of the last [`QueuePair::poll_transmit`]; `None`
    /// when none was held back.
    pub fn over_budget(&self) -> Option<InFlight> {
        Some(self.requester.over_budget).filter(|bytes| *bytes != InFlight::NONE)
    }

    /// Bytes in flight: zero after going back to a lost packet, until packets are retransmitted.
    pub fn in_flight(&self) -> InFlight {
        self.requester.in_flight
    }

    /// Panics if the QP violates a rule of the specification or of its own design. Release builds check nothing.
    #[inline]
    pub fn check_invariants(&self) {
        #[cfg(debug_assertions)]
        self.check_each();
    }

    /// How far it is.
    #[inline]
    pub(crate) fn progress(&self) -> Progress {
        let requester = &self.requester;
        Progress {
            send_queue: requester.queue.len(),
            packets_in_flight: requester.next.since(requester.unacknowledged),
            bytes_in_flight: requester.in_flight.peer + requester.in_flight.own,
            send_psn: requester.next.psn(),
            receive_psn: self.responder.expected_psn(),
        }
    }

    /// The PSN after the newest acknowledged one, and the PSN after the newest that was ever sent.
    #[cfg(test)]
    pub(super) fn unacknowledged(&self) -> [Psn; 2] {
        [self.requester.unacknowledged, self.requester.newest].map(Sequence::psn)
    }

    /// The same, from the queue.
    #[cfg(test)]
    pub(super) fn count_in_flight(&self) -> InFlight {
        self.requester.count_in_flight(self.config.mtu)
    }

    /// Whether a request packet was sent and not acknowledged. Between two packets of a message, or after going back,
    /// it may be that no ACK is due; then there is a packet to send.
    #[inline]
    pub fn has_unacknowledged(&self) -> bool {
        self.requester.has_unacknowledged()
    }

    /// Whether the peer owes an ACK or a response: a packet that was sent since it last went back requested one.
    pub fn awaits_ack(&self) -> bool {
        self.requester.awaits_ack()
    }

    /// What [`QueuePair::poll_transmit`] could return now.
    #[inline]
    pub fn pending(&self) -> Pending {
        let requests =
            self.fault.is_none() && (self.requester.wants_to_send() || self.keepalive.is_pending());
        if requests || self.notify {
            return Pending::Urgent;
        }
        // Responses behind a paced READ response wait for its timer.
        let waits = self.responses_paced_until.is_some() || self.responder.awaits_payload;
        match self.responder.wants_to_send() && !waits {
            false => Pending::Nothing,
            true if self.responder.owes_only_acks() => Pending::Ack,
            true => Pending::Urgent,
        }
    }

    /// Whether pacing delays the next response. READ responses are paced like requests; later responses wait behind
    /// them, since responses are sent in the order of their requests (IBA 9.7.5.1).
    #[inline]
    fn pace_response(&mut self, now: Instant) -> bool {
        self.responses_paced_until = None;
        let Some(payload) = self.responder.next_read_payload(&self.config) else { return false };
        let rate = &mut self.requester.rate;
        // In ERR there are no timers.
        self.responses_paced_until = rate.next_response(now).filter(|_| self.fault.is_none());
        if self.responses_paced_until.is_none() {
            rate.on_response_sent(now, cost(payload, 1));
        }
        self.responses_paced_until.is_some()
    }

    /// Returns the counts since the last call, and resets them.
    pub fn take_counters(&mut self) -> Counters {
        let mut total = Counters::default();
        self.counters.move_to(&mut total);
        self.requester.counters.move_to(&mut total);
        self.responder.counters.move_to(&mut total);
        total
    }

    /// Moves the reasons since the last call to `all`.
    pub fn move_reasons_to(&mut self, all: &mut Vec<Reason>) {
        self.counters.move_reasons_to(all);
        self.responder.counters.move_reasons_to(all);
        self.requester.counters.move_reasons_to(all);
    }

    /// Whether there are counts or reasons to take.
    #[inline]
    pub fn has_counters(&self) -> bool {
        self.counters.is_some()
            || self.requester.counters.is_some()
            || self.responder.counters.is_some()
    }

    /// A CNP: 16 reserved bytes behind a BTH with PSN 0 (IBA A17.9.3).
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

    /// The current rate limit in bits per second; `None` when unlimited.
    pub fn rate(&mut self, now: Instant) -> Option<u64> {
        self.requester.rate.rate(now)
    }

    /// The next completion of the send queue.
    #[inline]
    pub fn poll_send_completion(&mut self) -> Option<Completion> {
        self.send_done.pop_front()
    }

    /// The next completion of the receive queue.
    #[inline]
    pub fn poll_receive_completion(&mut self) -> Option<Completion> {
        self.receive_done.pop_front()
    }

    /// Whether there are completions of the send queue, and none of the receive queue.
    #[inline]
    pub fn has_only_send_completions(&self) -> bool {
        !self.send_done.is_empty() && self.receive_done.is_empty()
    }

    /// When to call [`QueuePair::handle_timeout`] and poll for packets, if nothing happens earlier.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.fault.is_some() {
            return None;
        }
        let others = earliest(self.responses_paced_until, self.keepalive.due());
        earliest(self.requester.poll_timeout(), others)
    }
}
