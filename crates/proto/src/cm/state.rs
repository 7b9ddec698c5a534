//! Connection states and transitions, as one table (IBA 12.9).
//!
//! The manager changes states only by this table; the documentation is generated from it.

use core::fmt;

/// Connection state (IBA 12.9), named after the last message sent or received on this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// No connection. The manager keeps no state for it.
    Idle,
    /// Active side: REQ sent, no response yet.
    ReqSent,
    /// Active side: the peer sent an MRA for the REQ.
    MraReqReceived,
    /// Active side: REP received, the consumer is not ready yet.
    RepReceived,
    /// Active side: REP received, MRA sent.
    MraRepSent,
    /// Passive side: REQ received, the consumer has not answered.
    ReqReceived,
    /// Passive side: REQ received, MRA sent.
    MraReqSent,
    /// Passive side: REP sent, no RTU yet.
    RepSent,
    /// Passive side: the peer sent an MRA for the REP.
    MraRepReceived,
    /// Established.
    Established,
    /// DREQ sent.
    DreqSent,
    /// DREQ received, the consumer has not confirmed.
    DreqReceived,
    /// The connection ended; its IDs and QP are not reused until no packet of it can be in flight (IBA 12.9.8).
    TimeWait,
}

/// Connection state as seen by a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No connection, or one in TimeWait.
    Disconnected,
    /// Being established.
    Connecting,
    /// Established.
    Connected,
    /// Being disconnected.
    Disconnecting,
}

/// Events that change the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trigger {
    /// The consumer connects: REQ is sent.
    Connect,
    /// A REQ arrives for a listener.
    ReqArrives,
    /// The consumer or the manager sends an MRA.
    Prolong,
    /// An MRA arrives.
    MraArrives,
    /// The wait after an MRA expired: the message is retransmitted.
    Repeat,
    /// The consumer accepts: REP is sent.
    Accept,
    /// A REP arrives.
    RepArrives,
    /// The consumer is ready: RTU is sent.
    Ready,
    /// An RTU arrives.
    RtuArrives,
    /// Data arrives before the RTU, which is equivalent (IBA 12.9, "communication established").
    DataArrives,
    /// The consumer rejects: REJ is sent.
    Reject,
    /// A REJ arrives.
    RejArrives,
    /// A REJ arrives with "stale connection": the QP must go through TimeWait.
    StaleArrives,
    /// The consumer disconnects: DREQ is sent.
    Disconnect,
    /// A DREQ arrives.
    DreqArrives,
    /// The consumer or the manager confirms: DREP is sent.
    Confirm,
    /// A DREP arrives.
    DrepArrives,
    /// All retries are used up, or the consumer exceeded the peer's timeout.
    GiveUp,
    /// The peer is lost without a DREQ.
    PeerLost,
    /// A half-open connection is dropped to admit another request.
    Evict,
    /// TimeWait ended.
    TimeWaitEnded,
}

