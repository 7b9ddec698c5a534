//! The service types and their features.

use core::fmt;

use ferroce_wire::opcode::Transport;

use super::state::State;

/// The service type of a QP. XRC initiator and target are different services, since each has only half of a QP (IBA
/// A14).
#[doc(alias = "ibv_qp_type")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceType {
    /// RC: acknowledged, in order, exactly once, with one peer.
    ReliableConnection,
    /// UC: in order or lost, with one peer.
    UnreliableConnection,
    /// UD: single packets, with any peer that has the Q_Key.
    UnreliableDatagram,
    /// XRC initiator: it has only a send queue.
    #[doc(alias = "IBV_QPT_XRC_SEND")]
    XrcInitiator,
    /// XRC target: it has no queue; messages name an SRQ of its XRC domain.
    #[doc(alias = "IBV_QPT_XRC_RECV")]
    XrcTarget,
}

impl ServiceType {
    /// All service types.
    pub const ALL: [Self; 5] = [
        Self::ReliableConnection,
        Self::UnreliableConnection,
        Self::UnreliableDatagram,
        Self::XrcInitiator,
        Self::XrcTarget,
    ];

    /// The short name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReliableConnection => "RC",
            Self::UnreliableConnection => "UC",
            Self::UnreliableDatagram => "UD",
            Self::XrcInitiator => "XRC INI",
            Self::XrcTarget => "XRC TGT",
        }
    }

    /// The full name.
    pub const fn words(self) -> &'static str {
        match self {
            Self::ReliableConnection => "reliable connection",
            Self::UnreliableConnection => "unreliable connection",
            Self::UnreliableDatagram => "unreliable datagram",
            Self::XrcInitiator => "extended reliable connection, initiator",
            Self::XrcTarget => "extended reliable connection, target",
        }
    }

    /// The name in `ibv_qp_type`.
    pub const fn verbs_name(self) -> &'static str {
        match self {
            Self::ReliableConnection => "IBV_QPT_RC",
            Self::UnreliableConnection => "IBV_QPT_UC",
            Self::UnreliableDatagram => "IBV_QPT_UD",
            Self::XrcInitiator => "IBV_QPT_XRC_SEND",
            Self::XrcTarget => "IBV_QPT_XRC_RECV",
        }
    }

    /// The transport of its packets.
    pub const fn transport(self) -> Transport {
        match self {
            Self::ReliableConnection => Transport::ReliableConnection,
            Self::UnreliableConnection => Transport::UnreliableConnection,
            Self::UnreliableDatagram => Transport::UnreliableDatagram,
            Self::XrcInitiator | Self::XrcTarget => Transport::ExtendedReliableConnection,
        }
    }

    /// Whether it is connected to one peer QP.
    pub const fn is_connected(self) -> bool {
        !matches!(self, Self::UnreliableDatagram)
    }

    /// Whether sends can be posted.
    pub const fn has_send_queue(self) -> bool {
        !matches!(self, Self::XrcTarget)
    }

    /// Whether receives can be posted. An XRC target takes them from the SRQ that each message names (IBA A14).
    pub const fn has_receive_queue(self) -> bool {
        !matches!(self, Self::XrcInitiator | Self::XrcTarget)
    }

    /// Whether it executes requests of a peer.
    pub const fn accepts_requests(self) -> bool {
        !matches!(self, Self::XrcInitiator)
    }

    /// Whether requests are acknowledged, and retransmitted until they are.
    pub const fn acknowledges(self) -> bool {
        !matches!(self, Self::UnreliableConnection | Self::UnreliableDatagram)
    }

    /// Whether it responds to requests of a peer.
    pub const fn responds(self) -> bool {
        self.acknowledges() && self.accepts_requests()
    }

    /// Whether it has RDMA WRITE (IBA table 38).
    pub const fn has_rdma_write(self) -> bool {
        self.is_connected()
    }

    /// Whether it has RDMA READ, which needs responses.
    pub const fn has_rdma_read(self) -> bool {
        self.acknowledges()
    }

    /// Whether it has atomics, which need responses.
    pub const fn has_atomics(self) -> bool {
        self.acknowledges()
    }

    /// Whether a QP of this service can be in the state. Only services without ACKs have SQE: otherwise a failed
    /// request leaves the two sides out of sync, and the QP enters ERR (IBA 10.3.1.6).
    pub const fn has_state(self, state: State) -> bool {
        !matches!(state, State::SendQueueError) || !self.acknowledges()
    }
}

impl fmt::Display for ServiceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
