//! Probes: whether the peer of an established connection is alive.
//!
//! Two events start a probe: a REQ or REP that names a QP of an established connection (the peer restarted, or the
//! message is forged), and the keepalive timer ([`Config::keepalive`](super::Config)). The old connection only ends
//! when the probe fails; meanwhile the message that caused it is dropped, and a legitimate peer retransmits it.
//!
//! A probe is a message that the peer's CM answers in every state of its consumer:
//!
//! | our role | probe | response of a live peer | response of a peer without the connection |
//! |---|---|---|---|
//! | passive | retransmitted REP | RTU (Linux too: the first RTU may have been lost, IBA 12.9) | REJ, or none (Linux) |
//! | active | LAP | APR (not supported); none from Linux | APR (invalid communication ID); none from Linux |
//!
//! No response to a LAP proves nothing unless the peer has responded to one before: therefore the active side sends one
//! right after set-up. When a probe gets no response, or its message finds the peer's port closed, the consumer decides
//! ([`Event::Unanswered`]): it may know from received data or from the peer's process that the peer is alive.

use core::time::Duration;

use ferroce_wire::cm::{ApStatus, Apr, CmMessage, CommId, Dreq, Lap};

use ferroce_wire::address::Gid;
use ferroce_wire::mad::TransactionId;
use ferroce_wire::number::Qpn;

use super::connection::{Connection, Role};
use super::event::{CallError, Disconnection, Event, Ignored, Loss, Transmit};
use super::parameters::ConnectionId;
use super::state::{State, Trigger};
use super::timer::Timer;
use super::{ConnectionManager, Envelope};
use crate::time::Instant;

/// Number and interval of probe messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeSchedule {
    /// Number of messages.
    pub messages: u8,
    /// Interval between messages, and wait after the last one.
    pub interval: Duration,
}

/// What is needed to send a DREQ for a connection without its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisconnectNotice {
    /// The peer's address.
    pub peer: Gid,
    /// The local communication ID.
    pub local_id: CommId,
    /// The peer's communication ID.
    pub remote_id: CommId,
    /// The peer's QPN.
    pub remote_qpn: Qpn,
    /// Traffic class of the messages.
    pub traffic_class: u8,
}

impl DisconnectNotice {
    /// Builds the DREQ.
    pub fn dreq(&self) -> Transmit {
        let dreq = Dreq {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id,
            remote_qpn: self.remote_qpn,
            ..Dreq::default()
        };
        Transmit {
            destination: self.peer,
            traffic_class: self.traffic_class,
            connection: None,
            transaction: TransactionId(u64::from(self.local_id.0)),
            modifier: 0,
            message: dreq.into(),
        }
    }
}

/// Keepalive rounds without an APR after which no more LAPs are sent: Linux drops them on RoCE.
const MAX_UNANSWERED_LAPS: u8 = 3;

/// A probe in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    schedule: ProbeSchedule,
    begun: Instant,
    left: u8,
}

/// Whether the peer responds to LAPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LapSupport {
    Yes,
    /// Keepalive rounds without a response.
    NotYet(u8),
}

impl ConnectionManager {
    /// Probes the peer of an established connection, as for a stale REQ. [`Event::Unanswered`] follows unless it
    /// responds.
    pub fn probe(&mut self, now: Instant, connection: ConnectionId) -> Result<(), CallError> {
        let schedule = self.config.stale_probe;
        self.start_probe(now, connection.0, schedule)
    }

    /// Ends a probe, because the consumer knows that the peer is alive.
    pub fn peer_is_alive(&mut self, connection: ConnectionId) {
        self.stop_probe(connection.0);
    }

