//! The ways of moving the bytes that are compared.

use serde::Serialize;

use super::control::Receiver;

/// A way of moving the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Method {
    /// RDMA WRITE, packets in memory that both processes share.
    RdmaSharedMemory,
    /// RDMA WRITE, packets in UDP sockets.
    RdmaWire,
    /// TCP, into the receiver's memory.
    Tcp,
    /// TCP; the receiver's kernel discards the bytes.
    TcpDiscard,
}

impl Method {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::RdmaSharedMemory => "RDMA WRITE (shared memory)",
            Self::RdmaWire => "RDMA WRITE (wire)",
            Self::Tcp => "TCP",
            Self::TcpDiscard => "TCP (discarded)",
        }
    }

    /// What happens to the bytes.
    pub(super) const fn description(self) -> &'static str {
        match self {
            Self::RdmaSharedMemory => {
                "packets through memory that both processes share, into the receiver's memory"
            }
            Self::RdmaWire => "packets through UDP sockets, into the receiver's memory",
            Self::Tcp => "send() and recv(), into the receiver's memory",
            Self::TcpDiscard => {
                "send() and recv() with MSG_TRUNC: the receiver's kernel discards the bytes \
                 without a copy, so this row moves less than the others"
            }
        }
    }

    pub(super) const fn is_rdma(self) -> bool {
        matches!(self, Self::RdmaSharedMemory | Self::RdmaWire)
    }

    /// Whether the bytes are in the receiver's memory afterwards.
    pub(super) const fn is_stored(self) -> bool {
        !matches!(self, Self::TcpDiscard)
    }

    pub(super) const fn receiver(self) -> Receiver {
        match self {
            Self::RdmaSharedMemory | Self::RdmaWire => Receiver::Rdma,
            Self::Tcp => Receiver::Tcp,
            Self::TcpDiscard => Receiver::TcpDiscard,
        }
    }
}
