//! Turns events of the connection manager into events of a cm_id.

use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};

use ferroce_proto::cm::{
    ConnectionId, DrepData, Event, Failure, Information, Loss, Query, QueryId, Rejection, Reply,
    Request as PeerRequest, Resolution, RtuData,
};
use ferroce_proto::qp::AddressVector;
use ferroce_proto::reason::Reason;
use ferroce_proto::time::Instant;
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{RejectReason, ServiceId, SidrStatus};
use ferroce_wire::number::Qpn;
use ferroce_wire::rdmacm::{split_private_data, split_service_id};

use super::attributes;
use super::id::{CmId, EventKind, Request, Shared};
use super::link::LocalLink;
use super::parameters::{DatagramPeer, Established, PeerParameters};
use super::state::{Exchange, Stage, State};
use crate::engine::{CmEventHandler, CmLink};
use crate::error::CmError;
use crate::sync::lock;

impl CmEventHandler for Shared {
    fn handle_cm_event(self: Arc<Self>, link: CmLink<'_>, event: Event) {
        match event {
            Event::Request(connection, request) => self.handle_request(link, connection, &request),
            Event::Query(query, request) => self.handle_query(link, query, &request),
            Event::Reply(connection, reply) => self.handle_reply(link, connection, &reply),
            Event::Established(connection, _) => self.handle_established(link, connection),
            Event::Rejected(_, rejection) => self.finish(EventKind::Rejected {
                reason: rejection.reason,
                private_data: rejection.private_data.0.to_vec(),
            }),
            Event::Failed(_, Failure::Unreachable | Failure::NeverReady | Failure::Evicted) => {
                self.finish(EventKind::Unreachable(None));
            }
            // The response of Linux's connection manager for a port without a listener.
            Event::Failed(_, Failure::PortClosed) => self.finish(EventKind::Rejected {
                reason: RejectReason::INVALID_SERVICE_ID,
                private_data: Vec::new(),
            }),
            Event::Failed(_, Failure::ConsumerTooSlow) => {
                self.finish(EventKind::ConnectError(CmError::ResponseTooLate));
            }
            Event::Failed(_, Failure::StaleReply) => {
                self.finish(EventKind::ConnectError(CmError::StaleConnection));
            }
            Event::DisconnectRequest(connection, _) => {
                self.handle_disconnect_request(link, connection)
            }
            Event::Unanswered(connection, begun) => self.handle_unanswered(link, connection, begun),
            Event::Disconnected(_, how) => self.finish(EventKind::Disconnected((&how).into())),
            Event::TimeWaitEnded(_) => self.handle_timewait_exit(),
            Event::Resolved(_, resolution) => self.handle_resolution(&resolution),
            Event::Unresolved(_) => self.finish(EventKind::Unreachable(None)),
        }
    }

    fn handle_neighbour(self: Arc<Self>, failure: Option<CmError>) {
        let state = self.open_state().filter(|state| state.stage == Stage::Resolving);
        let Some(mut state) = state else { return };
        match failure {
            None => {
                state.stage = Stage::AddressResolved;
                self.raise(EventKind::AddressResolved);
            }
            Some(error) => {
                state.stage = if state.bound.is_empty() { Stage::Idle } else { Stage::Bound };
                self.raise(EventKind::AddressError(error));
            }
        }
    }
}

/// Returns the peer's port and the program's part of the private data of a request.
fn port_and_data(service: ServiceId, data: &[u8]) -> (u16, &[u8]) {
    let split = split_private_data(service, data);
    split.map_or((0, data), |(header, rest)| (header.source_port, rest))
}

/// Returns the state of the new cm_id of a request.
fn incoming_state(local_link: LocalLink, from: Gid, service: ServiceId, port: u16) -> State {
    let mut local = local_link.address();
    local.set_port(split_service_id(service).map_or(0, |(_, port)| port));
    let mut peer = SocketAddr::new(from.to_ip(), port);
    if let (SocketAddr::V6(peer), SocketAddr::V6(local)) = (&mut peer, &local) {
        peer.set_scope_id(local.scope_id());
    }
    State {
        stage: Stage::Requested,
        local_link: Some(local_link),
        local: Some(local),
        peer: Some(peer),
        service_id: service,
        ..State::default()
    }
}