    /// The peer is lost without a DREQ: [`Event::Disconnected`] follows. One DREQ is sent, in case the peer is alive
    /// and only its messages are lost.
    pub fn peer_is_lost(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        loss: Loss,
    ) -> Result<(), CallError> {
        let id = connection.0;
        let transaction = self.comm_ids.transaction(id);
        let lost = self.table.step(id, Trigger::PeerLost)?;
        (lost.probe, lost.transaction) = (None, transaction);
        let dreq = Dreq {
            local_comm_id: id,
            remote_comm_id: lost.remote(),
            remote_qpn: lost.remote_qpn.unwrap_or_default(),
            ..Dreq::default()
        };
        self.transmits.push_back(lost.send_and_keep(dreq, 0));
        self.finish_transition(now, id);
        self.events.push_back(Event::Disconnected(connection, Disconnection::Lost(loss)));
        Ok(())
    }

    /// The peer's address and its communication ID, once known.
    pub fn peer(&self, connection: ConnectionId) -> Option<(Gid, CommId)> {
        let connection = self.table.get(connection.0)?;
        Some((connection.peer, connection.remote_id?))
    }

    /// What another process needs to end this connection when we cannot.
    pub fn disconnect_notice(&self, connection: ConnectionId) -> Option<DisconnectNotice> {
        let connection = self.table.get(connection.0)?;
        Some(DisconnectNotice {
            peer: connection.peer,
            local_id: connection.id,
            remote_id: connection.remote_id?,
            remote_qpn: connection.remote_qpn?,
            traffic_class: connection.traffic_class,
        })
    }

    /// The local QPN of a connection, once known.
    pub fn queue_pair(&self, connection: ConnectionId) -> Option<Qpn> {
        self.table.get(connection.0).map(|connection| connection.local_qpn)
    }

    /// All established connections.
    pub fn established(&self) -> impl Iterator<Item = ConnectionId> {
        self.table.established().map(Connection::handle)
    }

    /// A message claims the peer's QP of this connection for another connection. Returns whether it may: when the
    /// connection is ending. TimeWait protects our own QP (IBA 12.9.8.4); when the peer reuses its QPN is the peer's
    /// decision, and a peer with random QPNs may do so soon.
    pub(super) fn may_supersede(&mut self, now: Instant, id: CommId) -> Result<bool, Ignored> {
        let Some(connection) = self.table.get(id) else { return Ok(true) };
        match connection.state {
            State::DreqSent | State::DreqReceived | State::TimeWait => Ok(true),
            State::Established => {
                let schedule = self.config.stale_probe;
                if connection.probe.is_none_or(|probe| probe.schedule != schedule) {
                    self.start_probe(now, id, schedule)?;
                }
                Err(Ignored::Probing)
            }
            _ => Ok(false),
        }
    }

    fn start_probe(
        &mut self,
        now: Instant,
        id: CommId,
        schedule: ProbeSchedule,
    ) -> Result<(), CallError> {
        let connection = self.table.get_mut(id).ok_or(CallError::Gone)?;
        if connection.state != State::Established {
            return Err(CallError::State(connection.state));
        }
        connection.probe = Some(Probe { schedule, begun: now, left: schedule.messages });
        self.continue_probe(now, id);
        Ok(())
    }

