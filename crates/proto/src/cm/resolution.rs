//! Service ID resolution (SIDR): finds the UD QP of a service (IBA 12.11).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CommId, ServiceId, SidrRep, SidrReq, SidrStatus};
use ferroce_wire::mad::TransactionId;

use super::event::{CallError, Event, Ignored, ServiceInUse, TooMany, Transmit};
use super::parameters::{
    Enhancements, Query, QueryId, Resolution, ResolutionId, ResolveParameters,
};
use super::timer::{Timer, Timers};
use super::{ConnectionManager, Envelope};
use crate::time::Instant;

/// Local and peers' resolutions.
#[derive(Debug, Default)]
pub(super) struct Resolutions {
    pending: BTreeMap<u32, PendingResolution>,
    received: BTreeMap<u32, PendingQuery>,
    /// Peers' resolutions by source address, request ID and transaction.
    by_request: BTreeMap<(Gid, u32, u64), CommId>,
    listeners: BTreeSet<u64>,
}

/// A local resolution, retransmitted until a response arrives.
#[derive(Debug)]
struct PendingResolution {
    transmit: Transmit,
    response: Duration,
    retries: u8,
    max_retries: u8,
    deadline: Option<Instant>,
}

/// A peer's resolution, kept for a while so that a retransmission gets the same response and the consumer is asked
/// once.
#[derive(Debug)]
struct PendingQuery {
    from: Gid,
    traffic_class: u8,
    request_id: CommId,
    transaction: TransactionId,
    service: ServiceId,
    answer: Option<Transmit>,
    deadline: Option<Instant>,
}

impl Resolutions {
    pub(super) fn len(&self) -> usize {
        self.pending.len() + self.received.len()
    }

    pub(super) fn contains(&self, id: CommId) -> bool {
        self.pending.contains_key(&id.0) || self.received.contains_key(&id.0)
    }

    /// Whether this is a pending local resolution with this peer.
    pub(super) fn is_pending(&self, id: CommId, peer: Gid, transaction: TransactionId) -> bool {
        self.pending.get(&id.0).is_some_and(|pending| {
            pending.transmit.destination == peer && pending.transmit.transaction == transaction
        })
    }

    /// Whether the service has a listener, or the request is a retransmission.
    pub(super) fn concerns(&self, from: Gid, by: TransactionId, request: &SidrReq) -> bool {
        self.listeners.contains(&request.service_id.0)
            || self.by_request.contains_key(&(from, request.request_id.0, by.0))
    }

    fn forget(&mut self, id: CommId, timers: &mut Timers) {
        if let Some(mut pending) = self.pending.remove(&id.0) {
            timers.set(Timer::Resolution(id.0), &mut pending.deadline, None);
        }
        if let Some(mut received) = self.received.remove(&id.0) {
            timers.set(Timer::Query(id.0), &mut received.deadline, None);
            let name = (received.from, received.request_id.0, received.transaction.0);
            self.by_request.remove(&name);
        }
    }
}

impl ConnectionManager {
    /// Listens for SIDR_REQs of a service.
    pub fn listen_datagrams(&mut self, service: ServiceId) -> Result<(), ServiceInUse> {
        match self.resolutions.listeners.insert(service.0) {
            true => Ok(()),
            false => Err(ServiceInUse(service)),
        }
    }

    /// Stops listening.
    pub fn unlisten_datagrams(&mut self, service: ServiceId) {
        self.resolutions.listeners.remove(&service.0);
    }

    /// Sends a SIDR_REQ for a service. [`Event::Resolved`] or [`Event::Unresolved`] follows.
    pub fn resolve(
        &mut self,
        now: Instant,
        parameters: &ResolveParameters,
    ) -> Result<ResolutionId, TooMany> {
        let limit = self.config.max_resolutions;
        if self.resolutions.pending.len() >= limit {
            return Err(TooMany { limit });
        }
        let id = self.new_comm_id();
        let request = SidrReq {
            request_id: id,
            partition: parameters.partition,
            service_id: parameters.service_id,
            private_data: parameters.private_data,
            ..SidrReq::default()
        };
        let transmit = Transmit {
            destination: parameters.destination,
            traffic_class: parameters.traffic_class,
            connection: None,
            transaction: self.comm_ids.transaction(id),
            modifier: 0,
            message: request.into(),
        };
        let response = parameters.response_timeout.duration();
        let max_retries = parameters.max_retries;
        let mut pending =
            PendingResolution { transmit, response, retries: 0, max_retries, deadline: None };
        self.timers.set(Timer::Resolution(id.0), &mut pending.deadline, Some(now + response));
        self.resolutions.pending.insert(id.0, pending);
        self.transmits.push_back(transmit);
        Ok(ResolutionId(id))
    }

    /// Cancels a resolution. No event follows.
    pub fn cancel_resolution(&mut self, resolution: ResolutionId) {
        self.resolutions.forget(resolution.0, &mut self.timers);
    }