impl Shared {
    /// Locks the state, unless the program has dropped the cm_id. Events are raised under this lock, so none follows the
    /// drop.
    fn open_state(&self) -> Option<MutexGuard<'_, State>> {
        Some(lock(&self.state)).filter(|state| !state.closed)
    }

    /// The link of the event, which the cm_id listens on.
    fn listening_link(&self, link: CmLink<'_>) -> Option<LocalLink> {
        self.open_state()?.bound.iter().find(|bound| bound.is(link)).cloned()
    }

    /// Delivers a request to the listener.
    fn deliver_request(&self, id: CmId, parameters: PeerParameters, private_data: &[u8]) {
        let private_data = private_data.to_vec();
        let request = Box::new(Request { id, parameters, private_data });
        // Without a listener the request is dropped, and its cm_id rejects it.
        match self.open_state() {
            Some(_open) => self.raise(EventKind::ConnectRequest(request)),
            None => drop(request),
        }
    }

    fn handle_request(&self, link: CmLink<'_>, connection: ConnectionId, request: &PeerRequest) {
        let (port, private_data) = port_and_data(request.service_id, &request.private_data.0);
        let Some(local_link) = self.listening_link(link) else {
            link.act(|manager, now| manager.drop_connection(now, connection));
            return;
        };
        let mut ours = local_link.context.mtu();
        // Only a peer on this host can have a larger path MTU than the device.
        if request.path_mtu.bytes() > ours.bytes() {
            let back = local_link.route_to(request.from);
            let path = back.and_then(|back| local_link.context.path_mtu_to(back.destination));
            ours = path.unwrap_or(ours);
        }
        if request.path_mtu.bytes() > ours.bytes() {
            // IBA 12.6.7.2, reason 26: the information is the largest path MTU that we support.
            let information = Information::padded(&[ours.0 << 4]).unwrap_or_default();
            let rejection = Rejection {
                information,
                information_length: 1,
                ..Rejection::new(RejectReason::INVALID_PATH_MTU)
            };
            let _ = link.act(|manager, now| manager.cm.reject(now, connection, &rejection));
            return;
        }
        let parameters = PeerParameters::of_request(request);
        let state = State {
            negotiated: attributes::of_request(local_link.source_index(), request),
            path_mtu: request.path_mtu,
            traffic_class: request.path.traffic_class.0,
            service: Some(parameters.service),
            exchange: Exchange::Connection(connection),
            ..incoming_state(local_link, request.from, request.service_id, port)
        };
        let id = CmId::with_state(self.channel(), self.space, state);
        link.act(|manager, _| {
            manager.connections.insert(connection, id.shared().handler());
        });
        self.deliver_request(id, parameters, private_data);
    }

    fn handle_query(&self, link: CmLink<'_>, query: QueryId, request: &Query) {
        let (port, private_data) = port_and_data(request.service_id, &request.private_data.0);
        let Some(local_link) = self.listening_link(link) else {
            link.act(|manager, _| manager.drop_query(query, SidrStatus::REJECTED));
            return;
        };
        let parameters = PeerParameters::datagram(Qpn(0));
        let path_mtu = local_link.context.mtu();
        let state = State {
            path_mtu,
            service: Some(parameters.service),
            exchange: Exchange::Query(query),
            ..incoming_state(local_link, request.from, request.service_id, port)
        };
        let id = CmId::with_state(self.channel(), self.space, state);
        self.deliver_request(id, parameters, private_data);
    }

    fn handle_reply(&self, link: CmLink<'_>, connection: ConnectionId, reply: &Reply) {
        let Some(mut state) = self.open_state() else { return };
        attributes::learn(&mut state.negotiated, reply);
        let established = Box::new(Established {
            parameters: PeerParameters::of_reply(
                reply,
                state.service(),
                state.negotiated.retry_count.unwrap_or(0),
            ),
            private_data: reply.private_data.0.to_vec(),
            datagram: None,
        });
        let Some(queue_pair) = &state.queue_pair else {
            state.stage = Stage::Responded;
            return self.raise(EventKind::ConnectResponse(established));
        };
        if let Err(error) = attributes::bring_up(&state.negotiated, queue_pair) {
            attributes::fail(Some(queue_pair));
            let rejection = Rejection::new(RejectReason::NO_RESOURCES);
            let _ = link.act(|manager, now| {
                manager.connections.remove(&connection);
                manager.cm.reject(now, connection, &rejection)
            });
            (state.stage, state.exchange) = (Stage::Over, Exchange::Nothing);
            return self.raise(EventKind::ConnectError(error));
        }
        queue_pair.set_established();
        // If the peer has given up, another event follows.
        let ready = link.act(|manager, _| manager.cm.ready(connection, RtuData::default()));
        if ready.is_ok() {
            state.stage = Stage::Connected;
            self.raise(EventKind::Established(established));
            drop(state);
            link.watch_peer(connection);
        }
    }

    fn handle_established(&self, link: CmLink<'_>, connection: ConnectionId) {
        link.watch_peer(connection);
        let Some(mut state) = self.open_state() else { return };
        if let Some(queue_pair) = &state.queue_pair {
            queue_pair.set_established();
        }
        state.stage = Stage::Connected;
        let negotiated = &state.negotiated;
        let parameters = PeerParameters {
            responder_resources: negotiated.max_dest_rd_atomic.unwrap_or(0),
            initiator_depth: negotiated.max_rd_atomic.unwrap_or(0),
            retry_count: negotiated.retry_count.unwrap_or(0),
            rnr_retry: negotiated.rnr_retry.unwrap_or_default(),
            service: state.service(),
            ..PeerParameters::datagram(negotiated.destination.unwrap_or_default())
        };
        let established = Established { parameters, private_data: Vec::new(), datagram: None };
        self.raise(EventKind::Established(Box::new(established)));
    }

    fn handle_disconnect_request(&self, link: CmLink<'_>, connection: ConnectionId) {
        if let Some(mut state) = self.open_state() {
            if let Some(queue_pair) = &state.queue_pair {
                queue_pair.end(&Reason::PeerDisconnected);
            }
            state.stage = Stage::Disconnecting;
        }
        let _ = link.act(|manager, now| {
            manager.cm.confirm_disconnect(now, connection, DrepData::default())
        });
    }

    /// Handles a probe without a response of the peer's connection manager. Data from the peer counts as a response, and so
    /// does a living process of this host.
    fn handle_unanswered(&self, link: CmLink<'_>, connection: ConnectionId, begun: Instant) {
        let number = link.act(|manager, _| manager.cm.queue_pair(connection));
        let Some(number) = number else { return };
        let process = link.peer_process(connection);
        let processes = link.connections.processes(link.transport);
        if process.is_some_and(|name| processes.is_some_and(|all| all.is_alive(name))) {
            return; // The process is stopped or busy. Its exit would raise an event.
        }
        let local_link = self.open_state().and_then(|state| state.local_link.clone());
        let queue_pair = local_link.and_then(|link| link.context.handle.queue_pair(number));
        // When it last received something from its peer.
        let heard = queue_pair.and_then(|core| core.inner.lock().heard);
        link.act(|manager, now| {
            if heard.is_none_or(|heard| heard < begun) {
                let _ = manager.cm.peer_is_lost(now, connection, Loss::NoResponse);
            }
        });
    }

    /// Ends the connection with an event.
    fn finish(&self, kind: EventKind) {
        let Some(mut state) = self.open_state() else { return };
        if let Exchange::Connection(_) = state.exchange {
            attributes::fail(state.queue_pair.as_ref());
        }
        state.stage = Stage::Over;
        self.raise(kind);
    }

    fn handle_timewait_exit(&self) {
        let Some(mut state) = self.open_state() else { return };
        state.exchange = Exchange::Nothing;
        self.raise(EventKind::TimewaitExit);
    }

    fn handle_resolution(&self, resolution: &Resolution) {
        if resolution.status != SidrStatus::VALID {
            return self.finish(EventKind::Unreachable(Some(resolution.status)));
        }
        let Some(mut state) = self.open_state() else { return };
        let (Some(local_link), Some(peer)) = (&state.local_link, state.peer) else { return };
        let address = AddressVector {
            port: 1,
            source_index: local_link.source_index(),
            destination: Gid::from_ip(peer.ip()),
            traffic_class: state.traffic_class,
            flow_label: state.route.map_or(0, |route| route.flow_label),
            hop_limit: state.route.map_or(64, |route| route.hop_limit),
            ..AddressVector::default()
        };
        (state.stage, state.exchange) = (Stage::Connected, Exchange::Nothing);
        let (queue_pair, queue_key) = (resolution.qpn, resolution.q_key);
        self.raise(EventKind::Established(Box::new(Established {
            parameters: PeerParameters::datagram(queue_pair),
            private_data: resolution.private_data.0.to_vec(),
            datagram: Some(DatagramPeer { queue_pair, queue_key, address }),
        })));
    }
}
