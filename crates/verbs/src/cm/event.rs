//! What is told about ids.

use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_proto::cm::{self as proto, Enhancements};
use ferroce_proto::qp::{AddressVector, RnrRetry, ServiceType};
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{RejectReason, SidrStatus, Transport};
use ferroce_wire::number::{QKey, Qpn};

use super::id::CmId;
use crate::error::CmError as Error;

/// Names an [`CmId`] in its events. No two of a process have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdName(pub u64);

impl IdName {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// An event of an [`CmId`].
#[derive(Debug)]
#[doc(alias = "rdma_cm_event")]
pub struct Event {
    /// Whom it is about; the listener, where somebody wants to connect.
    pub id: IdName,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to an id.
#[derive(Debug)]
#[non_exhaustive]
#[doc(alias = "rdma_cm_event_type")]
pub enum EventKind {
    /// The way to the destination begins at one of our devices.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_RESOLVED")]
    AddressResolved,
    /// There is no way to the destination.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_ERROR")]
    AddressError(Error),
    /// All is known that connecting needs.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_RESOLVED")]
    RouteResolved,
    /// The way to the destination takes no packets of ours.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_ERROR")]
    RouteError(Error),
    /// Somebody wants to connect: accept or reject by the new id.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
    ConnectRequest(Box<Request>),
    /// The peer accepts, and the queue pair is the program's own: bring it up by [`CmId::attributes`], then call
    /// [`CmId::establish`].
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_RESPONSE")]
    ConnectResponse(Box<Established>),
    /// The connection did not come up, for a reason on this side.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_ERROR")]
    ConnectError(Error),
    /// The peer does not answer; or it has no datagram queue pair for us, and says why.
    #[doc(alias = "RDMA_CM_EVENT_UNREACHABLE")]
    Unreachable(Option<SidrStatus>),
    /// The peer said no.
    #[doc(alias = "RDMA_CM_EVENT_REJECTED")]
    Rejected {
        /// Why.
        reason: RejectReason,
        /// The peer's bytes, and zeroes behind them: 148 in all.
        private_data: Vec<u8>,
    },
    /// The connection is up.
    #[doc(alias = "RDMA_CM_EVENT_ESTABLISHED")]
    Established(Box<Established>),
    /// The connection is over. The queue pair is in error.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    Disconnected,
    /// No packet of the connection can be under way any more: the queue pair may be used again.
    #[doc(alias = "RDMA_CM_EVENT_TIMEWAIT_EXIT")]
    TimewaitExit,
    /// The id is in a multicast group.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_JOIN")]
    MulticastJoined(Group),
    /// The id could not join a multicast group.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_ERROR")]
    MulticastError(Error),
    /// The program raised it, by [`CmId::raise_event`].
    #[doc(alias = "RDMA_CM_EVENT_USER")]
    User(UserEvent),
}

/// An event that a program raises for itself, for example to wake a thread that waits for events of the channel. Nothing in
/// it is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserEvent {
    /// Tells kinds of them apart.
    pub kind: u32,
    /// Whether something went wrong.
    pub status: i32,
    /// Anything.
    pub value: u64,
}

/// Somebody wants to connect.
#[derive(Debug)]
pub struct Request {
    /// This side's end of the connection. Dropped, it is a no.
    pub id: CmId,
    /// What the peer offers; nothing for datagrams.
    pub parameters: PeerParameters,
    /// The peer's bytes, and zeroes behind them: 56 in all, 180 for datagrams.
    pub private_data: Vec<u8>,
}

/// The connection is up, or the peer's datagram queue pair is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Established {
    /// What the peer agreed to. Nothing is new to the passive side.
    pub parameters: PeerParameters,
    /// The peer's bytes, and zeroes behind them: 196 in all, 136 for datagrams, none on the passive side.
    pub private_data: Vec<u8>,
    /// Where datagrams go.
    pub datagram: Option<DatagramPeer>,
}

/// What a peer offers or agreed to, from this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerParameters {
    /// The service.
    pub service: ServiceType,
    /// The peer's queue pair.
    pub queue_pair: Qpn,
    /// How many READs and atomics of the peer's this side must hold.
    pub responder_resources: u8,
    /// How many this side may have under way to the peer.
    pub initiator_depth: u8,
    /// The peer's receive queue hands out credits.
    pub flow_control: bool,
    /// How often to send again when no acknowledge comes.
    pub retry_count: u8,
    /// How often to send again when the peer has no receive posted.
    pub rnr_retry: RnrRetry,
    /// The peer receives from a shared queue.
    pub shared_receives: bool,
    /// What its device can do beyond the specification.
    pub enhancements: Enhancements,
}

/// A peer's datagram queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramPeer {
    /// Its number.
    pub queue_pair: Qpn,
    /// The key that datagrams to it carry.
    pub queue_key: QKey,
    /// The way there, for [`ProtectionDomain::address_handle`](crate::ProtectionDomain::address_handle).
    pub address: AddressVector,
}

/// A multicast group that an id has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its address.
    pub gid: Gid,
    /// How datagrams to it are sent: to every member's queue pair.
    pub peer: DatagramPeer,
}

impl PeerParameters {
    /// Of datagrams there is nothing to agree on.
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
                // The other end of what the peer has.
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
