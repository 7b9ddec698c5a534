//! Connecting queue pairs: the connection manager and the set-up exchange.

use ferroce_proto::cm::PrivateDataTooLong;
use ferroce_proto::qp::{PathMtu, State};
use ferroce_proto::setup::SetupError;
use ferroce_sys::Error as SystemError;
use ferroce_sys::errno::{EBUSY, ECONNREFUSED, EINVAL, ENODEV, ENOMEM, ENOTCONN, ETIMEDOUT};
use ferroce_wire::cm::RejectReason;
use ferroce_wire::rdmacm::PortSpace;

use super::{CreateError, ModifyError, MulticastError, OpenError, RouteError, WaitError};

/// Why a call of the connection manager (CM) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// The cm_id is not in a state for this call.
    #[error("{reason}")]
    WrongState {
        /// What the call requires.
        reason: &'static str,
    },
    /// The cm_id has no device: its address is neither bound nor resolved.
    #[error("the cm_id has no device yet; resolve or bind an address first")]
    NoDevice,
    /// No device has an address of this family.
    #[error("no device has an address of this family")]
    NoAddressOfFamily,
    /// The port space of IP over InfiniBand does not exist on RoCE.
    #[error("RoCE has no IP over InfiniBand")]
    Ipoib,
    /// The requested path MTU is larger than the path's.
    #[error("a path MTU of {given:?} is invalid; the path allows {max:?}")]
    PathMtu {
        /// The requested path MTU.
        given: PathMtu,
        /// The path MTU of the device and the route.
        max: PathMtu,
    },
    /// The cm_id has no QP, and the parameters name none.
    #[error("the connection has no queue pair")]
    NoQueuePair,
    /// The cm_id has a QP already.
    #[error("the cm_id has a queue pair already; destroy it first")]
    HasQueuePair,
    /// The PD belongs to another device than the cm_id.
    #[error("the protection domain belongs to another device than the cm_id")]
    ForeignPd,
    /// The QP's service does not fit the port space or the call.
    #[error("a queue pair of this service cannot be used in the port space {space:?}")]
    Service {
        /// The port space of the cm_id.
        space: PortSpace,
    },
    /// The private data does not fit into the CM message.
    #[error("the private data does not fit into the message")]
    PrivateDataTooLong,
    /// A connection has no QP attributes for this state.
    #[error("a connection has no queue pair attributes for the state {state:?}")]
    NoAttributes {
        /// The state.
        state: State,
    },
    /// The peer gave up before this side responded.
    #[error("the peer has given up")]
    PeerGaveUp,
    /// This side responded later than the peer waits.
    #[error("the program took longer to respond than the peer waits")]
    ResponseTooLate,
    /// The peer rejected the connection.
    #[error("the peer rejected the connection: {reason}")]
    Rejected {
        /// The reason.
        reason: RejectReason,
    },
    /// The peer did not respond, or has no UD queue pair for the service.
    #[error("the peer does not respond")]
    Unreachable,
    /// The deadline has passed.
    #[error("the deadline has passed")]
    TimedOut,
    /// The connection has ended.
    #[error("the connection has ended")]
    Disconnected,
    /// The peer's QP is in another connection.
    #[error("the peer's queue pair is in another connection")]
    StaleConnection,
    /// The device has no free connection or SIDR request.
    #[error("the device allows no more {what}")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
    },
    /// A device was not found or not opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no route to the peer.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The QP was not created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The QP was not modified.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The QP was not attached to a multicast group.
    #[error(transparent)]
    Multicast(#[from] MulticastError),
    /// Waiting for an event failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The operating system refused a call.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl CmError {
    /// Returns the number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Rejected { .. } => ECONNREFUSED,
            Self::Unreachable | Self::TimedOut => ETIMEDOUT,
            Self::Disconnected => ENOTCONN,
            Self::HasQueuePair => EBUSY,
            Self::TooMany { .. } => ENOMEM,
            Self::Open(error) => error.errno(),
            Self::Route(error) => error.errno(),
            Self::Create(error) => error.errno(),
            Self::Modify(error) => error.errno(),
            Self::Multicast(error) => error.errno(),
            Self::Wait(error) => error.errno(),
            Self::System(error) => error.errno(),
            _ => EINVAL,
        }
    }
}

impl From<PrivateDataTooLong> for CmError {
    fn from(_: PrivateDataTooLong) -> Self {
        Self::PrivateDataTooLong
    }
}

/// Why a set-up exchange, or a call of its client or server, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupExchangeError {
    /// The peer refused, did not respond, or broke the protocol.
    #[error(transparent)]
    Exchange(#[from] SetupError),
    /// The exchange is in another phase than this call belongs to.
    #[error("the exchange is not in the phase of this step")]
    WrongStep,
    /// The exchange has no such request, or no longer.
    #[error("the exchange has no such request any more")]
    UnknownRequest,
    /// The two ends of an XRC connection differ: the exchange does not set them up.
    #[error("the set-up exchange has no XRC queue pairs; modify them step by step")]
    Xrc,
    /// The device is closed, or the process is a child that has not opened it.
    #[error("the device is closed")]
    Closed,
    /// The device does not have the address.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no route to the peer.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The QP was not modified.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// Waiting for an event failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The operating system refused a call.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl SetupExchangeError {
    /// Returns the number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Exchange(SetupError::NoAnswer { .. }) => ETIMEDOUT,
            Self::Exchange(_) => ECONNREFUSED,
            Self::Closed => ENODEV,
            Self::Open(error) => error.errno(),
            Self::Route(error) => error.errno(),
            Self::Modify(error) => error.errno(),
            Self::Wait(error) => error.errno(),
            Self::System(error) => error.errno(),
            _ => EINVAL,
        }
    }
}
