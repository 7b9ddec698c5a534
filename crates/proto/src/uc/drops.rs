//! Counters of dropped inbound messages.

/// Number of silent drops, by reason (IBA 9.8.2.2). A dropped message counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Packets of another service, and truncated ones.
    pub foreign: u64,
    /// Late or duplicate packets: later PSNs were received already.
    pub late: u64,
    /// PSN gaps: packets are missing, and the message in progress is dropped.
    pub gaps: u64,
    /// Messages with an invalid opcode sequence: a second FIRST, or a MIDDLE without a FIRST.
    pub opcode: u64,
    /// Operations that the QP's access flags do not allow.
    pub permission: u64,
    /// Messages without a posted receive request.
    pub no_receive: u64,
    /// Messages with a packet of the wrong size, longer or shorter than announced, or longer than the receive buffer.
    pub length: u64,
    /// Messages whose rkey denies the access.
    pub key: u64,
    /// Remaining packets of a message that was dropped earlier.
    pub remainder: u64,
}

/// Why a message is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Opcode,
    Permission,
    NoReceive,
    Length,
    Key,
    Remainder,
}

impl Drops {
    pub(super) fn count(&mut self, reason: Reason) {
        let counter = match reason {
            Reason::Opcode => &mut self.opcode,
            Reason::Permission => &mut self.permission,
            Reason::NoReceive => &mut self.no_receive,
            Reason::Length => &mut self.length,
            Reason::Key => &mut self.key,
            Reason::Remainder => &mut self.remainder,
        };
        *counter += 1;
    }
}
