//! One connection: its names, its timer, and the message that waits for an answer.

use core::time::Duration;

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{
    AckTimeout, CommId, Message, Mra, ReceivedMessage, Rej, RejectReason, RejectedMessage, Rep,
    Req, ResponseTimeout, ServiceId, Transport,
};
use ferroce_wire::mad::TransactionId;
use ferroce_wire::number::{Guid, Psn, Qpn};

use super::config::Config;
use super::event::Transmit;
use super::parameters::{ConnectionId, Rejection};
use super::private_data::{Information, MraData};
use super::probe::{AnswersLap, Probe};
use super::state::State;
use super::timer::{Timer, Timers};
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Active,
    Passive,
}

/// What a message is sent again for, and answered by when its cause is a duplicate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) message: Message,
    pub(super) modifier: u32,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: CommId,
    pub(super) role: Role,
    pub(super) state: State,
    /// Where the peer is. Its messages come from nowhere else.
    pub(super) peer: Gid,
    /// The peer's name for the connection, once it is known.
    pub(super) remote_id: Option<CommId>,
    pub(super) remote_guid: Guid,
    pub(super) local_qpn: Qpn,
    /// The peer's queue pair, once it is known.
    pub(super) remote_qpn: Option<Qpn>,
    /// The first PSN of the REQ: with the queue pair, it tells a repeated REQ from another one.
    pub(super) request_psn: Psn,
    pub(super) service: ServiceId,
    pub(super) transport: Transport,
    /// The handshake's transaction; later that of the peer's DREQ.
    pub(super) transaction: TransactionId,
    /// How long the peer may take to answer, with the way there and back (IBA 12.9.8).
    pub(super) response: Duration,
    pub(super) max_retries: u8,
    pub(super) retries: u8,
    /// 2 × packet lifetime: the way there and back.
    pub(super) round_trip: Duration,
    /// How long the names rest: until no packet can be under way (IBA 12.9.8).
    pub(super) rest: Duration,
    pub(super) deadline: Option<Instant>,
    pub(super) sent: Option<Sent>,
    /// How long the peer waits for our consumer's answer, as far as we know.
    pub(super) patience: Duration,
    /// What its messages are sent with, as its packets are: that of the REQ's path.
    pub(super) traffic_class: u8,
    /// Time between two REPs.
    pub(super) rep_interval: Duration,
    /// When our consumer accepted.
    pub(super) answered_at: Instant,
    /// When an RTU that has not come is no longer waited for.
    pub(super) give_up_at: Instant,
    /// Its number in the order of arrival.
    pub(super) serial: u64,
    pub(super) probe: Option<Probe>,
    pub(super) answers_lap: AnswersLap,
}

/// 2 × packet lifetime, from the acknowledge timeout in a REQ, which is the next power of two above 2 × packet
/// lifetime + acknowledge delay (IBA 12.7). "No timeout" says nothing about the path, which is taken as short.
pub(super) fn round_trip(timeout: AckTimeout) -> Duration {
    timeout.duration().unwrap_or(ResponseTimeout(0).duration())
}

impl Connection {
    /// A connection from its REQ, sent or received; `response` is how long the peer may take.
    pub(super) fn new(
        config: &Config,
        role: Role,
        id: CommId,
        peer: Gid,
        req: &Req,
        transport: Transport,
        transaction: TransactionId,
    ) -> Self {
        let round_trip = config.bounded(round_trip(req.primary_ack_timeout));
        let (theirs, ours) = match role {
            Role::Active => (req.remote_response_timeout, req.local_response_timeout),
            Role::Passive => (req.local_response_timeout, req.remote_response_timeout),
        };
        let response = config.bounded(theirs.duration()) + round_trip;
        let sends = u32::from(req.max_cm_retries) + 1;
        let patience = (config.bounded(ours.duration()) + round_trip) * sends;
        // A stranger chooses the passive side's times: they hold our memory.
        let patience = match role {
            Role::Active => patience,
            Role::Passive => patience.min(config.half_open_time),
        };
        Self {
            id,
            role,
            state: State::Idle,
            peer,
            remote_id: (role == Role::Passive).then_some(req.local_comm_id),
            remote_guid: req.local_ca_guid,
            // The passive side's is known when its consumer accepts.
            local_qpn: if role == Role::Active { req.local_qpn } else { Qpn::default() },
            remote_qpn: (role == Role::Passive).then_some(req.local_qpn),
            request_psn: req.starting_psn,
            service: req.service_id,
            transport,
            transaction,
            response,
            max_retries: req.max_cm_retries,
            retries: 0,
            round_trip,
            rest: round_trip + config.bounded(config.ack_delay.duration()),
            deadline: None,
            sent: None,
            patience,
            traffic_class: req.primary_traffic_class.0,
            rep_interval: response,
            answered_at: Instant::ZERO,
            give_up_at: Instant::ZERO,
            serial: 0,
            probe: None,
            answers_lap: AnswersLap::NotYet(0),
        }
    }

