//! What each state permits, and what happens to the rest.

use core::fmt;

use super::service::ServiceType;
use super::state::State;

/// An action of a QP, its owner or its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The owner posts a receive to the QP's own RQ.
    PostReceive,
    /// The owner posts a send.
    PostSend,
    /// A queued send is started.
    StartSend,
    /// A started send continues: packets, retransmissions, responses, completion.
    FinishSend,
    /// A queued receive is consumed by a message. One in an SRQ belongs to no QP, and no QP state flushes or discards
    /// it (IBA 10.2.9).
    ConsumeReceive,
    /// A request of the peer is executed.
    AcceptRequest,
    /// A response is sent.
    Respond,
}

/// What happens to an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permission {
    /// It is executed.
    Allowed,
    /// It waits for a state that allows it.
    Queued,
    /// The work request completes with the status "flushed".
    Flushed,
    /// The work request is discarded without a completion; a packet is dropped without a response.
    Discarded,
    /// It is refused. A post fails.
    Refused,
    /// The service does not have this action.
    Inapplicable,
}

use Permission::{Allowed, Discarded, Flushed, Queued, Refused};

/// The table, with a column for each of [`State::ALL`] (IBA 10.3.1.1 to 10.3.1.7).
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
    /// What happens to the action in this state, for a service that has it: see [`ServiceType::permits`].
    #[inline]
    pub const fn permits(self, action: Action) -> Permission {
        // Rows are in the order of the actions, and columns in the order of the states; a test checks this.
        TABLE[action as usize].1[self as usize]
    }
}

impl ServiceType {
    /// What happens to the action in this state.
    #[inline]
    pub const fn permits(self, state: State, action: Action) -> Permission {
        if self.has(action) { state.permits(action) } else { Permission::Inapplicable }
    }

    /// Whether the service has the action in any state.
    #[inline]
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
    /// All values.
    pub const ALL: [Self; 7] = [
        Self::PostReceive,
        Self::PostSend,
        Self::StartSend,
        Self::FinishSend,
        Self::ConsumeReceive,
        Self::AcceptRequest,
        Self::Respond,
    ];

    /// The name.
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
    /// All values.
    pub const ALL: [Self; 6] = [Allowed, Queued, Flushed, Discarded, Refused, Self::Inapplicable];

    /// Whether the action is executed now.
    pub const fn is_allowed(self) -> bool {
        matches!(self, Allowed)
    }

    /// The name.
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

    /// The meaning of the name.
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
