//! A connection: its IDs, its timer and the message that waits for a response.

use core::time::Duration;

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{
    AckTimeout, CmMessage, CommId, Mra, ReceivedMessage, Rej, RejectReason, RejectedMessage, Rep,
    Req, ResponseTimeout, ServiceId, Transport,
};
use ferroce_wire::mad::TransactionId;
use ferroce_wire::number::{Guid, Psn, Qpn};

use super::config::Config;
use super::event::Transmit;
use super::parameters::{ConnectionId, Rejection};
use super::private_data::{Information, MraData};
use super::probe::{LapSupport, Probe};
use super::state::State;
use super::timer::{Timer, Timers};
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Active,
    Passive,
}

/// The last message: retransmitted on a timeout, and in response to a duplicate.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentMessage {
    pub(super) message: CmMessage,
    pub(super) modifier: u32,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: CommId,
    pub(super) role: Role,
    pub(super) state: State,
    /// Address of the peer, the only source accepted for its messages.
    pub(super) peer: Gid,
    /// The peer's communication ID, once known.
    pub(super) remote_id: Option<CommId>,
    pub(super) remote_guid: Guid,
    pub(super) local_qpn: Qpn,
    /// The peer's QPN, once known.
    pub(super) remote_qpn: Option<Qpn>,
    /// Starting PSN of the REQ: with the QPN, it distinguishes a retransmitted REQ from a new one.
    pub(super) request_psn: Psn,
    pub(super) service: ServiceId,
    pub(super) transport: Transport,
    /// Transaction ID of the handshake; later that of the peer's DREQ.
    pub(super) transaction: TransactionId,
    /// Response timeout of the peer, including the round trip (IBA 12.9.8).
    pub(super) response: Duration,
    pub(super) max_retries: u8,
    pub(super) retries: u8,
    /// 2 × packet lifetime: the round trip.
    pub(super) round_trip: Duration,
    /// Duration of TimeWait: until no packet of the connection can be in flight (IBA 12.9.8).
    pub(super) time_wait: Duration,
    pub(super) deadline: Option<Instant>,
    pub(super) sent: Option<SentMessage>,
    /// How long the peer waits for the local consumer, as far as known.
    pub(super) consumer_timeout: Duration,
    /// Traffic class of its messages, from the path in the REQ.
    pub(super) traffic_class: u8,
    /// Time until the first retransmission of the REP; it doubles with each one.
    pub(super) rep_interval: Duration,
    /// When the consumer accepted, or the REP arrived.
    pub(super) answered_at: Instant,
    /// When to give up waiting for the RTU.
    pub(super) give_up_at: Instant,
    /// Number in the order of creation.
    pub(super) serial: u64,
    pub(super) probe: Option<Probe>,
    pub(super) lap_support: LapSupport,
}

/// Limits on what a forged REQ causes: with the REJ at the end, it is five packets.
const MAX_REP_RETRIES: u8 = 3;
const MIN_REP_INTERVAL: Duration = Duration::from_millis(50);

/// 2 × packet lifetime, from the ACK timeout in the REQ, which is the next power of two above 2 × packet lifetime +
/// ACK delay (IBA 12.7). "No timeout" gives no information; the path is assumed to be short.
pub(super) fn round_trip(timeout: AckTimeout) -> Duration {
    timeout.duration().unwrap_or(ResponseTimeout(0).duration())
}