    pub(super) fn handle(&self) -> ConnectionId {
        ConnectionId(self.id)
    }

    /// The peer's name, or 0 while it is not known (IBA 12.6.7.1).
    pub(super) fn remote(&self) -> CommId {
        self.remote_id.unwrap_or_default()
    }

    /// Whether a message of these names from there belongs to this connection.
    pub(super) fn is_with(&self, from: Gid, sender: CommId) -> bool {
        self.peer == from && self.remote_id.is_none_or(|known| known == sender)
    }

    pub(super) fn arm(&mut self, timers: &mut Timers, deadline: Option<Instant>) {
        timers.set(Timer::Connection(self.id.0), &mut self.deadline, deadline);
    }

    pub(super) fn transmit(&self, message: impl Into<Message>) -> Transmit {
        Transmit {
            destination: self.peer,
            traffic_class: self.traffic_class,
            connection: Some(self.handle()),
            transaction: self.transaction,
            modifier: 0,
            message: message.into(),
        }
    }

    /// Sends a message that wants an answer: it is repeated until one comes (IBA 12.9.8).
    pub(super) fn start(
        &mut self,
        now: Instant,
        timers: &mut Timers,
        message: impl Into<Message>,
        modifier: u32,
    ) -> Transmit {
        self.retries = 0;
        self.arm(timers, Some(now + self.response));
        self.keep(message, modifier)
    }

    /// Sends a REP. A stranger chooses how long and how often the peer is waited for, so that has a limit: then REPs are
    /// repeated more often within it.
    pub(super) fn start_rep(
        &mut self,
        now: Instant,
        timers: &mut Timers,
        config: &Config,
        rep: Rep,
        modifier: u32,
    ) -> Transmit {
        let longest = config.half_open_time;
        let asked = self.response * (u32::from(self.max_retries) + 1);
        self.rep_interval =
            if asked <= longest { self.response } else { self.response.min(longest / 16) };
        self.answered_at = now;
        self.give_up_at = now + asked.min(longest);
        self.arm(timers, Some(now + self.rep_interval));
        self.keep(rep, modifier)
    }

    /// Sends a message that is repeated only when what it answers is.
    pub(super) fn keep(&mut self, message: impl Into<Message>, modifier: u32) -> Transmit {
        let message = message.into();
        self.sent = Some(Sent { message, modifier });
        Transmit { modifier, ..self.transmit(message) }
    }

    /// The last message once more.
    pub(super) fn again(&self) -> Option<Transmit> {
        let Sent { message, modifier } = self.sent?;
        Some(Transmit { modifier, ..self.transmit(message) })
    }

    /// Starts the time-wait.
    pub(super) fn rest(&mut self, now: Instant, timers: &mut Timers) {
        self.arm(timers, Some(now + self.rest));
    }

    /// "It arrived, the answer takes up to so long" (IBA 12.6.6).
    pub(super) fn mra(&self, timeout: ResponseTimeout, private_data: MraData) -> Mra {
        Mra {
            local_comm_id: self.id,
            remote_comm_id: self.remote(),
            message: match self.role {
                Role::Active => ReceivedMessage::REP,
                Role::Passive => ReceivedMessage::REQ,
            },
            service_timeout: timeout,
            private_data,
            ..Mra::default()
        }
    }

    /// A REJ for what was received last in this state (IBA 12.6.7).
    pub(super) fn rej(&self, rejection: &Rejection) -> Rej {
        let (local, message) = match self.state {
            // The peer has not been told our name, and rdma_rxe's REJ does not tell it either.
            State::ReqReceived => (CommId::default(), RejectedMessage::REQ),
            State::MraReqSent => (self.id, RejectedMessage::REQ),
            State::RepReceived | State::MraRepSent => (self.id, RejectedMessage::REP),
            _ => (self.id, RejectedMessage::NONE),
        };
        Rej {
            local_comm_id: local,
            remote_comm_id: self.remote(),
            message,
            information_length: rejection.information_length.min(72),
            reason: rejection.reason,
            information: rejection.information,
            private_data: rejection.private_data,
            ..Rej::default()
        }
    }

    /// A REJ on giving up: the device's identifier goes with it, since the peer may not have told its name and must
    /// find the connection by ours (IBA 12.6.7.2, reason 4).
    pub(super) fn timeout_rej(&self, config: &Config) -> Rej {
        let guid = config.ca_guid.0.to_be_bytes();
        let information = Information::padded(&guid).unwrap_or_default();
        Rej {
            local_comm_id: self.id,
            information_length: guid.len() as u8,
            ..self.rej(&Rejection { information, ..Rejection::new(RejectReason::TIMEOUT) })
        }
    }
}