    /// Sends the SIDR_REP for [`Event::Query`].
    pub fn answer(&mut self, query: QueryId, resolution: &Resolution) -> Result<(), CallError> {
        let received = self.resolutions.received.get_mut(&query.0.0).ok_or(CallError::Gone)?;
        let reply = SidrRep {
            request_id: received.request_id,
            status: resolution.status,
            information_length: resolution.information_length.min(72),
            qpn: resolution.qpn,
            service_id: received.service,
            q_key: resolution.q_key,
            information: resolution.information,
            private_data: resolution.private_data,
            ..SidrRep::default()
        }
        .with_vendor_id(resolution.enhancements.vendor);
        let transmit = Transmit {
            destination: received.from,
            traffic_class: received.traffic_class,
            connection: None,
            transaction: received.transaction,
            modifier: resolution.enhancements.options,
            message: reply.into(),
        };
        received.answer = Some(transmit);
        self.transmits.push_back(transmit);
        Ok(())
    }

    /// Refuses a SIDR_REQ that is not kept.
    pub(super) fn refuse_resolution(
        &mut self,
        envelope: &Envelope,
        request_id: CommId,
        service_id: ServiceId,
        status: SidrStatus,
    ) {
        self.reply(envelope, SidrRep { request_id, service_id, status, ..SidrRep::default() });
    }

    pub(super) fn handle_sidr_req(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        request: &SidrReq,
    ) -> Result<(), Ignored> {
        let name = (envelope.from, request.request_id.0, envelope.transaction.0);
        if let Some(known) = self.resolutions.by_request.get(&name) {
            let received = self.resolutions.received.get(&known.0);
            self.transmits.extend(received.and_then(|received| received.answer));
            return Err(Ignored::Duplicate);
        }
        if !self.resolutions.listeners.contains(&request.service_id.0) {
            let status = SidrStatus::UNSUPPORTED_SERVICE;
            self.refuse_resolution(envelope, request.request_id, request.service_id, status);
            return Err(Ignored::NoListener(request.service_id));
        }
        if self.resolutions.received.len() >= self.config.max_resolutions {
            return Err(Ignored::LimitReached);
        }
        let id = self.new_comm_id();
        let mut received = PendingQuery {
            from: envelope.from,
            traffic_class: envelope.traffic_class,
            request_id: request.request_id,
            transaction: envelope.transaction,
            service: request.service_id,
            answer: None,
            deadline: None,
        };
        let forgotten = now + self.config.resolution_memory;
        self.timers.set(Timer::Query(id.0), &mut received.deadline, Some(forgotten));
        self.resolutions.received.insert(id.0, received);
        self.resolutions.by_request.insert(name, id);
        let query = Query {
            from: envelope.from,
            service_id: request.service_id,
            partition: request.partition,
            private_data: request.private_data,
        };
        self.events.push_back(Event::Query(QueryId(id), Box::new(query)));
        Ok(())
    }

    pub(super) fn handle_sidr_rep(
        &mut self,
        envelope: &Envelope,
        reply: &SidrRep,
    ) -> Result<(), Ignored> {
        let id = reply.request_id;
        let pending = self.resolutions.pending.get(&id.0).ok_or(Ignored::Unknown(id))?;
        // The response repeats the service, except from a peer that could not parse the request.
        let service_matches = pending.transmit.message.service_id() == Some(reply.service_id)
            || reply.status == SidrStatus::UNSUPPORTED_VERSION;
        if pending.transmit.destination != envelope.from || !service_matches {
            return Err(Ignored::Unknown(id));
        }
        self.resolutions.forget(id, &mut self.timers);
        let resolution = Resolution {
            status: reply.status,
            qpn: reply.qpn,
            q_key: reply.q_key,
            information: reply.information,
            information_length: reply.information_length.min(72),
            enhancements: Enhancements { vendor: reply.vendor_id(), options: envelope.modifier },
            private_data: reply.private_data,
        };
        self.events.push_back(Event::Resolved(ResolutionId(id), Box::new(resolution)));
        Ok(())
    }

    pub(super) fn resolution_timeout(&mut self, now: Instant, id: CommId) {
        let Some(pending) = self.resolutions.pending.get_mut(&id.0) else { return };
        if pending.retries < pending.max_retries {
            pending.retries += 1;
            let deadline = Some(now + pending.response);
            self.timers.set(Timer::Resolution(id.0), &mut pending.deadline, deadline);
            self.transmits.push_back(pending.transmit);
            return;
        }
        self.resolutions.forget(id, &mut self.timers);
        self.events.push_back(Event::Unresolved(ResolutionId(id)));
    }

    pub(super) fn query_timeout(&mut self, id: CommId) {
        self.resolutions.forget(id, &mut self.timers);
    }
}
