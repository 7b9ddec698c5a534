//! What `rdma_rxe` of Linux 6.1 does otherwise than the specification wants, as the program tells it.

use std::fmt;

/// What `rdma_rxe` is in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Asks,
    Answers,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Difference {
    pub(crate) role: Role,
    pub(crate) case: &'static str,
    pub(crate) what: &'static str,
}

impl Difference {
    pub(crate) fn line(&self) -> String {
        format!("{}: {}", self.case, self.what)
    }
}

/// As a row of the document.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Asks => "asks",
            Role::Answers => "answers",
        };
        write!(f, "| `{}` | {role} | {} |", self.case, self.what)
    }
}

const fn difference(role: Role, case: &'static str, what: &'static str) -> Difference {
    Difference { role, case, what }
}

use Role::{Answers, Asks};

#[rustfmt::skip]
pub(crate) const DIFFERENCES: &[Difference] = &[
    difference(Asks, "unaligned_atomic", "the request was not even taken"),
    difference(Asks, "bad_local_key_write", "the request ended with \"local QP operation error\", not \"local protection error\""),
    difference(Asks, "wrong_state", "a request was taken in RESET"),
    difference(Answers, "too_long", "send longer than the receive ended with \"remote operation error\", not \"remote invalid request error\""),
    difference(Answers, "too_long", "the receive ended with \"local QP operation error\", not \"local length error\""),
    difference(Answers, "bad_receive", "the receive ended with \"local QP operation error\", not \"local protection error\""),
    difference(Answers, "window_type_1", "write past the window's end ended with \"success\", not \"remote access error\""),
    difference(Answers, "window_type_2", "write past the window's end ended with \"success\", not \"remote access error\""),
    difference(Answers, "remote_invalidate", "the receive does not say that a key was invalidated: flags 5"),
    difference(Answers, "shared", "no event for the last receive"),
    difference(Answers, "wrong_state", "a request was taken in RESET"),
];
