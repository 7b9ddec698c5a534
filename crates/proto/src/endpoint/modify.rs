//! Modify QP, applied to the transport.

use ferroce_wire::number::{Psn, QKey, Qpn};

use super::{Endpoint, Transport};
use crate::qp::{Action, Fault, Incident, ModifyError, QueuePairAttributes, ServiceType, State};
use crate::rc::Role;
use crate::{rc, uc, ud};

impl<R: Copy> Endpoint<R> {
    /// Changes the state, attributes or both, and returns the new state.
    ///
    /// # Errors
    ///
    /// Those of [`Machine::modify`](crate::qp::Machine::modify); nothing has changed then.
    pub fn modify(&mut self, change: &QueuePairAttributes) -> Result<State, ModifyError> {
        self.sync_state();
        let from = self.state();
        let to = self.machine.modify(change)?;
        self.apply(from, to, change);
        self.check_invariants();
        Ok(to)
    }

    fn apply(&mut self, from: State, to: State, change: &QueuePairAttributes) {
        if to == State::Reset {
            return self.reset();
        }
        self.attributes.absorb(change);
        match (from, to) {
            (State::Init, State::ReadyToReceive) => self.connect(),
            (State::ReadyToReceive, State::ReadyToSend) => {
                self.reconfigure();
                self.start_sending();
            }
            (State::SendQueueError, State::ReadyToSend) => {
                self.reconfigure();
                match &mut self.transport {
                    Transport::Unreliable(queue_pair) => _ = queue_pair.resume_send(),
                    Transport::Datagram(queue_pair) => _ = queue_pair.resume_send(),
                    Transport::Reliable(_) | Transport::None => {}
                }
            }
            (_, State::SendQueueDrain) => {
                self.reconfigure();
                if let Transport::Reliable(queue_pair) = &mut self.transport {
                    queue_pair.drain();
                }
                self.sync_drained();
            }
            (State::SendQueueDrain, State::ReadyToSend) => {
                self.reconfigure();
                if let Transport::Reliable(queue_pair) = &mut self.transport {
                    queue_pair.start_sending();
                }
            }
            (_, State::Error) => {
                self.stop_transport();
                self.on_error_entered(from);
            }
            _ => self.reconfigure(),
        }
    }

    /// Handles an error that belongs to no work request, such as a CQ overrun (IBA 11.6.3.2).
    pub fn handle_fatal(&mut self) {
        let from = self.state();
        self.machine.handle_incident(Incident::Fatal);
        self.stop_transport();
        if self.state() == State::Error && from != State::Error {
            self.events.push_back(super::Event::Fatal);
            self.on_error_entered(from);
        }
        self.check_invariants();
    }

