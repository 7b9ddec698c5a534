//! What keeps a queue pair from working, as its transport tells it.

use super::incident::Incident;

/// What keeps a queue pair from working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A request of ours failed: its completion says how. The unacknowledged services are in SQE then, receive still, and
    /// go on when their owner says so (IBA 10.3.1.6); the others are in ERR.
    Requester,
    /// A receive request failed, or a request of the peer's was refused for good: the completion here, or the peer's, says
    /// how. The state is ERR.
    Responder,
    /// The owner said so. The state is ERR.
    Owner,
}

impl Fault {
    /// What the state machine is to be told; nothing of what its owner did.
    pub const fn incident(self) -> Option<Incident> {
        match self {
            Self::Requester => Some(Incident::SendFailed),
            Self::Responder => Some(Incident::ReceiveFailed),
            Self::Owner => None,
        }
    }
}
