//! How an exchange fails: each way has a name, and says in which phase.

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

/// What a response said that it must not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The server's queue pair has another transport than the client's.
    QpType,
    /// The path MTU is a reserved code, or above the one asked for.
    PathMtu,
    /// The queue pairs in CONNECTION_ACCEPT are not those of the request.
    QueuePairs,
    /// The memory keys in CONNECTION_ACCEPT are not those of the request.
    Keys,
    /// The longest message is none, or longer than asked for.
    MaxMessageSize,
    /// Timeout or retry counts are not those of the request, which the server may refuse but not change.
    Retries,
}

/// Why a client's exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// The server refused.
    Refused(Refused),
    /// No answer to any attempt.
    NoAnswer {
        /// The phase of the request.
        phase: Phase,
        /// How often it was sent.
        attempts: u8,
    },
    /// The server's response breaks the protocol.
    Violation {
        /// The phase of the response.
        phase: Phase,
        /// What is wrong with it.
        violation: Violation,
    },
    /// The client's own side gave up.
    Aborted(Refused),
}

/// Why an exchange failed, as the server saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refused: its owner, or the machine because the request breaks the protocol.
    Refused(Refused),
    /// The client was not heard of for [`ServerConfig::idle`](super::ServerConfig::idle).
    Silent {
        /// The phase the exchange was in.
        phase: Phase,
    },
    /// CONNECTION_ACCEPT was answered neither by CONNECTION_CONFIRM nor by data.
    Unconfirmed {
        /// How often it was sent.
        attempts: u8,
    },
    /// The client gave up and said so.
    Abandoned {
        /// Its reason.
        status: Status,
    },
}

/// A step was asked of a client that is not where the step can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongStep;

/// The server has no such request to be answered: it was answered already, or its exchange is over. Whatever was made
/// for it is to be released.
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
            Self::QpType => "the transport is not the one asked for",
            Self::PathMtu => "the path MTU is reserved or above the one asked for",
            Self::QueuePairs => "the queue pairs are not those of the request",
            Self::Keys => "the memory keys are not those of the request",
            Self::MaxMessageSize => "the longest message is none or longer than asked for",
            Self::Retries => "timeout or retry counts are not those of the request",
        })
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => write!(f, "refused in {refused}"),
            Self::NoAnswer { phase, attempts } => {
                write!(f, "{phase}: no answer to {attempts} attempts")
            }
            Self::Violation { phase, violation } => {
                write!(f, "{phase}: wrong response: {violation}")
            }
            Self::Aborted(refused) => write!(f, "given up in {refused}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => write!(f, "refused in {refused}"),
            Self::Silent { phase } => write!(f, "{phase}: the client is silent"),
            Self::Unconfirmed { attempts } => {
                write!(f, "CONNECTION_ACCEPT not confirmed in {attempts} attempts")
            }
            Self::Abandoned { status } => {
                write!(f, "given up by the client: status {status}, {}", Meaning(status))
            }
        }
    }
}

impl fmt::Display for WrongStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the exchange is not where this step can be made")
    }
}

impl fmt::Display for UnknownRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such request to be answered")
    }
}

impl core::error::Error for Refused {}
impl core::error::Error for SetupError {}
impl core::error::Error for Failure {}
impl core::error::Error for WrongStep {}
impl core::error::Error for UnknownRequest {}
