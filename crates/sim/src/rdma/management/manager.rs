//! Connections by the connection manager (CM): REQ, REP and RTU, and DREQ at the end.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use ferroce_proto::cm::{
    AcceptParameters, Config, ConnectParameters, ConnectionId, ConnectionManager, Disconnection,
    DrepData, DreqData, Event, RejData, Rejection, RtuData, private_data, roce_path,
};
use ferroce_proto::time::Instant;
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{PathMtu, ResponseTimeout, ServiceId, Transport};
use ferroce_wire::number::{Guid, QKey, Qpn};

use super::{ConnectionState, Connections, OutgoingDatagram, QpControl};
use crate::rdma::frame::ReceivedPacket;
use crate::rdma::layout::qpn;
use crate::rdma::workload::Service;

/// The service ID of connection 0; the others follow.
const FIRST_SERVICE_ID: u64 = 0x1000;

/// 4 ms, so that messages are retransmitted as long as the faults of a scenario last.
const RESPONSE_TIMEOUT: ResponseTimeout = ResponseTimeout(10);

#[derive(Debug)]
pub(super) struct Manager {
    manager: ConnectionManager,
    /// The CM's connection ids, by index.
    ids: Vec<Option<ConnectionId>>,
}

fn gid(address: Ipv4Addr) -> Gid {
    Gid::from_ip(address.into())
}

impl Manager {
    pub(super) fn new(host: u64, seed: u64) -> Self {
        let config = Config::new(Guid(0x0200_00ff_fe00_0000 + host), seed);
        Self { manager: ConnectionManager::new(config), ids: Vec::new() }
    }

    pub(super) fn begin(
        &mut self,
        now: Instant,
        connections: &mut Connections,
        host: &dyn QpControl,
    ) {
        self.ids = vec![None; connections.list.len()];
        for (at, connection) in connections.list.iter().enumerate() {
            let one = &connection.spec;
            let service = ServiceId(FIRST_SERVICE_ID + one.connection as u64);
            if !one.active {
                // Each connection has its own service ID, so this cannot fail.
                let _ = self.manager.listen(service, 1);
                continue;
            }
            let path = roce_path(gid(host.address()), gid(one.peer), 0);
            let parameters = ConnectParameters {
                transport: match one.service {
                    Service::Unreliable => Transport::Uc,
                    Service::Extended => Transport::Xrc,
                    _ => Transport::Rc,
                },
                path_mtu: PathMtu::from_bytes(usize::from(one.mtu)).unwrap_or_default(),
                responder_resources: 8,
                initiator_depth: 8,
                local_response_timeout: RESPONSE_TIMEOUT,
                remote_response_timeout: RESPONSE_TIMEOUT,
                private_data: private_data(&one.private).unwrap_or_default(),
                ..ConnectParameters::new(service, qpn(one.endpoint), one.psn, path)
            };
            self.ids[at] = self.manager.connect(now, &parameters).ok();
        }
    }

    pub(super) fn handle(&mut self, now: Instant, received: &ReceivedPacket<'_>) {
        let keyed = received
            .packet
            .extensions
            .deth
            .is_some_and(|deth| deth.queue_key == QKey::GENERAL_SERVICES);
        if keyed {
            let from = gid(Ipv4Addr::from(received.ip.source.0));
            // Errors are late or duplicate messages, which are ignored.
            let _ = self.manager.handle_mad(now, from, received.packet.payload);
        }
    }

    pub(super) fn data_received(&mut self, connection: usize) {
        if let Some(id) = self.ids[connection] {
            // An error means that the connection is already established.
            let _ = self.manager.handle_data_received(id);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.manager.poll_timeout().is_some_and(|time| time <= now) {
            self.manager.handle_timeout(now);
        }
    }

    pub(super) fn disconnect(&mut self, now: Instant, connections: &Connections) {
        for (connection, id) in connections.list.iter().zip(&self.ids) {
            if let (true, ConnectionState::Established, Some(id)) =
                (connection.spec.active, connection.state, id)
            {
                // An error means that it is already disconnected.
                let _ = self.manager.disconnect(now, *id, DreqData::default());
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.manager.poll_timeout()
    }

    pub(super) fn drain(
        &mut self,
        now: Instant,
        connections: &mut Connections,
        host: &mut dyn QpControl,
        outgoing: &mut VecDeque<OutgoingDatagram>,
    ) {
        while let Some(event) = self.manager.poll_event() {
            self.consume(now, event, connections, host);
        }
        while let Some(transmit) = self.manager.poll_transmit() {
            let IpAddr::V4(to) = transmit.destination.to_ip() else { continue };
            outgoing.push_back(OutgoingDatagram {
                to,
                destination: Qpn::GENERAL_SERVICES,
                source: Qpn::GENERAL_SERVICES,
                queue_key: QKey::GENERAL_SERVICES,
                payload: transmit.to_mad().to_vec(),
            });
        }
    }

    fn consume(
        &mut self,
        now: Instant,
        event: Event,
        connections: &mut Connections,
        host: &mut dyn QpControl,
    ) {
        let find = |id| self.ids.iter().position(|one| *one == Some(id));
        match event {
            Event::Request(id, request) => {
                let number_of = |connection: &super::ManagedConnection| {
                    FIRST_SERVICE_ID + connection.spec.connection as u64
                };
                let connection = connections.list.iter().position(|connection| {
                    number_of(connection) == request.service_id.0
                        && connection.state == ConnectionState::Pending
                });
                let Some(connection) = connection else {
                    // A stale request: the connection was established before, or failed.
                    let rejection = Rejection::by_consumer(RejData::default());
                    let _ = self.manager.reject(now, id, &rejection);
                    return;
                };
                self.ids[connection] = Some(id);
                let one = connections.list[connection].spec;
                if request.private_data[..32] != one.expected {
                    connections.report(connection, "the REQ has wrong private data");
                }
                let mtu = request.path_mtu.bytes();
                connections.set_peer(
                    connection,
                    request.remote_qpn,
                    request.starting_psn,
                    mtu,
                    host,
                );
                // The QP is ready before the REP is sent, as in Linux: the first packet may overtake the RTU.
                host.open(now, one.endpoint);
                let parameters = AcceptParameters {
                    responder_resources: 8,
                    initiator_depth: 8,
                    private_data: private_data(&one.private).unwrap_or_default(),
                    ..AcceptParameters::new(qpn(one.endpoint), one.psn)
                };
                let _ = self.manager.accept(now, id, &parameters);
            }
            Event::Reply(id, reply) => {
                let Some(connection) = find(id) else { return };
                let one = connections.list[connection].spec;
                if reply.private_data[..32] != one.expected {
                    connections.report(connection, "the REP has wrong private data");
                }
                connections.set_peer(connection, reply.remote_qpn, reply.starting_psn, None, host);
                host.open(now, one.endpoint);
                if self.manager.ready(id, RtuData::default()).is_ok() {
                    connections.established(now, connection, host);
                }
            }
            Event::Established(id, _) => {
                if let Some(connection) = find(id) {
                    connections.established(now, connection, host);
                }
            }
            Event::DisconnectRequest(id, _) => {
                let _ = self.manager.confirm_disconnect(now, id, DrepData::default());
            }
            Event::Rejected(id, _) | Event::Failed(id, _) => {
                find(id)
                    .into_iter()
                    .for_each(|connection| connections.closed(connection, true, host));
            }
            Event::Disconnected(id, how) => {
                let confirmed = how != Disconnection::Unconfirmed;
                find(id)
                    .into_iter()
                    .for_each(|connection| connections.closed(connection, confirmed, host));
            }
            _ => {}
        }
    }
}
