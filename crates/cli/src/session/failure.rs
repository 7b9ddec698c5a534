//! Errors as shown to users: what happened, where, and what to do.

use std::fmt;
use std::net::SocketAddr;

use ferroce::cm::RejectReason;
use ferroce::{CompletionKind, CopyError, Error, OutOfBounds, Status};

/// Why a job failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A library call failed.
    Verbs(Error),
    /// No server listens on this port.
    NoListener(SocketAddr),
    /// No host responds at this address.
    Unreachable(SocketAddr),
    /// The server refused the request and gave a reason.
    Refused(String),
    /// The peer's connection manager rejected the request.
    Rejected(SocketAddr, RejectReason),
    /// A work request failed.
    Work(CompletionKind, Status),
    /// The peer ended the connection.
    Disconnected,
    /// An expected message was not received within this many seconds.
    Timeout(&'static str, u64),
    /// The peer does not speak this protocol.
    IncompatiblePeer,
    /// Received data differs from the expected data.
    DataMismatch(String),
    /// Another error.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verbs(error) => error.fmt(f),
            Self::NoListener(at) => write!(
                f,
                "no server listens on {at}: start `ferroce server --listen {at}` there first"
            ),
            Self::Unreachable(at) => write!(
                f,
                "{ip} does not respond: check that the host is up, that `ferroce server` runs \
                 there, and that firewalls on the path allow UDP port 4791",
                ip = at.ip()
            ),
            Self::Refused(why) => write!(f, "the server refused the request: {why}"),
            Self::Rejected(at, reason) => write!(f, "{at} rejected the connection: {reason}"),
            Self::Work(kind, Status::RetryExceeded) => write!(
                f,
                "{}: retransmissions were not acknowledged: the peer or the route to it is down",
                name(*kind)
            ),
            Self::Work(kind, Status::RnrRetryExceeded) => {
                write!(
                    f,
                    "{}: the peer posted no receive in time (RNR retries exceeded)",
                    name(*kind)
                )
            }
            Self::Work(kind, Status::RemoteAccess) => {
                write!(
                    f,
                    "{}: remote access error, the peer's memory region does not allow it",
                    name(*kind)
                )
            }
            Self::Work(kind, status) => write!(f, "{} failed with {status:?}", name(*kind)),
            Self::Disconnected => f.write_str("the peer closed the connection"),
            Self::Timeout(what, seconds) => {
                write!(f, "{what} not received within {seconds} s")
            }
            Self::IncompatiblePeer => f.write_str(
                "the peer is not a compatible `ferroce`: use the same version on both sides",
            ),
            Self::DataMismatch(what) | Self::Other(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Failure {}

macro_rules! from_errors {
    ($($type:ty),+ $(,)?) => {$(
        impl From<$type> for Failure {
            fn from(error: $type) -> Self {
                Self::Verbs(error.into())
            }
        }
    )+};
}

from_errors! {
    ferroce::CreateError,
    ferroce::EnvironmentError,
    ferroce::MemoryError,
    ferroce::ModifyError,
    ferroce::OpenError,
    ferroce::PostError,
    ferroce::SystemError,
    ferroce::WaitError,
    ferroce::cm::Error,
    ferroce::setup::Error,
}

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<OutOfBounds> for Failure {
    fn from(error: OutOfBounds) -> Self {
        Self::Other(error.to_string())
    }
}

/// The name of an operation in verbs programs.
pub(crate) fn name(kind: CompletionKind) -> &'static str {
    match kind {
        CompletionKind::Send => "SEND",
        CompletionKind::Write => "RDMA_WRITE",
        CompletionKind::Read => "RDMA_READ",
        CompletionKind::CompareSwap => "COMP_SWAP",
        CompletionKind::FetchAdd => "FETCH_ADD",
        CompletionKind::Flush => "FLUSH",
        CompletionKind::AtomicWrite => "ATOMIC_WRITE",
        CompletionKind::LocalInvalidate => "LOCAL_INV",
        CompletionKind::Bind => "BIND_MW",
        CompletionKind::Receive => "RECV",
        CompletionKind::ReceiveWriteImmediate => "RECV_RDMA_WITH_IMM",
    }
}
