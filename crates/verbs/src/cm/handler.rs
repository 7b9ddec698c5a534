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
use ferroce_wire::rdmacm::{split_private_data, split_service_id};

use super::attributes::{self, Negotiated};
use super::connect::{random_psn, set_established};
use super::event::{DatagramPeer, Established, EventKind, PeerParameters, Request};
use super::id::{CmId, Exchange, Shared, Stage, State};
use super::link::LocalLink;
use crate::engine::{CmEventHandler, Connections, MadTransport, Manager};
use crate::error::CmError;
use crate::sync::lock;

impl CmEventHandler for Shared {
    fn handle_cm_event(
        self: Arc<Self>,
        connections: &Connections,
        transport: &dyn MadTransport,
        link: u8,
        event: Event,
    ) {
        handle(connections, transport, link, &self, event);
    }

    fn handle_neighbour(self: Arc<Self>, failure: Option<CmError>) {
        let mut state = lock(&self.state);
        if state.closed || state.stage != Stage::Resolving {
            return;
        }
        match failure {
            None => {
                state.stage = Stage::AddressResolved;
                self.raise(EventKind::AddressResolved);
            }
            Some(error) => {
                state.stage = state.before;
                self.raise(EventKind::AddressError(error));
            }
        }
    }
}

/// Handles an event of the connection manager for a cm_id.
fn handle(
    connections: &Connections,
    transport: &dyn MadTransport,
    link: u8,
    id: &Arc<Shared>,
    event: Event,
) {
    let handler = Handler { connections, transport, link, id };
    match event {
        Event::Request(connection, request) => handler.handle_request(connection, &request),
        Event::Query(query, request) => handler.handle_query(query, &request),
        Event::Reply(connection, reply) => handler.handle_reply(connection, &reply),
        Event::Established(connection, _) => handler.handle_established(connection),
        Event::Rejected(_, rejection) => handler.finish(EventKind::Rejected {
            reason: rejection.reason,
            private_data: rejection.private_data.0.to_vec(),
        }),
        Event::Failed(_, Failure::Unreachable | Failure::NeverReady | Failure::Evicted) => {
            handler.finish(EventKind::Unreachable(None));
        }
        // The response of Linux's connection manager for a port without a listener.
        Event::Failed(_, Failure::PortClosed) => handler.finish(EventKind::Rejected {
            reason: RejectReason::INVALID_SERVICE_ID,
            private_data: Vec::new(),
        }),
        Event::Failed(_, Failure::ConsumerTooSlow) => {
            handler.finish(EventKind::ConnectError(CmError::ResponseTooLate));
        }
        Event::Failed(_, Failure::StaleReply) => {
            handler.finish(EventKind::ConnectError(CmError::StaleConnection));
        }
        Event::DisconnectRequest(connection, _) => handler.handle_disconnect_request(connection),
        Event::Unanswered(connection, begun) => handler.handle_unanswered(connection, begun),
        Event::Disconnected(_, how) => handler.finish(EventKind::Disconnected((&how).into())),
        Event::TimeWaitEnded(_) => handler.handle_timewait_exit(),
        Event::Resolved(_, resolution) => handler.handle_resolution(&resolution),
        Event::Unresolved(_) => handler.finish(EventKind::Unreachable(None)),
    }
}

/// A cm_id, and the link of the event.
struct Handler<'a> {
    connections: &'a Connections,
    transport: &'a dyn MadTransport,
    link: u8,
    id: &'a Arc<Shared>,
}

