//! The ways to do the same work: the rows of the table.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How ranks reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Method {
    /// RDMA through memory that two processes share; only on one host
    #[value(name = "shared-memory")]
    RdmaSharedMemory,
    /// RDMA through sockets
    #[value(name = "wire")]
    RdmaWire,
    /// TCP
    Tcp,
}

impl Method {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::RdmaSharedMemory => "RDMA (shared memory)",
            Self::RdmaWire => "RDMA (wire)",
            Self::Tcp => "TCP",
        }
    }
}