impl Connection {
    /// Creates a connection from a sent or received REQ.
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
        let consumer_timeout = (config.bounded(ours.duration()) + round_trip) * sends;
        // A REQ from an unknown sender sets these times on the passive side, and they keep state in memory.
        let consumer_timeout = match role {
            Role::Active => consumer_timeout,
            Role::Passive => consumer_timeout.min(config.half_open_time),
        };
        Self {
            id,
            role,
            state: State::Idle,
            peer,
            remote_id: (role == Role::Passive).then_some(req.local_comm_id),
            remote_guid: req.local_ca_guid,
            // Known on the passive side when its consumer accepts.
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
            time_wait: round_trip + config.bounded(config.ack_delay.duration()),
            deadline: None,
            sent: None,
            consumer_timeout,
            traffic_class: req.primary_traffic_class.0,
            rep_interval: response,
            answered_at: Instant::ZERO,
            give_up_at: Instant::ZERO,
            serial: 0,
            probe: None,
            lap_support: LapSupport::NotYet(0),
        }
    }

    pub(super) fn handle(&self) -> ConnectionId {
        ConnectionId(self.id)
    }

    /// The peer's communication ID, or 0 while unknown (IBA 12.6.7.1).
    pub(super) fn remote(&self) -> CommId {
        self.remote_id.unwrap_or_default()
    }

    /// Whether a message with this source address and sender ID belongs to this connection.
    pub(super) fn is_with(&self, from: Gid, sender: CommId) -> bool {
        self.peer == from && self.remote_id.is_none_or(|known| known == sender)
    }

    pub(super) fn arm(&mut self, timers: &mut Timers, deadline: Option<Instant>) {
        timers.set(Timer::Connection(self.id.0), &mut self.deadline, deadline);
    }

    pub(super) fn transmit(&self, message: impl Into<CmMessage>) -> Transmit {
        Transmit {
            destination: self.peer,
            traffic_class: self.traffic_class,
            connection: Some(self.handle()),
            transaction: self.transaction,
            modifier: 0,
            message: message.into(),
        }
    }

    /// Sends a message that requires a response, and retransmits it until one arrives (IBA 12.9.8).
    pub(super) fn start(
        &mut self,
        now: Instant,
        timers: &mut Timers,
        message: impl Into<CmMessage>,
        modifier: u32,
    ) -> Transmit {
        self.retries = 0;
        self.arm(timers, Some(now + self.response));
        self.send_and_keep(message, modifier)
    }

    /// Sends a REP. The times in a REQ come from an unknown sender, so they are limited. Its address may be forged as well, and
    /// its owner gets the REPs, so these are few whatever the REQ specifies, with doubling intervals in the same total time.
    pub(super) fn start_rep(
        &mut self,
        now: Instant,
        timers: &mut Timers,
        config: &Config,
        rep: Rep,
        modifier: u32,
    ) -> Transmit {
        let requested = self.response * (u32::from(self.max_retries) + 1);
        let intervals = (2 << self.rep_retries()) - 1;
        self.rep_interval =
            (requested.min(config.half_open_time) / intervals).max(MIN_REP_INTERVAL);
        self.answered_at = now;
        self.give_up_at = now + self.rep_interval * intervals;
        self.retries = 0;
        self.arm(timers, Some(now + self.rep_interval));
        self.send_and_keep(rep, modifier)
    }

    /// How often the REP is retransmitted.
    pub(super) fn rep_retries(&self) -> u8 {
        self.max_retries.min(MAX_REP_RETRIES)
    }

    /// Sends a message that is only retransmitted in response to a duplicate.
    pub(super) fn send_and_keep(
        &mut self,
        message: impl Into<CmMessage>,
        modifier: u32,
    ) -> Transmit {
        let message = message.into();
        self.sent = Some(SentMessage { message, modifier });
        Transmit { modifier, ..self.transmit(message) }
    }

    /// The last message, for retransmission.
    pub(super) fn retransmission(&self) -> Option<Transmit> {
        let SentMessage { message, modifier } = self.sent?;
        Some(Transmit { modifier, ..self.transmit(message) })
    }

    /// Starts the TimeWait timer.
    pub(super) fn start_time_wait(&mut self, now: Instant, timers: &mut Timers) {
        self.arm(timers, Some(now + self.time_wait));
    }

    /// Builds an MRA: the message was received, the response may take up to `timeout` (IBA 12.6.6).
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

    /// Builds a REJ for the message received last in this state (IBA 12.6.7).
    pub(super) fn rej(&self, rejection: &Rejection) -> Rej {
        let (local, message) = match self.state {
            // The peer does not know our communication ID yet, and rdma_rxe's REJ does not include it either.
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

    /// Builds a REJ with reason "timeout". It includes the CA GUID, since the peer may not have sent its ID and must
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
