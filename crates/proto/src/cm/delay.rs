//! MRA, and responses to duplicates (IBA 12.6.6, 12.9.8).

use ferroce_wire::cm::{CommId, Mra, ReceivedMessage, ResponseTimeout};

use super::connection::{Connection, Role};
use super::event::{CallError, Ignored};
use super::parameters::ConnectionId;
use super::private_data::MraData;
use super::state::{State, Trigger};
use super::{ConnectionManager, Envelope};
use crate::time::Instant;

impl ConnectionManager {
    /// Sends an MRA: the response to the peer's REQ or REP may take up to `timeout` from now (IBA 12.6.6).
    pub fn prolong(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        timeout: ResponseTimeout,
        private_data: MraData,
    ) -> Result<(), CallError> {
        let connection = self.table.step(connection.0, Trigger::Prolong)?;
        let mra = connection.mra(timeout, private_data);
        connection.consumer_timeout = connection.consumer_timeout.max(timeout.duration());
        let consumer_timeout = connection.consumer_timeout;
        connection.arm(&mut self.timers, Some(now + consumer_timeout));
        self.transmits.push_back(connection.send_and_keep(mra, 0));
        Ok(())
    }

    /// The peer retransmitted a message that the consumer has not answered: sends an MRA if so configured.
    pub(super) fn delay_peer(&mut self, now: Instant, id: CommId) -> Result<(), Ignored> {
        let connection = self.table.get_mut(id).ok_or(Ignored::Unknown(id))?;
        // The peer is alive.
        let consumer_timeout = connection.consumer_timeout;
        connection.arm(&mut self.timers, Some(now + consumer_timeout));
        let mra_sent = matches!(connection.state, State::MraReqSent | State::MraRepSent);
        match (mra_sent, self.config.automatic_mra) {
            (true, _) => return self.retransmit_last(id),
            (false, Some(timeout)) => {
                self.prolong(now, ConnectionId(id), timeout, MraData::default())?
            }
            (false, None) => return Err(Ignored::OutOfPlace(connection.state)),
        }
        Err(Ignored::Duplicate)
    }

    /// Responds to a duplicate as to the original.
    pub(super) fn retransmit_last(&mut self, id: CommId) -> Result<(), Ignored> {
        let retransmission = self.table.get(id).and_then(Connection::retransmission);
        self.transmits.extend(retransmission);
        Err(Ignored::Duplicate)
    }

    pub(super) fn handle_mra(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        mra: &Mra,
    ) -> Result<(), Ignored> {
        let connection = self.find(envelope, mra.remote_comm_id, mra.local_comm_id)?;
        let expected = match connection.role {
            Role::Active => ReceivedMessage::REQ,
            Role::Passive => ReceivedMessage::REP,
        };
        if mra.message != expected {
            return Err(Ignored::OutOfPlace(connection.state));
        }
        // One MRA per transmission: a peer cannot delay us indefinitely.
        let connection = self.table.step(mra.remote_comm_id, Trigger::MraArrives)?;
        let wait = self.config.bounded(mra.service_timeout.duration()) + connection.round_trip;
        if connection.role == Role::Passive {
            // The peer is alive: it gets all retransmissions. The total delay of its MRAs is limited.
            connection.retries = 0;
            let limit = self.config.longest_wait;
            connection.give_up_at = connection
                .give_up_at
                .max((now + wait + connection.rep_interval).min(connection.answered_at + limit));
            connection.arm(&mut self.timers, Some((now + wait).min(connection.give_up_at)));
            return Ok(());
        }
        connection.arm(&mut self.timers, Some(now + wait));
        Ok(())
    }
}
