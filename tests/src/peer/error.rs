//! Errors of a peer.

use std::fmt;
use std::io;
use std::path::Path;

/// An error of a peer.
pub enum Error {
    /// It did not start.
    Start(String),
    /// It refused a request, or did not respond.
    Request {
        /// The request.
        request: String,
        /// The response.
        response: String,
    },
    /// A command in a machine failed.
    Command {
        /// The shell command.
        line: String,
        /// The exit status: 124 after a timeout.
        status: i32,
        /// Standard output and standard error.
        said: String,
    },
    /// An I/O error on our side.
    Io {
        /// The file, program or namespace.
        what: String,
        /// The error.
        error: io::Error,
    },
}

impl Error {
    pub(super) fn io(what: impl AsRef<Path>, error: io::Error) -> Self {
        Self::Io { what: what.as_ref().display().to_string(), error }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(reason) => write!(f, "the peer did not start: {reason}"),
            Self::Request { request, response } => write!(f, "{request}: {response}"),
            Self::Command { line, status, said } => {
                write!(f, "`{line}` in the peer ended with {status}:\n{said}")
            }
            Self::Io { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

// Tests unwrap it, so its debug format should be readable.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
