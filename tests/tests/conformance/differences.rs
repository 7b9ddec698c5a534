//! Where `rdma_rxe` of Linux 6.1 deviates from the specification, in the words that the program prints.

use std::fmt;

/// The role of `rdma_rxe` in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Requester,
    Responder,
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
            Role::Requester => "requester",
            Role::Responder => "responder",
        };
        write!(f, "| `{}` | {role} | {} |", self.case, self.what)
    }
}

const fn difference(role: Role, case: &'static str, what: &'static str) -> Difference {
    Difference { role, case, what }
}

use Role::{Requester, Responder};

#[rustfmt::skip]
pub(crate) const DIFFERENCES: &[Difference] = &[
    difference(Requester, "unaligned_atomic", "the request was not even taken"),
    difference(Requester, "bad_local_key_write", "the request ended with \"local QP operation error\", not \"local protection error\""),
    difference(Requester, "wrong_state", "a request was taken in RESET"),
    difference(Responder, "too_long", "send longer than the receive ended with \"remote operation error\", not \"remote invalid request error\""),
    difference(Responder, "too_long", "the receive ended with \"local QP operation error\", not \"local length error\""),
    difference(Responder, "bad_receive", "the receive ended with \"local QP operation error\", not \"local protection error\""),
    difference(Responder, "window_type_1", "write past the window's end ended with \"success\", not \"remote access error\""),
    difference(Responder, "window_type_2", "write past the window's end ended with \"success\", not \"remote access error\""),
    difference(Responder, "remote_invalidate", "the receive does not say that a key was invalidated: flags 5"),
    difference(Responder, "shared", "no event for the last receive"),
    difference(Responder, "wrong_state", "a request was taken in RESET"),
];
