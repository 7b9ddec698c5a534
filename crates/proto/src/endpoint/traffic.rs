//! Posts, packets and completions, as far as the QP state permits them.

use ferroce_wire::number::{Psn, Qpn};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::NakCode;
use ferroce_wire::transport::{Aeth, Bth};

use super::{Endpoint, Event, Transport};
use crate::budget::{Budget, InFlight, Pending, Progress};
use crate::memory::Memory;
use crate::qp::{Action, Permission, ServiceType, State};
use crate::rc::{Message, Whole};
use crate::reason::Reason;
use crate::receive::ReceiveQueue;
use crate::time::Instant;
use crate::transmit::Transmit;
use crate::ud::{self, Envelope};
use crate::work::{Completion, CompletionKind, PostError, SendRequest, Status, WorkId};

/// A received packet and its IP header.
#[derive(Clone, Copy, Debug)]
pub struct InboundPacket<'a> {
    /// Time of arrival.
    pub time: Instant,
    /// The packet, with a valid ICRC and addressed to this QP.
    pub packet: &'a Packet<'a>,
    /// How many packets of RC it is: one, unless it is a run of MIDDLE packets, or of all packets of a message, with the
    /// payload of all.
    pub packets: u32,
    /// Marked "congestion experienced" by the network (RFC 3168).
    pub marked: bool,
    /// The IP header, for datagrams.
    pub envelope: &'a Envelope,
}

/// A packet to send.
#[derive(Debug)]
pub struct OutboundPacket<'a, R> {
    /// The route of a datagram; `None` for the path of the connection.
    pub route: Option<R>,
    /// The packet.
    pub transmit: Transmit<'a>,
}

impl<R: Copy> Endpoint<R> {
    /// Whether a receive may be posted to its own RQ now, and whether it is flushed immediately.
    pub fn permits_receive(&self) -> Permission {
        self.machine.permits(Action::PostReceive)
    }