impl Handler<'_> {
    /// Locks the state, unless the program has dropped the cm_id. Events are raised under this lock, so none follows the
    /// drop.
    fn state(&self) -> Option<MutexGuard<'_, State>> {
        Some(lock(&self.id.state)).filter(|state| !state.closed)
    }

    fn act<T>(&self, act: impl FnOnce(&mut Manager, Instant) -> T) -> Option<T> {
        self.connections.act(self.transport, self.link, act)
    }

    /// The link of the event, which the cm_id listens on.
    fn listening_link(&self) -> Option<LocalLink> {
        let state = self.state()?;
        state.bound.iter().find(|bound| bound.is(self.connections, self.link)).cloned()
    }

    fn watch_peer(&self, connection: ConnectionId) {
        self.connections.watch_peer(self.transport, self.link, connection);
    }

    /// Returns the state of the new cm_id of a request.
    fn incoming_state(&self, from: Gid, service: ServiceId, port: u16) -> Option<State> {
        let local_link = self.listening_link()?;
        let mut local = local_link.address()?;
        local.set_port(split_service_id(service).map_or(0, |(_, port)| port));
        let mut peer = SocketAddr::new(from.to_ip(), port);
        if let (SocketAddr::V6(peer), SocketAddr::V6(local)) = (&mut peer, &local) {
            peer.set_scope_id(local.scope_id());
        }
        Some(State {
            stage: Stage::Requested,
            local_link: Some(local_link),
            local: Some(local),
            peer: Some(peer),
            service_id: service,
            ..State::default()
        })
    }

    /// Delivers a request to the listener.
    fn deliver_request(&self, id: CmId, parameters: PeerParameters, private_data: &[u8]) {
        let private_data = private_data.to_vec();
        let request = Box::new(Request { id, parameters, private_data });
        // Without a listener the request is dropped, and its cm_id rejects it.
        match self.state() {
            Some(_open) => self.id.raise(EventKind::ConnectRequest(request)),
            None => drop(request),
        }
    }

    fn handle_request(&self, connection: ConnectionId, request: &PeerRequest) {
        let data = &request.private_data.0;
        let (port, private_data) = match split_private_data(request.service_id, data) {
            Ok((header, rest)) => (header.source_port, rest),
            Err(_) => (0, &data[..]),
        };
        let device = self.transport.mtu();
        let path_mtu = || {
            let local_link = self.listening_link()?;
            let back = local_link.route_to(request.from).ok()?;
            local_link.context.path_mtu_to(back.destination).ok()
        };
        // Only a peer on this host can have a larger path MTU than the device.
        let ours = match request.path_mtu.bytes() > device.bytes() {
            true => path_mtu().unwrap_or(device),
            false => device,
        };
        if request.path_mtu.bytes() > ours.bytes() {
            // IBA 12.6.7.2, reason 26: the information is the largest path MTU that we support.
            let information = Information::padded(&[ours.0 << 4]).unwrap_or_default();
            let rejection = Rejection {
                information,
                information_length: 1,
                ..Rejection::new(RejectReason::INVALID_PATH_MTU)
            };
            self.act(|manager, now| manager.cm.reject(now, connection, &rejection));
            return;
        }
        let state = self.incoming_state(request.from, request.service_id, port);
        let Some(mut state) = state else {
            self.act(|manager, now| manager.drop_connection(now, connection));
            return;
        };
        state.negotiated = Negotiated::of_request(self.transport.source_index(self.link), request);
        state.negotiated.receive_psn = random_psn();
        state.path_mtu = request.path_mtu;
        state.traffic_class = request.path.traffic_class.0;
        let parameters = PeerParameters::of_request(request);
        state.service = Some(parameters.service);
        state.exchange = Exchange::Connection(connection);
        let id = CmId::with_state(self.id.channel(), self.id.space, state);
        self.act(|manager, _| {
            manager.connections.insert(connection, id.shared().handler());
        });
        self.deliver_request(id, parameters, private_data);
    }

    fn handle_query(&self, query: QueryId, request: &Query) {
        let data = &request.private_data.0;
        let (port, private_data) = match split_private_data(request.service_id, data) {
            Ok((header, rest)) => (header.source_port, rest),
            Err(_) => (0, &data[..]),
        };
        let Some(mut state) = self.incoming_state(request.from, request.service_id, port) else {
            self.act(|manager, _| manager.drop_query(query, SidrStatus::REJECTED));
            return;
        };
        let parameters = PeerParameters::datagram(ferroce_wire::number::Qpn(0));
        (state.exchange, state.service) = (Exchange::Query(query), Some(parameters.service));
        state.path_mtu = self.transport.mtu();
        let id = CmId::with_state(self.id.channel(), self.id.space, state);
        self.deliver_request(id, parameters, private_data);
    }

    fn handle_reply(&self, connection: ConnectionId, reply: &Reply) {
        let Some(mut state) = self.state() else { return };
        state.negotiated.learn(reply);
        let established = Box::new(Established {
            parameters: PeerParameters::of_reply(
                reply,
                state.service(),
                state.negotiated.retry_count,
            ),
            private_data: reply.private_data.0.to_vec(),
            datagram: None,
        });
        let Some(queue_pair) = &state.queue_pair else {
            state.stage = Stage::Responded;
            return self.id.raise(EventKind::ConnectResponse(established));
        };
        if let Err(error) = state.negotiated.bring_up(queue_pair) {
            attributes::fail(Some(queue_pair));
            let rejection = Rejection::new(RejectReason::NO_RESOURCES);
            self.act(|manager, now| {
                manager.connections.remove(&connection);
                manager.cm.reject(now, connection, &rejection)
            });
            (state.stage, state.exchange) = (Stage::Over, Exchange::Nothing);
            return self.id.raise(EventKind::ConnectError(error));
        }
        set_established(Some(queue_pair));
        // If the peer has given up, another event follows.
        let ready = self.act(|manager, _| manager.cm.ready(connection, RtuData::default()));
        if let Some(Ok(())) = ready {
            state.stage = Stage::Connected;
            self.id.raise(EventKind::Established(established));
            drop(state);
            self.watch_peer(connection);
        }
    }

    fn handle_established(&self, connection: ConnectionId) {
        self.watch_peer(connection);
        let Some(mut state) = self.state() else { return };
        set_established(state.queue_pair.as_ref());
        state.stage = Stage::Connected;
        let negotiated = &state.negotiated;
        let parameters = PeerParameters {
            queue_pair: negotiated.destination,
            responder_resources: negotiated.responder_resources,
            initiator_depth: negotiated.initiator_depth,
            retry_count: negotiated.retry_count,
            rnr_retry: negotiated.rnr_retry,
            service: state.service(),
            ..PeerParameters::datagram(negotiated.destination)
        };
        let private_data = Vec::new();
        let established = Established { parameters, private_data, datagram: None };
        self.id.raise(EventKind::Established(Box::new(established)));
    }

    fn handle_disconnect_request(&self, connection: ConnectionId) {
        if let Some(mut state) = self.state() {
            if let Some(queue_pair) = &state.queue_pair {
                queue_pair.end(&Reason::PeerDisconnected);
            }
            state.stage = Stage::Disconnecting;
        }
        self.act(|manager, now| {
            manager.cm.confirm_disconnect(now, connection, DrepData::default())
        });
    }

    /// Handles a probe without a response of the peer's connection manager. Data from the peer counts as a response, and so
    /// does a living process of this host.
    fn handle_unanswered(&self, connection: ConnectionId, begun: Instant) {
        let Some(number) = self.act(|manager, _| manager.cm.queue_pair(connection)).flatten()
        else {
            return;
        };
        let process = self.connections.peer_process(self.transport, self.link, connection);
        let processes = self.connections.processes(self.transport);
        if process.is_some_and(|name| processes.is_some_and(|all| all.is_alive(name))) {
            return; // The process is stopped or busy. Its exit would raise an event.
        }
        let local_link = self.state().and_then(|state| state.local_link.clone());
        let heard = local_link.and_then(|local_link| local_link.last_heard(number));
        self.act(|manager, now| {
            if heard.is_none_or(|heard| heard < begun) {
                let _ = manager.cm.peer_is_lost(now, connection, Loss::NoResponse);
            }
        });
    }

    /// Ends the connection with an event.
    fn finish(&self, kind: EventKind) {
        let Some(mut state) = self.state() else { return };
        if let Exchange::Connection(_) = state.exchange {
            attributes::fail(state.queue_pair.as_ref());
        }
        state.stage = Stage::Over;
        self.id.raise(kind);
    }

    fn handle_timewait_exit(&self) {
        let Some(mut state) = self.state() else { return };
        state.exchange = Exchange::Nothing;
        self.id.raise(EventKind::TimewaitExit);
    }

    fn handle_resolution(&self, resolution: &Resolution) {
        if resolution.status != SidrStatus::VALID {
            return self.finish(EventKind::Unreachable(Some(resolution.status)));
        }
        let Some(mut state) = self.state() else { return };
        let Some(peer) = state.peer else { return };
        let address = AddressVector {
            port: 1,
            source_index: self.transport.source_index(self.link),
            destination: Gid::from_ip(peer.ip()),
            traffic_class: state.traffic_class,
            flow_label: state.route.map_or(0, |route| route.flow_label),
            hop_limit: state.route.map_or(64, |route| route.hop_limit),
            ..AddressVector::default()
        };
        (state.stage, state.exchange) = (Stage::Connected, Exchange::Nothing);
        let (queue_pair, queue_key) = (resolution.qpn, resolution.q_key);
        self.id.raise(EventKind::Established(Box::new(Established {
            parameters: PeerParameters::datagram(queue_pair),
            private_data: resolution.private_data.0.to_vec(),
            datagram: Some(DatagramPeer { queue_pair, queue_key, address }),
        })));
    }
}
