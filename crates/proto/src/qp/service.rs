//! The services, and what each has.

use core::fmt;

use ferroce_wire::opcode::Transport;

use super::state::State;

/// What a queue pair offers its owner. XRC's two ends are different services, for each has only half of a queue pair
/// (IBA A14).
#[doc(alias = "ibv_qp_type")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceType {
    /// RC: acknowledged, in order, exactly once, with one peer.
    ReliableConnection,
    /// UC: in order or lost, with one peer.
    UnreliableConnection,
    /// UD: single packets, with anyone who has the queue key.
    UnreliableDatagram,
    /// XRC's sending end: it has a send queue only.
    #[doc(alias = "IBV_QPT_XRC_SEND")]
    XrcInitiator,
    /// XRC's receiving end: it has no queue, messages name a shared receive queue of its domain.
    #[doc(alias = "IBV_QPT_XRC_RECV")]
    XrcTarget,
}

impl ServiceType {
    /// All of them.
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

    /// The name in words.
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

    /// Whether it belongs to one peer, whose queue pair it names.
    pub const fn is_connected(self) -> bool {
        !matches!(self, Self::UnreliableDatagram)
    }

    /// Whether work can be posted for it to send.
    pub const fn has_send_queue(self) -> bool {
        !matches!(self, Self::XrcTarget)
    }

    /// Whether receives can be posted to it. An XRC target takes them from the shared receive queue that each message
    /// names (IBA A14).
    pub const fn has_receive_queue(self) -> bool {
        !matches!(self, Self::XrcInitiator | Self::XrcTarget)
    }

    /// Whether it executes requests of a peer.
    pub const fn accepts_requests(self) -> bool {
        !matches!(self, Self::XrcInitiator)
    }

    /// Whether requests are acknowledged, and sent again until they are.
    pub const fn acknowledges(self) -> bool {
        !matches!(self, Self::UnreliableConnection | Self::UnreliableDatagram)
    }

    /// Whether it answers requests of a peer.
    pub const fn responds(self) -> bool {
        self.acknowledges() && self.accepts_requests()
    }

    /// Whether RDMA WRITE is part of it (IBA table 38).
    pub const fn has_rdma_write(self) -> bool {
        self.is_connected()
    }

    /// Whether RDMA READ is part of it: only where there are responses to carry the data.
    pub const fn has_rdma_read(self) -> bool {
        self.acknowledges()
    }

    /// Whether atomics are part of it: only where there are responses to carry the original value.
    pub const fn has_atomics(self) -> bool {
        self.acknowledges()
    }

    /// Whether a queue pair of this service can ever be in the state: SQE is only for those that do not acknowledge.
    /// Where requests are acknowledged, one that fails leaves the two ends apart and the connection is lost: straight
    /// to ERR (IBA 10.3.1.6).
    pub const fn has_state(self, state: State) -> bool {
        !matches!(state, State::SendQueueError) || !self.acknowledges()
    }
}

impl fmt::Display for ServiceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
