//! The states of a connection and every way between them, as one table (IBA 12.9).
//!
//! The manager moves by this table only, so what is not in it cannot happen; the diagram in the documentation is
//! printed from it.

use core::fmt;

/// Where a connection stands (IBA 12.9). The names say which message went last, from the side that has the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// There is no connection. The manager keeps nothing in this state.
    Idle,
    /// Active side: REQ is out, nothing came back.
    ReqSent,
    /// Active side: the peer has the REQ and asked for time.
    MraReqReceived,
    /// Active side: REP is here, the consumer has not said that it is ready.
    RepReceived,
    /// Active side: REP is here, and the peer was asked for time.
    MraRepSent,
    /// Passive side: REQ is here, the consumer has not answered.
    ReqReceived,
    /// Passive side: REQ is here, and the peer was asked for time.
    MraReqSent,
    /// Passive side: REP is out, RTU has not come.
    RepSent,
    /// Passive side: the peer has the REP and asked for time.
    MraRepReceived,
    /// Data may flow.
    Established,
    /// DREQ is out.
    DreqSent,
    /// DREQ is here, the consumer has not confirmed.
    DreqReceived,
    /// The connection is over; its names rest until no packet of it can be under way (IBA 12.9.8).
    TimeWait,
}

/// The four states a consumer thinks in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No connection, or one that is over.
    Disconnected,
    /// Being made.
    Connecting,
    /// Data may flow.
    Connected,
    /// Being ended.
    Disconnecting,
}

/// What moves a connection from state to state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trigger {
    /// The consumer connects: REQ goes out.
    Connect,
    /// A REQ arrives for somebody who listens.
    ReqArrives,
    /// The consumer, or the manager for it, asks for time: MRA goes out.
    Prolong,
    /// The peer asks for time.
    MraArrives,
    /// The response to a message that an MRA prolonged is overdue: the message is sent again.
    Repeat,
    /// The consumer accepts: REP goes out.
    Accept,
    /// REP arrives.
    RepArrives,
    /// The consumer is ready: RTU goes out.
    Ready,
    /// RTU arrives.
    RtuArrives,
    /// Data arrives before the RTU, which proves as much (IBA 12.9, "communication established").
    DataArrives,
    /// The consumer rejects: REJ goes out.
    Reject,
    /// REJ arrives.
    RejArrives,
    /// REJ arrives and says that the queue pair is still in an old connection: it must rest.
    StaleArrives,
    /// The consumer disconnects: DREQ goes out.
    Disconnect,
    /// DREQ arrives.
    DreqArrives,
    /// The consumer, or the manager for it, confirms: DREP goes out.
    Confirm,
    /// DREP arrives.
    DrepArrives,
    /// Every retry is used up, or the consumer took longer than the peer waits.
    GiveUp,
    /// The peer is gone without a DREQ.
    PeerLost,
    /// A half-open connection makes room for another peer's request.
    Evict,
    /// The time-wait is over.
    Rested,
}

/// Every transition there is.
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
        (TimeWait, Rested, Idle),
    ]
};

impl State {
    /// All of them.
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

    /// The state that follows, `None` when the trigger means nothing here.
    pub fn next(self, trigger: Trigger) -> Option<Self> {
        let matches = |&&(from, by, _): &&(Self, Trigger, Self)| (from, by) == (self, trigger);
        TRANSITIONS.iter().find(matches).map(|&(_, _, to)| to)
    }

    /// The consumer's view of it.
    pub const fn phase(self) -> Phase {
        match self {
            Self::Idle | Self::TimeWait => Phase::Disconnected,
            Self::Established => Phase::Connected,
            Self::DreqSent | Self::DreqReceived => Phase::Disconnecting,
            _ => Phase::Connecting,
        }
    }

    /// A peer's wish that is not yet a connection: what a stranger can make the manager remember.
    pub(super) const fn is_half_open(self) -> bool {
        self.awaits_consumer() || self.awaits_rtu()
    }

    /// A request that the consumer has accepted and the peer has not confirmed.
    pub(super) const fn awaits_rtu(self) -> bool {
        matches!(self, Self::RepSent | Self::MraRepReceived)
    }

    /// A request that the listening consumer has not answered.
    pub(super) const fn awaits_consumer(self) -> bool {
        matches!(self, Self::ReqReceived | Self::MraReqSent)
    }
}

/// Prints the transition table as rows of Markdown: one for each state, with what leads where.
pub struct TransitionTable;

impl fmt::Display for TransitionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| state | phase | leads to |")?;
        writeln!(f, "|---|---|---|")?;
        for state in State::ALL {
            write!(f, "| {state:?} | {} |", state.phase())?;
            let ways = TRANSITIONS.iter().filter(|&&(from, ..)| from == state);
            for (index, (_, trigger, to)) in ways.enumerate() {
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
