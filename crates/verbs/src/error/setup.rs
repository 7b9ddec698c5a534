//! The set-up exchange.

use ferroce_proto::setup::SetupError;
use ferroce_sys::Error as SystemError;
use ferroce_sys::errno::{ECONNREFUSED, EINVAL, ENODEV, ETIMEDOUT};

use super::{ModifyError, OpenError, RouteError, WaitError};

/// Why a set-up exchange, or a call of its client or server, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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

impl Error {
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
