//! Whether the peer of an established connection is still there.
//!
//! Two things lead to a probe: a REQ or REP that names a queue pair of an established connection, which means that the
//! peer has restarted or that somebody forged the message, and, with [`Config::keepalive`](super::Config), time. The
//! old connection ends only when the probe fails; what caused the probe is dropped meanwhile, and an honest peer repeats
//! it.
//!
//! A probe is a message that the peer's connection manager answers in every state of its consumer:
//!
//! | our role | probe | answer of a live peer | answer of a peer without the connection |
//! |---|---|---|---|
//! | passive | our REP again | RTU (Linux too: the first RTU may have been lost, IBA 12.9) | REJ, or none (Linux) |
//! | active | LAP | APR (not supported); none from Linux | APR (invalid communication ID); none from Linux |
//!
//! Silence after a LAP proves nothing unless the peer has answered one before. When a probe stays unanswered the consumer
//! decides ([`Event::Unanswered`]): it may know better, from data that arrived or from the peer's process.

use core::time::Duration;

use ferroce_wire::cm::{ApStatus, Apr, CommId, Dreq, Lap, Message};

use ferroce_wire::address::Gid;
use ferroce_wire::mad::TransactionId;
use ferroce_wire::number::Qpn;

use super::connection::{Connection, Role};
use super::event::{CallError, Disconnection, Event, Ignored, Transmit};
use super::parameters::ConnectionId;
use super::state::{State, Trigger};
use super::timer::Timer;
use super::{ConnectionManager, Envelope};
use crate::time::Instant;

/// Messages of a probe, and the time between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeSchedule {
    /// How often the message is sent.
    pub messages: u8,
    /// Time between two, and after the last one before the probe counts as unanswered.
    pub interval: Duration,
}

/// A connection as its peer has to be told of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Farewell {
    /// Where the peer is.
    pub peer: Gid,
    /// Our name for the connection.
    pub local_id: CommId,
    /// The peer's.
    pub remote_id: CommId,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// What messages are sent with.
    pub traffic_class: u8,
}

impl Farewell {
    /// The DREQ.
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

/// Sweeps without an APR after which a peer gets no more LAPs: Linux drops them on RoCE.
const LAPS_IN_VAIN: u8 = 3;

/// A probe in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    schedule: ProbeSchedule,
    begun: Instant,
    left: u8,
}

/// What is known of the peer's answers to LAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswersLap {
    Yes,
    /// So many sweeps without an answer.
    NotYet(u8),
}

impl ConnectionManager {
    /// Asks the peer of an established connection whether it is still there, as a stale REQ does.
    /// [`Event::Unanswered`] follows unless it is.
    pub fn probe(&mut self, now: Instant, connection: ConnectionId) -> Result<(), CallError> {
        let schedule = self.config.stale_probe;
        self.start_probe(now, connection.0, schedule)
    }

    /// The consumer knows that the peer is there: a probe in progress ends.
    pub fn peer_is_alive(&mut self, connection: ConnectionId) {
        self.stop_probe(connection.0);
    }

    /// The peer is gone without a DREQ: [`Event::Disconnected`] follows at once. One DREQ is sent, in case the peer
    /// lives and cannot be heard.
    pub fn peer_is_lost(
        &mut self,
        now: Instant,
        connection: ConnectionId,
    ) -> Result<(), CallError> {
        let id = connection.0;
        let transaction = self.names.transaction(id);
        let lost = self.table.step(id, Trigger::PeerLost)?;
        (lost.probe, lost.transaction) = (None, transaction);
        let dreq = Dreq {
            local_comm_id: id,
            remote_comm_id: lost.remote(),
            remote_qpn: lost.remote_qpn.unwrap_or_default(),
            ..Dreq::default()
        };
        self.transmits.push_back(lost.keep(dreq, 0));
        self.settle(now, id);
        self.events.push_back(Event::Disconnected(connection, Disconnection::Lost));
        Ok(())
    }