/// All transitions.
pub const TRANSITIONS: &[(State, Trigger, State)] = {
    use State::*;
    use Trigger::*;
    &[
        // Active side (IBA 12.9).
        (Idle, Connect, ReqSent),
        (ReqSent, MraArrives, MraReqReceived),
        (ReqSent, RepArrives, RepReceived),
        (ReqSent, RejArrives, Idle),
        (ReqSent, StaleArrives, TimeWait),
        (ReqSent, GiveUp, Idle),
        (MraReqReceived, Repeat, ReqSent),
        (MraReqReceived, RepArrives, RepReceived),
        (MraReqReceived, RejArrives, Idle),
        (MraReqReceived, StaleArrives, TimeWait),
        (MraReqReceived, GiveUp, Idle),
        (RepReceived, Ready, Established),
        (RepReceived, Prolong, MraRepSent),
        (RepReceived, Reject, Idle),
        (RepReceived, RejArrives, TimeWait),
        (RepReceived, StaleArrives, TimeWait),
        (RepReceived, GiveUp, Idle),
        (MraRepSent, Ready, Established),
        (MraRepSent, Prolong, MraRepSent),
        (MraRepSent, Reject, Idle),
        (MraRepSent, RejArrives, TimeWait),
        (MraRepSent, StaleArrives, TimeWait),
        (MraRepSent, GiveUp, Idle),
        // Passive side (IBA 12.9).
        (Idle, ReqArrives, ReqReceived),
        (ReqReceived, Prolong, MraReqSent),
        (ReqReceived, Accept, RepSent),
        (ReqReceived, Reject, Idle),
        (ReqReceived, RejArrives, Idle),
        (ReqReceived, StaleArrives, TimeWait),
        (ReqReceived, GiveUp, Idle),
        (MraReqSent, Prolong, MraReqSent),
        (MraReqSent, Accept, RepSent),
        (MraReqSent, Reject, Idle),
        (MraReqSent, RejArrives, Idle),
        (MraReqSent, StaleArrives, TimeWait),
        (MraReqSent, GiveUp, Idle),
        (RepSent, MraArrives, MraRepReceived),
        (RepSent, RtuArrives, Established),
        (RepSent, DataArrives, Established),
        (RepSent, Reject, TimeWait),
        (RepSent, RejArrives, Idle),
        (RepSent, StaleArrives, TimeWait),
        (RepSent, DreqArrives, DreqReceived),
        (RepSent, GiveUp, TimeWait),
        (RepSent, Evict, Idle),
        (MraRepReceived, Repeat, RepSent),
        (MraRepReceived, RtuArrives, Established),
        (MraRepReceived, DataArrives, Established),
        (MraRepReceived, Reject, TimeWait),
        (MraRepReceived, RejArrives, Idle),
        (MraRepReceived, StaleArrives, TimeWait),
        (MraRepReceived, DreqArrives, DreqReceived),
        (MraRepReceived, GiveUp, TimeWait),
        (MraRepReceived, Evict, Idle),
        // Either side (IBA 12.9.8).
        (Established, Disconnect, DreqSent),
        (Established, DreqArrives, DreqReceived),
        (Established, RejArrives, TimeWait),
        (Established, StaleArrives, TimeWait),
        (Established, PeerLost, TimeWait),
        (DreqSent, DrepArrives, TimeWait),
        (DreqSent, DreqArrives, TimeWait),
        (DreqSent, RejArrives, TimeWait),
        (DreqSent, StaleArrives, TimeWait),
        (DreqSent, GiveUp, TimeWait),
        (DreqReceived, Confirm, TimeWait),
        (DreqReceived, DrepArrives, TimeWait),
        (DreqReceived, RejArrives, TimeWait),
        (DreqReceived, StaleArrives, TimeWait),
        (DreqReceived, GiveUp, TimeWait),
        (TimeWait, TimeWaitEnded, Idle),
    ]
};

impl State {
    /// All states.
    pub const ALL: [Self; 13] = [
        Self::Idle,
        Self::ReqSent,
        Self::MraReqReceived,
        Self::RepReceived,
        Self::MraRepSent,
        Self::ReqReceived,
        Self::MraReqSent,
        Self::RepSent,
        Self::MraRepReceived,
        Self::Established,
        Self::DreqSent,
        Self::DreqReceived,
        Self::TimeWait,
    ];

    /// The next state; `None` when the trigger is not valid here.
    pub fn next(self, trigger: Trigger) -> Option<Self> {
        let matches = |&&(from, by, _): &&(Self, Trigger, Self)| (from, by) == (self, trigger);
        TRANSITIONS.iter().find(matches).map(|&(_, _, to)| to)
    }

    /// The consumer's view.
    pub const fn phase(self) -> Phase {
        match self {
            Self::Idle | Self::TimeWait => Phase::Disconnected,
            Self::Established => Phase::Connected,
            Self::DreqSent | Self::DreqReceived => Phase::Disconnecting,
            _ => Phase::Connecting,
        }
    }

    /// A peer's request that is not yet established: state that an unknown sender can create.
    pub(super) const fn is_half_open(self) -> bool {
        self.awaits_consumer() || self.awaits_rtu()
    }

    /// Accepted by the consumer, not confirmed by the peer.
    pub(super) const fn awaits_rtu(self) -> bool {
        matches!(self, Self::RepSent | Self::MraRepReceived)
    }

    /// Not answered by the consumer.
    pub(super) const fn awaits_consumer(self) -> bool {
        matches!(self, Self::ReqReceived | Self::MraReqSent)
    }
}

/// Displays the transition table as Markdown rows, one per state.
pub struct TransitionTable;

impl fmt::Display for TransitionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| state | phase | leads to |")?;
        writeln!(f, "|---|---|---|")?;
        for state in State::ALL {
            write!(f, "| {state:?} | {} |", state.phase())?;
            let transitions = TRANSITIONS.iter().filter(|&&(from, ..)| from == state);
            for (index, (_, trigger, to)) in transitions.enumerate() {
                let comma = if index == 0 { "" } else { "," };
                write!(f, "{comma} {trigger:?} → {to:?}")?;
            }
            writeln!(f, " |")?;
        }
        Ok(())
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disconnected => "DISCONNECTED",
            Self::Connecting => "CONNECTING",
            Self::Connected => "CONNECTED",
            Self::Disconnecting => "DISCONNECTING",
        })
    }
}
