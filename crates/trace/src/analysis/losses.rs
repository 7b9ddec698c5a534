//! How many packets were lost: one count for the diagnosis, the report page and JSON.

use std::collections::HashMap;
use std::net::IpAddr;

use serde::Serialize;

use super::anomaly::AnomalyKind as Kind;
use super::flow::Flow;
use super::sink::ConversationTally;

/// Lost packets, by where they are missing. A gap in responses or in unreliable messages counts once, whatever its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Requests of reliable connections that are not in the capture.
    pub requests: u64,
    /// Gaps in the responses of the capture.
    pub responses: u64,
    /// Packets of the capture that did not reach their receiver.
    pub after_capture: u64,
    /// Gaps in unreliable messages.
    pub unreliable: u64,
}

impl Losses {
    /// All of them.
    pub const fn total(&self) -> u64 {
        let Self { requests, responses, after_capture, unreliable } = self;
        *requests + *responses + *after_capture + *unreliable
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.responses += other.responses;
        self.after_capture += other.after_capture;
        self.unreliable += other.unreliable;
    }

    /// The losses of one conversation. A reliable connection sends a packet that is late again, as if it were lost. On a path
    /// that reorders, this is loss only if it happens more often than reordering.
    pub(super) fn of(tally: &ConversationTally, path: PathCounts) -> Self {
        let unreliable = tally.count(Kind::MessageLost);
        if path.reordered > 0 && path.lost <= path.reordered {
            return Self { unreliable, ..Self::default() };
        }
        let doubtful = if path.reordered > 0 { tally.doubtful_requests } else { 0 };
        // A gap may hold several requests, and a request may be lost again.
        let requests = tally.lost_requests.max(tally.count(Kind::MissingRequest));
        Self {
            requests: requests.saturating_sub(doubtful),
            responses: tally.count(Kind::MissingResponse),
            after_capture: tally.count(Kind::LostAfterCapture),
            unreliable,
        }
    }
}

/// How many packets overtook each other, and how many seem to be lost, between two addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathCounts {
    reordered: u64,
    lost: u64,
}

/// The paths between two addresses.
#[derive(Debug, Default)]
pub(super) struct Paths(HashMap<(IpAddr, IpAddr), PathCounts>);

impl Paths {
    pub(super) fn of<'a>(
        conversations: impl Iterator<Item = (&'a Flow, &'a ConversationTally)>,
    ) -> Self {
        let mut paths: HashMap<_, PathCounts> = HashMap::new();
        for (flow, tally) in conversations {
            let path = paths.entry(Self::key(flow)).or_default();
            path.reordered += tally.count(Kind::Reordered);
            path.lost += tally.lost_requests.saturating_sub(tally.doubtful_requests);
            path.lost += tally.count(Kind::MissingResponse);
        }
        Self(paths)
    }

    pub(super) fn get(&self, flow: &Flow) -> PathCounts {
        self.0.get(&Self::key(flow)).copied().unwrap_or_default()
    }

    /// The two addresses, in the same order for both directions.
    fn key(flow: &Flow) -> (IpAddr, IpAddr) {
        let (a, b) = (flow.a.address, flow.b.address);
        if a < b { (a, b) } else { (b, a) }
    }
}
