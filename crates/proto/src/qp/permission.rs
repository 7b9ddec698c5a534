//! What each state permits, and what becomes of what it does not.

use core::fmt;

use super::service::ServiceType;
use super::state::State;

/// Something that a queue pair, its owner or its peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The owner posts a receive to the queue pair's own receive queue.
    PostReceive,
    /// The owner posts a send.
    PostSend,
    /// A send that waits in the queue is begun.
    StartSend,
    /// A send that was begun goes on: packets, retransmissions, responses, completion.
    FinishSend,
    /// A receive that waits in the queue takes a message. One in a shared receive queue belongs to no queue pair, and
    /// no state of one flushes or discards it (IBA 10.2.9).
    ConsumeReceive,
    /// A request of the peer arrives and is executed.
    AcceptRequest,
    /// A request of the peer is answered.
    Respond,
}

/// What becomes of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permission {
    /// It is done.
    Allowed,
    /// It waits for a state that allows it.
    Queued,
    /// The work request completes with the status "flushed".
    Flushed,
    /// The work request vanishes without a completion; a packet is dropped without an answer.
    Discarded,
    /// It is not done. A post fails at once.
    Refused,
    /// The service has no such thing.
    Inapplicable,
}

use Permission::{Allowed, Discarded, Flushed, Queued, Refused};

/// The table, a column for each of [`State::ALL`] (IBA 10.3.1.1 to 10.3.1.7).
#[rustfmt::skip]
const TABLE: [(Action, [Permission; 7]); 7] = [
    //                         RESET      INIT       RTR      RTS      SQD      SQE      ERR
    (Action::PostReceive,    [Refused,   Queued,    Allowed, Allowed, Allowed, Allowed, Flushed]),
    (Action::PostSend,       [Refused,   Refused,   Refused, Allowed, Queued,  Flushed, Flushed]),
    (Action::StartSend,      [Discarded, Refused,   Refused, Allowed, Queued,  Flushed, Flushed]),
    (Action::FinishSend,     [Discarded, Refused,   Refused, Allowed, Allowed, Flushed, Flushed]),
    (Action::ConsumeReceive, [Discarded, Queued,    Allowed, Allowed, Allowed, Allowed, Flushed]),
    (Action::AcceptRequest,  [Discarded, Discarded, Allowed, Allowed, Allowed, Allowed, Discarded]),
    (Action::Respond,        [Refused,   Refused,   Allowed, Allowed, Allowed, Allowed, Refused]),
];

impl State {
    /// What becomes of the action in this state, for a service that has it: see [`ServiceType::permits`].
    pub const fn permits(self, action: Action) -> Permission {
        // The rows stand in the order of the actions and the columns in that of the states, which a test checks.
        TABLE[action as usize].1[self as usize]
    }
}

impl ServiceType {
    /// What becomes of the action in this state.
    pub const fn permits(self, state: State, action: Action) -> Permission {
        if self.has(action) { state.permits(action) } else { Permission::Inapplicable }
    }

    /// Whether the action is part of the service in any state.
    pub const fn has(self, action: Action) -> bool {
        match action {
            Action::PostSend | Action::StartSend | Action::FinishSend => self.has_send_queue(),
            Action::PostReceive | Action::ConsumeReceive => self.has_receive_queue(),
            Action::AcceptRequest => self.accepts_requests(),
            Action::Respond => self.responds(),
        }
    }
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::PostReceive,
        Self::PostSend,
        Self::StartSend,
        Self::FinishSend,
        Self::ConsumeReceive,
        Self::AcceptRequest,
        Self::Respond,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PostReceive => "post a receive",
            Self::PostSend => "post a send",
            Self::StartSend => "start a queued send",
            Self::FinishSend => "finish a started send",
            Self::ConsumeReceive => "consume a queued receive",
            Self::AcceptRequest => "execute a peer's request",
            Self::Respond => "respond to a peer's request",
        }
    }
}

impl Permission {
    /// All of them.
    pub const ALL: [Self; 6] = [Allowed, Queued, Flushed, Discarded, Refused, Self::Inapplicable];

    /// Whether the action is done now.
    pub const fn is_allowed(self) -> bool {
        matches!(self, Allowed)
    }

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Allowed => "yes",
            Queued => "queued",
            Flushed => "flushed",
            Discarded => "discarded",
            Refused => "refused",
            Self::Inapplicable => "none",
        }
    }

    /// What the word means.
    pub const fn meaning(self) -> &'static str {
        match self {
            Allowed => "the action is done",
            Queued => "the action waits for a state that allows it",
            Flushed => "the work request completes with the status \"flushed\"",
            Discarded => {
                "the work request is dropped without a completion, the packet without a response"
            }
            Refused => "the action is not done; a post returns an error",
            Self::Inapplicable => "the service has no such action",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
