//! Passive side: receives REQ, sends REP, receives RTU (IBA 12.9).

use alloc::boxed::Box;

use ferroce_wire::cm::{CommId, Eecn, RejectReason, RejectedMessage, Rep, Req, Rtu, Transport};
use ferroce_wire::number::Qpn;

use super::connection::{Connection, Role};
use super::event::{CallError, Event, Failure, Ignored};
use super::parameters::{AcceptParameters, ConnectionId};
use super::peer::Request;
use super::state::{State, Trigger};
use super::{ConnectionManager, Envelope};
use crate::time::Instant;

impl ConnectionManager {
    /// Accepts a peer's request with a REP. The QP should be in RTR.
    #[doc(alias = "rdma_accept")]
    pub fn accept(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        parameters: &AcceptParameters,
    ) -> Result<(), CallError> {
        let connection = self.table.step(connection.0, Trigger::Accept)?;
        connection.local_qpn = parameters.local_qpn;
        let is_xrc = connection.transport == Transport::Xrc;
        let qpn = parameters.local_qpn;
        let rep = Rep {
            local_comm_id: connection.id,
            remote_comm_id: connection.remote(),
            // The QPN of an XRC target is in a field of its own, and it always uses SRQs (IBA A14).
            local_qpn: if is_xrc { Qpn::default() } else { qpn },
            local_eecn: if is_xrc { Eecn(qpn.0) } else { Eecn::default() },
            starting_psn: parameters.starting_psn,
            responder_resources: parameters.responder_resources,
            initiator_depth: parameters.initiator_depth,
            target_ack_delay: self.config.ack_delay,
            failover: parameters.failover,
            end_to_end_flow_control: parameters.end_to_end_flow_control,
            rnr_retry_count: parameters.rnr_retry_count,
            shared_receive_queue: is_xrc || parameters.shared_receive_queue,
            local_ca_guid: self.config.ca_guid,
            private_data: parameters.private_data,
            ..Rep::default()
        }
        .with_vendor_id(parameters.enhancements.vendor);
        let options = parameters.enhancements.options;
        let rep = connection.start_rep(now, &mut self.timers, &self.config, rep, options);
        self.transmits.push_back(rep);
        self.arm_keepalive(now);
        Ok(())
    }

    /// Data arrived on the QP of a connection whose RTU is missing: the connection is established (IBA 12.9).
    /// [`Event::Established`] follows.
    pub fn handle_data_received(&mut self, connection: ConnectionId) -> Result<(), CallError> {
        self.establish(connection.0, Trigger::DataArrives)?;
        self.events.push_back(Event::Established(connection, None));
        Ok(())
    }

    fn establish(&mut self, id: CommId, trigger: Trigger) -> Result<(), CallError> {
        let connection = self.table.step(id, trigger)?;
        // The REP is kept: it serves as a probe.
        connection.arm(&mut self.timers, None);
        Ok(())
    }

    pub(super) fn handle_rtu(&mut self, envelope: &Envelope, rtu: &Rtu) -> Result<(), Ignored> {
        let (ours, theirs) = (rtu.remote_comm_id, rtu.local_comm_id);
        if let Err(unknown) = self.find(envelope, ours, theirs) {
            // We gave up, and our REJ was lost: the peer must not consider the connection established. An ID that is
            // in use with another peer is not rejected: Linux would tear down that connection.
            if !self.table.contains(ours) {
                let reason = RejectReason::INVALID_COMM_ID;
                self.refuse(envelope, RejectedMessage::NONE, ours, theirs, reason);
            }
            return Err(unknown);
        }
        if self.state(ConnectionId(ours)) == State::Established {
            return self.answered_by_rtu(ours);
        }
        self.establish(ours, Trigger::RtuArrives)?;
        let private_data = Some(Box::new(rtu.private_data));
        self.events.push_back(Event::Established(ConnectionId(ours), private_data));
        Ok(())
    }

    pub(super) fn handle_req(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        req: &Req,
    ) -> Result<(), Ignored> {
        let (from, guid, theirs) = (envelope.from, req.local_ca_guid, req.local_comm_id);
        if let Some(known) = self.table.by_remote_id(from, guid, theirs) {
            return self.handle_known_req(now, envelope, req, known);
        }
        if self.listeners.contains_key(&req.service_id.0) && self.wait_for_rtu(now, envelope, req) {
            return Ok(());
        }
        self.handle_new_req(now, envelope, req)
    }

