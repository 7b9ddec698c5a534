//! The seven states.

use core::fmt;

/// The state of a queue pair (IBA 10.3.1), in the order and with the numbers of `ibv_qp_state`.
#[doc(alias = "ibv_qp_state")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// Created or cleared: nothing is set, nothing is queued (IBA 10.3.1.1).
    #[default]
    Reset,
    /// Receives may be posted; nothing is sent or accepted (IBA 10.3.1.2).
    Init,
    /// Requests of the peer are accepted and answered (IBA 10.3.1.3).
    ReadyToReceive,
    /// Requests are sent, too: the state of normal work (IBA 10.3.1.4).
    ReadyToSend,
    /// The send queue finishes what it began and starts nothing, so that the path can be changed (IBA 10.3.1.5).
    SendQueueDrain,
    /// A request of an unacknowledged service failed; the receive side goes on (IBA 10.3.1.6).
    SendQueueError,
    /// All work is flushed; only RESET leads out (IBA 10.3.1.7).
    Error,
}

impl State {
    /// All of them, by their numbers.
    pub const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::ReadyToReceive,
        Self::ReadyToSend,
        Self::SendQueueDrain,
        Self::SendQueueError,
        Self::Error,
    ];

    /// The state with this number of `ibv_qp_state`.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }

    /// The number in `ibv_qp_state`.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The name as tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::ReadyToReceive => "RTR",
            Self::ReadyToSend => "RTS",
            Self::SendQueueDrain => "SQD",
            Self::SendQueueError => "SQE",
            Self::Error => "ERR",
        }
    }

    /// The name in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Init => "initialized",
            Self::ReadyToReceive => "ready to receive",
            Self::ReadyToSend => "ready to send",
            Self::SendQueueDrain => "send queue drain",
            Self::SendQueueError => "send queue error",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
