//! What a topic consists of.

use ferroce::State;
use ferroce_proto::cm;
use serde::Serialize;

use super::lab::Scenario;

/// The groups of topics, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Group {
    Operation,
    Transport,
    Header,
    Status,
    State,
    Connection,
    Counter,
    Term,
}

impl Group {
    pub(super) const ALL: [Self; 8] = [
        Self::Operation,
        Self::Transport,
        Self::Header,
        Self::Status,
        Self::State,
        Self::Connection,
        Self::Counter,
        Self::Term,
    ];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Operation => "Operations",
            Self::Transport => "Transports",
            Self::Header => "Headers",
            Self::Status => "Completion statuses",
            Self::State => "QP states",
            Self::Connection => "Connection states (CM)",
            Self::Counter => "Counters",
            Self::Term => "Terms",
        }
    }

    /// One of the group.
    pub(super) const fn singular(self) -> &'static str {
        match self {
            Self::Operation => "operation",
            Self::Transport => "transport",
            Self::Header => "header",
            Self::Status => "completion status",
            Self::State => "QP state",
            Self::Connection => "connection state",
            Self::Counter => "counter",
            Self::Term => "term",
        }
    }
}

/// The example of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Example {
    /// The packets of a run.
    Ladder(Scenario),
    /// The first packet of a run with this header, field by field.
    Header(Scenario, &'static str),
    /// A counter before and after a run.
    Counter(Scenario, &'static str),
    /// A run, and the rules of a QP state.
    State(Scenario, State),
    /// A connection, and the transitions of a CM state.
    Connection(Scenario, cm::State),
    /// What a run did; it sends no packet.
    Steps(Scenario),
    /// None is possible, for this reason.
    Impossible(&'static str),
}

impl Example {
    pub(super) const fn scenario(self) -> Option<Scenario> {
        match self {
            Self::Ladder(scenario)
            | Self::Header(scenario, _)
            | Self::Counter(scenario, _)
            | Self::State(scenario, _)
            | Self::Connection(scenario, _)
            | Self::Steps(scenario) => Some(scenario),
            Self::Impossible(_) => None,
        }
    }
}

/// A topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Topic {
    /// The name by which it is listed.
    pub(super) name: &'static str,
    pub(super) group: Group,
    /// The full name.
    pub(super) title: &'static str,
    /// Other spellings; case and punctuation do not matter.
    pub(super) aliases: &'static [&'static str],
    /// For newcomers.
    pub(super) plain: &'static str,
    /// The precise rule.
    pub(super) precise: &'static str,
    /// Where it is specified.
    pub(super) clause: &'static str,
    /// Related topics.
    pub(super) see: &'static [&'static str],
    pub(super) example: Example,
    /// What the example shows; a test looks for these words in it.
    pub(super) shows: &'static [&'static str],
}
