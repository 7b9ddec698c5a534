//! State changes that the owner did not request.

use core::fmt;

use super::service::ServiceType;
use super::state::State;

/// An event that may change a QP's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Incident {
    /// A send request completed in error.
    SendFailed,
    /// A receive request completed in error, or a request of the peer violated the protocol.
    ReceiveFailed,
    /// An error that belongs to no work request: a CQ overrun or a device failure.
    Fatal,
    /// In SQD, all started requests have completed.
    SendQueueDrained,
}

/// A table row: incident, states, services and the next state.
struct Row {
    incident: Incident,
    from: &'static [State],
    services: &'static [ServiceType],
    to: State,
}

/// The states in which a QP sends requests. Requests in flight in SQD can still fail.
const SENDING: &[State] = &[State::ReadyToSend, State::SendQueueDrain];

static TABLE: &[Row] = &[
    // Without ACKs the peer has lost only the message: the QP can resume after SQE (IBA 10.3.1.6).
    Row {
        incident: Incident::SendFailed,
        from: SENDING,
        services: &[ServiceType::UnreliableConnection, ServiceType::UnreliableDatagram],
        to: State::SendQueueError,
    },
    // With ACKs the two sides disagree on what was executed (IBA 10.3.1.7).
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
    // Not from RESET: such a report is late, and must not undo the owner's reset.
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

/// Returns the next state. An incident without a row for this state is late and changes nothing.
pub fn react(service: ServiceType, state: State, incident: Incident) -> State {
    TABLE
        .iter()
        .find(|row| {
            row.incident == incident && row.from.contains(&state) && row.services.contains(&service)
        })
        .map_or(state, |row| row.to)
}

impl Incident {
    /// All incidents.
    pub const ALL: [Self; 4] =
        [Self::SendFailed, Self::ReceiveFailed, Self::Fatal, Self::SendQueueDrained];

    /// The name.
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
