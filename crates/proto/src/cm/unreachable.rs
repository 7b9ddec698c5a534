//! ICMP "port unreachable": no RoCE stack runs at the peer's address.
//!
//! A host with a kernel CM always responds, without a listener with a REJ. A host without an open device responds
//! with ICMP instead, and waiting for minutes would not change that.
//!
//! ICMP messages can be forged, so one must quote enough of our message to prove that its sender has seen it: the
//! transaction ID, which has 32 random bits.
//!
//! An established connection ends by one only if the transaction ID is that of a LAP, a probe that the active side is waiting for:
//! that is for one round trip if the peer answers LAPs, and for a few seconds after set-up and in each of three keepalives if it does
//! not. A forger has to guess 32 bits within these times; and the consumer ignores it if the peer has sent anything since the probe
//! began, or runs on the same host. Whoever can read the transaction ID can read the communication IDs as well, and end the
//! connection with a DREQ.

use alloc::boxed::Box;

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CommId, SidrStatus};
use ferroce_wire::mad::TransactionId;

use super::ConnectionManager;
use super::event::{Disconnection, Event, Failure, Ignored};
use super::parameters::{ConnectionId, Resolution, ResolutionId};
use super::state::{State, Trigger};
use crate::time::Instant;

/// Bytes of the transaction ID in a MAD (IBA 13.4.3).
const TRANSACTION_BYTES: core::ops::Range<usize> = 8..16;

impl ConnectionManager {
    /// The port that a message to `peer` was sent to is closed. `quoted` is the part of the MAD that the ICMP message
    /// quotes, from its start; it may end anywhere.
    pub fn handle_unreachable(
        &mut self,
        now: Instant,
        peer: Gid,
        quoted: &[u8],
    ) -> Result<(), Ignored> {
        let unknown = Ignored::Unknown(CommId::default());
        let transaction = quoted.get(TRANSACTION_BYTES).and_then(|bytes| bytes.try_into().ok());
        let transaction = TransactionId(u64::from_be_bytes(transaction.ok_or(unknown)?));
        // The low half of a local transaction ID is the communication ID.
        let id = CommId(transaction.0 as u32);
        if self.resolutions.is_pending(id, peer, transaction) {
            self.cancel_resolution(ResolutionId(id));
            // What a kernel without this service responds.
            let refused = Resolution::refused(SidrStatus::UNSUPPORTED_SERVICE);
            self.events.push_back(Event::Resolved(ResolutionId(id), Box::new(refused)));
            return Ok(());
        }
        let connection = self.table.get(id).ok_or(Ignored::Unknown(id))?;
        if connection.peer != peer || connection.transaction != transaction {
            return Err(Ignored::Unknown(id));
        }
        let state = connection.state;
        let over = match state {
            State::ReqSent => Event::Failed(ConnectionId(id), Failure::PortClosed),
            State::DreqSent => Event::Disconnected(ConnectionId(id), Disconnection::Unconfirmed),
            State::Established if self.probe_found_closed_port(id) => return Ok(()),
            // An MRA, REP or RTU has shown that the peer runs a CM. A probe detects if that changes.
            state => return Err(Ignored::OutOfPlace(state)),
        };
        self.table.step(id, Trigger::GiveUp)?;
        self.finish_transition(now, id);
        self.events.push_back(over);
        Ok(())
    }
}
