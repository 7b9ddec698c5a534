//! Events of cm_ids.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_proto::cm::{self as proto, Enhancements};
use ferroce_proto::qp::{AddressVector, RnrRetry, ServiceType};
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{RejectReason, SidrStatus, Transport};
use ferroce_wire::number::{QKey, Qpn};

use super::id::CmId;
use crate::error::CmError as Error;

/// Identifies a [`CmId`] in its events. Unique in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdName(pub u64);

impl IdName {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// An event of a [`CmId`].
#[derive(Debug)]
#[non_exhaustive]
#[doc(alias = "rdma_cm_event")]
pub struct Event {
    /// The cm_id; for a connection request, that of the listener.
    pub id: IdName,
    /// What happened.
    pub kind: EventKind,
}

/// The kind of an event.
#[derive(Debug)]
#[non_exhaustive]
#[doc(alias = "rdma_cm_event_type")]
pub enum EventKind {
    /// A device reaches the destination.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_RESOLVED")]
    AddressResolved,
    /// No device reaches the destination.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_ERROR")]
    AddressError(Error),
    /// The route is known: the cm_id can connect.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_RESOLVED")]
    RouteResolved,
    /// The route does not carry RoCE packets.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_ERROR")]
    RouteError(Error),
    /// A peer requests a connection: accept or reject it with the new cm_id.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
    ConnectRequest(Box<Request>),
    /// The peer accepted, and the cm_id did not create the QP: modify it with [`CmId::attributes`], then call
    /// [`CmId::establish`].
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_RESPONSE")]
    ConnectResponse(Box<Established>),
    /// The connection failed for a local reason.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_ERROR")]
    ConnectError(Error),
    /// The peer does not respond, or refuses its UD queue pair with a status.
    #[doc(alias = "RDMA_CM_EVENT_UNREACHABLE")]
    Unreachable(Option<SidrStatus>),
    /// The peer rejected the connection.
    #[doc(alias = "RDMA_CM_EVENT_REJECTED")]
    Rejected {
        /// The reason.
        reason: RejectReason,
        /// The peer's private data, padded with zeroes to 148 bytes.
        private_data: Vec<u8>,
    },
    /// The connection is established.
    #[doc(alias = "RDMA_CM_EVENT_ESTABLISHED")]
    Established(Box<Established>),
    /// The connection has ended, for this reason. The QP is in the error state.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    Disconnected(DisconnectCause),
    /// No packet of the connection is in flight any more: the QP may be reused.
    #[doc(alias = "RDMA_CM_EVENT_TIMEWAIT_EXIT")]
    TimewaitExit,
    /// The cm_id joined a multicast group.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_JOIN")]
    MulticastJoined(Group),
    /// The cm_id could not join a multicast group.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_ERROR")]
    MulticastError(Error),
    /// The program raised it with [`CmId::raise_event`].
    #[doc(alias = "RDMA_CM_EVENT_USER")]
    User(UserEvent),
}

impl EventKind {
    pub(super) fn is_request(&self) -> bool {
        matches!(self, Self::ConnectRequest(_))
    }
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DisconnectCause {
    /// This side disconnected.
    Local,
    /// The peer disconnected, or its program ended without having been killed.
    Peer,
    /// The peer's process on this host has ended without disconnecting: it was killed.
    ProcessEnded,
    /// The peer does not answer any more: its process was killed, or its host or the network failed.
    NoResponse,
    /// The peer does not know the connection any more: its process was killed, or it has given up the connection.
    UnknownToPeer,
}

impl fmt::Display for DisconnectCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "this side disconnected",
            Self::Peer => "the peer disconnected",
            Self::ProcessEnded => "the peer's process has ended without disconnecting",
            Self::NoResponse => "the peer does not respond any more",
            Self::UnknownToPeer => "the peer does not know the connection any more",
        })
    }
}

impl From<&proto::Disconnection> for DisconnectCause {
    fn from(how: &proto::Disconnection) -> Self {
        use ferroce_proto::cm::{Disconnection, Loss};
        match how {
            Disconnection::Confirmed(_)
            | Disconnection::Simultaneous
            | Disconnection::Unconfirmed => Self::Local,
            Disconnection::ByPeer => Self::Peer,
            Disconnection::Lost(Loss::ProcessEnded) => Self::ProcessEnded,
            Disconnection::Lost(Loss::NoResponse) => Self::NoResponse,
            Disconnection::Lost(Loss::UnknownToPeer) | Disconnection::Rejected(_) => {
                Self::UnknownToPeer
            }
        }
    }
}

