//! Why a rank cannot go on.

use std::fmt;
use std::time::Duration;

use ferroce::{OutOfBounds, Status};

use crate::session::failure::Failure;

/// Why a rank cannot go on.
#[derive(Debug)]
pub(super) enum Fault {
    /// Ranks sent nothing that this rank waits for.
    Late { ranks: Vec<usize>, what: &'static str, timeout: Duration },
    /// The connection to a rank failed.
    Peer { rank: usize, what: String },
    /// A result is wrong.
    Wrong(String),
    /// Another failure of this rank.
    Other(Failure),
}

/// "rank 3", or "ranks 1, 2 and 3".
pub(super) fn names(ranks: &[usize]) -> String {
    let words: Vec<_> = ranks.iter().map(ToString::to_string).collect();
    match words.as_slice() {
        [] => "no rank".into(),
        [one] => format!("rank {one}"),
        [first @ .., last] => format!("ranks {} and {last}", first.join(", ")),
    }
}

impl Fault {
    /// A work request to or from a rank that failed.
    pub(super) fn work(rank: usize, status: Status) -> Self {
        let what = match status {
            Status::RetryExceeded => {
                "retransmissions were not acknowledged (retry exceeded)".to_owned()
            }
            Status::Flushed => "the connection was closed".to_owned(),
            status => format!("a work request failed with {status:?}"),
        };
        Self::Peer { rank, what }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late { ranks, what, timeout } => {
                let verb = if ranks.len() == 1 { "is" } else { "are" };
                let seconds = timeout.as_secs_f64();
                write!(f, "{} {verb} late: no {what} within {seconds} s", names(ranks))
            }
            Self::Peer { rank, what } => write!(f, "rank {rank} is gone: {what}"),
            Self::Wrong(what) => write!(f, "wrong result: {what}"),
            Self::Other(failure) => failure.fmt(f),
        }
    }
}

impl<E: Into<Failure>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// Requires a result to be correct.
pub(super) fn check(correct: bool, what: impl FnOnce() -> String) -> Result<(), Fault> {
    if correct { Ok(()) } else { Err(Fault::Wrong(what())) }
}

/// The failure of an offset that a workload computed.
pub(super) fn out_of_bounds() -> Fault {
    Fault::from(OutOfBounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_in_words() {
        assert_eq!(names(&[3]), "rank 3");
        assert_eq!(names(&[1, 2]), "ranks 1 and 2");
        assert_eq!(names(&[1, 2, 7]), "ranks 1, 2 and 7");
    }

    #[test]
    fn messages_name_the_rank() {
        let timeout = Duration::from_millis(500);
        let late = Fault::Late { ranks: vec![2], what: "signal", timeout };
        assert_eq!(late.to_string(), "rank 2 is late: no signal within 0.5 s");
        let gone = Fault::work(1, Status::RetryExceeded).to_string();
        assert!(gone.starts_with("rank 1 is gone: "), "{gone}");
    }
}
