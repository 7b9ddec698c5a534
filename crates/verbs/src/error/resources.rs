//! Resources: queue pairs, completion queues and shared receive queues, the routes of their packets, and memory.

use ferroce_memory::{DeregisterError, OutOfBounds, RegisterError, ReregisterError, WindowError};
use ferroce_proto::endpoint;
use ferroce_proto::memory::Denied;
use ferroce_proto::qp::{self, ServiceType, State};
use ferroce_sys::Error as SystemError;
use ferroce_sys::errno::{EINVAL, ENODEV, ENOMEM};

/// Why there is no route for an address vector.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The GID table has no entry of this index.
    #[error("sgid_index {index}: the table has {entries} {}", if *entries == 1 { "entry" } else { "entries" })]
    NoSuchGid {
        /// The index.
        index: u8,
        /// The entries of the table.
        entries: usize,
    },
    /// Source and destination are an IPv4 and an IPv6 address.
    #[error("source and destination are of different address families")]
    AddressFamily,
    /// The source is a loopback address and the destination is another host.
    #[error("packets from a loopback address reach this host only")]
    LoopbackSource,
    /// The MTU towards the destination is too small for RoCE's smallest packets.
    #[error(
        "the path MTU by {interface} is {mtu}, but RoCE needs at least 328; `ip link set {interface} mtu 1500`"
    )]
    MtuTooSmall {
        /// The interface.
        interface: String,
        /// The MTU.
        mtu: u32,
    },
    /// The operating system has no route.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl RouteError {
    /// Returns the number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::System(error) => error.errno(),
            _ => EINVAL,
        }
    }
}

/// Why a queue pair (QP), completion queue (CQ), shared receive queue (SRQ) or address handle (AH) was not created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The capacity of the CQ is 0 or above the device's limit.
    #[error("a completion queue holds 1 to {max} entries, not {given}")]
    CqeOutOfRange {
        /// The requested capacity.
        given: usize,
        /// [`Limits::max_cqe`](crate::Limits::max_cqe).
        max: usize,
    },
    /// A QP needs more of something than the device allows.
    #[error("{given} {what}; the device allows {max}")]
    AboveLimit {
        /// What it needs more of.
        what: &'static str,
        /// The requested number.
        given: u32,
        /// The limit, one of [`Limits`](crate::Limits).
        max: u32,
    },
    /// The SRQ has more work requests than the device allows.
    #[error("{given} work requests in a shared receive queue; the device allows {max}")]
    SharedReceiveQueueTooLong {
        /// The requested number.
        given: usize,
        /// [`Limits::max_qp_wr`](crate::Limits::max_qp_wr).
        max: usize,
    },
    /// XRC targets are created by [`XrcDomain::target`](crate::XrcDomain), all other QPs by a protection domain.
    #[error(
        "a queue pair of the service {service:?} is not created here: XRC targets belong to an XRC domain, others to a protection domain"
    )]
    WrongOwner {
        /// The requested service.
        service: ServiceType,
    },
    /// The process has used all QP and SRQ numbers of the device.
    #[error("the device has no free queue pair number")]
    NoQueueNumbers,
    /// There is no route for the address vector of the AH.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// There is no tokio runtime, or it has no I/O driver.
    #[error(
        "no tokio runtime watches file descriptors here; call it within a runtime with I/O enabled"
    )]
    NoIoDriver,
    /// The operating system refused a call.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl CreateError {
    /// Returns the number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::SharedReceiveQueueTooLong { .. } | Self::NoQueueNumbers => ENOMEM,
            Self::Route(error) => error.errno(),
            Self::System(error) => error.errno(),
            _ => EINVAL,
        }
    }
}

/// Why a completion queue (CQ) or shared receive queue (SRQ) was not resized: it holds more entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue holds more than {capacity} entries; take some out first")]
#[non_exhaustive]
pub struct ResizeError {
    /// The requested capacity.
    pub capacity: usize,
}

impl ResizeError {
    /// Returns the `errno` of a verbs program: `EINVAL`.
    pub fn errno(&self) -> i32 {
        EINVAL
    }
}

/// Why a queue pair (QP) was not modified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// The device has one port, 1.
    #[error("the device has no port {port}; its only port is 1")]
    NoSuchPort {
        /// The requested port.
        port: u8,
    },
    /// The device has one partition, at index 0 of its table.
    #[error("the P_Key table has no index {index}; its only index is 0")]
    NoSuchPartition {
        /// The requested index.
        index: u16,
    },
    /// More outstanding READs and atomics than the device allows.
    #[error("{given} outstanding READs and atomics; the device allows {max}")]
    TooManyRdAtomic {
        /// `max_rd_atomic` or `max_dest_rd_atomic`.
        given: u8,
        /// [`Limits::max_rd_atomic`](crate::Limits::max_rd_atomic).
        max: u8,
    },
    /// The state transition or an attribute is not allowed (IBA 10.3.1, 11.2.5.2).
    #[error(transparent)]
    Attributes(#[from] qp::ModifyError),
    /// There is no route for the address vector.
    #[error(transparent)]
    Route(#[from] RouteError),
}

impl ModifyError {
    /// Returns the number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Route(error) => error.errno(),
            _ => EINVAL,
        }
    }
}