    /// The peer's address and its communication ID, once known.
    pub fn peer(&self, connection: ConnectionId) -> Option<(Gid, CommId)> {
        let connection = self.table.get(connection.0)?;
        Some((connection.peer, connection.remote_id?))
    }

    /// What somebody else has to know to end this connection when we cannot.
    pub fn farewell(&self, connection: ConnectionId) -> Option<Farewell> {
        let connection = self.table.get(connection.0)?;
        Some(Farewell {
            peer: connection.peer,
            local_id: connection.id,
            remote_id: connection.remote_id?,
            remote_qpn: connection.remote_qpn?,
            traffic_class: connection.traffic_class,
        })
    }

    /// Our queue pair in a connection, once known.
    pub fn queue_pair(&self, connection: ConnectionId) -> Option<Qpn> {
        self.table.get(connection.0).map(|connection| connection.local_qpn)
    }

    /// All established connections.
    pub fn established(&self) -> impl Iterator<Item = ConnectionId> {
        self.table.established().map(Connection::handle)
    }

    /// A message claims a queue pair of this connection's peer for another connection. Says whether the message may
    /// take it: when the connection is over. Time-wait is for our own queue pair (IBA 12.9.8.4); when its peer uses a
    /// number again is the peer's decision, and one that draws numbers at random may do so soon.
    pub(super) fn superseded(&mut self, now: Instant, id: CommId) -> Result<bool, Ignored> {
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

    /// Sends the next message of a probe, or gives up.
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

    fn stop_probe(&mut self, id: CommId) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if connection.state == State::Established && connection.probe.take().is_some() {
            connection.arm(&mut self.timers, None);
        }
    }

    /// The peer has answered a probe by a repeated RTU.
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
            self.peer_is_lost(now, ConnectionId(id))?;
            return Ok(());
        }
        if let Some(connection) = self.table.get_mut(id) {
            connection.answers_lap = AnswersLap::Yes;
        }
        self.stop_probe(id);
        Ok(())
    }

    /// Makes sure that the keepalive timer runs while there are connections.
    pub(super) fn arm_keepalive(&mut self, now: Instant) {
        if let (Some(keepalive), None) = (self.config.keepalive, self.sweep) {
            let at = Some(now + keepalive.idle);
            self.timers.set(Timer::Keepalive, &mut self.sweep, at);
        }
    }

    /// Probes every established connection.
    pub(super) fn keepalive_timeout(&mut self, now: Instant) {
        self.sweep = None;
        let Some(keepalive) = self.config.keepalive else { return };
        if self.table.len() > 0 {
            self.arm_keepalive(now);
        }
        let due = |one: &&Connection| one.probe.is_none() && one.is_worth_probing();
        let due: alloc::vec::Vec<_> =
            self.table.established().filter(due).map(|one| one.id).collect();
        for id in due {
            let mut schedule = keepalive.probe;
            if let Some(connection) = self.table.get_mut(id) {
                if let (Role::Active, AnswersLap::NotYet(sweeps)) =
                    (connection.role, &mut connection.answers_lap)
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
    /// The message that asks whether the peer is there.
    fn probe_message(&self) -> Option<Transmit> {
        if self.role == Role::Passive {
            return self.again().filter(|rep| matches!(rep.message, Message::Rep(_)));
        }
        Some(self.transmit(Lap {
            local_comm_id: self.id,
            remote_comm_id: self.remote(),
            remote_qpn: self.remote_qpn.unwrap_or_default(),
            alternate_remote_gid: self.peer,
            ..Lap::default()
        }))
    }

    /// Whether a probe without answer says that the peer is gone.
    fn silence_counts(&self) -> bool {
        self.role == Role::Passive || self.answers_lap == AnswersLap::Yes
    }

    fn is_worth_probing(&self) -> bool {
        self.role == Role::Passive || self.answers_lap != AnswersLap::NotYet(LAPS_IN_VAIN)
    }
}
