//! What is true of a QP in each state. Debug builds check it after every event.

use super::{Endpoint, Transport};
use crate::budget::InFlight;
use crate::qp::{Fault, QueuePairAttributes, ServiceType, State};
use crate::receive::ReceiveQueue;
use crate::work::Completion;

/// Send requests since the last RESET, for [`Endpoint::check_invariants`].
#[derive(Debug, Default)]
pub(super) struct Ledger {
    posted: usize,
    signaled: usize,
    /// Completions that were taken.
    completed: usize,
}

impl Ledger {
    pub(super) fn post(&mut self, signaled: bool) {
        self.posted += 1;
        self.signaled += usize::from(signaled);
    }

    pub(super) fn complete(&mut self, completion: Option<&Completion>) {
        self.completed += usize::from(completion.is_some());
    }
}

impl<R: Copy> Endpoint<R> {
    pub(super) fn check_each(&self) {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.check_invariants(),
            Transport::Unreliable(queue_pair) => queue_pair.check_invariants(),
            Transport::Datagram(queue_pair) => queue_pair.check_invariants(),
            Transport::None => {}
        }
        self.check_state();
        self.check_attributes();
        self.check_completions();
    }

    /// What each state permits to be queued and in flight (IBA 10.3.1.1 to 10.3.1.7).
    fn check_state(&self) {
        let (state, fault) = (self.state(), self.fault());
        let (queued, in_flight) = (self.send_queue_len(), self.in_flight());
        let is_connected = match (&self.transport, self.settings.service) {
            (Transport::None, service) => {
                let is_datagram = service == ServiceType::UnreliableDatagram;
                assert!(!is_datagram, "a UD QP has no transport in {state}");
                false
            }
            (Transport::Datagram(_), ServiceType::UnreliableDatagram) => false,
            (Transport::Unreliable(_), ServiceType::UnreliableConnection)
            | (
                Transport::Reliable(_),
                ServiceType::ReliableConnection
                | ServiceType::XrcInitiator
                | ServiceType::XrcTarget,
            ) => true,
            (_, service) => panic!("the transport of {service:?} is that of another service"),
        };
        let receives = !matches!(state, State::Reset | State::Init);
        assert!(
            self.settings.service == ServiceType::UnreliableDatagram
                || state == State::Error
                || is_connected == receives,
            "connected: {is_connected}, in {state}"
        );
        let sends = matches!(state, State::ReadyToSend | State::SendQueueDrain);
        assert!(
            sends || queued == 0 && in_flight == InFlight::NONE,
            "{queued} send requests queued and {in_flight:?} in {state}"
        );
        // After RESET, completions of the time before it are not reported (IBA 10.3.1.1).
        let untaken = self.uncompleted_sends() + self.uncompleted_receives();
        assert!(receives || untaken == 0, "{untaken} completions in {state}");
        let timeout = self.poll_timeout();
        let is_silent = matches!(state, State::Reset | State::Init | State::Error);
        assert!(timeout.is_none() || !is_silent, "a timer is armed for {timeout:?} in {state}");
        let follows = match (state, fault) {
            (State::Error, fault) => fault.is_some(),
            (State::SendQueueError, fault) => fault == Some(Fault::Requester),
            // The payload of a READ response or a local request may fail in `poll_transmit`; the next event reports it.
            (_, Some(Fault::Responder)) => {
                receives && matches!(self.transport, Transport::Reliable(_))
            }
            (_, fault) => fault.is_none() || fault == Some(Fault::Requester) && sends,
        };
        assert!(follows, "the transport has {fault:?} in {state}");
        assert!(
            !self.is_draining() || state == State::SendQueueDrain,
            "requests in flight are drained in {state}"
        );
        if state == State::Reset {
            assert!(self.attributes == QueuePairAttributes::default(), "attributes in RESET");
            assert!(self.events.is_empty(), "{:?} in RESET", self.events);
        }
        if let (State::SendQueueDrain, false, Transport::Reliable(queue_pair)) =
            (state, self.is_draining(), &self.transport)
        {
            // IBA 10.3.1.5.
            let is_drained = queue_pair.is_drained() || !self.settings.service.has_send_queue();
            assert!(is_drained, "{in_flight:?} in flight after the send queue was drained");
        }
    }

    /// The attributes that Query QP reports are in effect.
    fn check_attributes(&self) {
        let Transport::Reliable(queue_pair) = &self.transport else { return };
        let (config, set) = (queue_pair.config(), &self.attributes);
        let used = (Some(config.max_rd_atomic), Some(config.max_dest_rd_atomic), config.timeout);
        let timeout = set.timeout.and_then(|timeout| timeout.duration());
        let set = (set.max_rd_atomic.or(Some(0)), set.max_dest_rd_atomic.or(Some(0)), timeout);
        assert!(
            used == set || self.state() == State::Error,
            "max_rd_atomic, max_dest_rd_atomic and timeout are {used:?}, and were set to {set:?}"
        );
    }

    /// Every signaled request has one completion, and no request has two (IBA 11.4.2.1).
    fn check_completions(&self) {
        let Ledger { posted, signaled, completed } = self.ledger;
        let untaken = self.uncompleted_sends();
        assert!(
            (signaled..=posted).contains(&(completed + untaken)),
            "{completed} completions taken and {untaken} to come for {posted} requests, {signaled} of \
             them signaled"
        );
    }

    fn uncompleted_sends(&self) -> usize {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.uncompleted_sends(),
            Transport::Unreliable(queue_pair) => queue_pair.uncompleted_sends(),
            Transport::Datagram(queue_pair) => queue_pair.uncompleted_sends(),
            Transport::None => 0,
        }
    }

    fn uncompleted_receives(&self) -> usize {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.uncompleted_receives(),
            Transport::Unreliable(queue_pair) => queue_pair.uncompleted_receives(),
            Transport::Datagram(queue_pair) => queue_pair.uncompleted_receives(),
            Transport::None => 0,
        }
    }

    /// Receive requests without a completion that was taken.
    pub(super) fn count_receives(&self, receives: Option<&ReceiveQueue>) -> usize {
        receives.map_or(0, ReceiveQueue::len) + self.uncompleted_receives()
    }

    /// A packet takes receive requests from the queue, and each is held by the message in progress, completed or put back.
    pub(super) fn check_receives(&self, before: usize, receives: Option<&ReceiveQueue>) {
        let after = self.count_receives(receives);
        assert!(before == after, "{before} receive requests before a packet, and {after} after it");
    }
}
