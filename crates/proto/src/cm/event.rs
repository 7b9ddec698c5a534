//! Outputs of a connection manager: events, messages and errors.

use alloc::boxed::Box;
use core::fmt;

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CmMessage, CommId, MessageError, ServiceId};
use ferroce_wire::mad::{MAD_LEN, Mad, MadError, TransactionId};
use ferroce_wire::number::Hex32;

use super::parameters::{ConnectionId, Query, QueryId, Rejection, Resolution, ResolutionId};
use super::peer::{Reply, Request};
use super::private_data::{DrepData, DreqData, RtuData};
use super::state::State;
use crate::time::Instant;

/// Events for the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Passive side: a REQ arrived. Respond with `accept` or `reject`.
    Request(ConnectionId, Box<Request>),
    /// Active side: the peer accepted. Bring the QP to RTS, then call `ready` or `reject`.
    Reply(ConnectionId, Box<Reply>),
    /// Passive side: the connection is established. `None` when data arrived before the RTU.
    Established(ConnectionId, Option<Box<RtuData>>),
    /// The peer rejected before the connection was established. If the QP has to go through TimeWait,
    /// [`Event::TimeWaitEnded`] follows.
    Rejected(ConnectionId, Box<Rejection>),
    /// The connection attempt failed. If the QP has to go through TimeWait, [`Event::TimeWaitEnded`] follows.
    Failed(ConnectionId, Failure),
    /// The peer disconnects. Stop sending, then call `confirm_disconnect`.
    DisconnectRequest(ConnectionId, Box<DreqData>),
    /// A probe of an established connection, started at this time, got no response. Call `peer_is_lost`, unless other
    /// evidence shows that the peer is alive.
    Unanswered(ConnectionId, Instant),
    /// The connection ended. The QP must not be reused before [`Event::TimeWaitEnded`].
    Disconnected(ConnectionId, Disconnection),
    /// TimeWait ended; the manager has removed the connection.
    TimeWaitEnded(ConnectionId),
    /// A peer requests the UD QP of a service. Respond with `answer`.
    Query(QueryId, Box<Query>),
    /// The response to our SIDR_REQ, possibly a refusal.
    Resolved(ResolutionId, Box<Resolution>),
    /// No response to our SIDR_REQ.
    Unresolved(ResolutionId),
}

/// Why a connection attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Active side: no response to the REQ after all retransmissions.
    Unreachable,
    /// Active side: the peer's RoCE port is closed, as reported by ICMP.
    PortClosed,
    /// Passive side: no RTU after all retransmissions of the REP.
    NeverReady,
    /// The consumer did not answer within the peer's timeout.
    ConsumerTooSlow,
    /// Active side: the REP names a QP that is part of another connection (IBA 12.9.8.3.1).
    StaleReply,
    /// Passive side: the half-open connection was dropped to admit another request.
    Evicted,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disconnection {
    /// The peer confirmed our DREQ.
    Confirmed(Box<DrepData>),
    /// Both sides disconnected simultaneously.
    Simultaneous,
    /// No response to our DREQ after all retransmissions.
    Unconfirmed,
    /// We confirmed the peer's DREQ.
    ByPeer,
    /// The peer is lost.
    Lost(Loss),
    /// The peer does not know the connection, or gave it up.
    Rejected(Box<Rejection>),
}

/// How it is known that a peer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its process has ended.
    ProcessEnded,
    /// It did not respond to a probe.
    NoResponse,
    /// It responded to a probe that it does not know the connection.
    UnknownToPeer,
}

/// A message to send: a UD SEND from QP 1 to QP 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination.
    pub destination: Gid,
    /// Traffic class: of the connection's path or of the resolution, otherwise that of the message it responds to
    /// (IBA 13.5.4).
    pub traffic_class: u8,
    /// The connection it belongs to, if any.
    pub connection: Option<ConnectionId>,
    /// The MAD's transaction ID.
    pub transaction: TransactionId,
    /// The MAD's attribute modifier: vendor options.
    pub modifier: u32,
    /// The message.
    pub message: CmMessage,
}

impl Transmit {
    /// Encodes the MAD.
    pub fn to_mad(&self) -> [u8; MAD_LEN] {
        let mut header = self.message.mad_header(self.transaction);
        header.modifier = Hex32(self.modifier);
        Mad { header, data: &self.message.to_bytes() }.to_bytes()
    }
}

/// Why an inbound message changed nothing. Some are answered nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Not a management datagram.
    NotMad(MadError),
    /// Not a CM message.
    NotMessage(MessageError),
    /// No connection or resolution with this ID and peer.
    Unknown(CommId),
    /// No listener.
    NoListener(ServiceId),
    /// The request was rejected for its contents.
    BadRequest,
    /// The sender's QP is part of another connection.
    Stale,
    /// The sender's QP is part of an established connection, which is being probed. The peer retransmits.
    Probing,
    /// It names a QP other than the connection's.
    WrongQueuePair,
    /// A duplicate, or not valid in this state.
    OutOfPlace(State),
    /// A duplicate, answered like the original.
    Duplicate,
    /// A limit on connections, half-open connections or resolutions is reached.
    LimitReached,
    /// The listener's backlog is full. The peer retransmits.
    Backlog,
    /// Too many events or messages wait to be polled. The peer retransmits.
    Undrained,
    /// No LAP was sent.
    Unsolicited,
}

/// A limit on connections or resolutions is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// The limit.
    pub limit: usize,
}

/// The service already has a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceInUse(pub ServiceId);

/// Why a call on a connection or resolution failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// It does not exist any more.
    Gone,
    /// Not allowed in this state.
    State(State),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMad(error) => fmt::Display::fmt(error, f),
            Self::NotMessage(error) => fmt::Display::fmt(error, f),
            Self::Unknown(id) => write!(f, "unknown communication ID {id}"),
            Self::NoListener(service) => write!(f, "no listener for service {service}"),
            Self::BadRequest => f.write_str("request rejected for its transport or path MTU"),
            Self::Stale => f.write_str("the queue pair belongs to another connection"),
            Self::Probing => f.write_str(
                "the queue pair belongs to an established connection, which is being probed",
            ),
            Self::WrongQueuePair => f.write_str("the queue pair is not the connection's"),
            Self::OutOfPlace(state) => write!(f, "message not valid in state {state:?}"),
            Self::Duplicate => f.write_str("duplicate: the earlier response was sent again"),
            Self::LimitReached => f.write_str("the limit of connections or resolutions is reached"),
            Self::Backlog => f.write_str("the listener's backlog is full"),
            Self::Undrained => f.write_str("too many events or messages wait to be polled"),
            Self::Unsolicited => f.write_str("response without a request"),
        }
    }
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit of {} reached", self.limit)
    }
}

impl fmt::Display for ServiceInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service {} already has a listener", self.0)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the connection no longer exists"),
            Self::State(state) => write!(f, "not allowed in state {state:?}"),
        }
    }
}

impl core::error::Error for Ignored {}
impl core::error::Error for TooMany {}
impl core::error::Error for ServiceInUse {}
impl core::error::Error for CallError {}