/// Why a work request (WR) was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The QP's state takes no send requests, or the service has no send queue.
    #[error("the queue pair is in {state}, it needs RTS")]
    SendState {
        /// The state.
        state: State,
    },
    /// The QP's state takes no receive requests.
    #[error("the queue pair is in {state}, it needs INIT, RTR or RTS, and a receive queue")]
    ReceiveState {
        /// The state.
        state: State,
    },
    /// The send queue (SQ) is full.
    #[error("the send queue is full; poll its completions first")]
    SendQueueFull,
    /// The receive queue (RQ) or shared receive queue (SRQ) is full.
    #[error("the receive queue is full; poll its completions first")]
    ReceiveQueueFull,
    /// The QP receives from an SRQ.
    #[error("the queue pair receives from a shared receive queue; post there")]
    HasSharedReceiveQueue,
    /// More SGEs than the queue was created for.
    #[error("the work request has {given} SGEs; the queue was created for {max}")]
    TooManySges {
        /// SGEs of the request.
        given: usize,
        /// `max_send_sge` or `max_recv_sge`.
        max: usize,
    },
    /// More inline data than the send queue was created for.
    #[error("the work request has {given} bytes of inline data; the queue was created for {max}")]
    TooMuchInlineData {
        /// Bytes of the request.
        given: usize,
        /// `max_inline_data`.
        max: usize,
    },
    /// The message is too long for the service, or an atomic operation is not of 8 bytes.
    #[error("the message is too long for the service, or the atomic operation is not of 8 bytes")]
    Length,
    /// The service does not have the operation.
    #[error("the service does not have this operation")]
    Operation,
    /// UD requests need an address handle, XRC requests a remote SRQ number, others neither.
    #[error("UD requests need an address handle, XRC requests a remote SRQ number, others neither")]
    Address,
}

impl PostError {
    /// Returns the number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::SendQueueFull | Self::ReceiveQueueFull => ENOMEM,
            _ => EINVAL,
        }
    }

    /// The error of a QP in this state.
    #[cold]
    pub(crate) fn of(error: endpoint::PostError, state: State) -> Self {
        match error {
            endpoint::PostError::State => Self::SendState { state },
            endpoint::PostError::Full => Self::SendQueueFull,
            endpoint::PostError::Length => Self::Length,
            endpoint::PostError::Operation => Self::Operation,
            endpoint::PostError::Address => Self::Address,
        }
    }
}

/// Why a queue pair (QP) was not attached to a multicast group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MulticastError {
    /// Only UD queue pairs receive multicast.
    #[error("only UD queue pairs receive multicast")]
    NotDatagram,
    /// The GID is not that of a multicast group.
    #[error("the address is not a multicast address")]
    NotMulticast,
    /// The QP is in as many groups as the device allows.
    #[error("the queue pair is in {max} multicast groups; the device allows no more")]
    TooManyGroups {
        /// [`Limits::max_mcast_grp`](crate::Limits::max_mcast_grp).
        max: u32,
    },
    /// The operating system refused to join the group.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl MulticastError {
    /// Returns the number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotDatagram | Self::NotMulticast => EINVAL,
            Self::TooManyGroups { .. } => ENOMEM,
            Self::System(error) => error.errno(),
        }
    }
}

/// Why waiting for a completion or an event failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The CQ has no completion channel.
    #[error("the completion queue has no completion channel; create it with one to wait")]
    NoChannel,
    /// The device or the tokio runtime was closed.
    #[error("the device is closed")]
    Closed,
    /// The operating system refused a call.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl WaitError {
    /// Returns the number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoChannel => EINVAL,
            Self::Closed => ENODEV,
            Self::System(error) => error.errno(),
        }
    }
}

/// Why a memory region (MR) or memory window (MW) was not registered, changed or deregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The allocation failed.
    #[error("cannot allocate {length} bytes")]
    Allocate {
        /// The requested length.
        length: usize,
    },
    /// The region was not registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The region was not changed.
    #[error(transparent)]
    Reregister(#[from] ReregisterError),
    /// The region is still registered.
    #[error(transparent)]
    Deregister(#[from] DeregisterError),
    /// The window was not allocated.
    #[error(transparent)]
    Window(#[from] WindowError),
}

impl MemoryError {
    /// Returns the number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Allocate { .. } => ENOMEM,
            Self::Register(error) => error.errno(),
            Self::Reregister(error) => error.errno(),
            Self::Deregister(error) => error.errno(),
            Self::Window(error) => error.errno(),
        }
    }
}

/// Why bytes were not copied into or out of a memory region (MR).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The part is not within the region.
    #[error("the part is not within the memory region")]
    OutOfBounds,
    /// The memory was registered by address, and not for writing.
    #[error("the memory was registered without LOCAL_WRITE")]
    ReadOnly,
    /// The program has unmapped the memory or changed its protection.
    #[error("the registered memory is not mapped any more, or not with these permissions")]
    Unmapped,
}

impl CopyError {
    /// The region exists and the part is within it.
    pub(crate) fn from_denied(denied: Denied) -> Self {
        match denied {
            Denied::Access => Self::ReadOnly,
            _ => Self::Unmapped,
        }
    }
}

impl From<OutOfBounds> for CopyError {
    fn from(_: OutOfBounds) -> Self {
        Self::OutOfBounds
    }
}
