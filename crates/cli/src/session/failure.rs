//! What goes wrong, told to a person: what, where, and what to do about it.

use std::fmt;
use std::net::SocketAddr;

use ferroce::cm::RejectReason;
use ferroce::{CompletionKind, Error, OutOfBounds, Status};

/// Why a job is not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A call was refused.
    Verbs(Error),
    /// Nobody is at this port.
    NoListener(SocketAddr),
    /// Nobody answers at this address.
    Silent(SocketAddr),
    /// The server has said no, and why.
    Refused(String),
    /// The peer's connection manager has said no.
    Rejected(SocketAddr, RejectReason),
    /// A work request did not succeed.
    Work(CompletionKind, Status),
    /// The peer ended the connection.
    Gone,
    /// Nothing came for so many seconds.
    Late(&'static str, u64),
    /// The peer says what no server of ours says.
    Stranger,
    /// Bytes are not what they should be.
    Wrong(String),
    /// Something else.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verbs(error) => error.fmt(f),
            Self::NoListener(at) => write!(
                f,
                "nobody listens at {at}: start `ferroce server --listen {at}` there first"
            ),
            Self::Silent(at) => write!(
                f,
                "{ip} does not answer: is it up, does `ferroce server` run there, and does every \
                 firewall on the way let UDP port 4791 through?",
                ip = at.ip()
            ),
            Self::Refused(why) => write!(f, "the server refuses: {why}"),
            Self::Rejected(at, reason) => write!(f, "{at} rejects the connection: {reason}"),
            Self::Work(kind, Status::RetryExceeded) => write!(
                f,
                "{} was sent again and again, and no answer came: the peer or the way to it is gone",
                name(*kind)
            ),
            Self::Work(kind, Status::RnrRetryExceeded) => {
                write!(f, "{} found the peer never ready to receive", name(*kind))
            }
            Self::Work(kind, Status::RemoteAccess) => {
                write!(f, "{}: the peer's memory does not allow it", name(*kind))
            }
            Self::Work(kind, status) => write!(f, "{} ended with {status:?}", name(*kind)),
            Self::Gone => f.write_str("the peer has ended the connection"),
            Self::Late(what, seconds) => {
                write!(f, "{what} did not come within {seconds} s")
            }
            Self::Stranger => f.write_str("the peer is no program of this kind or version"),
            Self::Wrong(what) | Self::Other(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Verbs(error)
    }
}

impl From<OutOfBounds> for Failure {
    fn from(error: OutOfBounds) -> Self {
        Self::Other(error.to_string())
    }
}

/// An operation as verbs programs call it.
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
