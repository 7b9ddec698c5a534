//! What the peer sent and its receiver never hears of.

/// How often something was dropped in silence, for each reason (IBA 9.8.2.2). A dropped message counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Packets that are not of this service, or not here in full.
    pub foreign: u64,
    /// Packets that came late or twice: others behind them had already come.
    pub late: u64,
    /// Gaps in the sequence: packets are missing, and with them the message under way.
    pub gaps: u64,
    /// Messages whose packets do not follow each other as they must: a second start, a middle without a start.
    pub opcode: u64,
    /// Messages of a kind that the queue pair does not allow.
    pub permission: u64,
    /// Messages for which no receive request was posted.
    pub no_receive: u64,
    /// Messages with a packet of the wrong size, longer or shorter than announced, or longer than the buffer.
    pub length: u64,
    /// Messages to memory that the key does not allow.
    pub key: u64,
    /// Packets of a message that was dropped before they came.
    pub rest: u64,
}

/// Why the message that a packet belongs to is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Opcode,
    Permission,
    NoReceive,
    Length,
    Key,
    Rest,
}

impl Drops {
    pub(super) fn count(&mut self, reason: Reason) {
        let counter = match reason {
            Reason::Opcode => &mut self.opcode,
            Reason::Permission => &mut self.permission,
            Reason::NoReceive => &mut self.no_receive,
            Reason::Length => &mut self.length,
            Reason::Key => &mut self.key,
            Reason::Rest => &mut self.rest,
        };
        *counter += 1;
    }
}