    /// Handles a REQ with a sender ID that is not known.
    pub(super) fn handle_new_req(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        req: &Req,
    ) -> Result<(), Ignored> {
        let (from, guid) = (envelope.from, req.local_ca_guid);
        if let Some(other) = self.table.by_remote_qpn(from, guid, req.local_qpn) {
            if !self.may_supersede(now, other)? {
                self.refuse_req(envelope, req, RejectReason::STALE_CONNECTION);
                return Err(Ignored::Stale);
            }
        }
        let Some(&backlog) = self.listeners.get(&req.service_id.0) else {
            self.refuse_req(envelope, req, RejectReason::INVALID_SERVICE_ID);
            return Err(Ignored::NoListener(req.service_id));
        };
        let transport = match req.transport() {
            Some(transport) if transport != Transport::Rd => transport,
            _ => {
                self.refuse_req(envelope, req, RejectReason::INVALID_TRANSPORT_TYPE);
                return Err(Ignored::BadRequest);
            }
        };
        if req.path_mtu.bytes().is_none() {
            self.refuse_req(envelope, req, RejectReason::INVALID_PATH_MTU);
            return Err(Ignored::BadRequest);
        }
        if self.table.waiting(req.service_id) >= backlog {
            return Err(Ignored::Backlog);
        }
        if self.table.half_open_from(from) >= self.config.max_half_open_per_source {
            return Err(Ignored::Backlog);
        }
        if self.table.half_open() >= self.config.max_half_open {
            self.evict();
        }
        if self.table.half_open() >= self.config.max_half_open
            || self.table.len() >= self.config.max_connections
        {
            self.refuse_req(envelope, req, RejectReason::NO_RESOURCES);
            return Err(Ignored::LimitReached);
        }
        let id = self.new_comm_id();
        let mut connection = Connection::new(
            &self.config,
            Role::Passive,
            id,
            from,
            req,
            transport,
            envelope.transaction,
        );
        let consumer_timeout = connection.consumer_timeout;
        connection.arm(&mut self.timers, Some(now + consumer_timeout));
        self.table.insert(connection, Trigger::ReqArrives);
        let request = Request::new(from, req, transport, envelope.modifier);
        self.events.push_back(Event::Request(ConnectionId(id), Box::new(request)));
        Ok(())
    }

    /// Drops the oldest half-open connection that waits for its RTU. Those that the consumer has not answered stay:
    /// the consumer knows them, and the backlog limits them.
    fn evict(&mut self) {
        let Some(id) = self.table.oldest_awaiting_rtu() else { return };
        let Some(connection) = self.table.get(id) else { return };
        let rej = connection.transmit(connection.timeout_rej(&self.config));
        if self.table.step(id, Trigger::Evict).is_ok() {
            self.transmits.push_back(rej);
            self.table.remove(id, &mut self.timers);
            self.events.push_back(Event::Failed(ConnectionId(id), Failure::Evicted));
        }
    }

    /// Handles a REQ with a known sender ID: a retransmission, or an ID used twice (IBA 12.9.8).
    fn handle_known_req(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        req: &Req,
        known: CommId,
    ) -> Result<(), Ignored> {
        let connection = self.table.get(known).ok_or(Ignored::Unknown(known))?;
        let same = connection.role == Role::Passive
            && connection.remote_qpn == Some(req.local_qpn)
            && connection.request_psn == req.starting_psn
            && connection.service == req.service_id;
        if !same {
            self.refuse_req(envelope, req, RejectReason::DUPLICATE_LOCAL_COMM_ID);
            return Err(Ignored::BadRequest);
        }
        match connection.state {
            State::ReqReceived | State::MraReqSent => self.delay_peer(now, known),
            // The REP timer continues: the peer only gets its response earlier.
            State::RepSent | State::MraRepReceived => self.retransmit_last(known),
            State::TimeWait => {
                self.refuse_req(envelope, req, RejectReason::STALE_CONNECTION);
                Err(Ignored::Stale)
            }
            state => Err(Ignored::OutOfPlace(state)),
        }
    }

    fn refuse_req(&mut self, envelope: &Envelope, req: &Req, reason: RejectReason) {
        let none = CommId::default();
        self.refuse(envelope, RejectedMessage::REQ, none, req.local_comm_id, reason);
    }
}
