//! REJ, from either side (IBA 12.6.7).

use alloc::boxed::Box;

use ferroce_wire::cm::{CommId, Rej, RejectReason};
use ferroce_wire::number::Guid;

use super::event::{CallError, Disconnection, Event, Ignored};
use super::parameters::{ConnectionId, Rejection};
use super::state::{State, Trigger};
use super::{ConnectionManager, Envelope};
use crate::time::Instant;

impl ConnectionManager {
    /// Rejects a peer's REQ or REP, with any reason.
    #[doc(alias = "rdma_reject")]
    pub fn reject(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        rejection: &Rejection,
    ) -> Result<(), CallError> {
        let id = connection.0;
        let rejected = self.table.get(id).ok_or(CallError::Gone)?;
        // The state determines the rejected message, so the REJ is built before the transition.
        let rej = rejected.transmit(rejected.rej(rejection));
        self.table.step(id, Trigger::Reject)?;
        self.transmits.push_back(rej);
        self.finish_transition(now, id);
        Ok(())
    }

    pub(super) fn handle_rej(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        rej: &Rej,
    ) -> Result<(), Ignored> {
        let id = self.rejected(envelope, rej)?;
        let trigger = match rej.reason {
            RejectReason::STALE_CONNECTION => Trigger::StaleArrives,
            _ => Trigger::RejArrives,
        };
        let state = self.find(envelope, id, rej.local_comm_id)?.state;
        self.table.step(id, trigger)?;
        self.finish_transition(now, id);
        let rejection = Box::new(Rejection {
            reason: rej.reason,
            message: rej.message,
            information: rej.information,
            information_length: rej.information_length.min(72),
            private_data: rej.private_data,
        });
        self.events.push_back(match state {
            State::Established | State::DreqSent | State::DreqReceived => {
                Event::Disconnected(ConnectionId(id), Disconnection::Rejected(rejection))
            }
            _ => Event::Rejected(ConnectionId(id), rejection),
        });
        Ok(())
    }

    /// Finds the connection of a REJ. A peer that gave up before it knew our ID sends its own ID and its CA GUID (IBA
    /// 12.6.7.2, reason 4).
    pub(super) fn rejected(&self, envelope: &Envelope, rej: &Rej) -> Result<CommId, Ignored> {
        let unknown = Ignored::Unknown(rej.remote_comm_id);
        if rej.remote_comm_id != CommId::default() || rej.reason != RejectReason::TIMEOUT {
            return Ok(rej.remote_comm_id);
        }
        let guid = rej.information().first_chunk().copied().ok_or(unknown)?;
        let guid = Guid(u64::from_be_bytes(guid));
        let id = self.table.by_remote_id(envelope.from, guid, rej.local_comm_id).ok_or(unknown)?;
        // The peer of an established connection knows our ID, so this is not from that peer.
        let half_open =
            self.table.get(id).is_some_and(|connection| connection.state.is_half_open());
        if half_open { Ok(id) } else { Err(unknown) }
    }
}
