//! Why a QP entered SQE or ERR, as reported by its transport.

use super::incident::Incident;

/// Why a QP entered SQE or ERR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A send request failed; its completion has the status. UC and UD enter SQE, still receive, and resume on the
    /// owner's request (IBA 10.3.1.6). RC and XRC enter ERR.
    Requester,
    /// A receive request failed, or a request of the peer got a fatal NAK; the completion here or at the peer has the
    /// status. The state is ERR.
    Responder,
    /// The owner requested ERR.
    Owner,
}

impl Fault {
    /// The incident to report to the state machine; `None` for what the owner requested.
    pub const fn incident(self) -> Option<Incident> {
        match self {
            Self::Requester => Some(Incident::SendFailed),
            Self::Responder => Some(Incident::ReceiveFailed),
            Self::Owner => None,
        }
    }
}
