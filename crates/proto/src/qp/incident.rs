//! Where a queue pair goes without being asked.

use core::fmt;

use super::service::ServiceType;
use super::state::State;

/// What happens to a queue pair while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Incident {
    /// A request in the send queue completed in error.
    SendFailed,
    /// A receive completed in error, or a request of the peer violated the protocol.
    ReceiveFailed,
    /// An error that belongs to no work request: a completion queue overran, the device failed.
    Fatal,
    /// In SQD, all requests that were begun have completed.
    SendQueueDrained,
}

/// A row of the table: what happens, in which states, to whom, and the state that follows.
struct Row {
    incident: Incident,
    from: &'static [State],
    services: &'static [ServiceType],
    to: State,
}

/// The states in which a queue pair sends requests. Those under way in SQD can still fail.
const SENDING: &[State] = &[State::ReadyToSend, State::SendQueueDrain];

static TABLE: &[Row] = &[
    // Without acknowledgements the peer has lost nothing but the message: it can go on after a repair (IBA 10.3.1.6).
    Row {
        incident: Incident::SendFailed,
        from: SENDING,
        services: &[ServiceType::UnreliableConnection, ServiceType::UnreliableDatagram],
        to: State::SendQueueError,
    },
    // With them the two ends disagree on what was executed (IBA 10.3.1.7).
    Row {
        incident: Incident::SendFailed,
        from: SENDING,
        services: &[ServiceType::ReliableConnection, ServiceType::XrcInitiator],
        to: State::Error,
    },
    Row {
        incident: Incident::ReceiveFailed,
        from: &[
            State::ReadyToReceive,
            State::ReadyToSend,
            State::SendQueueDrain,
            State::SendQueueError,
        ],
        services: &[
            ServiceType::ReliableConnection,
            ServiceType::UnreliableConnection,
            ServiceType::UnreliableDatagram,
            ServiceType::XrcTarget,
        ],
        to: State::Error,
    },
    // Not from RESET: nothing goes on there, so such a report is late, and must not undo the owner's reset.
    Row {
        incident: Incident::Fatal,
        from: &[
            State::Init,
            State::ReadyToReceive,
            State::ReadyToSend,
            State::SendQueueDrain,
            State::SendQueueError,
            State::Error,
        ],
        services: &ServiceType::ALL,
        to: State::Error,
    },
    Row {
        incident: Incident::SendQueueDrained,
        from: &[State::SendQueueDrain],
        services: &ServiceType::ALL,
        to: State::SendQueueDrain,
    },
];

/// The state that follows. An incident that a state does not know came too late, and changes nothing.
pub fn react(service: ServiceType, state: State, incident: Incident) -> State {
    TABLE
        .iter()
        .find(|row| {
            row.incident == incident && row.from.contains(&state) && row.services.contains(&service)
        })
        .map_or(state, |row| row.to)
}

impl Incident {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::SendFailed, Self::ReceiveFailed, Self::Fatal, Self::SendQueueDrained];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendFailed => "send failed",
            Self::ReceiveFailed => "receive failed",
            Self::Fatal => "fatal error",
            Self::SendQueueDrained => "drained",
        }
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
