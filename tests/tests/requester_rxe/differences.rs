//! The allowed differences between our requests and rdma_rxe's.
//!
//! Each has its section, with the reason, in `docs/differences-from-rxe.md`.

use std::collections::BTreeMap;

use crate::replay::{Outcome, Pace};

/// How a request may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    /// Ours requests an acknowledgement, theirs does not.
    ExtraAckRequest,
    /// Theirs requests an acknowledgement, ours does not.
    MissingAckRequest,
    /// rdma_rxe's was captured after one that we sent later.
    Later,
    /// rdma_rxe's was captured again, and we have no reason to retransmit it.
    Repeated,
    /// We sent one that was not captured.
    NotCaptured,
}

/// A known and explained difference.
pub(crate) struct Allowed {
    /// The title of its section in the document.
    pub(crate) name: &'static str,
    /// The captures in which it occurs, with exact counts: if our requester sends immediately, and if it sends when
    /// rdma_rxe did.
    pub(crate) captures: &'static [(&'static str, Difference, usize, usize)],
}

pub(crate) const ALLOWED: &[Allowed] = &[
    Allowed {
        name: "ACK request within a message",
        captures: &[("write_65536_mtu1024", Difference::ExtraAckRequest, 6, 6)],
    },
    Allowed {
        name: "Requests duplicated by the network",
        captures: &[("duplicate", Difference::Repeated, 13, 13)],
    },
    Allowed {
        name: "Requests reordered by the network",
        captures: &[("reorder", Difference::Later, 85, 84)],
    },
    Allowed {
        name: "Requests lost before the capture",
        captures: &[("loss_requests", Difference::NotCaptured, 5, 5)],
    },
    Allowed {
        name: "Going back immediately",
        captures: &[
            ("loss_requests", Difference::Later, 12, 11),
            ("loss_requests", Difference::Repeated, 4, 5),
            ("reorder", Difference::Repeated, 0, 1),
        ],
    },
    Allowed {
        name: "Going back for every gap",
        captures: &[("reorder", Difference::NotCaptured, 9, 13)],
    },
];

/// Returns the errors of a capture's exchanges: differences that are not allowed, and allowed ones that occurred more
/// or less often than expected.
pub(crate) fn judge(capture: &str, pace: Pace, outcomes: &[&Outcome]) -> Vec<String> {
    let mut wrong: Vec<String> = outcomes.iter().filter_map(|one| one.wrong.clone()).collect();
    let mut found: BTreeMap<Difference, usize> = BTreeMap::new();
    for (&difference, count) in outcomes.iter().flat_map(|one| &one.differences) {
        *found.entry(difference).or_default() += count;
    }
    let mut known: BTreeMap<Difference, usize> = BTreeMap::new();
    for (_, difference, immediate, as_captured) in
        ALLOWED.iter().flat_map(|one| one.captures).filter(|(name, ..)| *name == capture)
    {
        let count = match pace {
            Pace::Immediate => *immediate,
            Pace::AsCaptured => *as_captured,
        };
        *known.entry(*difference).or_default() += count;
    }
    known.retain(|_, count| *count > 0);
    if found != known {
        wrong.push(format!("differences are {found:?}, not {known:?}"));
    }
    wrong
}
