//! Errors of an exchange, with the phase in which they occur.

use core::fmt;

use ferroce_wire::field::Meaning;
use ferroce_wire::setup::{Phase, Status};

/// A response with a status other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The phase of the request.
    pub phase: Phase,
    /// The reason.
    pub status: Status,
}

/// A protocol violation in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The server's QP has another transport than the client's.
    QpType,
    /// The path MTU is a reserved code, or larger than requested.
    PathMtu,
    /// The QPs in CONNECTION_ACCEPT are not those of the request.
    QueuePairs,
    /// The memory keys in CONNECTION_ACCEPT are not those of the request.
    Keys,
    /// The maximum message size is zero, or larger than requested.
    MaxMessageSize,
    /// Timeout or retry counts differ from the request; the server may refuse them but not change them.
    Retries,
}

/// Why a client's exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// The server refused.
    Refused(Refused),
    /// No response to any attempt.
    NoAnswer {
        /// The phase of the request.
        phase: Phase,
        /// Number of attempts.
        attempts: u8,
    },
    /// The server's response violates the protocol.
    Violation {
        /// The phase of the response.
        phase: Phase,
        /// The violation.
        violation: Violation,
    },
    /// The client aborted.
    Aborted(Refused),
}

/// Why an exchange failed, on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refused: its owner did, or the request violates the protocol.
    Refused(Refused),
    /// No message from the client for [`ServerConfig::idle`](super::ServerConfig::idle).
    Silent {
        /// The phase the exchange was in.
        phase: Phase,
    },
    /// CONNECTION_ACCEPT was followed neither by CONNECTION_CONFIRM nor by data.
    Unconfirmed {
        /// Number of attempts.
        attempts: u8,
    },
    /// The client aborted.
    Abandoned {
        /// The client's status.
        status: Status,
    },
}

/// The step is not valid in the client's current phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongStep;

/// The server has no such pending request: it was answered already, or its exchange ended. Release whatever was
/// created for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRequest;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: status {}, {}", self.phase, self.status, Meaning(&self.status))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QpType => "the transport is not the requested one",
            Self::PathMtu => "the path MTU is reserved or larger than requested",
            Self::QueuePairs => "the queue pairs are not those of the request",
            Self::Keys => "the memory keys are not those of the request",
            Self::MaxMessageSize => "the maximum message size is zero or larger than requested",
            Self::Retries => "timeout or retry counts are not those of the request",
        })
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => write!(f, "refused in {refused}"),
            Self::NoAnswer { phase, attempts } => {
                write!(f, "{phase}: no response after {attempts} attempts")
            }
            Self::Violation { phase, violation } => {
                write!(f, "{phase}: wrong response: {violation}")
            }
            Self::Aborted(refused) => write!(f, "aborted in {refused}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => write!(f, "refused in {refused}"),
            Self::Silent { phase } => write!(f, "{phase}: no message from the client"),
            Self::Unconfirmed { attempts } => {
                write!(f, "CONNECTION_ACCEPT not confirmed in {attempts} attempts")
            }
            Self::Abandoned { status } => {
                write!(f, "aborted by the client: status {status}, {}", Meaning(status))
            }
        }
    }
}

impl fmt::Display for WrongStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the step is not valid in this phase of the exchange")
    }
}

impl fmt::Display for UnknownRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such pending request")
    }
}

impl core::error::Error for Refused {}
impl core::error::Error for SetupError {}
impl core::error::Error for Failure {}
impl core::error::Error for WrongStep {}
impl core::error::Error for UnknownRequest {}
