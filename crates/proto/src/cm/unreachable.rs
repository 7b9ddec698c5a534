//! What an ICMP "port unreachable" says: nobody at the peer's address takes part in RoCE.
//!
//! Where a kernel is the connection manager, a host always answers: without a listener by a REJ. A host on which no
//! process has a device open answers by ICMP instead, and waiting for minutes would not change that.
//!
//! Anybody can forge an ICMP message, so it must quote enough of ours to show that its sender has seen it: the
//! transaction, of which 32 bits are random.

use alloc::boxed::Box;

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CommId, SidrStatus};
use ferroce_wire::mad::TransactionId;

use super::ConnectionManager;
use super::event::{Disconnection, Event, Failure, Ignored};
use super::parameters::{ConnectionId, Resolution, ResolutionId};
use super::state::{State, Trigger};
use crate::time::Instant;

/// Where a MAD has its transaction (IBA 13.4.3).
const TRANSACTION: core::ops::Range<usize> = 8..16;

impl ConnectionManager {
    /// The port that a message to `peer` went to is closed. `quoted` is what the report quotes of its MAD, from the
    /// start; it may end anywhere.
    pub fn handle_unreachable(
        &mut self,
        now: Instant,
        peer: Gid,
        quoted: &[u8],
    ) -> Result<(), Ignored> {
        let unknown = Ignored::Unknown(CommId::default());
        let transaction = quoted.get(TRANSACTION).and_then(|bytes| bytes.try_into().ok());
        let transaction = TransactionId(u64::from_be_bytes(transaction.ok_or(unknown)?));
        // The lower half of a transaction that began here is the name of what it belongs to.
        let id = CommId(transaction.0 as u32);
        if self.resolutions.is_asked(id, peer, transaction) {
            self.cancel_resolution(ResolutionId(id));
            // What a kernel says that knows no such service.
            let refused = Resolution::refused(SidrStatus::UNSUPPORTED_SERVICE);
            self.events.push_back(Event::Resolved(ResolutionId(id), Box::new(refused)));
            return Ok(());
        }
        let connection = self.table.get(id).ok_or(Ignored::Unknown(id))?;
        if connection.peer != peer || connection.transaction != transaction {
            return Err(Ignored::Unknown(id));
        }
        let over = match connection.state {
            State::ReqSent => Event::Failed(ConnectionId(id), Failure::PortClosed),
            State::DreqSent => Event::Disconnected(ConnectionId(id), Disconnection::Unconfirmed),
            // An MRA, REP or RTU has shown that somebody is there. A probe tells if that is no longer so.
            state => return Err(Ignored::OutOfPlace(state)),
        };
        self.table.step(id, Trigger::GiveUp)?;
        self.settle(now, id);
        self.events.push_back(over);
        Ok(())
    }
}