    /// Sends the next probe message, or gives up.
    pub(super) fn continue_probe(&mut self, now: Instant, id: CommId) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let Some(probe) = &mut connection.probe else { return };
        if probe.left == 0 {
            let begun = probe.begun;
            connection.probe = None;
            connection.arm(&mut self.timers, None);
            if connection.silence_counts() {
                self.events.push_back(Event::Unanswered(ConnectionId(id), begun));
            }
            return;
        }
        probe.left -= 1;
        let deadline = now + probe.schedule.interval;
        connection.arm(&mut self.timers, Some(deadline));
        self.transmits.extend(connection.probe_message());
    }

    /// A LAP of a probe found the peer's port closed. Returns whether there is such a probe. A passive side probes with REPs, whose
    /// transaction ID the peer has chosen.
    pub(super) fn probe_found_closed_port(&mut self, id: CommId) -> bool {
        let active = self.table.get(id).filter(|connection| connection.role == Role::Active);
        let Some(probe) = active.and_then(|connection| connection.probe) else { return false };
        self.stop_probe(id);
        self.events.push_back(Event::Unanswered(ConnectionId(id), probe.begun));
        true
    }

    fn stop_probe(&mut self, id: CommId) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if connection.state == State::Established && connection.probe.take().is_some() {
            connection.arm(&mut self.timers, None);
        }
    }

    /// The peer responded to a probe with an RTU.
    pub(super) fn answered_by_rtu(&mut self, id: CommId) -> Result<(), Ignored> {
        let probed = self.table.get(id).is_some_and(|connection| connection.probe.is_some());
        self.stop_probe(id);
        if probed { Ok(()) } else { Err(Ignored::OutOfPlace(State::Established)) }
    }

    pub(super) fn handle_apr(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        apr: &Apr,
    ) -> Result<(), Ignored> {
        let id = apr.remote_comm_id;
        let connection = self.find(envelope, id, apr.local_comm_id)?;
        if connection.probe.is_none() || connection.role != Role::Active {
            return Err(Ignored::Unsolicited);
        }
        if apr.status == ApStatus::INVALID_COMM_ID {
            self.peer_is_lost(now, ConnectionId(id), Loss::UnknownToPeer)?;
            return Ok(());
        }
        if let Some(connection) = self.table.get_mut(id) {
            connection.lap_support = LapSupport::Yes;
        }
        self.stop_probe(id);
        Ok(())
    }

    /// Starts the keepalive timer while there are connections.
    pub(super) fn arm_keepalive(&mut self, now: Instant) {
        if let (Some(keepalive), None) = (self.config.keepalive, self.keepalive_at) {
            let at = Some(now + keepalive.idle);
            self.timers.set(Timer::Keepalive, &mut self.keepalive_at, at);
        }
    }

    /// Probes all established connections.
    pub(super) fn keepalive_timeout(&mut self, now: Instant) {
        self.keepalive_at = None;
        let Some(keepalive) = self.config.keepalive else { return };
        if self.table.len() > 0 {
            self.arm_keepalive(now);
        }
        let due =
            |connection: &&Connection| connection.probe.is_none() && connection.is_worth_probing();
        let due: alloc::vec::Vec<_> =
            self.table.established().filter(due).map(|connection| connection.id).collect();
        for id in due {
            let mut schedule = keepalive.probe;
            if let Some(connection) = self.table.get_mut(id) {
                if let (Role::Active, LapSupport::NotYet(sweeps)) =
                    (connection.role, &mut connection.lap_support)
                {
                    *sweeps += 1;
                    schedule.messages = 1;
                }
            }
            let _ = self.start_probe(now, id, schedule);
        }
    }
}

impl Connection {
    /// Schedules the first probe of an active side, and returns when it begins.
    pub(super) fn prepare_probe(&mut self, schedule: ProbeSchedule) -> Instant {
        let begun = self.answered_at;
        self.probe = Some(Probe { schedule, begun, left: schedule.messages });
        begun + schedule.interval
    }

    /// The probe message.
    fn probe_message(&self) -> Option<Transmit> {
        if self.role == Role::Passive {
            return self.retransmission().filter(|rep| matches!(rep.message, CmMessage::Rep(_)));
        }
        Some(self.transmit(Lap {
            local_comm_id: self.id,
            remote_comm_id: self.remote(),
            remote_qpn: self.remote_qpn.unwrap_or_default(),
            alternate_remote_gid: self.peer,
            ..Lap::default()
        }))
    }

    /// Whether a probe without a response means that the peer is lost.
    fn silence_counts(&self) -> bool {
        self.role == Role::Passive || self.lap_support == LapSupport::Yes
    }

    fn is_worth_probing(&self) -> bool {
        self.role == Role::Passive || self.lap_support != LapSupport::NotYet(MAX_UNANSWERED_LAPS)
    }
}