    /// Posts a send request of a connected service.
    #[inline(always)] // A request is written once, to its place in the queue.
    pub fn post_send(&mut self, mut request: SendRequest) -> Result<(), PostError> {
        self.permits_send()?;
        request.signaled |= self.settings.signal_all;
        let signaled = request.signaled;
        let posted = match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.post_send(request),
            Transport::Unreliable(queue_pair) => queue_pair.post_send(request),
            Transport::Datagram(_) | Transport::None => Err(PostError::Address),
        };
        self.note_post(signaled, &posted);
        posted
    }

    /// Posts a send request of a UD QP.
    pub fn post_datagram(&mut self, mut request: ud::SendRequest<R>) -> Result<(), PostError> {
        self.permits_send()?;
        request.signaled |= self.settings.signal_all;
        let signaled = request.signaled;
        let posted = match &mut self.transport {
            Transport::Datagram(queue_pair) => queue_pair.post_send(request),
            _ => Err(PostError::Address),
        };
        self.note_post(signaled, &posted);
        posted
    }

    /// Counts a request for [`Endpoint::check_invariants`].
    #[inline(always)]
    #[cfg_attr(not(debug_assertions), allow(unused_variables))]
    fn note_post(&mut self, signaled: bool, posted: &Result<(), PostError>) {
        #[cfg(debug_assertions)]
        if posted.is_ok() {
            self.ledger.post(signaled);
        }
        self.check_invariants();
    }

    #[inline]
    fn permits_send(&self) -> Result<(), PostError> {
        match self.machine.permits(Action::PostSend) {
            Permission::Allowed | Permission::Queued | Permission::Flushed => Ok(()),
            _ => Err(PostError::State),
        }
    }

    /// Number of unfinished send requests.
    pub fn send_queue_len(&self) -> usize {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.send_queue_len(),
            Transport::Unreliable(queue_pair) => queue_pair.send_queue_len(),
            Transport::Datagram(queue_pair) => queue_pair.send_queue_len(),
            Transport::None => 0,
        }
    }

    /// Handles a packet for this QP. Receive requests come from `receives`: its own RQ, an SRQ, or the SRQ that an
    /// XRC packet names, if it exists.
    #[inline]
    pub fn handle_packet(
        &mut self,
        inbound: &InboundPacket<'_>,
        mut receives: Option<&mut ReceiveQueue>,
        memory: &mut impl Memory,
    ) {
        #[cfg(debug_assertions)]
        let posted = self.count_receives(receives.as_deref());
        self.accept_packet(inbound, receives.as_deref_mut(), memory);
        #[cfg(debug_assertions)]
        self.check_receives(posted, receives.as_deref());
        self.check_invariants();
    }

    #[inline]
    fn accept_packet(
        &mut self,
        inbound: &InboundPacket<'_>,
        receives: Option<&mut ReceiveQueue>,
        memory: &mut impl Memory,
    ) {
        let InboundPacket { time, packet, packets, marked, envelope } = *inbound;
        // An XRC initiator accepts responses only.
        let listens = match self.settings.service {
            ServiceType::XrcInitiator => Action::FinishSend,
            _ => Action::AcceptRequest,
        };
        if !self.machine.permits(listens).is_allowed() {
            // In ERR, late packets of the peer are to be expected.
            if let state @ (State::Reset | State::Init) = self.state() {
                self.counters.report(Reason::NotReceiving(state));
            }
            return;
        }
        if self.state() == State::ReadyToReceive && !self.established {
            // For an owner that waits for the RTU, which may be lost (IBA 11.6.3.1).
            self.established = true;
            if self.settings.service != ServiceType::UnreliableDatagram {
                self.events.push_back(Event::Established);
            }
        }
        if marked && !matches!(self.transport, Transport::Reliable(_)) {
            self.counters.get_mut().np_ecn_marked_roce_packets += 1;
        }
        match (&mut self.transport, receives) {
            (Transport::Reliable(queue_pair), receives) => {
                queue_pair.handle_run(time, packet, packets, marked, receives, memory);
            }
            (Transport::Unreliable(queue_pair), Some(receives)) => {
                queue_pair.handle_packet(packet, receives, memory);
            }
            (Transport::Datagram(queue_pair), Some(receives)) => {
                queue_pair.handle_packet(packet, envelope, receives, memory);
            }
            _ => {}
        }
        self.sync_state();
    }

    /// Handles a message of RC as [`Endpoint::handle_packet`] does, if it is the one that is expected and passes all checks. False,
    /// and nothing has changed, if [`Endpoint::handle_packet`] has to decide.
    #[inline]
    pub fn handle_message(
        &mut self,
        message: &Message<'_>,
        packets: u32,
        receives: Option<&mut ReceiveQueue>,
        memory: &mut impl Memory,
    ) -> bool {
        let handled = match &mut self.transport {
            Transport::Reliable(queue_pair) if self.machine.state() == State::ReadyToSend => {
                queue_pair.handle_message(message, packets, receives, memory)
            }
            _ => false,
        };
        self.check_invariants();
        handled
    }

    /// Handles an ACK of RC as [`Endpoint::handle_packet`] does, if it is positive and acknowledges new packets. False, and
    /// nothing has changed, if [`Endpoint::handle_packet`] has to decide.
    #[inline]
    pub fn handle_ack(&mut self, now: Instant, psn: Psn, aeth: Aeth, memory: &impl Memory) -> bool {
        let handled = match &mut self.transport {
            Transport::Reliable(queue_pair) if self.machine.state() == State::ReadyToSend => {
                queue_pair.handle_ack(now, psn, aeth, memory)
            }
            _ => false,
        };
        self.sync_state();
        self.check_invariants();
        handled
    }

    /// Handles the expiry of [`Endpoint::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Transport::Reliable(queue_pair) = &mut self.transport {
            queue_pair.handle_timeout(now);
            self.sync_state();
        }
        self.check_invariants();
    }

    /// Handles an ICMP "port unreachable" for the packet with this PSN. RC treats it as a timeout, so repeated
    /// reports use up the retries; the other services ignore it.
    pub fn handle_unreachable(&mut self, now: Instant, psn: Psn) {
        if let Transport::Reliable(queue_pair) = &mut self.transport {
            queue_pair.handle_unreachable(now, psn);
            self.sync_state();
        }
        self.check_invariants();
    }

    /// Sets whether the link to the peer loses no packets. Until the next change of state.
    pub fn set_lossless(&mut self, lossless: bool) {
        if let Transport::Reliable(queue_pair) = &mut self.transport {
            queue_pair.set_lossless(lossless);
        }
    }

    /// The path MTU of a connected QP in bytes; 0 before it is known.
    pub fn path_mtu(&self) -> u16 {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.config().mtu,
            Transport::Unreliable(queue_pair) => queue_pair.config().mtu,
            Transport::Datagram(_) | Transport::None => 0,
        }
    }

    /// Sets how many MIDDLE packets of RC [`Endpoint::poll_transmit`] may return as one: the first, with the payload of
    /// all. Until the next change of state.
    pub fn set_max_run(&mut self, packets: u32) {
        if let Transport::Reliable(queue_pair) = &mut self.transport {
            queue_pair.set_max_run(packets);
        }
    }

    /// The peer has not received yet what was sent last, and nothing is lost on the way: an ACK cannot be late.
    pub fn handle_delay(&mut self, now: Instant) {
        if let Transport::Reliable(queue_pair) = &mut self.transport {
            queue_pair.handle_delay(now);
        }
        self.check_invariants();
    }

    /// Nothing reaches the peer any more. RC treats it as a timeout of what is in flight, so repeated reports use up the
    /// retries; the other services ignore it.
    pub fn handle_link_down(&mut self, now: Instant) {
        if let Transport::Reliable(queue_pair) = &mut self.transport {
            queue_pair.handle_link_down(now);
            self.sync_state();
        }
        self.check_invariants();
    }

    /// The payload of the packet with this PSN could not be read, for a [reason](Transmit::explain): of a send request
    /// when `local`, otherwise of a READ response.
    pub fn handle_denied(&mut self, psn: Psn, local: bool, reason: Reason) {
        match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.handle_denied(psn, local, reason),
            Transport::Unreliable(queue_pair) => queue_pair.handle_denied(psn, reason),
            Transport::Datagram(queue_pair) => queue_pair.handle_denied(psn, reason),
            Transport::None => {}
        }
        self.sync_state();
        self.check_invariants();
    }

    /// The next packet to send. A request of RC or XRC is sent only if its cost fits into `budget`, and is subtracted
    /// from it; other packets are free.
    #[inline]
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        memory: &mut impl Memory,
    ) -> Option<OutboundPacket<'_, R>> {
        // After the previous packet, which borrowed the QP.
        self.check_invariants();
        // In SQD no request is started (IBA 10.3.1.5); RC implements this itself.
        let machine = &self.machine;
        let starts = || machine.permits(Action::StartSend).is_allowed();
        let connected = |transmit| OutboundPacket { route: None, transmit };
        match &mut self.transport {
            Transport::Reliable(queue_pair) => {
                queue_pair.poll_transmit(now, budget, memory).map(connected)
            }
            Transport::Unreliable(queue_pair) => {
                let goes_on = starts() || !queue_pair.is_between_messages();
                if goes_on { queue_pair.poll_transmit(memory).map(connected) } else { None }
            }
            Transport::Datagram(queue_pair) if starts() => {
                let datagram = queue_pair.poll_transmit(memory)?;
                Some(OutboundPacket { route: Some(datagram.route), transmit: datagram.transmit })
            }
            Transport::Datagram(_) | Transport::None => None,
        }
    }

    /// What [`Endpoint::poll_transmit`] would return, if [`Endpoint::pending`] is an ACK: its two headers. ACKs are as many
    /// as messages, and simpler.
    pub fn take_ack(&mut self) -> Option<(Bth, Aeth)> {
        match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.take_ack(),
            _ => None,
        }
    }

    /// The next message of RC as a whole, in place of [`Endpoint::poll_transmit`] with an unlimited budget, if a message is
    /// next, the link loses no packets, and the message has no more of them than [`Endpoint::set_max_run`] says. `None` means
    /// nothing: [`Endpoint::poll_transmit`] decides.
    #[inline]
    pub fn take_whole(&mut self, now: Instant, memory: &mut impl Memory) -> Option<Whole<'_>> {
        self.check_invariants();
        match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.take_whole(now, memory),
            _ => None,
        }
    }

    /// Whether the last [`Endpoint::poll_transmit`] held a request packet back because it did not fit into the budget.
    pub fn is_blocked_by_budget(&self) -> bool {
        self.over_budget().is_some()
    }

    /// Cost of the request packet that the last [`Endpoint::poll_transmit`] held back: a budget of at least this much
    /// lets it go. A READ request costs up to 128 KiB at once.
    pub fn over_budget(&self) -> Option<InFlight> {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.over_budget(),
            _ => None,
        }
    }

    /// Bytes in flight. Zero for UC and UD, which have no acknowledgements.
    pub fn in_flight(&self) -> InFlight {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.in_flight(),
            _ => InFlight::NONE,
        }
    }

    /// How far it is, for monitoring.
    pub fn progress(&self) -> Progress {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.progress(),
            Transport::Unreliable(queue_pair) => queue_pair.progress(),
            Transport::Datagram(queue_pair) => queue_pair.progress(),
            Transport::None => Progress::default(),
        }
    }

    /// Whether a request packet of RC or XRC was sent and not acknowledged.
    pub fn has_unacknowledged(&self) -> bool {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.has_unacknowledged(),
            _ => false,
        }
    }

    /// Whether the peer of an RC or XRC QP owes an ACK or a response: a packet that was sent since it last went back
    /// requested one.
    pub fn awaits_ack(&self) -> bool {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.awaits_ack(),
            _ => false,
        }
    }

    /// What [`Endpoint::poll_transmit`] could return now.
    #[inline]
    pub fn pending(&self) -> Pending {
        let starts = || self.machine.permits(Action::StartSend).is_allowed();
        let sends = match &self.transport {
            Transport::Reliable(queue_pair) => return queue_pair.pending(),
            Transport::Unreliable(queue_pair) => {
                queue_pair.wants_to_send() && (starts() || !queue_pair.is_between_messages())
            }
            Transport::Datagram(queue_pair) => queue_pair.wants_to_send() && starts(),
            Transport::None => false,
        };
        if sends { Pending::Urgent } else { Pending::Nothing }
    }

    /// Destination QPN of the next UC or UD packet, and the route of a datagram: for flow control by the caller,
    /// since these services have none.
    pub fn next_unacknowledged(&self) -> Option<(Qpn, Option<R>)> {
        match &self.transport {
            Transport::Unreliable(queue_pair) if queue_pair.send_queue_len() > 0 => {
                Some((queue_pair.config().destination, None))
            }
            Transport::Datagram(queue_pair) => {
                let address = queue_pair.next_address()?;
                Some((address.destination, Some(address.route)))
            }
            _ => None,
        }
    }

    /// The send request that a packet belongs to, which was just handed out or is a response. For packet captures.
    pub fn work_of(&self, bth: &Bth) -> Option<WorkId> {
        let request = bth.opcode.info()?.request;
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.work_of(bth.psn),
            Transport::Unreliable(queue_pair) if request => queue_pair.last_sent(),
            Transport::Datagram(queue_pair) if request => queue_pair.last_sent(),
            _ => None,
        }
    }

    /// The next completion of the send queue.
    pub fn poll_send_completion(&mut self) -> Option<Completion> {
        let completion = match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.poll_send_completion(),
            Transport::Unreliable(queue_pair) => queue_pair.poll_send_completion(),
            Transport::Datagram(queue_pair) => queue_pair.poll_send_completion(),
            Transport::None => None,
        };
        #[cfg(debug_assertions)]
        self.ledger.complete(completion.as_ref());
        completion
    }

    /// The next completion of the receive queue.
    pub fn poll_receive_completion(&mut self) -> Option<Completion> {
        match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.poll_receive_completion(),
            Transport::Unreliable(queue_pair) => queue_pair.poll_receive_completion(),
            Transport::Datagram(queue_pair) => queue_pair.poll_receive_completion(),
            Transport::None => None,
        }
    }

    /// Whether there are completions of the send queue, and none of the receive queue.
    #[inline]
    pub fn has_only_send_completions(&self) -> bool {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.has_only_send_completions(),
            _ => false,
        }
    }

    /// In ERR, flushes one request of the QP's own RQ and returns its completion. Requests in an SRQ belong to no QP
    /// (IBA 10.2.9).
    pub fn flush_receive(&self, receives: &mut ReceiveQueue) -> Option<Completion> {
        if self.state() != State::Error || self.settings.shared_receives {
            return None;
        }
        if self.withholds_receives() {
            return None; // Those before complete first.
        }
        let request = receives.take()?;
        Some(Completion::new(request.id, CompletionKind::Receive, Status::Flushed))
    }

    /// When to call [`Endpoint::handle_timeout`] and poll for packets, if nothing happens earlier.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.poll_timeout(),
            _ => None,
        }
    }
}

impl<R: Copy> Endpoint<R> {
    /// Raises the event for a fatal NAK, unless a receive completion reports it (IBA 11.6.3.2), and for a lost peer.
    pub(super) fn report_refusal(&mut self) {
        let Transport::Reliable(queue_pair) = &self.transport else { return };
        let event = match queue_pair.refusal() {
            None if queue_pair.is_peer_lost() => Event::Fatal,
            Some(NakCode::InvalidRequest) => Event::RequestRefused,
            Some(NakCode::RemoteAccessError) => Event::AccessRefused,
            Some(NakCode::RemoteOperationalError) => Event::Fatal,
            _ => return,
        };
        self.events.push_back(event);
    }

    pub(super) fn on_error_entered(&mut self, from: State) {
        let receives = !matches!(from, State::Reset | State::Init | State::Error);
        if receives && self.settings.shared_receives {
            self.events.push_back(Event::LastReceiveReached);
        }
    }
}