/// An event that a program raises itself, for example to wake a thread that waits on the channel. Its fields are not
/// interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserEvent {
    /// A kind.
    pub kind: u32,
    /// A status.
    pub status: i32,
    /// A value.
    pub value: u64,
}

/// A connection request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Request {
    /// The cm_id of this side. Dropping it rejects the request.
    pub id: CmId,
    /// The parameters that the peer requests; empty for UD.
    pub parameters: PeerParameters,
    /// The peer's private data, padded with zeroes to 56 bytes, 180 for UD.
    pub private_data: Vec<u8>,
}

/// An established connection, or the peer's UD queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Established {
    /// The parameters that the peer agreed to.
    pub parameters: PeerParameters,
    /// The peer's private data, padded with zeroes to 196 bytes, 136 for UD; empty on the passive side.
    pub private_data: Vec<u8>,
    /// The peer's UD queue pair.
    pub datagram: Option<DatagramPeer>,
}

/// The parameters that a peer requests or agreed to, as seen from this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerParameters {
    /// The transport service.
    pub service: ServiceType,
    /// The peer's QPN.
    pub queue_pair: Qpn,
    /// Outstanding READs and atomics of the peer that this side must accept.
    pub responder_resources: u8,
    /// Outstanding READs and atomics of this side that the peer accepts.
    pub initiator_depth: u8,
    /// The peer uses end-to-end flow control.
    pub flow_control: bool,
    /// Retransmissions without an ACK.
    pub retry_count: u8,
    /// Retransmissions after RNR NAKs.
    pub rnr_retry: RnrRetry,
    /// The peer's QP has an SRQ.
    pub shared_receives: bool,
    /// The ECE options of the peer's device.
    pub enhancements: Enhancements,
}

/// A peer's UD queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramPeer {
    /// Its QPN.
    pub queue_pair: Qpn,
    /// Its queue key.
    pub queue_key: QKey,
    /// Its address vector, for [`ProtectionDomain::address_handle`](crate::ProtectionDomain::address_handle).
    pub address: AddressVector,
}

/// A multicast group that a cm_id has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// Its GID.
    pub gid: Gid,
    /// The destination of UD messages to the group.
    pub peer: DatagramPeer,
}

impl PeerParameters {
    /// Returns the parameters of a UD queue pair: nothing is negotiated.
    pub(super) fn datagram(queue_pair: Qpn) -> Self {
        Self {
            service: ServiceType::UnreliableDatagram,
            queue_pair,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: false,
            retry_count: 0,
            rnr_retry: RnrRetry(0),
            shared_receives: false,
            enhancements: Enhancements::default(),
        }
    }

    pub(super) fn of_request(request: &proto::Request) -> Self {
        Self {
            service: match request.transport {
                Transport::Uc => ServiceType::UnreliableConnection,
                // The peer has the initiator.
                Transport::Xrc => ServiceType::XrcTarget,
                Transport::Rc | Transport::Rd => ServiceType::ReliableConnection,
            },
            queue_pair: request.remote_qpn,
            responder_resources: request.responder_resources,
            initiator_depth: request.initiator_depth,
            flow_control: request.end_to_end_flow_control,
            retry_count: request.retry_count,
            rnr_retry: request.rnr_retry_count,
            shared_receives: request.shared_receive_queue,
            enhancements: request.enhancements,
        }
    }

    pub(super) fn of_reply(reply: &proto::Reply, service: ServiceType, retry_count: u8) -> Self {
        Self {
            service,
            queue_pair: reply.remote_qpn,
            responder_resources: reply.responder_resources,
            initiator_depth: reply.initiator_depth,
            flow_control: reply.end_to_end_flow_control,
            retry_count,
            rnr_retry: reply.rnr_retry_count,
            shared_receives: reply.shared_receive_queue,
            enhancements: reply.enhancements,
        }
    }
}
