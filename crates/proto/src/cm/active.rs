//! Active side: sends REQ, receives REP, sends RTU (IBA 12.9).

use alloc::boxed::Box;

use ferroce_wire::cm::{CommId, Eecn, RejectReason, RejectedMessage, Rep, Req, Rtu};

use super::connection::{Connection, Role};
use super::event::{CallError, Event, Failure, Ignored, TooMany};
use super::parameters::{ConnectParameters, ConnectionId};
use super::peer::{Reply, rep_qpn};
use super::private_data::RtuData;
use super::state::{State, Trigger};
use super::{ConnectionManager, Envelope};
use crate::time::Instant;

impl ConnectionManager {
    /// Sends a REQ to a peer. [`Event::Reply`], [`Event::Rejected`] or [`Event::Failed`] follows.
    pub fn connect(
        &mut self,
        now: Instant,
        parameters: &ConnectParameters,
    ) -> Result<ConnectionId, TooMany> {
        let limit = self.config.max_connections;
        if self.table.len() >= limit {
            return Err(TooMany { limit });
        }
        let id = self.new_comm_id();
        let req = self.req(id, parameters);
        let mut connection = Connection::new(
            &self.config,
            Role::Active,
            id,
            parameters.path.remote_gid,
            &req,
            parameters.transport,
            self.comm_ids.transaction(id),
        );
        let options = parameters.enhancements.options;
        self.transmits.push_back(connection.start(now, &mut self.timers, req, options));
        self.table.insert(connection, Trigger::Connect);
        self.arm_keepalive(now);
        Ok(ConnectionId(id))
    }

    /// Sends the RTU after [`Event::Reply`], when the local QP is ready. The connection is established.
    #[doc(alias = "rdma_establish")]
    pub fn ready(
        &mut self,
        connection: ConnectionId,
        private_data: RtuData,
    ) -> Result<(), CallError> {
        let first = self.config.keepalive.map(|keepalive| keepalive.first);
        let connection = self.table.step(connection.0, Trigger::Ready)?;
        let deadline = first.map(|schedule| connection.prepare_probe(schedule));
        connection.arm(&mut self.timers, deadline);
        let rtu =
            Rtu { local_comm_id: connection.id, remote_comm_id: connection.remote(), private_data };
        self.transmits.push_back(connection.send_and_keep(rtu, 0));
        Ok(())
    }

    pub(super) fn new_comm_id(&mut self) -> CommId {
        let (table, resolutions) = (&self.table, &self.resolutions);
        self.comm_ids.next(|id| table.contains(id) || resolutions.contains(id))
    }

    /// Builds the REQ (IBA 12.6.5).
    fn req(&self, id: CommId, parameters: &ConnectParameters) -> Req {
        let (transport_service, extended_transport) = parameters.transport.codes();
        let req = Req {
            local_comm_id: id,
            vendor_id: parameters.enhancements.vendor,
            service_id: parameters.service_id,
            local_ca_guid: self.config.ca_guid,
            local_qpn: parameters.local_qpn,
            responder_resources: parameters.responder_resources,
            local_eecn: Eecn::default(),
            initiator_depth: parameters.initiator_depth,
            remote_response_timeout: parameters.remote_response_timeout,
            transport_service,
            end_to_end_flow_control: parameters.end_to_end_flow_control,
            starting_psn: parameters.starting_psn,
            local_response_timeout: parameters.local_response_timeout,
            // Clamped to the field widths, so that our own count is the one the peer reads.
            retry_count: parameters.retry_count.min(7),
            max_cm_retries: parameters.max_cm_retries.min(15),
            partition: parameters.partition,
            path_mtu: parameters.path_mtu,
            rnr_retry_count: parameters.rnr_retry_count,
            shared_receive_queue: parameters.shared_receive_queue,
            extended_transport,
            private_data: parameters.private_data,
            ..Req::default()
        };
        let req = req.with_primary_path(&parameters.path);
        parameters.alternate_path.map_or(req, |path| req.with_alternate_path(&path))
    }

    pub(super) fn handle_rep(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        rep: &Rep,
    ) -> Result<(), Ignored> {
        let (ours, theirs) = (rep.remote_comm_id, rep.local_comm_id);
        let connection = match self.find(envelope, ours, theirs) {
            Ok(connection) if connection.role == Role::Active => connection,
            // The passive side must not wait for an RTU that cannot come (IBA 12.9, REP in Idle).
            _ => {
                let reason = RejectReason::INVALID_COMM_ID;
                self.refuse(envelope, RejectedMessage::REP, ours, theirs, reason);
                return Err(Ignored::Unknown(ours));
            }
        };
        match connection.state {
            State::ReqSent | State::MraReqReceived => self.take_rep(now, envelope, rep),
            // The RTU was lost (IBA 12.9), or the consumer has not answered yet.
            State::Established => self.retransmit_last(ours),
            State::RepReceived | State::MraRepSent => self.delay_peer(now, ours),
            state => Err(Ignored::OutOfPlace(state)),
        }
    }

    fn take_rep(&mut self, now: Instant, envelope: &Envelope, rep: &Rep) -> Result<(), Ignored> {
        let id = rep.remote_comm_id;
        let transport = self.find(envelope, id, rep.local_comm_id)?.transport;
        let qpn = rep_qpn(rep, transport);
        if let Some(other) = self.table.by_remote_qpn(envelope.from, rep.local_ca_guid, qpn) {
            // The peer has lost a connection that we still have (IBA 12.9.8.3.1).
            if !self.may_supersede(now, other)? {
                let reason = RejectReason::STALE_CONNECTION;
                self.refuse(envelope, RejectedMessage::REP, id, rep.local_comm_id, reason);
                self.table.step(id, Trigger::GiveUp)?;
                self.finish_transition(now, id);
                self.events.push_back(Event::Failed(ConnectionId(id), Failure::StaleReply));
                return Err(Ignored::Stale);
            }
        }
        let connection = self.table.step(id, Trigger::RepArrives)?;
        connection.remote_id = Some(rep.local_comm_id);
        connection.remote_guid = rep.local_ca_guid;
        connection.remote_qpn = Some(qpn);
        connection.time_wait =
            connection.round_trip + self.config.bounded(rep.target_ack_delay.duration());
        connection.sent = None;
        connection.answered_at = now;
        let consumer_timeout = connection.consumer_timeout;
        connection.arm(&mut self.timers, Some(now + consumer_timeout));
        self.table.index(id);
        let reply = Reply::new(rep, transport, envelope.modifier);
        self.events.push_back(Event::Reply(ConnectionId(id), Box::new(reply)));
        Ok(())
    }
}
