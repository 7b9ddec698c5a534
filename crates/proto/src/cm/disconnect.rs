//! Disconnecting, by either side or both, and TimeWait (IBA 12.9.8).

use alloc::boxed::Box;

use ferroce_wire::cm::{CmMessage, CommId, Drep, Dreq};

use super::connection::{Connection, SentMessage};
use super::event::{CallError, Disconnection, Event, Ignored};
use super::parameters::{ConnectionId, Rejection};
use super::private_data::{DrepData, DreqData, RejData};
use super::state::{State, Trigger};
use super::{ConnectionManager, Envelope};
use crate::time::Instant;

impl ConnectionManager {
    /// Sends a DREQ on an established connection. [`Event::Disconnected`] follows in any case.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        private_data: DreqData,
    ) -> Result<(), CallError> {
        // A new transaction: this side may not have started that of the handshake.
        let transaction = self.comm_ids.transaction(connection.0);
        let connection = self.table.step(connection.0, Trigger::Disconnect)?;
        connection.transaction = transaction;
        let dreq = Dreq {
            local_comm_id: connection.id,
            remote_comm_id: connection.remote(),
            remote_qpn: connection.remote_qpn.unwrap_or_default(),
            private_data,
            ..Dreq::default()
        };
        self.transmits.push_back(connection.start(now, &mut self.timers, dreq, 0));
        Ok(())
    }

    /// Sends the DREP after [`Event::DisconnectRequest`]. [`Event::Disconnected`] follows. Without this call the
    /// manager sends it when the peer's wait ends.
    pub fn confirm_disconnect(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        private_data: DrepData,
    ) -> Result<(), CallError> {
        self.confirm(now, connection.0, Trigger::Confirm, private_data)
    }

    pub(super) fn confirm(
        &mut self,
        now: Instant,
        id: CommId,
        trigger: Trigger,
        private_data: DrepData,
    ) -> Result<(), CallError> {
        let connection = self.table.step(id, trigger)?;
        let drep = Drep {
            local_comm_id: connection.id,
            remote_comm_id: connection.remote(),
            private_data,
        };
        self.transmits.push_back(connection.send_and_keep(drep, 0));
        self.finish_transition(now, id);
        self.events.push_back(Event::Disconnected(ConnectionId(id), Disconnection::ByPeer));
        Ok(())
    }

    /// Ends a connection in any state: rejects or gives up an attempt, disconnects an established connection. After
    /// that only timers keep it.
    pub fn close(&mut self, now: Instant, connection: ConnectionId) -> Result<(), CallError> {
        match self.state(connection) {
            State::Idle => Err(CallError::Gone),
            State::ReqSent | State::MraReqReceived => {
                let given_up = self.table.get(connection.0).ok_or(CallError::Gone)?;
                let rej = given_up.transmit(given_up.timeout_rej(&self.config));
                self.table.step(connection.0, Trigger::GiveUp)?;
                self.transmits.push_back(rej);
                self.finish_transition(now, connection.0);
                Ok(())
            }
            State::Established => self.disconnect(now, connection, DreqData::default()),
            State::DreqReceived => self.confirm_disconnect(now, connection, DrepData::default()),
            State::DreqSent | State::TimeWait => Ok(()),
            _ => self.reject(now, connection, &Rejection::by_consumer(RejData::default())),
        }
    }

    /// Number of connections that wait for a DREP.
    pub fn unconfirmed(&self) -> usize {
        self.table.disconnecting().count()
    }

    /// Retransmits all DREQs immediately, for a consumer that is about to exit.
    pub fn repeat_disconnects(&mut self) {
        self.transmits.extend(self.table.disconnecting().filter_map(Connection::retransmission));
    }

    /// After a transition: removes a connection in Idle, or starts the TimeWait timer.
    pub(super) fn finish_transition(&mut self, now: Instant, id: CommId) {
        if self.table.is_over(id) {
            self.table.remove(id, &mut self.timers);
        } else if let Some(connection) = self.table.get_mut(id) {
            connection.start_time_wait(now, &mut self.timers);
        }
    }

    pub(super) fn handle_dreq(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        dreq: &Dreq,
    ) -> Result<(), Ignored> {
        let (ours, theirs) = (dreq.remote_comm_id, dreq.local_comm_id);
        let connection = match self.find(envelope, ours, theirs) {
            Ok(connection) => connection,
            Err(unknown) => {
                // The connection does not exist here, and the peer must learn this (IBA 12.9.8, DREQ in Idle).
                let private_data = DrepData::default();
                let drep = Drep { local_comm_id: ours, remote_comm_id: theirs, private_data };
                self.reply(envelope, drep);
                return Err(unknown);
            }
        };
        if connection.local_qpn != dreq.remote_qpn {
            return Err(Ignored::WrongQueuePair);
        }
        match connection.state {
            // The DREP was lost, or the connection ended without the consumer.
            State::TimeWait => {
                let private_data = match connection.sent {
                    Some(SentMessage { message: CmMessage::Drep(drep), .. }) => drep.private_data,
                    _ => DrepData::default(),
                };
                let drep = Drep { local_comm_id: ours, remote_comm_id: theirs, private_data };
                self.reply(envelope, drep);
                Err(Ignored::Duplicate)
            }
            // Both sides disconnected simultaneously (IBA 12.9.8): no consumer has to confirm.
            State::DreqSent => {
                let connection = self.table.step(ours, Trigger::DreqArrives)?;
                connection.transaction = envelope.transaction;
                let private_data = DrepData::default();
                let drep = Drep { local_comm_id: ours, remote_comm_id: theirs, private_data };
                self.transmits.push_back(connection.send_and_keep(drep, 0));
                self.finish_transition(now, ours);
                let over = Disconnection::Simultaneous;
                self.events.push_back(Event::Disconnected(ConnectionId(ours), over));
                Ok(())
            }
            _ => {
                let connection = self.table.step(ours, Trigger::DreqArrives)?;
                connection.transaction = envelope.transaction;
                connection.sent = None;
                let consumer_timeout = connection.consumer_timeout;
                connection.arm(&mut self.timers, Some(now + consumer_timeout));
                let data = Box::new(dreq.private_data);
                self.events.push_back(Event::DisconnectRequest(ConnectionId(ours), data));
                Ok(())
            }
        }
    }

    pub(super) fn handle_drep(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        drep: &Drep,
    ) -> Result<(), Ignored> {
        let id = drep.remote_comm_id;
        self.find(envelope, id, drep.local_comm_id)?;
        self.table.step(id, Trigger::DrepArrives)?;
        self.finish_transition(now, id);
        let over = Disconnection::Confirmed(Box::new(drep.private_data));
        self.events.push_back(Event::Disconnected(ConnectionId(id), over));
        Ok(())
    }
}
