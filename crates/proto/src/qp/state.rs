//! The QP states.

use core::fmt;

/// The state of a QP (IBA 10.3.1), in the order and with the numbers of `ibv_qp_state`.
#[doc(alias = "ibv_qp_state")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// Created or reset: nothing is set or queued (IBA 10.3.1.1).
    #[default]
    Reset,
    /// Receives may be posted; nothing is sent or accepted (IBA 10.3.1.2).
    Init,
    /// Requests of the peer are executed (IBA 10.3.1.3).
    ReadyToReceive,
    /// Requests are also sent: the normal state (IBA 10.3.1.4).
    ReadyToSend,
    /// Started requests are completed, and no others are started, so that the path can be changed (IBA 10.3.1.5).
    SendQueueDrain,
    /// A send of UC or UD failed; the receive side continues (IBA 10.3.1.6).
    SendQueueError,
    /// All work is flushed; only RESET leaves this state (IBA 10.3.1.7).
    Error,
}

impl State {
    /// All states, by number.
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

    /// The short name.
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

    /// The full name.
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