    /// Flushes all requests (IBA 10.3.1.7).
    fn stop_transport(&mut self) {
        if self.state() != State::Error {
            return; // A report that is late, see `Incident::Fatal`.
        }
        if let Transport::None = self.transport {
            // It was never connected: what is posted from now on is flushed as well.
            self.connect();
        }
        match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.handle_error(),
            Transport::Unreliable(queue_pair) => queue_pair.handle_error(),
            Transport::Datagram(queue_pair) => queue_pair.handle_error(),
            Transport::None => {}
        }
    }

    /// The connection manager reports the connection as established, so the event is not needed.
    pub fn set_established(&mut self) {
        self.established = true;
    }

    fn reset(&mut self) {
        self.abandoned = self.unfinished();
        self.attributes = QueuePairAttributes::default();
        self.events.clear();
        self.established = false;
        #[cfg(debug_assertions)]
        {
            self.ledger = super::invariants::Ledger::default();
        }
        match &mut self.transport {
            Transport::Datagram(queue_pair) => queue_pair.reset(),
            transport => *transport = Transport::None,
        }
    }

    /// INIT to RTR: the peer is known.
    fn connect(&mut self) {
        self.transport = match self.settings.service {
            ServiceType::UnreliableDatagram => return self.reconfigure(),
            ServiceType::UnreliableConnection => {
                Transport::Unreliable(uc::QueuePair::new(self.unreliable()))
            }
            ServiceType::ReliableConnection
            | ServiceType::XrcInitiator
            | ServiceType::XrcTarget => {
                Transport::Reliable(rc::QueuePair::receiving(self.reliable()))
            }
        };
    }

    fn start_sending(&mut self) {
        let psn = self.attributes.send_psn.unwrap_or_default();
        match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.start_sending(),
            Transport::Unreliable(queue_pair) => queue_pair.start_sending(psn),
            Transport::Datagram(queue_pair) => queue_pair.start_sending(psn),
            Transport::None => {}
        }
    }

    /// Applies attributes that can change during operation.
    fn reconfigure(&mut self) {
        let (reliable, unreliable, datagrams) =
            (self.reliable(), self.unreliable(), self.datagrams());
        match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.reconfigure(|config| *config = reliable),
            Transport::Unreliable(queue_pair) => {
                queue_pair.reconfigure(|config| *config = unreliable);
            }
            Transport::Datagram(queue_pair) => queue_pair.reconfigure(|config| *config = datagrams),
            Transport::None => {}
        }
    }

    fn mtu(&self) -> u16 {
        let bytes = self.attributes.path_mtu.and_then(|mtu| mtu.bytes());
        bytes.map_or(256, |bytes| u16::try_from(bytes).unwrap_or(4096))
    }

    fn send_capacity(&self) -> usize {
        self.settings.capabilities.max_send_wr as usize
    }

    fn reliable(&self) -> rc::Config {
        let (settings, set) = (&self.settings, &self.attributes);
        rc::Config {
            role: match settings.service {
                ServiceType::XrcInitiator => Role::Initiator,
                ServiceType::XrcTarget => Role::Target(settings.xrc),
                _ => Role::Both,
            },
            number: settings.number,
            destination: set.destination.unwrap_or(Qpn(0)),
            partition: settings.partition,
            pd: settings.pd,
            mtu: self.mtu(),
            send_psn: set.send_psn.unwrap_or(Psn(0)),
            receive_psn: set.receive_psn.unwrap_or(Psn(0)),
            timeout: set.timeout.and_then(|timeout| timeout.duration()),
            retry_count: set.retry_count.unwrap_or(0),
            rnr_retry: set.rnr_retry.map_or(0, |retry| retry.0),
            rnr_timer: set.min_rnr_timer.unwrap_or_default(),
            max_rd_atomic: set.max_rd_atomic.unwrap_or(0),
            max_dest_rd_atomic: set.max_dest_rd_atomic.unwrap_or(0),
            access: set.access.unwrap_or_default(),
            congestion: settings.congestion,
            keepalive: settings.keepalive,
            send_capacity: self.send_capacity(),
        }
    }

    fn unreliable(&self) -> uc::Config {
        let (settings, set) = (&self.settings, &self.attributes);
        uc::Config {
            number: settings.number,
            destination: set.destination.unwrap_or(Qpn(0)),
            partition: settings.partition,
            pd: settings.pd,
            mtu: self.mtu(),
            send_psn: set.send_psn.unwrap_or(Psn(0)),
            receive_psn: set.receive_psn.unwrap_or(Psn(0)),
            access: set.access.unwrap_or_default(),
            send_capacity: self.send_capacity(),
        }
    }

    pub(super) fn datagrams(&self) -> ud::Config {
        let (settings, set) = (&self.settings, &self.attributes);
        ud::Config {
            number: settings.number,
            queue_key: set.queue_key.unwrap_or(QKey(0)),
            partition: settings.partition,
            pd: settings.pd,
            mtu: settings.port_mtu,
            send_psn: set.send_psn.unwrap_or(Psn(0)),
            send_capacity: self.send_capacity(),
            group_capacity: settings.groups,
        }
    }

    /// Reports to the state machine what the transport did on its own.
    #[inline]
    pub(super) fn sync_state(&mut self) {
        // Nearly always there is nothing to report, and this is called for every packet.
        if let Transport::Reliable(queue_pair) = &self.transport {
            if queue_pair.fault().is_none() && !self.machine.is_draining() {
                return;
            }
        }
        self.follow_transport();
    }

    /// Why it entered SQE or ERR.
    pub fn fault(&self) -> Option<Fault> {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.fault(),
            Transport::Unreliable(queue_pair) => queue_pair.fault(),
            Transport::Datagram(queue_pair) => queue_pair.fault(),
            Transport::None => None,
        }
    }

    /// Whether an error ended it, and not the owner.
    pub fn has_failed(&self) -> bool {
        self.fault().and_then(Fault::incident).is_some()
    }

    fn follow_transport(&mut self) {
        let from = self.state();
        let fault = self.fault();
        let Some(incident) = fault.and_then(Fault::incident) else { return self.sync_drained() };
        self.machine.handle_incident(incident);
        if self.state() == State::Error && from != State::Error {
            self.report_refusal();
            self.on_error_entered(from);
        }
    }

    fn sync_drained(&mut self) {
        if !self.machine.is_draining() {
            return;
        }
        let drained = match &self.transport {
            Transport::Reliable(queue_pair) => {
                queue_pair.is_drained() || !self.settings.service.has(Action::PostSend)
            }
            Transport::Unreliable(queue_pair) => queue_pair.is_between_messages(),
            // A datagram is one packet: it is never partly sent.
            Transport::Datagram(_) | Transport::None => true,
        };
        if drained && self.machine.handle_incident(Incident::SendQueueDrained).is_some() {
            self.events.push_back(super::Event::SendQueueDrained);
        }
    }
}
