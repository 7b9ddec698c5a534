//! What can go wrong with a peer.

use std::fmt;
use std::io;
use std::path::Path;

/// Why a peer does not do what it should.
pub enum Error {
    /// It did not start.
    Start(String),
    /// It refused a request, or did not answer.
    Request {
        /// What was asked for.
        request: String,
        /// What it said.
        answer: String,
    },
    /// A command in a machine failed.
    Command {
        /// The shell's line.
        line: String,
        /// What it ended with: 124 for one that took too long.
        status: i32,
        /// What it wrote, both outputs.
        said: String,
    },
    /// A file, a program or a namespace here.
    Io {
        /// Which.
        what: String,
        /// Why.
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
            Self::Request { request, answer } => write!(f, "{request}: {answer}"),
            Self::Command { line, status, said } => {
                write!(f, "`{line}` in the peer ended with {status}:\n{said}")
            }
            Self::Io { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

// Tests unwrap it: what they print should be readable.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
