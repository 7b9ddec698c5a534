//! What comes out of a manager: news, messages to send, and why something was not done.

use alloc::boxed::Box;
use core::fmt;

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CommId, Message, MessageError, ServiceId};
use ferroce_wire::mad::{MAD_LEN, Mad, MadError, TransactionId};
use ferroce_wire::number::Hex32;

use super::parameters::{ConnectionId, Query, QueryId, Rejection, Resolution, ResolutionId};
use super::peer::{Reply, Request};
use super::private_data::{DrepData, DreqData, RtuData};
use super::state::State;
use crate::time::Instant;

/// News for the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Passive side: somebody wants to connect. Answer by `accept` or `reject`.
    Request(ConnectionId, Box<Request>),
    /// Active side: the peer accepts. Bring the queue pair up, then answer by `ready` or `reject`.
    Reply(ConnectionId, Box<Reply>),
    /// Passive side: the peer is ready. `None` when its data came before its RTU.
    Established(ConnectionId, Option<Box<RtuData>>),
    /// The peer said no before the connection was up. It is over; if its queue pair has to rest first,
    /// [`Event::Rested`] follows.
    Rejected(ConnectionId, Box<Rejection>),
    /// The connection did not come up. It is over; if its queue pair has to rest first, [`Event::Rested`] follows.
    Failed(ConnectionId, Failure),
    /// The peer disconnects. Stop sending, then answer by `confirm_disconnect`.
    DisconnectRequest(ConnectionId, Box<DreqData>),
    /// A probe of an established connection, begun then, stayed unanswered. Answer by `peer_is_lost`; a consumer that
    /// knows that the peer is there does nothing.
    Unanswered(ConnectionId, Instant),
    /// The connection is over; the queue pair shall not be used again before [`Event::Rested`].
    Disconnected(ConnectionId, Disconnection),
    /// The time-wait is over; the manager knows nothing of this connection any more.
    Rested(ConnectionId),
    /// A peer asks for the datagram queue pair of a service. Answer by `answer`.
    Query(QueryId, Box<Query>),
    /// The answer to our question for a service, which may be a no.
    Resolved(ResolutionId, Box<Resolution>),
    /// Our question for a service was not answered.
    Unresolved(ResolutionId),
}

/// Why a connection did not come up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Active side: no answer to the REQ, however often it was sent.
    Unreachable,
    /// Active side: nobody at the peer's address takes part in RoCE, as its host says by ICMP.
    PortClosed,
    /// Passive side: no RTU in answer to the REP, however often it was sent.
    NeverReady,
    /// The consumer answered neither yes nor no for longer than the peer waits.
    ConsumerTooSlow,
    /// Active side: the REP names a queue pair that is in another connection of ours (IBA 12.9.8.3.1).
    StaleReply,
    /// Passive side: no RTU yet, and another peer's request needed the room.
    Evicted,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disconnection {
    /// The peer confirmed our DREQ.
    Confirmed(Box<DrepData>),
    /// Both sides disconnected at once.
    Simultaneous,
    /// No answer to our DREQ, however often it was sent.
    Unconfirmed,
    /// We confirmed the peer's DREQ.
    ByPeer,
    /// The peer is gone: it did not answer a probe, or its process has ended.
    Lost,
    /// The peer does not know the connection, or gave it up.
    Rejected(Box<Rejection>),
}

/// A message to send: UD SEND from queue pair 1 to queue pair 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub destination: Gid,
    /// With what traffic class to send it: that of the connection's path or of the question; or of what it answers, when
    /// that belongs to neither (IBA 13.5.4).
    pub traffic_class: u8,
    /// Which connection it belongs to, when there is one.
    pub connection: Option<ConnectionId>,
    /// The MAD's transaction.
    pub transaction: TransactionId,
    /// The MAD's attribute modifier: options of enhancements.
    pub modifier: u32,
    /// The message.
    pub message: Message,
}

impl Transmit {
    /// The datagram's payload.
    pub fn to_mad(&self) -> [u8; MAD_LEN] {
        let mut header = self.message.mad_header(self.transaction);
        header.modifier = Hex32(self.modifier);
        Mad { header, data: &self.message.to_bytes() }.to_bytes()
    }
}

/// Why a message that arrived changed nothing. Some are answered all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Not a management datagram.
    NotMad(MadError),
    /// Not a message of the connection manager's.
    NotMessage(MessageError),
    /// No connection or question of this name with this peer.
    Unknown(CommId),
    /// Nobody listens.
    NoListener(ServiceId),
    /// The request was rejected for what it says.
    BadRequest,
    /// The queue pair it comes from is in another connection.
    Stale,
    /// The queue pair it comes from is in an established connection, which is probed. The peer will send again.
    Probing,
    /// It names a queue pair that is not the connection's.
    WrongQueuePair,
    /// It was here before, or has no meaning in this state.
    OutOfPlace(State),
    /// It was here before, and is answered as it was then.
    Duplicate,
    /// A limit on connections, half-open ones or questions is reached.
    NoRoom,
    /// The listener has as many unanswered requests as it allows. The peer will ask again.
    Backlog,
    /// Too many events or messages wait to be polled. The peer will send again.
    Undrained,
    /// Nobody here asked for alternate paths.
    Unsolicited,
}

/// Why there can be no connection or question more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// How many there may be.
    pub limit: usize,
}

/// Why nobody can listen there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceInUse(pub ServiceId);

/// Why a call on a connection or question did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// It is gone.
    Gone,
    /// It is in a state that does not allow this.
    State(State),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMad(error) => fmt::Display::fmt(error, f),
            Self::NotMessage(error) => fmt::Display::fmt(error, f),
            Self::Unknown(id) => write!(f, "unknown communication ID {id}"),
            Self::NoListener(service) => write!(f, "nobody listens at service {service}"),
            Self::BadRequest => f.write_str("request rejected for its transport or path MTU"),
            Self::Stale => f.write_str("the queue pair is in another connection"),
            Self::Probing => {
                f.write_str("the queue pair is in an established connection, which is probed")
            }
            Self::WrongQueuePair => f.write_str("another queue pair than the connection's"),
            Self::OutOfPlace(state) => write!(f, "message without meaning in state {state:?}"),
            Self::Duplicate => f.write_str("duplicate, answered again"),
            Self::NoRoom => f.write_str("no room for another connection"),
            Self::Backlog => f.write_str("the listener's backlog is full"),
            Self::Undrained => f.write_str("too many events or messages are not polled"),
            Self::Unsolicited => f.write_str("unsolicited"),
        }
    }
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no more than {} are allowed", self.limit)
    }
}

impl fmt::Display for ServiceInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "somebody listens at service {} already", self.0)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the connection is gone"),
            Self::State(state) => write!(f, "not allowed in state {state:?}"),
        }
    }
}

impl core::error::Error for Ignored {}
impl core::error::Error for TooMany {}
impl core::error::Error for ServiceInUse {}
impl core::error::Error for CallError {}
