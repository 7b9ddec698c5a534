//! Parameters of connections: what a program requests, and what it learns from events.

use ferroce_proto::cm::{self as proto, Disconnection, Enhancements, Loss};
use ferroce_proto::qp::{AckTimeout, AddressVector, PathMtu, RnrRetry, RnrTimer, ServiceType};
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{ResponseTimeout, Transport};
use ferroce_wire::number::{QKey, Qpn};

/// A route to the peer that the program sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The path MTU.
    pub mtu: PathMtu,
    /// The type of service, or traffic class.
    pub traffic_class: u8,
    /// The flow label, 20 bits, which switches use for ECMP.
    pub flow_label: u32,
    /// The hop limit; 0 selects the kernel's default.
    pub hop_limit: u8,
}

/// Parameters that a side requests when it connects, or agrees to when it accepts. The defaults are those of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "rdma_conn_param")]
pub struct ConnectParameters {
    /// Private data for the peer: up to 56 bytes to connect and 196 to accept, 180 and 136 for UD.
    pub private_data: Vec<u8>,
    /// Outstanding READs and atomics of the peer. The accepting side is limited to what was requested.
    pub responder_resources: u8,
    /// Outstanding READs and atomics of this side. The accepting side is limited to what was offered.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Retransmissions without an ACK, 0 to 7. The connecting side sets it for both.
    pub retry_count: u8,
    /// The peer's retransmissions after RNR NAKs; 7 is without limit.
    pub rnr_retry: RnrRetry,
    /// The time the peer waits before each of them.
    pub min_rnr_timer: RnrTimer,
    /// The maximum round-trip time, twice the packet lifetime. Set by the connecting side.
    pub ack_timeout: AckTimeout,
    /// The time in which either side responds to a CM message. Set by the connecting side.
    pub response_timeout: ResponseTimeout,
    /// Retransmissions of a CM message, 0 to 15. Set by the connecting side.
    pub max_retries: u8,
    /// The service of a QP that the cm_id did not create.
    pub service: ServiceType,
    /// A QP that the cm_id did not create: the program modifies it.
    pub queue_pair: Option<Qpn>,
    /// Whether that QP has an SRQ.
    pub shared_receives: bool,
    /// The queue key of that QP, for UD.
    pub queue_key: QKey,
    /// ECE options, offered or accepted.
    #[doc(alias = "ibv_ece")]
    pub enhancements: Enhancements,
}

impl Default for ConnectParameters {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: 7,
            rnr_retry: RnrRetry::FOR_EVER,
            // 655 ms, as in Linux's connection manager.
            min_rnr_timer: RnrTimer::from_code(0).unwrap_or_default(),
            ack_timeout: AckTimeout(19),
            response_timeout: ResponseTimeout(20),
            max_retries: 15,
            service: ServiceType::ReliableConnection,
            queue_pair: None,
            shared_receives: false,
            queue_key: super::DATAGRAM_QUEUE_KEY,
            enhancements: Enhancements::default(),
        }
    }
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum DisconnectCause {
    /// This side disconnected.
    #[error("this side disconnected")]
    Local,
    /// The peer disconnected, or its program ended without having been killed.
    #[error("the peer disconnected")]
    Peer,
    /// The peer's process on this host has ended without disconnecting: it was killed.
    #[error("the peer's process has ended without disconnecting")]
    ProcessEnded,
    /// The peer does not answer any more: its process was killed, or its host or the network failed.
    #[error("the peer does not respond any more")]
    NoResponse,
    /// The peer does not know the connection any more: its process was killed, or it has given up the connection.
    #[error("the peer does not know the connection any more")]
    UnknownToPeer,
}

impl From<&Disconnection> for DisconnectCause {
    fn from(how: &Disconnection) -> Self {
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
